// SPDX-License-Identifier: Apache-2.0
// `tendril serve` (also called as `tendrild`): runs the daemon in the foreground until SIGINT or
// SIGTERM.
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/pool/foreground.h"
#include "cli/pool/manager.h"
#include "config/configuration.h"
#include "config/quantity.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "view/text.h"

namespace tendril::cli {
namespace {

constexpr int kAnswerMs = 5000;  // of the daemon to the watchdog

// Workers start in another directory, perhaps as another user. So a file is given by its full path.
// A bare soname stays as it is.
std::string library_path(const std::string& asked) {
  char resolved[PATH_MAX];
  if (asked.find('/') == std::string::npos || realpath(asked.c_str(), resolved) == nullptr)
    return asked;
  return resolved;
}

// An empty text leaves *bytes as it is.
base::Status read_size(const std::string& text, int64_t* bytes) {
  if (text.empty()) return base::Status();
  if (text == "0") {
    *bytes = 0;
    return base::Status();
  }
  auto size = config::parse_size(text);
  if (size.ok()) *bytes = static_cast<int64_t>(*size);
  return size.status();
}

base::Status read_parking(const ServeOptions& options, daemon::DaemonOptions* out) {
  if (!options.park_idle.empty()) {
    auto idle = config::parse_duration(options.park_idle);
    if (!idle.ok()) return idle.status();
    out->park_idle_s = *idle;
  }
  if (options.park_file.empty() != options.park_file_size.empty()) {
    return base::Status(base::Code::kInvalid,
                        "--park-file and --park-file-size belong together: a folder, and how much "
                        "of its disk parked leases may take");
  }
  if (!options.park_file.empty()) {
    auto size = config::parse_size(options.park_file_size);
    if (!size.ok()) return size.status();
    if (::access(options.park_file.c_str(), W_OK | X_OK) != 0) {
      const std::string what = "--park-file " + options.park_file + ": no file can be made there";
      return base::errno_status(base::Code::kInvalid, what.c_str(), errno);
    }
    out->park_folder = options.park_file;
    out->park_file_bytes = *size;
  }
  if (options.park_memory == "auto") return base::Status();
  return read_size(options.park_memory == "off" ? "0" : options.park_memory, &out->park_bytes);
}

base::Result<daemon::DaemonOptions> daemon_options(const ServeOptions& options) {
  daemon::DaemonOptions out;
  out.listen = options.listen;
  out.port = options.port;
  out.port_file = options.port_file;
  out.unix_paths = options.unix_paths;
  out.token_file = options.token_file;
  out.identity_folder = options.identity;
  out.pool_name = options.pool_name;
  out.providers_file = options.providers;
  out.member = {options.pools, options.name, options.advertise, options.labels,
                options.pool_peers != "off"};
  out.peers_file = options.peers;
  out.isolation = {options.worker_user, options.weak_isolation};
  out.policy_file = options.policy;
  out.audit_file = options.audit_log;
  out.sockets = options.sockets;
  out.encrypt = options.encrypt;
  out.trusted_networks = options.trusted_networks;
  out.rdma = options.rdma;
  out.gpudirect = options.gpudirect;
  out.data_interfaces = options.data_interfaces;
  out.worker.executable = options.worker;
  out.worker.api = options.opencl ? kOpenclName : kApiName;
  out.worker.compiles = options.opencl;
  out.worker.driver = library_path(options.driver);
  out.worker.monitor = library_path(options.monitor);
  out.worker.nccl_place = options.nccl.empty() ? "" : library_path(options.nccl);
  out.worker.warm_per_gpu = options.warm;
  out.worker.warm_total_max = options.warm_max;
  out.worker.warm_spare = options.warm_spare;
  out.worker.workers_max = options.workers_max;
  out.images.folder = options.images;
  out.images.known = options.known_images;
  out.learn_filter = options.learn_filter;
  out.cgroup = options.cgroup;
  out.worker.calls = options.filter.empty() ? "" : library_path(options.filter);
  out.packed_control = options.packed_control;
  out.connections_max = options.connections_max;
  out.allow_pageable_access = options.allow_pageable_access;
  out.metrics = options.metrics;
  out.metrics_dcgm = options.metrics_dcgm;
  out.metrics_token_file = options.metrics_token;
  out.page = options.page;
  out.sharing.hardware_slices = options.hardware_slices != "off";
  out.sharing.turns = options.turns != "off";
  out.product_version = version_text();
  base::Status read = read_size(options.context_memory, &out.context_bytes);
  if (read.ok()) read = read_size(options.code_memory, &out.code_bytes);
  if (read.ok()) read = read_parking(options, &out);
  const auto outage = config::read_outage({"--outage", options.outage});
  if (!outage.ok()) return outage.status();
  out.outage_ms = outage.value();
  int64_t images_per_user = 0;
  if (read.ok()) read = read_size(options.images_per_user, &images_per_user);
  out.images.bytes_per_owner_max = static_cast<uint64_t>(images_per_user);
  if (!read.ok()) return read;
  return out;
}

// Ends the daemon's serving by `stop`. The first SIGTERM only drains, if there is time for that:
// then the daemon ends when nobody holds a lease, or the time is over, or another signal comes.
void end_on(int ends, int over, int stop, uint64_t drain_s, daemon::Daemon* daemon) {
  pollfd waits[] = {{ends, POLLIN, 0}, {over, POLLIN, 0}};
  bool draining = false;
  base::Deadline deadline(-1);
  for (;;) {
    poll(waits, 2, draining ? 200 : -1);
    if (waits[1].revents != 0) return;
    signalfd_siginfo signal = {};
    const bool came = waits[0].revents != 0 && read(ends, &signal, sizeof signal) == sizeof signal;
    if (came && !draining && drain_s != 0 && signal.ssi_signo == SIGTERM) {
      draining = true;
      deadline = base::Deadline(static_cast<int>(std::min<uint64_t>(drain_s, 1u << 20) * 1000));
      daemon::log(
          daemon::Level::kInfo,
          "takes no new leases, and ends when the others have ended, in %s at the latest; a "
          "second signal ends it at once",
          config::format_duration(drain_s).c_str());
      daemon->drain();
    } else if (came || (draining && (deadline.passed() || daemon->is_empty()))) {
      eventfd_write(stop, 1);
      return;
    }
  }
}

}  // namespace

int serve(const ServeOptions& options) {
  Foreground foreground(options.verbose, options.quiet);
  Manager manager;
  auto wanted = daemon_options(options);
  if (!wanted.ok()) return complain(kUsage, wanted.status());
  const auto drain_s = config::parse_duration(options.drain);
  if (!drain_s.ok()) return complain(kUsage, drain_s.status());
  auto daemon = daemon::Daemon::start(wanted.take());
  if (!daemon.ok()) {
    return complain(daemon.status().code() == base::Code::kInvalid ? kUsage : kFailed,
                    daemon.status());
  }
  const std::string addresses = joined((*daemon)->addresses());
  daemon::log(daemon::Level::kInfo, "tendril %s lends %zu GPUs on %s", version_text(),
              (*daemon)->inventory().devices.size(), addresses.c_str());
  const base::Fd over(eventfd(0, EFD_CLOEXEC)), stop(eventfd(0, EFD_CLOEXEC));
  manager.ready(
      "lends " + view::counted((*daemon)->inventory().devices.size(), "GPU") + " on " + addresses,
      [&daemon] { return (*daemon)->answers(kAnswerMs); });
  foreground.on_reload([&daemon, &manager] {
    manager.reloading();
    const base::Status ignored = (*daemon)->reload();  // it has written the reason to the log
    (void)ignored;
    manager.reloaded();
  });
  std::thread ender(
      [&] { end_on(foreground.stop(), over.get(), stop.get(), drain_s.value(), daemon->get()); });
  (*daemon)->serve(stop.get());
  manager.stopping();
  eventfd_write(over.get(), 1);
  foreground.end_reloads();
  ender.join();
  daemon::log(daemon::Level::kInfo, "ended");
  return 0;
}

}  // namespace tendril::cli
