// SPDX-License-Identifier: Apache-2.0
// See slices.h.
#include "cli/slices.h"

#include <algorithm>

#include "base/text.h"
#include "config/configuration.h"
#include "wire/assignment.h"

namespace tendril::cli {
namespace {

using base::Code;
using base::Status;

// As many of `wanted` slices as this server grants; 0 with *why when it grants none.
base::Result<uint32_t> take_most(session::Control* control, uint32_t wanted,
                                 wire::LeaseRequest request, wire::LeaseReply* reply) {
  auto list = control->list();
  if (!list.ok()) return list.status();
  uint32_t count = std::min<uint32_t>(wanted, static_cast<uint32_t>(list->gpus.size()));
  Status why(Code::kRefused, "host " + list->server + " has no GPU");
  // The server decides; asking for one less costs a round trip only.
  for (; count > 0; --count) {
    request.count = count;
    auto lease = control->lease(request);
    if (lease.ok()) {
      *reply = lease.take();
      return count;
    }
    why = lease.status();
    if (why.code() != Code::kRefused) break;
  }
  return why;
}

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
  uint32_t missing = one_each ? static_cast<uint32_t>(endpoints.size()) : count;
  if (missing > wire::kSlicesMax) {
    return Status(Code::kInvalid,
                  "a program gets at most " + std::to_string(wire::kSlicesMax) + " slices");
  }
  std::vector<TakenLease> taken;
  std::string refusals;
  for (const session::Endpoint& endpoint : endpoints) {
    if (missing == 0) break;
    TakenLease one;
    one.endpoint = endpoint;
    Status why;
    auto control = session::Control::connect(endpoint, connect);
    if (control.ok()) {
      one.control = control.take();
      auto got = take_most(one.control.get(), one_each ? 1 : missing, request, &one.lease);
      if (got.ok()) {
        missing -= *got;
        taken.push_back(std::move(one));
        continue;
      }
      why = got.status();
    } else {
      why = control.status();
    }
    if (one_each) return why;
    refusals += (refusals.empty() ? "" : "; ") + why.message();
  }
  if (missing == 0) return taken;
  const std::string found =
      std::to_string(count - missing) + " of " + std::to_string(count) + " slices found";
  if (count - missing == 0 && endpoints.size() == 1) return Status(Code::kRefused, refusals);
  if (refusals.empty()) refusals = "the servers named have no more GPUs with room";
  return Status(Code::kRefused, found + ": " + refusals);
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
