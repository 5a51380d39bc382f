// SPDX-License-Identifier: Apache-2.0
// The sums of what is free. A placement that does not fit is a programming error here, because
// strategies check before. A wrong sum would promise a GPU twice.
#include "pool/placement/fleet.h"

#include <algorithm>

#include "base/check.h"

namespace tendril::pool {

namespace {

uint64_t part_of(uint64_t whole, uint64_t part, uint64_t of) {
  constexpr uint64_t kSmall = uint64_t{1} << 32;
  if (whole < kSmall && part < kSmall) return whole * part / of;
  return static_cast<uint64_t>(static_cast<unsigned __int128>(whole) * part / of);
}

void refresh(Gpu& gpu) {
  gpu.share_free =
      gpu.share_held < kWholeGpu ? kWholeGpu - static_cast<uint32_t>(gpu.share_held) : 0;
  const uint64_t all = gpu.spec.memory_bytes;
  gpu.memory_free_bytes = gpu.memory_held_bytes < all ? all - gpu.memory_held_bytes : 0;
}

base::Status too_many(const std::string& name, size_t gpus) {
  return base::Status(base::Code::kInvalid, "server " + name + " has " + std::to_string(gpus) +
                                                " GPUs; a pool takes at most " +
                                                std::to_string(kMostGpus) + " of a server");
}

}  // namespace

SliceNeed Gpu::need(const Request& request) const {
  SliceNeed need{request.share_millionths, request.gpu_memory_bytes};
  if (request.memory_follows_share) {
    need.memory_bytes = part_of(spec.memory_bytes, need.share_millionths, kWholeGpu);
    if (need.share_millionths != kWholeGpu) need.memory_bytes -= need.memory_bytes % kPageBytes;
  } else if (need.share_millionths == 0 && spec.memory_bytes != 0) {
    const uint64_t memory_bytes = std::min(need.memory_bytes, spec.memory_bytes);
    const uint64_t share = part_of(memory_bytes, kWholeGpu, spec.memory_bytes);
    need.share_millionths = static_cast<uint32_t>(std::max<uint64_t>(share, 1));
  }
  return need;
}

bool Gpu::has_room(const SliceNeed& need, bool packed_slice) const {
  if (!spec.usable || share_free < need.share_millionths) return false;
  if (slices != 0 && packed != packed_slice) return false;
  if (spec.memory_bytes == 0) return true;
  return memory_free_bytes >= need.memory_bytes &&
         (spec.process_bytes == 0 || need.memory_bytes >= spec.process_bytes + kPageBytes);
}

bool Server::has_room(uint32_t number_of_gpu, const Request& request) const {
  const Gpu& gpu = gpus[number_of_gpu];
  if (gpu.share_free < request.share_millionths) return false;
  if (!request.models.empty() && std::find(request.models.begin(), request.models.end(),
                                           gpu.spec.model) == request.models.end())
    return false;
  return gpu.has_room(gpu.need(request), request.packed) &&
         (request.veto == nullptr || request.veto->allows(number, number_of_gpu));
}

bool Server::fits(const Request& request) const {
  if (!open || cpu_free_milli < request.host.cpu_milli ||
      host_memory_free_bytes < request.host.memory_bytes)
    return false;
  if (request.slices == 0) return true;
  uint32_t with_room = 0;
  for (uint32_t i = 0; i < gpus.size(); ++i)
    if (has_room(i, request) && ++with_room == request.slices) return true;
  return false;
}

std::vector<uint32_t> Server::first_gpus(const Request& request, bool tightest) const {
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < gpus.size(); ++i)
    if (has_room(i, request)) found.push_back(i);
  if (tightest)
    std::stable_sort(found.begin(), found.end(), [this](uint32_t left, uint32_t right) {
      return gpus[left].share_free < gpus[right].share_free;
    });
  if (found.size() > request.slices) found.resize(request.slices);
  return found;
}

uint32_t Fleet::model_id(std::string_view name) {
  const auto found = std::find(models_.begin(), models_.end(), name);
  if (found != models_.end()) return static_cast<uint32_t>(found - models_.begin());
  models_.emplace_back(name);
  return static_cast<uint32_t>(models_.size() - 1);
}

base::Result<uint32_t> Fleet::add(ServerSpec spec) {
  if (spec.gpus > kMostGpus) return too_many(spec.name, spec.gpus);
  const GpuSpec gpu{model_id(spec.model), spec.gpu_memory_bytes, 0, true};
  std::vector<GpuSpec> gpus(spec.gpus, gpu);
  return add(std::move(spec), std::move(gpus));
}

base::Result<uint32_t> Fleet::add(ServerSpec spec, std::vector<GpuSpec> gpus) {
  if (gpus.size() > kMostGpus) return too_many(spec.name, gpus.size());
  Server server;
  server.number = static_cast<uint32_t>(servers_.size());
  server.cpu_free_milli = spec.cpu_milli;
  server.host_memory_free_bytes = spec.host_memory_bytes;
  spec.gpus = 0;
  server.spec = std::move(spec);
  servers_.push_back(std::move(server));
  const uint32_t number = servers_.back().number;
  if (base::Status status = set_gpus(number, gpus); !status) return status;
  servers_[number].version = 1;
  return number;
}

base::Status Fleet::set_gpus(uint32_t number, const std::vector<GpuSpec>& gpus) {
  Server& server = servers_[number];
  if (gpus.size() > kMostGpus) return too_many(server.spec.name, gpus.size());
  share_total_ -= uint64_t{server.spec.gpus} * kWholeGpu;
  server.spec.gpus = static_cast<uint32_t>(gpus.size());
  share_total_ += uint64_t{server.spec.gpus} * kWholeGpu;
  while (server.gpus.size() > gpus.size() && server.gpus.back().slices == 0) server.gpus.pop_back();
  if (server.gpus.size() < gpus.size()) server.gpus.resize(gpus.size());
  for (size_t i = 0; i < server.gpus.size(); ++i) {
    if (i < gpus.size())
      server.gpus[i].spec = gpus[i];
    else
      server.gpus[i].spec.usable = false;
    refresh(server.gpus[i]);
  }
  changed(server);
  return {};
}

void Fleet::set_open(uint32_t server, bool open) {
  servers_[server].open = open;
  ++servers_[server].version;
}

void Fleet::changed(Server& server) {
  share_free_ -= server.share_free;
  server.share_free = 0;
  for (uint32_t i = 0; i < server.spec.gpus; ++i) server.share_free += server.gpus[i].share_free;
  share_free_ += server.share_free;
  ++server.version;
}

void Fleet::put(uint32_t number, uint32_t gpu_number, const SliceNeed& slice, bool packed) {
  TENDRIL_CHECK(number < servers_.size() && gpu_number < kMostGpus);
  Server& server = servers_[number];
  while (server.gpus.size() <= gpu_number) {
    server.gpus.emplace_back();
    server.gpus.back().spec.usable = false;
  }
  Gpu& gpu = server.gpus[gpu_number];
  gpu.share_held += slice.share_millionths;
  gpu.memory_held_bytes += slice.memory_bytes;
  gpu.packed = packed;
  ++gpu.slices;
  refresh(gpu);
  changed(server);
}

void Fleet::lift(uint32_t number, uint32_t gpu_number, const SliceNeed& slice) {
  TENDRIL_CHECK(number < servers_.size() && gpu_number < servers_[number].gpus.size());
  Server& server = servers_[number];
  Gpu& gpu = server.gpus[gpu_number];
  TENDRIL_CHECK(gpu.slices != 0 && gpu.share_held >= slice.share_millionths &&
                gpu.memory_held_bytes >= slice.memory_bytes);
  gpu.share_held -= slice.share_millionths;
  gpu.memory_held_bytes -= slice.memory_bytes;
  --gpu.slices;
  refresh(gpu);
  changed(server);
}

void Fleet::take(const Piece& piece, uint32_t share_millionths, uint64_t gpu_memory_bytes) {
  TENDRIL_CHECK(piece.server < servers_.size());
  Server& server = servers_[piece.server];
  TENDRIL_CHECK(server.cpu_free_milli >= piece.host.cpu_milli);
  TENDRIL_CHECK(server.host_memory_free_bytes >= piece.host.memory_bytes);
  server.cpu_free_milli -= piece.host.cpu_milli;
  server.host_memory_free_bytes -= piece.host.memory_bytes;
  for (uint32_t number : piece.gpus) {
    TENDRIL_CHECK(number < server.gpus.size());
    const Gpu& gpu = server.gpus[number];
    TENDRIL_CHECK(gpu.share_free >= share_millionths);
    TENDRIL_CHECK(gpu.spec.memory_bytes == 0 || gpu.memory_free_bytes >= gpu_memory_bytes);
    put(piece.server, number, SliceNeed{share_millionths, gpu_memory_bytes}, false);
  }
  ++server.version;
}

void Fleet::give(const Piece& piece, uint32_t share_millionths, uint64_t gpu_memory_bytes) {
  TENDRIL_CHECK(piece.server < servers_.size());
  Server& server = servers_[piece.server];
  server.cpu_free_milli += piece.host.cpu_milli;
  server.host_memory_free_bytes += piece.host.memory_bytes;
  TENDRIL_CHECK(server.cpu_free_milli <= server.spec.cpu_milli);
  TENDRIL_CHECK(server.host_memory_free_bytes <= server.spec.host_memory_bytes);
  for (uint32_t number : piece.gpus)
    lift(piece.server, number, SliceNeed{share_millionths, gpu_memory_bytes});
  ++server.version;
}

}  // namespace tendril::pool
