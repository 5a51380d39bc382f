// SPDX-License-Identifier: Apache-2.0
// See faulty.h.
#include "store/testing/faulty.h"

#include <time.h>

#include <algorithm>

namespace tendril::store {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

const Status& status_of(const Status& status) { return status; }
template <typename T>
const Status& status_of(const Result<T>& result) {
  return result.status();
}

template <typename Call>
auto repeated(const Deadline& deadline, Call call) -> decltype(call()) {
  for (;;) {
    auto answer = call();
    if (answer.ok() || !worth_repeating(status_of(answer)) || deadline.passed()) return answer;
  }
}

void sleep_ms(int ms) {
  const timespec wait{ms / 1000, ms % 1000 * 1'000'000L};
  nanosleep(&wait, nullptr);
}

}  // namespace

FaultyStore::FaultyStore(std::unique_ptr<Store> inner, uint64_t seed)
    : inner_(std::move(inner)), random_(seed) {}

void FaultyStore::set(const Faults& faults) {
  const std::lock_guard<std::mutex> guard(mutex_);
  faults_ = faults;
}

Status FaultyStore::before(bool writes, const Deadline& deadline, bool* lost) {
  ++calls_;
  int late_ms = 0;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto happens = [this](int per_cent) { return int(random_() % 100) < per_cent; };
    if (faults_.damaged) return Status(Code::kInternal, address() + ": it is damaged");
    if (faults_.away || happens(faults_.unavailable))
      return Status(Code::kUnavailable, address() + ": it is away");
    if (faults_.full && writes) return Status(Code::kExhausted, address() + ": it is full");
    *lost = happens(faults_.lost);
    if (happens(faults_.late)) late_ms = faults_.late_ms;
  }
  if (late_ms > 0) {
    const int left_ms = deadline.left_ms();
    if (left_ms >= 0 && left_ms < late_ms) *lost = true;
    sleep_ms(left_ms < 0 ? late_ms : std::min(late_ms, left_ms));
  }
  return Status();
}

Result<Entry> FaultyStore::get(const std::string& key, const Deadline& deadline) {
  return with_faults(false, deadline, [&] { return inner_->get(key, deadline); });
}

Result<Page> FaultyStore::list(const std::string& prefix, const std::string& after, size_t entries,
                               const Deadline& deadline) {
  return with_faults(false, deadline,
                     [&] { return inner_->list(prefix, after, entries, deadline); });
}

Status FaultyStore::write(uint64_t term, const std::vector<Change>& changes,
                          const Deadline& deadline) {
  return with_faults(true, deadline, [&] { return inner_->write(term, changes, deadline); });
}

Result<Leadership> FaultyStore::campaign(const std::string& holder, uint32_t ttl_ms,
                                         const Deadline& deadline) {
  return with_faults(false, deadline, [&] { return inner_->campaign(holder, ttl_ms, deadline); });
}

Result<Leadership> FaultyStore::keep(uint64_t term, const Deadline& deadline) {
  return with_faults(false, deadline, [&] { return inner_->keep(term, deadline); });
}

Status FaultyStore::resign(uint64_t term, const Deadline& deadline) {
  return with_faults(false, deadline, [&] { return inner_->resign(term, deadline); });
}

Result<Leadership> FaultyStore::leader(const Deadline& deadline) {
  return with_faults(false, deadline, [&] { return inner_->leader(deadline); });
}

Result<Entry> RepeatingStore::get(const std::string& key, const Deadline& deadline) {
  return repeated(deadline, [&] { return inner_->get(key, deadline); });
}

Result<Page> RepeatingStore::list(const std::string& prefix, const std::string& after,
                                  size_t entries, const Deadline& deadline) {
  return repeated(deadline, [&] { return inner_->list(prefix, after, entries, deadline); });
}

Status RepeatingStore::write(uint64_t term, const std::vector<Change>& changes,
                             const Deadline& deadline) {
  return repeated(deadline, [&] { return inner_->write(term, changes, deadline); });
}

Result<Leadership> RepeatingStore::campaign(const std::string& holder, uint32_t ttl_ms,
                                            const Deadline& deadline) {
  return repeated(deadline, [&] { return inner_->campaign(holder, ttl_ms, deadline); });
}

Result<Leadership> RepeatingStore::keep(uint64_t term, const Deadline& deadline) {
  return repeated(deadline, [&] { return inner_->keep(term, deadline); });
}

Status RepeatingStore::resign(uint64_t term, const Deadline& deadline) {
  return repeated(deadline, [&] { return inner_->resign(term, deadline); });
}

Result<Leadership> RepeatingStore::leader(const Deadline& deadline) {
  return repeated(deadline, [&] { return inner_->leader(deadline); });
}

}  // namespace tendril::store
