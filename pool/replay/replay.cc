// SPDX-License-Identifier: Apache-2.0
// The published experiment, and leases that end and begin for the time of decisions.
#include "pool/replay/replay.h"

#include <algorithm>
#include <bit>
#include <random>

namespace tendril::pool {

namespace {

constexpr uint32_t kWorkerCpuMilli = 1000;  // of a worker process, for each slice
constexpr size_t kLearnEvery = 500;

// Uniform below `bound`. The standard's distributions differ between libraries.
class Dice {
 public:
  explicit Dice(uint64_t seed) : generator_(seed) {}
  uint64_t below(uint64_t bound) { return generator_() % bound; }

 private:
  std::mt19937_64 generator_;
};

uint64_t share_of(const Request& request) {
  return uint64_t{request.slices} * request.share_millionths;
}

base::Result<Placer> placer_for(const Trace& trace, const ReplayOptions& options) {
  std::unique_ptr<Strategy> strategy = make_strategy(options.strategy, options.seed);
  if (!strategy)
    return base::Status(base::Code::kInvalid, "no strategy \"" + options.strategy +
                                                  "\"; choose random, bestfit, fgd or snug");
  Placer placer(std::move(strategy));
  for (const ServerSpec& server : trace.servers)
    if (base::Result<uint32_t> added = placer.add_server(server); !added) return added.status();
  return placer;
}

// The trace's requests in terms of the fleet.
std::vector<Request> requests_for(Placer& placer, const Trace& trace, HostSide host) {
  std::vector<Request> requests;
  for (const TraceRequest& each : trace.requests) {
    Request request = each.request;
    if (host == HostSide::kWorker) {
      if (request.slices == 0) continue;
      request.host = HostNeed{request.slices * kWorkerCpuMilli, 0};
    }
    for (const std::string& model : each.models) request.models.push_back(placer.model_id(model));
    requests.push_back(std::move(request));
  }
  return requests;
}

// In a random order, then more drawn at random, or some dropped, until the target is met.
std::vector<uint32_t> arrivals_of(const std::vector<Request>& requests, double target, Dice& dice) {
  std::vector<uint32_t> order(requests.size());
  double asked = 0;
  for (uint32_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    asked += static_cast<double>(share_of(requests[i]));
  }
  if (asked == 0) return order;
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[dice.below(i)]);
  while (asked > target) {
    const size_t dropped = dice.below(order.size());
    asked -= static_cast<double>(share_of(requests[order[dropped]]));
    order.erase(order.begin() + static_cast<ptrdiff_t>(dropped));
  }
  while (true) {
    const auto next = static_cast<uint32_t>(dice.below(requests.size()));
    // The authors' simulator compares with one slice, not with all of them.
    if (asked + requests[next].share_millionths > target) return order;
    asked += static_cast<double>(share_of(requests[next]));
    order.push_back(next);
  }
}

// Often at first, then every kLearnEvery.
bool learns_after(uint32_t requests) {
  return requests % kLearnEvery == 0 || (requests < kLearnEvery && std::has_single_bit(requests));
}

// place(), timed if there is a clock.
base::Result<Placement> place(Placer& placer, const Request& request, const ReplayOptions& options,
                              std::vector<uint64_t>& decision_ns) {
  if (!options.now_ns) return placer.place(request);
  const uint64_t begin_ns = options.now_ns();
  base::Result<Placement> placement = placer.place(request);
  decision_ns.push_back(options.now_ns() - begin_ns);
  return placement;
}

}  // namespace

base::Result<ReplayResult> replay(const Trace& trace, const ReplayOptions& options) {
  base::Result<Placer> made = placer_for(trace, options);
  if (!made) return made.status();
  Placer& placer = *made;
  const std::vector<Request> requests = requests_for(placer, trace, options.host);
  Dice dice(options.seed);
  const double target = options.arrivals * static_cast<double>(placer.fleet().share_total());
  Demand demand;
  if (options.learning == Learning::kTrace) {
    for (const Request& request : requests) demand.add(request);
    placer.learn(demand);
  }
  ReplayResult result;
  result.share_total = placer.fleet().share_total();
  for (uint32_t number : arrivals_of(requests, target, dice)) {
    const Request& request = requests[number];
    if (options.learning == Learning::kArrivals) {
      demand.add(request);
      if (learns_after(++result.requests)) placer.learn(demand);
    } else {
      ++result.requests;
    }
    result.share_asked += share_of(request);
    if (!place(placer, request, options, result.decision_ns)) ++result.refused;
  }
  result.share_given = result.share_total - placer.fleet().share_free();
  std::sort(result.decision_ns.begin(), result.decision_ns.end());
  return result;
}

base::Result<ChurnResult> churn(const Trace& trace, const ReplayOptions& options, size_t leases,
                                size_t rounds) {
  constexpr uint32_t kSmaller = 3;
  base::Result<Placer> made = placer_for(trace, options);
  if (!made) return made.status();
  Placer& placer = *made;
  std::vector<Request> requests = requests_for(placer, trace, options.host);
  Demand demand;
  for (Request& request : requests) {
    request.share_millionths /= kSmaller;
    request.host.cpu_milli /= kSmaller;
    request.host.memory_bytes /= kSmaller;
    demand.add(request);
  }
  placer.learn(demand);
  Dice dice(options.seed);
  ChurnResult result;
  std::vector<Placement> held;
  std::vector<uint64_t> untimed;
  for (size_t tries = 0; held.size() < leases && tries < 4 * leases; ++tries) {
    const Request& request = requests[dice.below(requests.size())];
    if (base::Result<Placement> placed = placer.place(request); placed && request.slices != 0)
      held.push_back(placed.take());
    else if (placed)
      placer.release(*placed);
  }
  result.leases = held.size();
  for (size_t round = 0; round < rounds && !held.empty(); ++round) {
    const size_t ended = dice.below(held.size());
    placer.release(held[ended]);
    held[ended] = Placement();
    const Request& request = requests[dice.below(requests.size())];
    base::Result<Placement> placed = place(placer, request, options, result.decision_ns);
    if (placed) held[ended] = placed.take();
  }
  std::sort(result.decision_ns.begin(), result.decision_ns.end());
  return result;
}

}  // namespace tendril::pool
