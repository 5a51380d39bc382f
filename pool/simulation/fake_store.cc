// SPDX-License-Identifier: Apache-2.0
// See fake_store.h.
#include "pool/simulation/fake_store.h"

#include "pool/accounting/history.h"

namespace tendril::pool::simulation {

FakeStore::Outcome FakeStore::campaign(size_t holder, int64_t now_ns, uint64_t* term) {
  if (trouble_ == Trouble::kAway) return Outcome::kAway;
  if (holder_ != SIZE_MAX && now_ns < until_ns_) return Outcome::kDeposed;
  holder_ = holder;
  *term = ++term_;
  until_ns_ = now_ns + kLockNs;
  return Outcome::kDone;
}

FakeStore::Outcome FakeStore::keep(size_t holder, uint64_t term, int64_t now_ns) {
  if (trouble_ == Trouble::kAway) return Outcome::kAway;
  if (!held(holder, term, now_ns)) return Outcome::kDeposed;
  until_ns_ = now_ns + kLockNs;
  return Outcome::kDone;
}

void FakeStore::resign(size_t holder, uint64_t term) {
  if (holder_ == holder && term_ == term) holder_ = SIZE_MAX;
}

FakeStore::Outcome FakeStore::write(size_t holder, uint64_t term, const Batch& batch,
                                    int64_t now_ns) {
  if (trouble_ == Trouble::kAway || trouble_ == Trouble::kFull) return Outcome::kAway;
  if (!held(holder, term, now_ns)) return Outcome::kDeposed;
  ++writes_;
  for (const Write& write : batch.writes) {
    if (write.value) {
      records_[write.key] = *write.value;
      thin(write.key);
    } else {
      records_.erase(write.key);
    }
  }
  return trouble_ == Trouble::kLosesAnswers ? Outcome::kAway : Outcome::kDone;
}

// As scheduler/ thins the store.
void FakeStore::thin(const std::string& written) {
  if (!thins_ || written.compare(0, keys::kSeconds.size(), keys::kSeconds) != 0) return;
  const std::string end = expired_before(keys::kSeconds, upto_of_key(written), kSecondsKeptS);
  records_.erase(records_.lower_bound(keys::kSeconds), records_.lower_bound(end));
}

std::vector<std::pair<std::string, std::string>> FakeStore::read(const std::string& prefix,
                                                                 const std::string& after) const {
  std::vector<std::pair<std::string, std::string>> found;
  for (auto at = after > prefix ? records_.upper_bound(after) : records_.lower_bound(prefix);
       at != records_.end() && at->first.compare(0, prefix.size(), prefix) == 0; ++at) {
    found.push_back(*at);
  }
  return found;
}

}  // namespace tendril::pool::simulation
