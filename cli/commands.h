// SPDX-License-Identifier: Apache-2.0
// The subcommands of `tendril`: their options, which main.cc fills in from the command line, and
// the functions that run them and return the exit status. 0: done, 1: failed, 2: wrong usage. `run`
// answers like other launchers. 125: no lease. 126: the program cannot be executed. 127: it was not
// found. Otherwise the program's own status, or 128 plus the signal that killed it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tendril::cli {

inline constexpr int kFailed = 1, kUsage = 2, kNoLease = 125, kCannotExecute = 126, kNotFound = 127;

struct CommonOptions {
  std::vector<std::string> servers;
  std::string token_file;
  int timeout_ms = 5000;
  bool json = false;
};

// Of commands whose picture may be shown again and again (cli/live/live.h).
struct WatchOptions : CommonOptions {
  bool watch = false;
  bool wide = false;
  std::vector<std::string> filters;  // cli/live/filter.h
  double interval_s = 2;
};

struct SliceOptions {
  uint32_t count = 0;  // 0: not given
  std::string share, memory;
  bool packed = false;
  bool capped = false;
  int priority = 0;
};

// What is asked of a pool (config/pool_settings.h). Empty: as the environment says.
struct PoolOptions {
  std::string filter, user_class, account, longest, wait;
  bool one_server = false, pack = false, spread = false;
};

struct RunOptions : CommonOptions {
  SliceOptions slice;
  PoolOptions pool;
  std::string signal, events, outage;
  uint32_t local = 0;  // slices of this machine
  bool requeue = false;
  bool verbose = false;
  bool no_progress = false;
  bool opencl = false;
  std::vector<std::string> program;
};

struct ChangeOptions : CommonOptions {
  uint64_t lease_id = 0;
  std::string share, memory;
  bool cap = false, lend = false;
  std::optional<int> priority;
};

struct ParkOptions : CommonOptions {
  uint64_t lease_id = 0;
};

struct HoldOptions : CommonOptions {
  int descriptor = -1;
};

struct EnvOptions : CommonOptions {
  SliceOptions slice;
  PoolOptions pool;
  bool docker = false, show_token = false, opencl = false;
  std::vector<std::string> program;  // a container's command
};

struct CdiOptions : EnvOptions {
  std::vector<std::string> devices;  // "half=0.5"; none: the usual ones
  std::string output;
};

struct JupyterOptions : EnvOptions {
  std::string name = "tendril", display_name, python, prefix;
};

struct InstallOptions {
  std::string root;  // of another system; empty: of this one
  bool undo = false;
};

struct ServeOptions {
  std::vector<std::string> listen, unix_paths, trusted_networks;
  std::string rdma = "auto", gpudirect, data_interfaces;
  std::string encrypt;
  uint16_t port = 7433;
  std::string identity, pool_name, providers;
  std::vector<std::string> pools, labels;
  std::string name, advertise, drain = "0", pool_peers = "on";
  std::string port_file, token_file, driver, monitor, worker, worker_user = "auto", context_memory;
  std::string park_memory = "auto", park_idle, park_file, park_file_size, outage;
  std::string code_memory, packed_control, nccl, peers, filter, learn_filter, cgroup = "auto";
  std::string images, images_per_user, known_images;
  std::string policy, audit_log = "auto", sockets = "auto";
  std::string hardware_slices = "auto", turns = "on", metrics, metrics_token, page;
  bool metrics_dcgm = false;
  uint32_t warm = 1, warm_max = 4, warm_spare = 0, workers_max = 1024, connections_max = 4096;
  bool verbose = false, quiet = false, weak_isolation = false, allow_pageable_access = false;
  bool opencl = false;
};

struct PoolServeOptions {
  std::vector<std::string> listen, unix_paths;
  uint16_t port = 7433;
  std::string port_file, token_file, identity, pool_name, providers, access_policy;
  std::string audit_log = "auto", sockets = "auto";
  std::string store, policy, name, advertise;
  std::string metrics, metrics_token, page, keep_leases = "90d";
  uint32_t connections_max = 16'384;
  bool verbose = false, quiet = false;
};

// A verb of pool/scheduler with its arguments; `file` is its body.
struct PoolCommandOptions : WatchOptions {
  std::string verb, file;
  std::vector<std::string> arguments;
  bool dry_run = false;
};

struct TopOptions : CommonOptions {
  bool once = false;
  bool wide = false;
  std::vector<std::string> filters;  // cli/live/filter.h
  std::string sort;                  // as view::sort_sessions
  double interval_s = 1;
};

struct DoctorOptions : CommonOptions {
  bool no_attach = false;
};

struct BenchOptions : CommonOptions {
  std::string native, share, plot;
  bool quick = false;
  bool endpoints = false;            // only those
  std::vector<std::string> compare;  // two files, or none
};

struct PlanOptions {
  std::vector<std::string> files;
  std::string format = "text", wait = "10m", idle = "5m", assume_active;
  std::vector<double> cards_gb = {48, 80, 141};
  bool parked = false;                 // the waits of parked leases instead of the ladder
  std::vector<uint32_t> parked_cards;  // so many; empty: the fewest, and a few numbers
  double link_gb_per_s = 50;
  double turn_s = 0;     // 0: who works keeps its place
  bool network = false;  // bounds of one program's run on other networks instead
  std::vector<double> gigabits = {1, 10, 25, 100}, delays_us = {20, 100, 1000};
};

struct ObserveOptions {
  std::string file, library, keep = "90d", period;
  bool live = false;
};

int serve(const ServeOptions& options);
int pool_serve(const PoolServeOptions& options);
int pool_command(const PoolCommandOptions& options);
int run(const RunOptions& options);
int print_environment(const EnvOptions& options);
int generate_cdi(const CdiOptions& options);
int install_kernel(const JupyterOptions& options);
int install_client(const InstallOptions& options);
int list_leases(const WatchOptions& options);
int show_gpus(const WatchOptions& options);
int top(const TopOptions& options);
int show_page(const CommonOptions& options);
int doctor(const DoctorOptions& options);
// The child of `doctor` that loads the client library; prints one line of figures.
int doctor_measure(const std::string& library);
int bench(const BenchOptions& options);
int plan_gpus(const PlanOptions& options);
int observe_gpus(const ObserveOptions& options);
struct ReportOptions : CommonOptions {
  std::string by = "account", from = "7d", to = "now", format = "table";
};
int report_use(const ReportOptions& options);
// Ends each of them that it can; names those that it cannot.
int release_leases(const CommonOptions& options, const std::vector<uint64_t>& lease_ids);
int change_lease(const ChangeOptions& options);
int park_lease(const ParkOptions& options);
int wake_lease(const ParkOptions& options);
int hold_lease(const HoldOptions& options);
// For completion scripts: what there is now, a line for each, in a second at most. No server, no
// complaint. `what`: "leases" or "servers".
int print_known(const CommonOptions& options, const std::string& what);
int print_version(bool json);
int print_coverage();

const char* version_text();  // "0.1.0"
inline constexpr char kApiName[] = "cuda";
inline constexpr char kOpenclName[] = "opencl";
uint64_t schema_digest();     // of this build's description of CUDA's calls
uint64_t opencl_digest();     // and of OpenCL's
const char* coverage_text();  // the generated report, or a placeholder

}  // namespace tendril::cli
