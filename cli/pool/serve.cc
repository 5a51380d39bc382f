// SPDX-License-Identifier: Apache-2.0
// `tendril pool serve`: runs a pool's scheduler in the foreground until SIGINT or SIGTERM.
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/pool/foreground.h"
#include "cli/pool/manager.h"
#include "config/quantity.h"
#include "reception/log.h"
#include "scheduler/service.h"

namespace tendril::cli {

int pool_serve(const PoolServeOptions& options) {
  Foreground foreground(options.verbose, options.quiet);
  Manager manager;
  scheduler::ServiceOptions wanted;
  wanted.front.listen = options.listen;
  wanted.front.port = options.port;
  wanted.front.port_file = options.port_file;
  wanted.front.unix_paths = options.unix_paths;
  wanted.front.token_file = options.token_file;
  wanted.front.identity_folder = options.identity;
  wanted.front.pool = options.pool_name;
  wanted.front.providers_file = options.providers;
  wanted.front.policy_file = options.access_policy;
  wanted.front.audit_file = options.audit_log;
  wanted.front.sockets = options.sockets;
  wanted.front.connections_max = options.connections_max;
  wanted.store = options.store;
  wanted.policy_file = options.policy;
  wanted.name = options.name;
  wanted.advertise = options.advertise;
  wanted.metrics = options.metrics;
  wanted.metrics_token_file = options.metrics_token;
  wanted.page = options.page;
  wanted.product_version = version_text();
  const auto keep_s = config::parse_duration(options.keep_leases);
  if (!keep_s.ok()) {
    return complain(kUsage, base::Status(keep_s.status().code(),
                                         "--keep-leases: " + keep_s.status().message()));
  }
  wanted.timing.keep_leases_s = keep_s.value();
  auto service = scheduler::Service::start(std::move(wanted));
  if (!service.ok()) {
    return complain(service.status().code() == base::Code::kInvalid ? kUsage : kFailed,
                    service.status());
  }
  const std::string addresses = joined((*service)->addresses());
  reception::log(reception::Level::kInfo, "tendril %s serves a pool on %s", version_text(),
                 addresses.c_str());
  manager.ready("serves a pool on " + addresses, [] { return true; });
  foreground.on_reload([&service, &manager] {
    manager.reloading();
    const base::Status ignored = (*service)->reload();  // it has written the reason to the log
    (void)ignored;
    manager.reloaded();
  });
  (*service)->serve(foreground.stop());
  manager.stopping();
  foreground.end_reloads();
  reception::log(reception::Level::kInfo, "ended");
  return 0;
}

}  // namespace tendril::cli
