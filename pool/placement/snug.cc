// SPDX-License-Identifier: Apache-2.0
// Strategy Snug, the pool's own. It puts a slice where the sum of three costs is least:
//   waste    how much more of the GPU's gap will probably stay unused (gap_waste.h);
//   balance  how much further the server is from using up GPUs and processors together;
//   fullness a little for each GPU still free on the server, so that some servers stay empty.
// All costs are in thousandths of a GPU. docs/decisions/0018-placement-of-the-pool.md says why.
//
// The search goes through lists of servers that have the same gap (server_index.h). Each list has a
// lowest possible cost; a list that cannot beat the best server so far is passed over. Inside a
// list the cost only grows along one of the two orders, so the search ends early there too.
#include <algorithm>
#include <bit>
#include <limits>

#include "pool/placement/gap_waste.h"
#include "pool/placement/server_index.h"
#include "pool/placement/strategy.h"

namespace tendril::pool {

namespace {

// Cost of a thousandth of a GPU that its server's processors cannot serve, of processors without a
// GPU (as much as serve a thousandth), of a thousandth free, and of each whole GPU left free beside
// a request for several.
constexpr double kUnserved = 0.5;
constexpr double kIdleProcessors = 0.05;
constexpr double kFree = 0.0025;
constexpr double kWholeLeft = 1;
// The most servers with room that are examined in one list and order. Seldom reached; it limits the
// time.
constexpr int kLooks = 48;

double imbalance(double balance) {
  return balance > 0 ? kUnserved * balance : -kIdleProcessors * balance;
}

// The search for one request.
class Search {
 public:
  Search(const Fleet& fleet, const ServerIndex& index, const Request& request, double shift)
      : fleet_(fleet),
        index_(index),
        request_(request),
        shift_(shift),
        best_shift_cost_(
            std::min(imbalance(shift) - imbalance(0), imbalance(0) - imbalance(-shift))) {}

  bool found() const { return best_cost_ < kNone; }
  uint32_t server() const { return best_server_; }
  uint32_t gpu() const { return best_gpu_; }

  // Looks for a better server in the list. `cost` is what its servers cost by being in it. `gap`:
  // the slice goes into a gap of this size; 0 if the list is not one of gaps.
  void look(const ServerList& list, double cost, uint32_t gap);
  // Looks at every server of the list.
  void look_at_all(const ServerList& list);

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  // The cost of balance is at its lowest from here on: upwards if the request takes more GPU than
  // processors, downwards if less.
  bool balances(int32_t balance) const {
    return shift_ < 0 ? balance >= -shift_ : balance <= -shift_;
  }
  double balance_cost(int32_t balance) const {
    return imbalance(balance + shift_) - imbalance(balance);
  }
  // Takes the server if it is better. False if the request does not fit there.
  bool consider(uint32_t server, double cost, uint32_t gap);
  void look_by_balance(const ServerList& list, double cost, uint32_t gap, bool upwards);

  const Fleet& fleet_;
  const ServerIndex& index_;
  const Request& request_;
  const double shift_;  // of a server's balance, by the request
  const double best_shift_cost_;
  double best_cost_ = kNone;
  uint32_t best_server_ = 0;
  uint32_t best_gpu_ = 0;
};

bool Search::consider(uint32_t number, double cost, uint32_t gap) {
  const Server& server = fleet_.server(number);
  if (server.cpu_free_milli < request_.host.cpu_milli ||
      server.host_memory_free_bytes < request_.host.memory_bytes)
    return false;
  uint32_t gpu = 0;
  if (gap != 0) {
    while (gpu < server.gpus.size() &&
           (ServerIndex::gap_of(server.gpus[gpu]) != gap || !server.has_room(gpu, request_)))
      ++gpu;
    if (gpu == server.gpus.size()) return false;
  } else if (!server.fits(request_)) {
    return false;
  }
  const ServerIndex::Entry& entry = index_.entry(number);
  cost += balance_cost(entry.balance) + kFree * entry.free;
  if (cost < best_cost_) {
    best_cost_ = cost;
    best_server_ = number;
    best_gpu_ = gpu;
  }
  return true;
}

void Search::look(const ServerList& list, double cost, uint32_t gap) {
  const std::vector<uint64_t>& keys = list.by_free.keys();
  if (keys.empty()) return;
  const double least = cost + best_shift_cost_;
  // Among servers that balance, the fullest with room is the best.
  int looks = kLooks;
  bool balanced = false;
  for (uint64_t key : keys) {
    if (least + kFree * SortedServers::value_of(key) >= best_cost_) return;
    const uint32_t number = SortedServers::server_of(key);
    if (!consider(number, cost, gap)) continue;
    balanced = balances(index_.entry(number).balance);
    if (balanced || --looks == 0) break;
  }
  // The other servers, by how little balance they lack.
  look_by_balance(list, cost, gap, shift_ >= 0);
  if (!balanced) look_by_balance(list, cost, gap, shift_ < 0);
}

void Search::look_by_balance(const ServerList& list, double cost, uint32_t gap, bool upwards) {
  const std::vector<uint64_t>& keys = list.by_balance.keys();
  const double fullest = kFree * SortedServers::value_of(list.by_free.keys().front());
  size_t at = list.by_balance.lower_bound(static_cast<int32_t>(-shift_));
  int looks = kLooks;
  while (looks > 0 && (upwards ? at < keys.size() : at > 0)) {
    const uint64_t key = keys[upwards ? at++ : --at];
    if (cost + balance_cost(SortedServers::value_of(key)) + fullest >= best_cost_) return;
    if (consider(SortedServers::server_of(key), cost, gap)) --looks;
  }
}

void Search::look_at_all(const ServerList& list) {
  for (uint64_t key : list.by_free.keys()) consider(SortedServers::server_of(key), 0, 0);
}

class Snug final : public Strategy {
 public:
  Snug() { learn(Fleet(), Demand()); }

  void learn(const Fleet& fleet, const Demand& demand) override {
    waste_ = gap_waste(demand);
    cpu_milli_per_gpu_ = demand.cpu_milli_per_gpu();
    index_.rebuild(fleet, cpu_milli_per_gpu_);
  }

  void changed(const Fleet& fleet, uint32_t server) override { index_.update(fleet, server); }

  std::optional<Piece> choose(const Fleet& fleet, const Request& request) override {
    Search search(fleet, index_, request, shift(request));
    for (size_t model = 0; model < index_.model_count(); ++model)
      if (request.models.empty() || request.slices == 0 ||
          std::find(request.models.begin(), request.models.end(), model) != request.models.end())
        look(search, index_.model(model), request);
    // Its GPUs of several models may be enough together.
    if (request.slices > 1) search.look_at_all(index_.mixed());
    if (!search.found()) return std::nullopt;
    const Server& server = fleet.server(search.server());
    if (request.slices == 1) return Piece{search.server(), {search.gpu()}, request.host};
    return Piece{search.server(), server.first_gpus(request, true), request.host};
  }

 private:
  double shift(const Request& request) const {
    if (cpu_milli_per_gpu_ <= 0) return 0;
    const double share = double(request.slices) * request.share_millionths / kGapStep;
    return request.host.cpu_milli / cpu_milli_per_gpu_ * kGapSteps - share;
  }

  void look(Search& search, const ServerIndex::Model& model, const Request& request) const {
    if (request.slices == 0) return search.look(model.all, 0, 0);
    if (request.slices == 1) return look_at_gaps(search, model, request);
    if (request.share_millionths < kWholeGpu) return search.look_at_all(model.all);
    for (uint32_t whole = request.slices; whole <= kMostGpus; ++whole)
      search.look(model.by_whole[whole], kWholeLeft * whole, 0);
  }

  void look_at_gaps(Search& search, const ServerIndex::Model& model, const Request& request) const {
    // Sizes are rounded so that a slice of a third meets the gap of a third that it left.
    uint32_t from = request.share_millionths / kGapStep;
    uint32_t size = (request.share_millionths + kGapStep - 1) / kGapStep;
    if (const uint64_t most = model.most_gpu_memory_bytes; most != 0) {
      if (request.memory_follows_share) {
        // Its memory is rounded down to pages.
        const auto pages = static_cast<uint32_t>(kPageBytes * kGapSteps / most) + 1;
        from = from > pages ? from - pages : 0;
      } else {
        const double part =
            static_cast<double>(request.gpu_memory_bytes) / static_cast<double>(most);
        const auto of_memory = static_cast<uint32_t>(std::min(part, 1.0) * kGapSteps);
        from = request.share_millionths == 0 ? of_memory : std::min(from, of_memory);
        size = std::max(size, of_memory);
      }
    }
    from = std::max(from, 1U);
    for (uint32_t word = from / 64; word < model.gaps_present.size(); ++word) {
      uint64_t bits = model.gaps_present[word];
      if (word == from / 64) bits &= ~uint64_t{0} << from % 64;
      for (; bits != 0; bits &= bits - 1) {
        const uint32_t gap = word * 64 + std::countr_zero(bits);
        search.look(model.by_gap[gap], waste_[gap > size ? gap - size : 0] - waste_[gap], gap);
      }
    }
  }

  GapWaste waste_{};
  double cpu_milli_per_gpu_ = 0;
  ServerIndex index_;
};

}  // namespace

std::unique_ptr<Strategy> make_snug() { return std::make_unique<Snug>(); }

}  // namespace tendril::pool
