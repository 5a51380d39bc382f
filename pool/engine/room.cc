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
    uint64_t& largest = largest_memory_[gpu.gpu_class];
    largest = std::max(largest, gpu.memory_usable_bytes);
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
  hosts_.push_back(Host{server, ServerState::kOpen, {}, false, 0});
  holders_.resize(hosts_.size() * kMostGpus);
  changed(*added);
  return added;
}

base::Status Room::update(uint32_t server, const EngineServer& what) {
  if (base::Status status = fleet_.set_gpus(server, specs(what)); !status) return status;
  hosts_[server].what = what;
  changed(server);
  return {};
}

void Room::set_state(uint32_t server, ServerState state) {
  Host& host = hosts_[server];
  if (host.removed) return;
  host.state = state;
  fleet_.set_open(server, state == ServerState::kOpen);
  changed(server);
}

void Room::set_maintenance(uint32_t server, std::vector<Interval> windows) {
  hosts_[server].maintenance = std::move(windows);
  changed(server);
}

void Room::remove(uint32_t server) {
  set_state(server, ServerState::kSilent);
  hosts_[server].removed = true;
}

void Room::changed(uint32_t server) {
  strategy_->changed(fleet_, server);
  for (auto each = filters_.begin(); each != filters_.end();) {
    if (const auto answers = each->second.lock()) {
      answer(*answers, server);
      ++each;
    } else {
      each = filters_.erase(each);
    }
  }
  ++changes_;
  gained();
}

std::shared_ptr<const FilterAnswers> Room::answers_of(const Ask& ask) {
  if (!ask.filter || ask.filter_changes) return nullptr;
  std::weak_ptr<FilterAnswers>& known = filters_[ask.filter_text];
  if (auto answers = known.lock()) return answers;
  auto answers = std::make_shared<FilterAnswers>();
  answers->filter = ask.filter;
  for (uint32_t server = 0; server < hosts_.size(); ++server) answer(*answers, server);
  known = answers;
  return answers;
}

void Room::answer(FilterAnswers& answers, uint32_t server) const {
  if (answers.allowed.size() <= server) answers.allowed.resize(server + 1);
  uint64_t& allowed = answers.allowed[server];
  allowed = 0;
  const std::vector<EngineGpu>& gpus = hosts_[server].what.gpus;
  for (uint32_t gpu = 0; gpu < gpus.size(); ++gpu) {
    if (gpus[gpu].gpu_class == kNoClass || !answers.filter(server, gpu)) continue;
    allowed |= uint64_t{1} << gpu;
    const uint32_t model = fleet_.server(server).gpus[gpu].spec.model;
    std::vector<uint32_t>& kinds = answers.kinds[gpus[gpu].gpu_class];
    if (std::find(kinds.begin(), kinds.end(), model) == kinds.end()) kinds.push_back(model);
  }
}

Request Room::request_for(const Ask& ask) {
  Request request;
  request.slices = ask.slices;
  request.share_millionths = ask.share_millionths;
  request.gpu_memory_bytes = ask.memory_bytes;
  request.memory_follows_share = ask.memory_bytes == 0;
  request.packed = ask.packed;
  request.spread = ask.spread;
  return request;
}

PlacedSlice Room::slice_on(uint32_t server, uint32_t gpu, const Request& request) const {
  const SliceNeed need = fleet_.server(server).gpus[gpu].need(request);
  return PlacedSlice{server, gpu, need.share_millionths, need.memory_bytes};
}

const std::vector<uint32_t>* Room::kinds_for(const Seeker& seeker, uint32_t gpu_class) const {
  const auto& all = seeker.filter != nullptr ? seeker.filter->kinds : kinds_;
  const auto found = all.find(gpu_class);
  return found == all.end() ? nullptr : &found->second;
}

bool Room::class_has(uint32_t gpu_class, uint32_t model) const {
  const auto found = kinds_.find(gpu_class);
  return found != kinds_.end() &&
         std::find(found->second.begin(), found->second.end(), model) != found->second.end();
}

void Room::hold(uint64_t id, const std::vector<PlacedSlice>& slices, bool packed,
                int64_t ends_by_s) {
  held_[id] = Held{slices, packed};
  for (const PlacedSlice& slice : slices) {
    fleet_.put(slice.server, slice.gpu, SliceNeed{slice.share_millionths, slice.memory_bytes},
               packed);
    holders_[place(slice.server, slice.gpu)].push_back(
        Holder{id, slice.share_millionths, slice.memory_bytes, ends_by_s, packed});
    strategy_->changed(fleet_, slice.server);
  }
}

void Room::set_end(uint64_t id, int64_t ends_by_s) {
  const auto found = held_.find(id);
  if (found == held_.end()) return;
  for (const PlacedSlice& slice : found->second.slices)
    for (Holder& holder : holders_[place(slice.server, slice.gpu)])
      if (holder.id == id) holder.ends_by_s = ends_by_s;
  gained();
}

void Room::release(uint64_t id) {
  const auto found = held_.find(id);
  if (found == held_.end()) return;
  for (const PlacedSlice& slice : found->second.slices) {
    fleet_.lift(slice.server, slice.gpu, SliceNeed{slice.share_millionths, slice.memory_bytes});
    std::erase_if(holders_[place(slice.server, slice.gpu)],
                  [id](const Holder& holder) { return holder.id == id; });
    strategy_->changed(fleet_, slice.server);
    const uint32_t gpu_class = class_of(slice.server, slice.gpu);
    if (gpu_class == kNoClass) continue;
    if (gains_.size() <= gpu_class) gains_.resize(gpu_class + 1);
    ++gains_[gpu_class];
  }
  held_.erase(found);
}

const std::vector<PlacedSlice>* Room::slices_of(uint64_t id) const {
  const auto found = held_.find(id);
  return found == held_.end() ? nullptr : &found->second.slices;
}

void Room::claim(const std::vector<PlacedSlice>& slices, const Claim& what) {
  for (const PlacedSlice& slice : slices) {
    Claim claim = what;
    claim.share_millionths = slice.share_millionths;
    claim.memory_bytes = slice.memory_bytes;
    claims_[place(slice.server, slice.gpu)].push_back(claim);
    ++hosts_[slice.server].claims;
  }
}

void Room::drop_claims(uint64_t owner, bool reservation) {
  bool dropped = false;
  for (auto each = claims_.begin(); each != claims_.end();) {
    const size_t before = each->second.size();
    std::erase_if(each->second, [&](const Claim& claim) {
      return claim.owner == owner && claim.reservation == reservation;
    });
    const size_t gone = before - each->second.size();
    dropped = dropped || gone != 0;
    hosts_[each->first / kMostGpus].claims -= static_cast<uint32_t>(gone);
    each = each->second.empty() ? claims_.erase(each) : std::next(each);
  }
  if (dropped) gained();
}

uint32_t Room::class_of(uint32_t server, uint32_t gpu) const {
  const std::vector<EngineGpu>& gpus = hosts_[server].what.gpus;
  return gpu < gpus.size() ? gpus[gpu].gpu_class : kNoClass;
}

uint64_t Room::amount_of(const PlacedSlice& slice) const {
  const std::vector<EngineGpu>& gpus = hosts_[slice.server].what.gpus;
  const uint64_t all = slice.gpu < gpus.size() ? gpus[slice.gpu].memory_usable_bytes : 0;
  if (all == 0) return slice.share_millionths;
  const double part = static_cast<double>(slice.memory_bytes) / static_cast<double>(all);
  return std::max<uint64_t>(slice.share_millionths,
                            static_cast<uint64_t>(std::min(part, 1.0) * kWholeGpu));
}

uint64_t Room::amount_of(const Ask& ask, uint32_t gpu_class) const {
  uint64_t each = ask.share_millionths;
  const uint64_t largest = ask.memory_bytes != 0 ? largest_memory(gpu_class) : 0;
  if (largest != 0) {
    const double part = static_cast<double>(ask.memory_bytes) / static_cast<double>(largest);
    each = std::max<uint64_t>(each, static_cast<uint64_t>(std::min(part, 1.0) * kWholeGpu));
  }
  return each * ask.slices;
}

uint64_t Room::largest_memory(uint32_t gpu_class) const {
  const auto largest = largest_memory_.find(gpu_class);
  return largest == largest_memory_.end() ? 0 : largest->second;
}

uint64_t Room::capacity(uint32_t gpu_class) const {
  uint64_t sum = 0;
  for (uint32_t server = 0; server < hosts_.size(); ++server) {
    if (hosts_[server].removed) continue;
    const bool silent = hosts_[server].state == ServerState::kSilent;
    const Server& here = fleet_.server(server);
    for (uint32_t gpu = 0; gpu < hosts_[server].what.gpus.size(); ++gpu)
      if (hosts_[server].what.gpus[gpu].gpu_class == gpu_class && here.gpus[gpu].spec.usable)
        sum += silent ? kWholeGpu - here.gpus[gpu].share_free : kWholeGpu;
  }
  return sum;
}

uint64_t Room::unused(uint32_t gpu_class) const {
  uint64_t sum = 0;
  for (uint32_t server = 0; server < hosts_.size(); ++server) {
    if (hosts_[server].state != ServerState::kOpen) continue;
    const Server& here = fleet_.server(server);
    for (uint32_t gpu = 0; gpu < hosts_[server].what.gpus.size(); ++gpu)
      if (hosts_[server].what.gpus[gpu].gpu_class == gpu_class && here.gpus[gpu].spec.usable)
        sum += here.gpus[gpu].share_free;
  }
  return sum;
}

uint64_t Room::gains(uint32_t gpu_class) const {
  return all_gains_ + (gpu_class < gains_.size() ? gains_[gpu_class] : 0);
}

void Room::gained() { ++all_gains_; }

}  // namespace tendril::pool
