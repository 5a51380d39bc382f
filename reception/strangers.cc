// SPDX-License-Identifier: Apache-2.0
// See strangers.h.
#include "reception/strangers.h"

#include "base/text.h"

#include <algorithm>

namespace tendril::reception {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr size_t kCrowd = 16;  // a program attaches over five connections
constexpr unsigned kFreeGuesses = 5;
constexpr unsigned kDoublingsMax = 6;  // 64 s
constexpr uint64_t kForgetNs = 600 * kSecondNs;
constexpr uint64_t kLineEveryNs = 10 * kSecondNs;
constexpr size_t kRecordsMax = 8192;

// Makes room for one more: what is older than `age_ns` goes. If that is not enough, all are
// forgotten: whoever has so many addresses gains little by it.
template <typename Records, typename LastNs>
void make_room(Records* records, uint64_t now_ns, uint64_t age_ns, LastNs last_ns) {
  if (records->size() < kRecordsMax) return;
  for (auto at = records->begin(); at != records->end();) {
    if (last_ns(at->second) + age_ns <= now_ns)
      at = records->erase(at);
    else
      ++at;
  }
  if (records->size() >= kRecordsMax) records->clear();
}

}  // namespace

uint64_t Strangers::arrive(uint64_t number, const std::string& name) {
  Address* address = &addresses_[name];
  address->name = name;
  uint64_t gone = 0;
  if (address->numbers.size() >= most_of_address_)
    gone = evict_from(address);
  else if (where_.size() >= most_)
    gone = evict();
  address = &addresses_[name];  // an eviction may have removed its empty record
  address->name = name;
  by_count_.erase({address->numbers.size(), address});
  address->numbers.push_back(number);
  by_count_.insert({address->numbers.size(), address});
  where_[number] = {address, std::prev(address->numbers.end())};
  return gone;
}

void Strangers::leave(uint64_t number) {
  const auto found = where_.find(number);
  if (found == where_.end()) return;
  Address* const address = found->second.address;
  by_count_.erase({address->numbers.size(), address});
  address->numbers.erase(found->second.at);
  where_.erase(found);
  if (address->numbers.empty()) {
    const std::string name = address->name;
    addresses_.erase(name);
    return;
  }
  by_count_.insert({address->numbers.size(), address});
}

bool Strangers::is_in_crowd(uint64_t number) const {
  const auto found = where_.find(number);
  return found != where_.end() && found->second.address->numbers.size() > kCrowd;
}

uint64_t Strangers::evict_from(Address* address) {
  if (address->numbers.empty()) return 0;
  const uint64_t number = address->numbers.front();
  leave(number);
  return number;
}

uint64_t Strangers::evict() {
  return by_count_.empty() ? 0 : evict_from(by_count_.rbegin()->second);
}

uint64_t Guesses::wait_ns(const std::string& address, uint64_t now_ns) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = records_.find(address);
  if (found == records_.end() || found->second.until_ns <= now_ns) return 0;
  return found->second.until_ns - now_ns;
}

base::Status Guesses::check(const std::string& address, uint64_t now_ns) {
  const uint64_t wait = wait_ns(address, now_ns);
  if (wait == 0) return base::Status();
  const uint64_t wait_s = wait / 1'000'000'000u + 1;
  return base::Status(
      base::Code::kRefused,
      base::format("too many wrong tokens came from %s; the next one is looked at in %llu s",
                   address.c_str(), static_cast<unsigned long long>(wait_s)));
}

void Guesses::wrong(const std::string& address, uint64_t now_ns) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (records_.count(address) == 0)
    make_room(&records_, now_ns, kForgetNs, [](const Record& record) { return record.last_ns; });
  Record& record = records_[address];
  if (record.last_ns + kForgetNs <= now_ns) record = Record();
  ++record.count;
  record.last_ns = now_ns;
  if (record.count < kFreeGuesses) return;
  const unsigned doublings = std::min(record.count - kFreeGuesses, kDoublingsMax);
  record.until_ns = now_ns + (kSecondNs << doublings);
}

bool Repeats::due(const std::string& key, uint64_t now_ns, uint64_t* before) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (records_.count(key) == 0)
    make_room(&records_, now_ns, kLineEveryNs, [](const Record& record) { return record.said_ns; });
  Record& record = records_[key];
  if (record.said_ns != 0 && now_ns - record.said_ns < kLineEveryNs) {
    ++record.unsaid;
    return false;
  }
  *before = record.unsaid;
  record.unsaid = 0;
  record.said_ns = now_ns;
  return true;
}

std::string Repeats::text(uint64_t before) {
  return before == 0 ? "" : " (" + std::to_string(before) + " more before)";
}

}  // namespace tendril::reception
