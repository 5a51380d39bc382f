// SPDX-License-Identifier: Apache-2.0
// A kind of GPU, in the words of placement/ a model, is a class together with a model and its
// memory. So a search looks only at lists of GPUs of the class.
#include "pool/engine/room.h"

#include <algorithm>

namespace tendril::pool {

Room::Room() : strategy_(make_snug()) {}

std::vector<GpuSpec> Room::specs(const EngineServer& server) {
  std::vector<GpuSpec> specs;
  for (const EngineGpu& gpu : server.gpus) {
    const std::string kind = std::to_string(gpu.gpu_class) + "\n" + gpu.model + "\n" +
                             std::to_string(gpu.memory_usable_bytes);
    const uint32_t model = fleet_.model_id(kind);
    std::vector<uint32_t>& kinds = kinds_[gpu.gpu_class];
    if (std::find(kinds.begin(), kinds.end(), model) == kinds.end()) kinds.push_back(model);
    const bool usable = gpu.gpu_class != kNoClass && gpu.memory_usable_bytes != 0;
    specs.push_back(GpuSpec{model, gpu.memory_usable_bytes, gpu.process_bytes, usable});
  }
  return specs;
}

base::Result<uint32_t> Room::add(const EngineServer& server) {
  ServerSpec spec;
  spec.name = server.name;
  base::Result<uint32_t> added = fleet_.add(spec, specs(server));
  if (!added) return added;
  hosts_.push_back(Host{server, ServerState::kOpen, {}, false});
  strategy_->changed(fleet_, *added);
  return added;
}

base::Status Room::update(uint32_t server, const EngineServer& what) {
  if (base::Status status = fleet_.set_gpus(server, specs(what)); !status) return status;
  hosts_[server].what = what;
  strategy_->changed(fleet_, server);
  return {};
}

void Room::set_state(uint32_t server, ServerState state) {
  hosts_[server].state = state;
  fleet_.set_open(server, state == ServerState::kOpen);
  strategy_->changed(fleet_, server);
}

void Room::set_maintenance(uint32_t server, std::vector<Interval> windows) {
  hosts_[server].maintenance = std::move(windows);
}

std::vector<PlacedSlice> Room::find(const Ask& ask, uint32_t gpu_class, int64_t) {
  const auto kinds = kinds_.find(gpu_class);
  std::vector<PlacedSlice> found;
  if (kinds == kinds_.end()) return found;
  Request request;
  request.share_millionths = ask.share_millionths;
  request.gpu_memory_bytes = ask.memory_bytes;
  request.memory_follows_share = ask.memory_bytes == 0;
  request.packed = ask.packed;
  request.models = kinds->second;
  request.slices = ask.slices;
  const auto piece = strategy_->choose(fleet_, request);
  if (!piece) return found;
  for (uint32_t gpu : piece->gpus) {
    const SliceNeed need = fleet_.server(piece->server).gpus[gpu].need(request);
    found.push_back(PlacedSlice{piece->server, gpu, need.share_millionths, need.memory_bytes});
  }
  return found;
}

void Room::hold(uint64_t id, const std::vector<PlacedSlice>& slices, bool packed,
                int64_t ends_by_s) {
  held_[id] = Held{slices, packed, ends_by_s};
  for (const PlacedSlice& slice : slices) {
    fleet_.put(slice.server, slice.gpu, SliceNeed{slice.share_millionths, slice.memory_bytes},
               packed);
    strategy_->changed(fleet_, slice.server);
  }
}

void Room::release(uint64_t id) {
  const auto found = held_.find(id);
  if (found == held_.end()) return;
  for (const PlacedSlice& slice : found->second.slices) {
    fleet_.lift(slice.server, slice.gpu, SliceNeed{slice.share_millionths, slice.memory_bytes});
    strategy_->changed(fleet_, slice.server);
  }
  held_.erase(found);
}

}  // namespace tendril::pool
