// SPDX-License-Identifier: Apache-2.0
// See starvation_checks.h.
#include "pool/simulation/starvation_checks.h"

#include <algorithm>

#include "pool/filter/filter.h"
#include "pool/policy/assign.h"
#include "pool/simulation/world.h"

namespace tendril::pool::simulation {
namespace {

constexpr int64_t kLookNs = 10 * kMinute;
constexpr int64_t kSettledNs = 2 * kMinute;  // since a scheduler began, stopped or stalled
constexpr int64_t kUntilPromisedNs = 5 * kMinute;
constexpr int64_t kSlackNs = 15 * kMinute;  // leases outstay their ends for a moment
constexpr int64_t kMomentLateNs = kMinute;  // for each that stands before it

// It waits for a place. Quotas, limits, maintenance and reservations are other bounds.
bool waits_for_place(const view::PictureRequest& request) {
  return request.reason == "Resources" || request.reason == "Priority" ||
         request.reason == "Fragmented";
}

bool meet(const std::set<std::pair<size_t, uint32_t>>& one,
          const std::set<std::pair<size_t, uint32_t>>& other) {
  const auto& fewer = one.size() < other.size() ? one : other;
  const auto& more = one.size() < other.size() ? other : one;
  return std::any_of(fewer.begin(), fewer.end(),
                     [&](const auto& gpu) { return more.count(gpu) != 0; });
}

}  // namespace

void StarvationChecks::clock_stepped() { stepped_ns_ = world_->now_ns(); }

// By its scheduler's clock, which may have been set. -1: that clock was set before this looked.
int64_t StarvationChecks::age_ns(const view::PictureRequest& request, int64_t at) {
  const int64_t now_ns = world_->now_ns();
  auto known = known_.find(request.id);
  if (known == known_.end()) {
    if (stepped_ns_ >= world_->scheduler_changed_ns()) return -1;
    known = known_.emplace(request.id, Known()).first;
    known->second.age_ns = (at - request.submitted_at) * kSecond;
    known->second.at_ns = now_ns;
  }
  return known->second.age_ns + now_ns - known->second.at_ns;
}

StarvationChecks::Gpus StarvationChecks::gpus_of(const view::Picture& picture,
                                                 const view::PictureRequest& request,
                                                 const PoolPolicy& policy) {
  Gpus gpus;
  const auto user_class = policy.user_class(request.user_class);
  auto filter = Filter::parse(request.filter);
  if (!user_class || !filter.ok()) return gpus;
  const std::vector<uint32_t>& classes = policy.user_classes[*user_class].gpu_classes;
  for (const view::PictureServer& shown : picture.servers) {
    const size_t server = world_->server_of(shown.name);
    GpuFacts facts;
    facts.server = shown.name;
    for (const std::string& label : shown.labels) {
      const size_t equals = label.find('=');
      facts.labels[label.substr(0, equals)] = label.substr(equals + 1);
    }
    for (uint32_t gpu = 0; gpu < world_->server(server).gpus().size(); ++gpu) {
      facts.index = gpu;
      facts.model = world_->server(server).gpus()[gpu].model;
      facts.memory_bytes = world_->server(server).gpus()[gpu].memory_bytes;
      const auto gpu_class = class_of(policy, facts);
      if (gpu_class && std::find(classes.begin(), classes.end(), *gpu_class) != classes.end() &&
          filter->matches(facts))
        gpus.emplace(server, gpu);
    }
  }
  return gpus;
}

// A reservation or a window of maintenance that begins before it starts may have to pass first.
int64_t StarvationChecks::from_at(const view::Picture& picture, const PoolPolicy& policy,
                                  const Gpus& gpus, int64_t to_at) {
  int64_t from_at = picture.at;
  const auto pass = [&](int64_t begins_at, int64_t ends_at) {
    if (begins_at < to_at && ends_at != kNever) from_at = std::max(from_at, ends_at);
  };
  for (const Reservation& each : policy.reservations) pass(each.from_s, each.to_s);
  for (const view::PictureServer& server : picture.servers) {
    const size_t number = world_->server_of(server.name);
    const auto first = gpus.lower_bound({number, 0});
    if (first == gpus.end() || first->first != number) continue;
    for (const view::PictureWindow& window : server.maintenance) pass(window.from_at, window.to_at);
  }
  return from_at;
}

void StarvationChecks::look_at(const view::PictureRequest& request, int64_t at, int64_t from_at,
                               uint64_t before, int64_t most_s) {
  const int64_t now_ns = world_->now_ns();
  Known& known = known_[request.id];
  const std::string what = "request " + std::to_string(request.id) + " of " + request.owner +
                           " is overdue (" + request.reason + ": " + request.numbers + ", filter " +
                           request.filter + "), ";
  ++counts_.overdue;
  counts_.most_before = std::max(counts_.most_before, before);
  // One more may have been before it when it was promised a start, and started early meanwhile.
  const int64_t most_ns = static_cast<int64_t>(before + 2) * (most_s * kSecond + kMomentLateNs);
  if (!request.promised) {
    // While others have all places, or its account has promised all that it may have.
    const int64_t since_ns = unpromised_ns_.emplace(request.id, now_ns).first->second;
    counts_.unpromised_s = std::max(counts_.unpromised_s, (now_ns - since_ns) / kSecond);
    if (now_ns - since_ns > most_ns + kSlackNs)
      world_->checks().fail(what + std::to_string(before) + " are before it, and for " +
                            std::to_string((now_ns - since_ns) / kSecond) +
                            " s nothing is promised to it");
    return;
  }
  unpromised_ns_.erase(request.id);
  ++counts_.promised;
  const int64_t told_ns = now_ns + (request.start_to_at - at) * kSecond;
  if (told_ns > now_ns + (from_at - at) * kSecond + most_ns + kSlackNs) {
    world_->checks().fail(what + std::to_string(before) + " are before it, and it is to start in " +
                          std::to_string((told_ns - now_ns) / kSecond) + " s");
  } else if (known.told_ns != INT64_MAX) {
    // A lease that outstays its end lets the next one of that user start late, and end late. If
    // that is in the way of what the user may have, the promise after it moves.
    ++(told_ns > known.told_ns + kSlackNs ? counts_.moved : counts_.kept);
  }
  known.told_ns = std::min(known.told_ns, told_ns);
}

void StarvationChecks::sweep(const PoolPolicy& policy, int64_t changed_ns) {
  const int64_t now_ns = world_->now_ns();
  FakeProcess* process = world_->scheduling();
  if (process == nullptr || process->stalled() || now_ns < looked_ns_ + kLookNs ||
      now_ns < world_->scheduler_changed_ns() + kSettledNs)
    return;
  looked_ns_ = now_ns;
  if (process->term() != term_) known_.clear();
  term_ = process->term();
  const view::Picture picture = process->scheduler()->picture(process->now());
  if (!picture.head.planning) return;
  if (changed_ns != changed_ns_) {
    for (auto& [id, known] : known_) known.told_ns = INT64_MAX;
  }
  changed_ns_ = changed_ns;
  struct Overdue {
    const view::PictureRequest* request = nullptr;
    Gpus gpus;
  };
  std::vector<Overdue> all;
  std::set<uint64_t> there;
  const auto longest_ns = static_cast<int64_t>(policy.longest_wait_s) * kSecond;
  for (const view::PictureRequest& request : picture.queue) {
    there.insert(request.id);
    const int64_t age = age_ns(request, picture.at);
    if (age < 0 || age >= longest_ns || request.promised) {
      all.push_back({&request, gpus_of(picture, request, policy)});
    }
  }
  std::erase_if(unpromised_ns_, [&](const auto& each) { return there.count(each.first) == 0; });
  int64_t most_s = 0;
  for (const UserClass& of : policy.user_classes)
    most_s = std::max(most_s, static_cast<int64_t>(of.max_wall_s));
  for (const Overdue& each : all) {
    const view::PictureRequest& request = *each.request;
    const bool is_late = age_ns(request, picture.at) >= longest_ns + kUntilPromisedNs;
    if (!is_late || !waits_for_place(request) || request.place == 0) continue;
    // Older ones, and those that were promised a start before its own.
    const auto before = std::count_if(all.begin(), all.end(), [&](const Overdue& other) {
      const bool older = std::pair(other.request->submitted_at, other.request->id) <
                         std::pair(request.submitted_at, request.id);
      const bool sooner = other.request != &request && other.request->promised &&
                          other.request->start_to_at <= request.start_to_at;
      return (older || sooner) && meet(other.gpus, each.gpus);
    });
    counts_.longest_s =
        std::max(counts_.longest_s, (age_ns(request, picture.at) - longest_ns) / kSecond);
    look_at(request, picture.at, from_at(picture, policy, each.gpus, request.start_to_at),
            static_cast<uint64_t>(before), most_s);
  }
}

}  // namespace tendril::pool::simulation
