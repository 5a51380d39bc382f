// SPDX-License-Identifier: Apache-2.0
// The published strategies, as their authors' simulator has them (github.com/hkust-adsl/
// kubernetes-scheduler-simulator): the same scores, rounded to whole numbers from 0 to 100, and
// among equals the server that joined first. They are here to compare with, and look at every
// server for each request.
#include <algorithm>
#include <cmath>
#include <random>

#include "pool/placement/strategy.h"

namespace tendril::pool {

namespace {

constexpr double kMilli = 1000;  // millionths of a GPU in the simulator's unit
constexpr double kMostPoints = 100;

Piece piece_on(uint32_t server, std::vector<uint32_t> gpus, const Request& request) {
  return Piece{server, std::move(gpus), request.host};
}

// Any server that fits, all with equal chance; for one slice any of its GPUs.
class Random final : public Strategy {
 public:
  explicit Random(uint64_t seed) : generator_(seed) {}

  std::optional<Piece> choose(const Fleet& fleet, const Request& request) override {
    uint32_t fitting = 0;
    uint32_t chosen = 0;
    for (uint32_t number = 0; number < fleet.servers().size(); ++number)
      if (fleet.server(number).fits(request) && generator_() % ++fitting == 0) chosen = number;
    if (fitting == 0) return std::nullopt;
    const Server& server = fleet.server(chosen);
    if (request.slices != 1) return piece_on(chosen, server.first_gpus(request, false), request);
    uint32_t with_room = 0;
    uint32_t gpu = 0;
    for (uint32_t i = 0; i < server.gpus.size(); ++i)
      if (server.has_room(i, request) && generator_() % ++with_room == 0) gpu = i;
    return piece_on(chosen, {gpu}, request);
  }

 private:
  std::mt19937_64 generator_;
};

// The server with the least processors and GPUs left over, each relative to the largest server.
class BestFit final : public Strategy {
 public:
  std::optional<Piece> choose(const Fleet& fleet, const Request& request) override {
    constexpr double kMostCpuMilli = 128'000;
    constexpr double kMostGpuMillionths = 8e6;
    int best_points = -1;
    uint32_t best = 0;
    for (uint32_t number = 0; number < fleet.servers().size(); ++number) {
      const Server& server = fleet.server(number);
      if (!server.fits(request)) continue;
      const double cpu_left = server.cpu_free_milli - double(request.host.cpu_milli);
      const double gpu_left =
          double(server.share_free) - double(request.share_millionths) * request.slices;
      const double left = (cpu_left / kMostCpuMilli + gpu_left / kMostGpuMillionths) / 2;
      const int points = std::max(0, static_cast<int>((1 - left) * kMostPoints));
      if (points <= best_points) continue;
      best_points = points;
      best = number;
    }
    if (best_points < 0) return std::nullopt;
    return piece_on(best, fleet.server(best).first_gpus(request, true), request);
  }
};

// FGD (Weng et al., "Beware of Fragmentation", USENIX ATC 2023): the server and GPU where the
// request makes the share that typical requests cannot use grow least. Scores are kept for each
// kind of request until the server changes.
class FragmentationGradient final : public Strategy {
 public:
  void learn(const Fleet&, const Demand& demand) override {
    constexpr double kTypicalPart = 0.95;
    typical_ = demand.typical(kTypicalPart);
    scores_.clear();
  }

  std::optional<Piece> choose(const Fleet& fleet, const Request& request) override {
    constexpr size_t kMostKinds = 4096;
    if (scores_.size() > kMostKinds) scores_.clear();
    std::vector<Score>& scores = scores_[Key{request.slices, request.share_millionths,
                                             request.host.cpu_milli, request.models}];
    scores.resize(fleet.servers().size());
    int best_points = -1;
    uint32_t best = 0;
    for (uint32_t number = 0; number < fleet.servers().size(); ++number) {
      const Server& server = fleet.server(number);
      if (!server.fits(request)) continue;
      Score& score = scores[number];
      if (score.version != server.version) score = score_of(server, request);
      if (score.points <= best_points) continue;
      best_points = score.points;
      best = number;
    }
    if (best_points < 0) return std::nullopt;
    if (request.slices == 1 && request.share_millionths < kWholeGpu)
      return piece_on(best, {scores[best].gpu}, request);
    return piece_on(best, fleet.server(best).first_gpus(request, false), request);
  }

 private:
  using Key = std::tuple<uint32_t, uint32_t, uint32_t, std::vector<uint32_t>>;
  struct Score {
    uint32_t version = 0;
    int points = -1;
    uint32_t gpu = 0;
  };

  // Share (thousandths) of the server that a typical request, by chance, cannot use.
  double unusable(const Server& server, uint32_t cpu_milli) const {
    double all = 0;
    for (const Gpu& gpu : server.gpus) all += gpu.share_free;
    double sum = 0;
    for (const DemandKind& kind : typical_) {
      const bool model_fits =
          kind.models.empty() ||
          std::find(kind.models.begin(), kind.models.end(), server.model()) != kind.models.end();
      double lost = all;
      if (kind.slices != 0 && model_fits && cpu_milli >= kind.cpu_milli) {
        uint32_t with_room = 0;
        double too_small = 0;
        for (const Gpu& gpu : server.gpus) {
          if (gpu.share_free >= kind.share_millionths)
            ++with_room;
          else
            too_small += gpu.share_free;
        }
        if (with_room >= kind.slices) lost = too_small;
      }
      sum += kind.weight * lost;
    }
    return sum / kMilli;
  }

  Score score_of(const Server& server, const Request& request) const {
    const double before = unusable(server, server.cpu_free_milli);
    const uint32_t cpu_left = server.cpu_free_milli - request.host.cpu_milli;
    Score score{server.version, -1, 0};
    Server after = server;
    const auto points = [&] {
      const double gain = (before - unusable(after, cpu_left)) / kMilli;
      return static_cast<int>(kMostPoints / (1 + std::exp(-gain)));
    };
    if (request.slices == 1 && request.share_millionths < kWholeGpu) {
      for (uint32_t i = 0; i < after.gpus.size(); ++i) {
        if (!server.has_room(i, request)) continue;
        after.gpus[i].share_free -= request.share_millionths;
        if (const int here = points(); here > score.points) {
          score.points = here;
          score.gpu = i;
        }
        after.gpus[i].share_free += request.share_millionths;
      }
      return score;
    }
    for (uint32_t number : server.first_gpus(request, true))
      after.gpus[number].share_free -= request.share_millionths;
    score.points = points();
    return score;
  }

  std::vector<DemandKind> typical_;
  std::map<Key, std::vector<Score>> scores_;
};

}  // namespace

std::unique_ptr<Strategy> make_random(uint64_t seed) { return std::make_unique<Random>(seed); }

std::unique_ptr<Strategy> make_best_fit() { return std::make_unique<BestFit>(); }

std::unique_ptr<Strategy> make_fragmentation_gradient() {
  return std::make_unique<FragmentationGradient>();
}

std::unique_ptr<Strategy> make_strategy(std::string_view name, uint64_t seed) {
  if (name == "random") return make_random(seed);
  if (name == "bestfit") return make_best_fit();
  if (name == "fgd") return make_fragmentation_gradient();
  if (name == "snug") return make_snug();
  return nullptr;
}

}  // namespace tendril::pool
