// SPDX-License-Identifier: Apache-2.0
// Writes a past into a pool's store, so that tests and people can look at a history without waiting
// for it: four months of hours, a week of minutes, an hour of seconds. By hand, before the
// scheduler starts: tendril_pool_past STORE [SERVERS] [KIND] [USERS]. In KIND "hostile" names are
// what an attacker would choose. Of many servers, capacity is in rows of few.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "pool/accounting/history.h"
#include "scheduler/hostile_names.h"
#include "store/open.h"

namespace tendril::scheduler {
namespace {

constexpr int kCallMs = 60'000;
constexpr uint64_t kSecond = pool::kNsOfSecond;
constexpr size_t kServersMax = 24;
constexpr double kPi = 3.14159265358979;

struct Past {
  size_t servers = 1, users = 24;
  bool is_hostile = false;
};

std::string name_of(const Past& past, const char* kind, size_t number) {
  if (past.is_hostile) return std::to_string(number) + hostile_name(number);
  return kind + std::to_string(number);
}

// Between 0 and 1: more by day than by night, less at weekends, each user otherwise.
double load_of(size_t user, uint64_t at_s) {
  const double day = double(at_s % 86'400) / 86'400, week = double(at_s / 86'400 % 7);
  const double wave = 0.55 - 0.4 * std::cos(2 * kPi * (day - 0.1 - double(user % 7) / 20));
  const double rest = week < 2 ? 0.5 : 1;
  const double own = 0.6 + 0.4 * std::sin(double(user) * 2.1 + double(at_s) / 40'000);
  const double noise = double((at_s / 60 * 2654435761u + user * 40503u) % 1000) / 5000;
  return std::clamp(wave * rest * own + noise - 0.1, 0.0, 1.0);
}

pool::HistoryRow row_of_time(uint64_t from_ns, uint64_t to_ns) {
  pool::HistoryRow row;
  row.from_ns = from_ns;
  row.to_ns = to_ns;
  return row;
}

// What came in that time, with leases (of minutes and seconds) or without (of hours).
pool::HistoryChunk chunk_of(const Past& past, uint64_t from_ns, uint64_t to_ns, bool has_leases) {
  pool::HistoryChunk chunk;
  chunk.upto_ns = to_ns;
  const uint64_t length_ns = to_ns - from_ns, at_s = from_ns / kSecond;
  const size_t shown = std::min(past.servers, kServersMax);
  const uint64_t gpus_each = 8 * past.servers / shown;
  for (size_t i = 0; i < shown; ++i) {
    pool::HistoryRow row = row_of_time(from_ns, to_ns);
    row.who.server = name_of(past, "gpu", i + 1);
    row.who.gpu_class = i % 3 == 0 ? "h100" : "a100";
    row.sums.capacity_gpu_ns = gpus_each * length_ns;
    chunk.rows.push_back(std::move(row));
  }
  const double fair = double(8 * past.servers) / double(past.users);
  for (size_t user = 0; user < past.users; ++user) {
    const double load = load_of(user, at_s), given = fair * std::round(load * 8) / 8;
    pool::HistoryRow row = row_of_time(from_ns, to_ns);
    row.who.owner = row.who.owner_id = name_of(past, "user", user);
    static const char* const kAccounts[] = {"vision", "nlp", "robotics", "biology", "physics"};
    row.who.account = past.is_hostile ? name_of(past, "", user % 5) : kAccounts[user % 5];
    row.who.user_class = user % 4 == 0 ? "interactive" : "batch";
    row.who.gpu_class = user % 3 == 0 ? "h100" : "a100";
    row.who.server = name_of(past, "gpu", user % shown + 1);
    if (has_leases)
      row.who.lease = row.who.server_lease = user + 1 + at_s / 86'400 % 1000 * past.users;
    const auto given_ns = uint64_t(given * double(length_ns));
    row.sums.held_ns = given > 0 ? length_ns : 0;
    row.sums.asked_gpu_ns = row.sums.given_gpu_ns = given_ns;
    row.sums.used_ns = uint64_t(double(given_ns) * (0.35 + 0.5 * load));
    row.sums.idle_gpu_ns = (given_ns - row.sums.used_ns) / 2;
    row.sums.memory_held_mib_ms = uint64_t(given * 80 * 1024 * double(length_ns) / 1e6);
    row.sums.memory_used_mib_ms = row.sums.memory_held_mib_ms / 5 * (1 + user % 4);
    if (load > 0.75) {
      row.sums.queued_ns = 2 * length_ns;
      row.sums.queued_gpu_ns = uint64_t(fair * double(length_ns));
    }
    if (at_s / 60 % 10 == user % 10) {
      row.sums.leases = 1 + length_ns / (600 * kSecond);
      row.sums.waited_ns = row.sums.leases * uint64_t(load * load * 900 * 1e9);
    }
    chunk.rows.push_back(std::move(row));
  }
  return chunk;
}

class Writer {
 public:
  Writer(store::Store* store, uint64_t term) : store_(store), term_(term) {}
  bool put(std::string key, std::string value) {
    bytes_ += key.size() + value.size();
    changes_.push_back({std::move(key), std::move(value), std::nullopt});
    const bool full = changes_.size() == store::kChangesMax || bytes_ > store::kWriteBytesMax / 2;
    return !full || flush();
  }
  bool flush() {
    const base::Status status = store_->write(term_, changes_, base::Deadline(kCallMs));
    if (!status.ok()) fprintf(stderr, "%s\n", status.message().c_str());
    changes_.clear();
    bytes_ = 0;
    return status.ok();
  }

 private:
  store::Store* const store_;
  const uint64_t term_;
  std::vector<store::Change> changes_;
  size_t bytes_ = 0;
};

bool put_tier(const Past& past, const std::string& tier, uint64_t from_s, uint64_t to_s,
              uint64_t step_s, Writer* writer) {
  for (uint64_t at_s = from_s; at_s < to_s; at_s += step_s) {
    pool::HistoryChunk chunk =
        chunk_of(past, at_s * kSecond, (at_s + step_s) * kSecond, tier != pool::keys::kHours);
    // A scheduler was away for a while, two days ago.
    const uint64_t gap_s = (to_s - 2 * 86'400) / 3600 * 3600;
    if (tier == pool::keys::kHours && at_s == gap_s)
      chunk.gaps.push_back({gap_s * kSecond, (gap_s + 1800) * kSecond});
    const std::string bytes = pool::pack_chunk(chunk);
    if (!writer->put(pool::chunk_key(tier, chunk.upto_ns), bytes)) return false;
  }
  return true;
}

int run(const std::string& address, const Past& past) {
  auto store = store::open_store(address);
  if (!store.ok()) {
    fprintf(stderr, "%s\n", store.status().message().c_str());
    return 1;
  }
  auto lock = (*store)->campaign("past", 60'000, base::Deadline(kCallMs));
  if (!lock.ok() || !lock->mine) {
    fprintf(stderr, "a scheduler has this store\n");
    return 1;
  }
  const uint64_t now_s = uint64_t(time(nullptr)) - 1, minutes_to_s = now_s / 60 * 60,
                 hours_to_s = now_s / 3600 * 3600;
  Writer writer(store->get(), lock->term);
  const std::string head =
      base::format("%016llx %016llx", static_cast<unsigned long long>(minutes_to_s * kSecond),
                   static_cast<unsigned long long>(hours_to_s * kSecond));
  const bool done =
      put_tier(past, pool::keys::kHours, hours_to_s - 120 * 86'400, hours_to_s, 3600, &writer) &&
      put_tier(past, pool::keys::kMinutes, minutes_to_s - 7 * 86'400, minutes_to_s, 60, &writer) &&
      put_tier(past, pool::keys::kSeconds, now_s - 3600, now_s, 1, &writer) &&
      writer.put(pool::keys::kHistoryHead, head) && writer.flush();
  return done ? 0 : 1;
}

}  // namespace
}  // namespace tendril::scheduler

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: tendril_pool_past STORE [SERVERS] [KIND] [USERS]\n");
    return 2;
  }
  tendril::scheduler::Past past;
  if (argc > 2) past.servers = std::clamp<size_t>(strtoul(argv[2], nullptr, 10), 1, 100'000);
  past.is_hostile = argc > 3 && std::string(argv[3]) == "hostile";
  if (argc > 4) past.users = std::clamp<size_t>(strtoul(argv[4], nullptr, 10), 1, 10'000);
  return tendril::scheduler::run(argv[1], past);
}
