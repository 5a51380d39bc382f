// SPDX-License-Identifier: Apache-2.0
// Bounds on peers that have proven nothing: how many connections they hold, how often they guess a
// secret, and how many lines they write into the log. Arithmetic, with the time passed in.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/result.h"

namespace tendril::reception {

// The connections of strangers. When there are too many, the oldest one of the address that has
// most must go: an honest client says hello at once and is a stranger for a moment only. Loop's
// thread.
class Strangers {
 public:
  Strangers(size_t most, size_t most_of_address) : most_(most), most_of_address_(most_of_address) {}
  // A connection has come. Returns the number of the one that must go instead, or 0. It has left.
  uint64_t arrive(uint64_t number, const std::string& address);
  // It is gone, or is no stranger any more.
  void leave(uint64_t number);
  // The one that must go when this process has no descriptor left, or 0. It has left.
  uint64_t evict();
  size_t count() const { return where_.size(); }
  // A stranger, and one of many from its address.
  bool is_in_crowd(uint64_t number) const;

 private:
  struct Address {
    std::string name;
    std::list<uint64_t> numbers;  // the oldest first
  };
  struct Where {
    Address* address;
    std::list<uint64_t>::iterator at;
  };
  uint64_t evict_from(Address* address);

  const size_t most_, most_of_address_;
  std::unordered_map<std::string, Address> addresses_;
  std::set<std::pair<size_t, Address*>> by_count_;
  std::unordered_map<uint64_t, Where> where_;
};

// Wrong secrets from one address. The first few cost nothing. Each further one doubles the time in
// which no other secret from there is looked at. Any thread.
class Guesses {
 public:
  // How long a secret from that address is not looked at. 0: look at it.
  uint64_t wait_ns(const std::string& address, uint64_t now_ns);
  // The same as a refusal for people.
  base::Status check(const std::string& address, uint64_t now_ns);
  // Takes note of a wrong one.
  void wrong(const std::string& address, uint64_t now_ns);

 private:
  struct Record {
    unsigned count = 0;
    uint64_t last_ns = 0, until_ns = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Record> records_;  // guarded by mutex_
};

// One line of the log for many events of one kind. Any thread.
class Repeats {
 public:
  // An event with that key. True: write a line. *before: how many came without a line since the
  // last one.
  bool due(const std::string& key, uint64_t now_ns, uint64_t* before);
  // For the end of that line: " (12 more before)", or nothing.
  static std::string text(uint64_t before);

 private:
  struct Record {
    uint64_t said_ns = 0, unsaid = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Record> records_;  // guarded by mutex_
};

}  // namespace tendril::reception
