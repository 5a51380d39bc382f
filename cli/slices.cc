// SPDX-License-Identifier: Apache-2.0
// See slices.h.
#include "cli/slices.h"

#include <algorithm>

#include "base/text.h"
#include "config/configuration.h"
#include "lease/placement.h"
#include "wire/assignment.h"

namespace tendril::cli {
namespace {

using base::Code;
using base::Status;

// Takes slices from one server after another and keeps the leases.
class Taking {
 public:
  Taking(const session::ConnectOptions& connect, const wire::LeaseRequest& request)
      : connect_(connect), request_(request) {}

  // Takes `count` slices from this server, or none.
  Status ask(const session::Endpoint& endpoint, uint32_t count) {
    if (control_ == nullptr || endpoint_.text != endpoint.text) {
      const Status met = meet(endpoint);
      if (!met.ok()) return met;
    }
    // No server can give more slices than it has GPUs, so do not ask.
    if (count > std::max<size_t>(gpus_, 1)) return Status(Code::kRefused, "too few GPUs");
    if (gpus_ == 0) return Status(Code::kRefused, "host " + host_ + " has no GPU");
    request_.count = count;
    auto lease = control_->lease(request_);
    if (!lease.ok()) return lease.status();
    taken_.push_back({endpoint, std::move(control_), lease.take()});
    return Status();
  }

  std::vector<TakenLease> take() { return std::move(taken_); }

 private:
  Status meet(const session::Endpoint& endpoint) {
    control_.reset();
    auto control = session::Control::connect(endpoint, connect_);
    if (!control.ok()) return control.status();
    auto list = (*control)->list();
    if (!list.ok()) return list.status();
    control_ = control.take();
    endpoint_ = endpoint;
    host_ = list->server;
    gpus_ = list->gpus.size();
    return Status();
  }

  const session::ConnectOptions& connect_;
  wire::LeaseRequest request_;
  session::Endpoint endpoint_;  // of control_
  std::unique_ptr<session::Control> control_;
  std::string host_;
  size_t gpus_ = 0;
  std::vector<TakenLease> taken_;
};

}  // namespace

base::Result<wire::SliceSpec> slice_spec(const SliceOptions& options) {
  base::Result<wire::SliceSpec> slice =
      config::read_slice({"-p", options.share}, {"-m", options.memory});
  if (slice.ok()) slice->packed = options.packed;
  return slice;
}

wire::LeaseTerms lease_terms(const SliceOptions& options) {
  return {options.capped ? wire::SharePolicy::kCap : wire::SharePolicy::kLend, options.priority};
}

base::Result<std::vector<TakenLease>> take_leases(const std::vector<session::Endpoint>& endpoints,
                                                  const session::ConnectOptions& connect,
                                                  uint32_t count,
                                                  const wire::LeaseRequest& request) {
  const bool one_each = count == 0;
  const size_t wanted = one_each ? endpoints.size() : count;
  if (wanted > wire::kSlicesMax) {
    return Status(Code::kInvalid,
                  "a program gets at most " + std::to_string(wire::kSlicesMax) + " slices");
  }
  Taking taking(connect, request);
  if (one_each) {
    for (const session::Endpoint& endpoint : endpoints) {
      const Status answer = taking.ask(endpoint, 1);
      if (!answer.ok()) return answer;
    }
    return taking.take();
  }
  const lease::Filling filling = lease::fill_servers(
      endpoints.size(), count,
      [&](size_t server, uint32_t slices) { return taking.ask(endpoints[server], slices); });
  if (filling.missing == 0) return taking.take();
  return lease::shortage(filling, endpoints.size(), count);
}

std::string leases_text(const std::vector<TakenLease>& leases) {
  std::string text;
  for (const TakenLease& lease : leases) {
    text += (text.empty() ? "" : ",") + lease.endpoint.text + "=" +
            std::to_string(lease.lease.lease_id) + ":" +
            base::hex(lease.lease.secret.data(), lease.lease.secret.size());
  }
  return text;
}

std::string servers_text(const std::vector<session::Endpoint>& endpoints) {
  std::string text;
  for (const session::Endpoint& endpoint : endpoints)
    text += (text.empty() ? "" : ",") + endpoint.text;
  return text;
}

}  // namespace tendril::cli
