// SPDX-License-Identifier: Apache-2.0
// The options of `tendril serve`, and those that `tendril pool serve` shares with it.
#include "cli/command_line.h"

namespace tendril::cli {

void CommandLine::add_serve() {
  CLI::App* const sub = command("serve", "Lend this machine's GPUs (the daemon, in the foreground)",
                                [this] { return serve(serve_options_); });
  ServeOptions& o = serve_options_;
  sub->add_option("--listen", o.listen,
                  "Address to listen on; repeatable (default 127.0.0.1). Other hosts' users prove "
                  "themselves with identities, or with a token if there is one")
      ->type_name("ADDR[:PORT]")
      ->allow_extra_args(false);
  sub->add_option("--port", o.port, "Port; 0: any free one")->capture_default_str();
  sub->add_option("--port-file", o.port_file, "Write the port here when ready")->type_name("FILE");
  sub->add_option("--unix", o.unix_paths, "Also listen on this unix socket; repeatable")
      ->type_name("PATH")
      ->allow_extra_args(false);
  sub->add_option("--token-file", o.token_file,
                  "Secret that clients must know (or TENDRIL_TOKEN_FILE, TENDRIL_TOKEN)")
      ->type_name("FILE");
  add_serve_identity(sub);
  add_serve_drivers(sub);
  sub->add_option("--worker-user", o.worker_user,
                  "Users that workers run as: auto, none, or the first of a range of ids")
      ->capture_default_str();
  sub->add_option("--warm", o.warm, "Idle workers kept ready per GPU")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  sub->add_option("--warm-max", o.warm_max, "Idle workers kept ready in all")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  sub->add_option("--warm-spare", o.warm_spare,
                  "More of them per GPU, in memory that nobody was promised")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  sub->add_option("--workers-max", o.workers_max, "Worker processes at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  sub->add_option("--connections-max", o.connections_max, "Control connections at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  sub->add_option("--images", o.images,
                  "Folder that keeps device code which clients sent, or 'off' (default: in this "
                  "user's cache)")
      ->type_name("FOLDER");
  sub->add_option("--packed-control", o.packed_control,
                  "Control program of the multi-process service (default: nvidia-cuda-mps-control)")
      ->type_name("FILE");
  sub->add_option(
         "--nccl", o.nccl,
         "NCCL library, or a folder of them, for programs on several servers (default: none)")
      ->type_name("FILE|FOLDER");
  sub->add_option("--context-memory", o.context_memory,
                  "What an empty context costs on the GPU (default: as measured)")
      ->type_name("SIZE");
  sub->add_option("--code-memory", o.code_memory,
                  "Kept back of each process' memory for its code and the driver's objects "
                  "(default: a quarter of "
                  "--context-memory)")
      ->type_name("SIZE");
  sub->add_flag("--allow-pageable-access", o.allow_pageable_access,
                "Lend GPUs to others whose kernels reach all memory of their process (HMM, ATS)");
  add_serve_isolation(sub);
  add_serve_access(sub);
  add_serve_switches(sub);
  add_serve_pool(sub);
}

void CommandLine::add_serve_drivers(CLI::App* sub) {
  ServeOptions& o = serve_options_;
  sub->add_option("--monitor", o.monitor,
                  "Monitoring library (default: the system's libnvidia-ml.so.1)")
      ->type_name("LIBRARY");
  sub->add_flag("--opencl", o.opencl,
                "Lend every device of every OpenCL platform instead of CUDA's GPUs");
  sub->add_option("--driver", o.driver,
                  "Driver library (default: the system's libcuda.so.1, or libOpenCL.so.1)")
      ->type_name("LIBRARY");
  sub->add_option("--worker", o.worker, "Worker executable (default: beside this one)")
      ->type_name("FILE");
}

void CommandLine::add_serve_parking(CLI::App* sub) {
  ServeOptions& o = serve_options_;
  sub->add_option("--park-memory", o.park_memory,
                  "Host memory for the GPU memory of parked leases, or 'off' (default: half of "
                  "this machine's)")
      ->type_name("SIZE");
  sub->add_option("--park-file", o.park_file,
                  "Folder for files of parked leases that host memory has no room for, encrypted "
                  "(default: none)")
      ->type_name("FOLDER");
  sub->add_option("--park-file-size", o.park_file_size, "Of all these files together")
      ->type_name("SIZE");
  sub->add_option("--park-idle", o.park_idle,
                  "Park a lease that did nothing for so long (default: never)")
      ->type_name("DURATION");
}

void CommandLine::add_serve_pool(CLI::App* sub) {
  ServeOptions& o = serve_options_;
  sub->add_option("--pool", o.pools,
                  "Lend for a pool: the addresses of its schedulers, with commas between them")
      ->type_name("HOST[:PORT],...")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("--peers", o.peers,
                  "File that names other servers, one a line, between which and this one GPUs' "
                  "copies go directly, beside those of the pool (default: none)")
      ->type_name("FILE");
  sub->add_option("--pool-peers", o.pool_peers,
                  "Whether copies go directly to the pool's other servers, too: on or off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  sub->add_option("--name", o.name,
                  "This server's name in its pool, if no certificate says it (default: this "
                  "host's)")
      ->type_name("NAME");
  sub->add_option("--advertise", o.advertise,
                  "Where the pool's clients reach this server (default: this host's name and the "
                  "port)")
      ->type_name("HOST[:PORT]");
  sub->add_option("--label", o.labels, "A label that filters of requests can name; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  sub->add_option("--drain", o.drain,
                  "After SIGTERM: take no new leases, and wait this long for the others to end. A "
                  "second signal ends them at once (default: 0)")
      ->type_name("DURATION");
}

void CommandLine::add_serve_isolation(CLI::App* sub) {
  ServeOptions& o = serve_options_;
  sub->add_flag("--weak-isolation", o.weak_isolation,
                "Serve even if workers cannot be kept from each other and from this user's files");
  sub->add_option("--cgroup", o.cgroup,
                  "Bound what leases take of this machine: auto, off, or a cgroup's folder")
      ->capture_default_str();
  sub->add_option("--filter", o.filter,
                  "File with system calls that the driver needs beyond those on Tendril's lists")
      ->type_name("FILE");
  sub->add_option("--images-per-user", o.images_per_user,
                  "Disk for the device code of one user (default: a quarter of all)")
      ->type_name("SIZE");
  sub->add_option("--known-images", o.known_images,
                  "File with hashes of device code that all users share")
      ->type_name("FILE");
  sub->add_option("--learn-filter", o.learn_filter,
                  "Deny workers no system call; write those that are on no list to this file")
      ->type_name("FILE");
}

void CommandLine::add_serve_access(CLI::App* sub) {
  ServeOptions& o = serve_options_;
  sub->add_option("--policy", o.policy,
                  "Who may do what: limits, users of this host, sealing (docs/access.md); read "
                  "again on SIGHUP")
      ->type_name("FILE");
  sub->add_option("--audit-log", o.audit_log,
                  "Append who did what to this file; auto: tendril/audit.log below /var/log or the "
                  "user's state, if the server has a token or a CA; off")
      ->type_name("FILE")
      ->capture_default_str();
  sub->add_option("--sockets", o.sockets,
                  "Folder of the unix sockets for administrators and users of this host; auto: "
                  "below /run/tendril or XDG_RUNTIME_DIR; off")
      ->type_name("FOLDER")
      ->capture_default_str();
  sub->add_option("--encrypt", o.encrypt,
                  "Seal the data of sessions: always, untrusted (unless the network is trusted) or "
                  "never (default: untrusted)")
      ->type_name("WHEN");
  sub->add_option("--trusted-network", o.trusted_networks,
                  "A network in which data need not be sealed; repeatable")
      ->type_name("NETWORK")
      ->allow_extra_args(false);
  sub->add_option("--data-interface", o.data_interfaces,
                  "Network interfaces of NCCL and of copies between servers, with commas")
      ->type_name("NAMES");
  sub->add_option("--rdma", o.rdma,
                  "Cards that may carry data that are not sealed: any, off, or names and ports "
                  "(mlx5_0,mlx5_1:2); auto: any, if a network is trusted")
      ->type_name("CARDS")
      ->capture_default_str();
  sub->add_option(
         "--gpudirect", o.gpudirect,
         "Whether those cards copy from and to the GPUs' memory by themselves: auto, where "
         "a trial shows that it works and is not slower; on, where it works; off "
         "(TENDRIL_GPUDIRECT; default: auto)")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"auto", "on", "off"}));
}

void CommandLine::add_serve_identity(CLI::App* sub) {
  ServeOptions& o = serve_options_;
  add_config_option(sub);
  sub->add_option("--identity", o.identity,
                  "Folder with this server's identity, made if it is not there (or "
                  "TENDRIL_IDENTITY; default: tendril/identity in this user's configuration)")
      ->type_name("FOLDER");
  sub->add_option("--pool-name", o.pool_name,
                  "Name of the pool whose authority is made here (default: this host's)")
      ->type_name("NAME");
  sub->add_option("--providers", o.providers, "File with the identity providers to accept")
      ->type_name("FILE");
}

// main reads the file before the parser sees the words.
void CommandLine::add_config_option(CLI::App* sub) {
  sub->add_option("--config", config_path_,
                  "File with options, as TOML; the command's words come first")
      ->type_name("FILE");
}

void CommandLine::add_page(CLI::App* sub, std::string* address) {
  sub->add_option("--page", *address,
                  "Show the page at this address; other hosts reach it inside TLS only")
      ->type_name("HOST:PORT");
}

void CommandLine::add_metrics(CLI::App* sub, std::string* address, std::string* token_file) {
  sub->add_option("--metrics", *address,
                  "Serve metrics over HTTP (Prometheus text) at this address")
      ->type_name("HOST:PORT");
  sub->add_option("--metrics-token", *token_file,
                  "Secret that readers of metrics must say; needed beyond loopback")
      ->type_name("FILE");
}

void CommandLine::add_serve_switches(CLI::App* sub) {
  add_serve_parking(sub);
  ServeOptions& o = serve_options_;
  add_metrics(sub, &o.metrics, &o.metrics_token);
  add_page(sub, &o.page);
  sub->add_option("--outage", o.outage,
                  "How long a cut of the network to a client may last before its GPUs are given "
                  "back (default: 30s, off: any cut ends a session)")
      ->type_name("DURATION");
  sub->add_flag("--metrics-dcgm", o.metrics_dcgm,
                "Metrics of GPUs also under the names of NVIDIA's exporter (DCGM_FI_...)");
  sub->add_option("--hardware-slices", o.hardware_slices,
                  "Whether workers set the GPU's own time slices by their shares: auto or off")
      ->check(CLI::IsMember({"auto", "off"}))
      ->capture_default_str();
  sub->add_option("--turns", o.turns,
                  "Whether tenants have turns of a GPU that they share: on, or off for comparisons")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  sub->add_flag("-v,--verbose", o.verbose, "Log more");
  sub->add_flag("-q,--quiet", o.quiet, "Log warnings and errors only");
}

}  // namespace tendril::cli
