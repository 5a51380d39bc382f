// SPDX-License-Identifier: Apache-2.0
// Takes leases for a program: turns -n, -p and -m into a request and spreads its slices over
// servers. Used by run.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/commands.h"
#include "config/configuration.h"
#include "session/control/attach.h"

namespace tendril::cli {

// Neither -p nor -m: a whole GPU.
base::Result<wire::SliceSpec> slice_spec(const SliceOptions& options);
wire::LeaseTerms lease_terms(const SliceOptions& options);
// What the options and the environment ask of a pool.
base::Result<config::PoolSettings> pool_settings(const PoolOptions& options);

struct TakenLease {
  session::Endpoint endpoint;
  std::unique_ptr<session::Control> control;  // the lease lives while this does
  wire::LeaseReply lease;
  bool lends_opencl = false;  // its server is known to
};

// The first endpoint that answers, and what the ones before it said instead.
struct Met {
  std::unique_ptr<session::Control> control;  // null: none answers
  size_t at = 0;
  std::vector<base::Status> silent;

  bool is_pool() const { return control != nullptr && !control->server_hello().pool.empty(); }
};
Met meet_first(const std::vector<session::Endpoint>& endpoints,
               const session::ConnectOptions& connect);

// `count` 0: one slice from each server. Otherwise `count` slices in all: the first server gives as
// many as it can, then the next. All or nothing: a failure gives back every lease taken so far.
// `met`: what meet_first said of these endpoints.
base::Result<std::vector<TakenLease>> take_leases(const std::vector<session::Endpoint>& endpoints,
                                                  const session::ConnectOptions& connect,
                                                  uint32_t count, const wire::LeaseRequest& request,
                                                  Met met);

// "<endpoint>=<lease_id>:<secret hex>", comma separated, in device order. It is the value of
// TENDRIL_LEASES for the client library.
std::string leases_text(const std::vector<TakenLease>& leases);
std::string servers_text(const std::vector<session::Endpoint>& endpoints);

}  // namespace tendril::cli
