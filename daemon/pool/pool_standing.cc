// SPDX-License-Identifier: Apache-2.0
// See pool_standing.h.
#include "daemon/pool/pool_standing.h"

#include "base/text.h"
#include "config/toml.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

constexpr uint64_t kSilentNs = uint64_t{wire::kServerSilentMs} * 1'000'000;

}  // namespace

void PoolStanding::heard(const std::string& address, const wire::PoolOrders& orders,
                         uint64_t now_ns) {
  heard_ns_ = now_ns;
  address_ = address;
  pool_ = base::printable(orders.pool, wire::kPoolNameBytesMax);
  if (orders.policy.empty() || orders.policy_revision == policy_revision_) return;
  policy_revision_ = orders.policy_revision;
  read_policy(orders.policy);
}

// Of the pool's policy only one key concerns a server that is alone.
void PoolStanding::read_policy(const std::string& text) {
  const auto table = config::parse_toml(text, "the pool's policy");
  policy_error_ = table.status();
  if (!table.ok()) return;
  const auto alone = table.value()["pool"]["when_no_scheduler"].value<std::string>();
  refuses_alone_ = alone && *alone == "refuse";
}

bool PoolStanding::is_silent(uint64_t now_ns) const {
  const uint64_t since_ns = heard_ns_ == 0 ? began_ns_ : heard_ns_;
  return now_ns > since_ns && now_ns - since_ns >= kSilentNs;
}

std::string PoolStanding::name() const {
  return pool_.empty() ? "a pool" : "the pool '" + pool_ + "'";
}

std::string PoolStanding::all_addresses() const {
  std::string all;
  for (const std::string& address : addresses_) all += (all.empty() ? "" : ",") + address;
  return all;
}

Status PoolStanding::may_lease(uint64_t now_ns) const {
  if (drained_) {
    return Status(Code::kRefused, "this server is drained: " + name() +
                                      " lends nothing of it now; ask the pool, with "
                                      "TENDRIL_SERVERS=" +
                                      all_addresses());
  }
  if (is_silent(now_ns)) {
    if (!refuses_alone_) return Status();
    return Status(Code::kRefused, "no scheduler of " + name() +
                                      " speaks to this server, and the pool's policy says that it "
                                      "then lends nothing (when_no_scheduler); ask " +
                                      all_addresses() + " later, or an administrator");
  }
  if (heard_ns_ == 0) {
    return Status(Code::kRefused, "this server has just started and waits for " + name() +
                                      "; ask the pool, with TENDRIL_SERVERS=" + all_addresses());
  }
  return Status(Code::kRefused, "this server lends for " + name() +
                                    ", which says who gets what; ask the pool, with "
                                    "TENDRIL_SERVERS=" +
                                    all_addresses());
}

}  // namespace tendril::daemon
