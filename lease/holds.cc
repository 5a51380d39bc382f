// SPDX-License-Identifier: Apache-2.0
// See holds.h.
#include "lease/holds.h"

#include <algorithm>
#include <utility>

namespace tendril::lease {
namespace {

using base::Code;
using base::Status;

std::string name_of(uint64_t pool_lease_id) {
  return "the pool's lease " + std::to_string(pool_lease_id);
}

bool are_same(const std::vector<wire::SliceGrant>& one, const std::vector<wire::SliceGrant>& two) {
  return std::equal(one.begin(), one.end(), two.begin(), two.end(),
                    [](const wire::SliceGrant& first, const wire::SliceGrant& second) {
                      return first.gpu_index == second.gpu_index &&
                             first.share_millionths == second.share_millionths &&
                             first.memory_bytes == second.memory_bytes &&
                             first.packed == second.packed;
                    });
}

}  // namespace

Holds::Holds(LeaseBook* book, HoldRules rules) : book_(book), rules_(rules) {}

Status Holds::hear(uint64_t term) {
  if (term < term_) {
    return Status(Code::kRefused, "the order is of term " + std::to_string(term) +
                                      ", and a scheduler of term " + std::to_string(term_) +
                                      " has spoken since; ask that one");
  }
  term_ = term;
  return Status();
}

Status Holds::gone(uint64_t pool_lease_id) const {
  const auto found = ended_.find(pool_lease_id);
  const std::string why = found == ended_.end() ? "this server never had it" : found->second;
  return Status(Code::kNotFound, name_of(pool_lease_id) + " is not here: " + why);
}

base::Result<Hold> Holds::hold(uint64_t now_ns, uint64_t term, uint64_t pool_lease_id,
                               uint64_t lease_id, const std::vector<wire::SliceGrant>& slices,
                               bool* is_new, uint64_t keep_ns) {
  *is_new = false;
  keep_ns = keep_ns == 0 ? rules_.hold_ns : std::min(keep_ns, rules_.hold_most_ns);
  const Status heard = hear(term);
  if (!heard.ok()) return heard;
  if (pool_lease_id == 0) return Status(Code::kInvalid, "a pool's lease has a number above 0");
  const auto found = holds_.find(pool_lease_id);
  if (found != holds_.end()) {
    Hold& hold = found->second;
    if (!are_same(hold.asked, slices)) {
      return Status(Code::kInvalid, name_of(pool_lease_id) +
                                        " is here with other slices; a hold with other slices "
                                        "needs a number of its own");
    }
    hold.term = term;
    if (hold.state == HoldState::kHeld) hold.expires_ns = now_ns + keep_ns;
    return Hold(hold);
  }
  if (ended_.count(pool_lease_id) != 0) return gone(pool_lease_id);
  if (unclaimed_ >= rules_.holds_max) {
    return Status(Code::kExhausted, std::to_string(unclaimed_) +
                                        " holds are open on this server; it takes more when some "
                                        "are claimed or have ended");
  }
  auto granted = book_->grant_these(lease_id, slices);
  if (!granted.ok()) return granted.status();
  Hold& hold = holds_[pool_lease_id];
  hold.pool_lease_id = pool_lease_id;
  hold.lease_id = lease_id;
  hold.term = term;
  hold.expires_ns = now_ns + keep_ns;
  hold.asked = slices;
  hold.slices = granted.take();
  ++unclaimed_;
  *is_new = true;
  return Hold(hold);
}

Status Holds::commit(uint64_t now_ns, uint64_t term, uint64_t pool_lease_id, uint64_t keep_ns) {
  const Status heard = hear(term);
  if (!heard.ok()) return heard;
  const auto found = holds_.find(pool_lease_id);
  if (found == holds_.end()) return gone(pool_lease_id);
  Hold& hold = found->second;
  if (hold.state != HoldState::kHeld) return Status();
  if (hold.expires_ns <= now_ns) {
    end(found, "nobody committed it in time");
    return gone(pool_lease_id);
  }
  hold.state = HoldState::kCommitted;
  keep_ns = keep_ns == 0 ? rules_.claim_ns : std::min(keep_ns, rules_.claim_most_ns);
  hold.expires_ns = now_ns + keep_ns;
  return Status();
}

Status Holds::cancel(uint64_t term, uint64_t pool_lease_id) {
  const Status heard = hear(term);
  if (!heard.ok()) return heard;
  const auto found = holds_.find(pool_lease_id);
  if (found == holds_.end()) {
    // A hold that is still on its way must find nothing.
    if (pool_lease_id != 0) remember(pool_lease_id, "the scheduler cancelled it");
    return Status();
  }
  if (found->second.state == HoldState::kClaimed) {
    return Status(Code::kRefused,
                  name_of(pool_lease_id) + " is claimed by its client; end it instead");
  }
  end(found, "the scheduler cancelled it");
  return Status();
}

base::Result<Hold> Holds::claim(uint64_t pool_lease_id) {
  const auto found = holds_.find(pool_lease_id);
  if (found == holds_.end()) return gone(pool_lease_id);
  Hold& hold = found->second;
  if (hold.state == HoldState::kClaimed)
    return Status(Code::kRefused, name_of(pool_lease_id) + " is claimed already");
  if (hold.state == HoldState::kHeld) {
    return Status(Code::kUnavailable, name_of(pool_lease_id) +
                                          " is held but not granted yet; claim it after the pool "
                                          "has answered");
  }
  hold.state = HoldState::kClaimed;
  hold.expires_ns = 0;
  --unclaimed_;
  return Hold(hold);
}

void Holds::changed(uint64_t pool_lease_id, const std::vector<wire::SliceGrant>& slices) {
  const auto found = holds_.find(pool_lease_id);
  if (found != holds_.end()) found->second.slices = slices;
}

void Holds::release(uint64_t pool_lease_id, const std::string& why) {
  const auto found = holds_.find(pool_lease_id);
  if (found != holds_.end()) end(found, why);
}

std::vector<Hold> Holds::expire(uint64_t now_ns) {
  std::vector<Hold> expired;
  for (auto at = holds_.begin(); at != holds_.end();) {
    const auto hold = at++;
    if (hold->second.expires_ns == 0 || hold->second.expires_ns > now_ns) continue;
    expired.push_back(hold->second);
    end(hold, hold->second.state == HoldState::kHeld ? "nobody committed it in time"
                                                     : "nobody claimed it in time");
  }
  return expired;
}

uint64_t Holds::next_expiry_ns() const {
  uint64_t next = kNever;
  for (const auto& [id, hold] : holds_) {
    if (hold.expires_ns != 0) next = std::min(next, hold.expires_ns);
  }
  return next;
}

const Hold* Holds::find(uint64_t pool_lease_id) const {
  const auto found = holds_.find(pool_lease_id);
  return found == holds_.end() ? nullptr : &found->second;
}

void Holds::end(std::map<uint64_t, Hold>::iterator hold, const std::string& why) {
  book_->release(hold->second.lease_id);
  if (hold->second.state != HoldState::kClaimed) --unclaimed_;
  remember(hold->first, why);
  holds_.erase(hold);
}

void Holds::remember(uint64_t pool_lease_id, const std::string& why) {
  if (!ended_.emplace(pool_lease_id, why).second) return;
  ended_order_.push_back(pool_lease_id);
  if (ended_order_.size() <= rules_.ended_max) return;
  ended_.erase(ended_order_.front());
  ended_order_.pop_front();
}

}  // namespace tendril::lease
