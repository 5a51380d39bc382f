// SPDX-License-Identifier: Apache-2.0
// The sums of what is free. A placement that does not fit is a programming error here, because
// strategies check before. A wrong sum would promise a GPU twice.
#include "pool/placement/fleet.h"

#include <algorithm>

#include "base/check.h"

namespace tendril::pool {

bool Server::has_room(const Gpu& gpu, const Request& request) const {
  return gpu.share_free >= request.share_millionths &&
         (spec.gpu_memory_bytes == 0 || gpu.memory_free_bytes >= request.gpu_memory_bytes);
}

bool Server::fits(const Request& request) const {
  if (!open || cpu_free_milli < request.host.cpu_milli ||
      host_memory_free_bytes < request.host.memory_bytes)
    return false;
  if (request.slices == 0) return true;
  if (!request.models.empty() &&
      std::find(request.models.begin(), request.models.end(), model) == request.models.end())
    return false;
  uint32_t with_room = 0;
  for (const Gpu& gpu : gpus)
    if (has_room(gpu, request) && ++with_room == request.slices) return true;
  return false;
}

std::vector<uint32_t> Server::first_gpus(const Request& request, bool tightest) const {
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < gpus.size(); ++i)
    if (has_room(gpus[i], request)) found.push_back(i);
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
  if (spec.gpus > kMostGpus)
    return base::Status(base::Code::kInvalid, "server " + spec.name + " has " +
                                                  std::to_string(spec.gpus) +
                                                  " GPUs; a pool takes at most " +
                                                  std::to_string(kMostGpus) + " of a server");
  Server server;
  server.model = model_id(spec.model);
  server.gpus.assign(spec.gpus, Gpu{kWholeGpu, spec.gpu_memory_bytes});
  server.cpu_free_milli = spec.cpu_milli;
  server.host_memory_free_bytes = spec.host_memory_bytes;
  server.share_free = uint64_t{spec.gpus} * kWholeGpu;
  server.spec = std::move(spec);
  share_total_ += server.share_free;
  share_free_ += server.share_free;
  servers_.push_back(std::move(server));
  return static_cast<uint32_t>(servers_.size() - 1);
}

void Fleet::set_open(uint32_t server, bool open) {
  servers_[server].open = open;
  ++servers_[server].version;
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
    Gpu& gpu = server.gpus[number];
    TENDRIL_CHECK(gpu.share_free >= share_millionths);
    gpu.share_free -= share_millionths;
    if (server.spec.gpu_memory_bytes != 0) {
      TENDRIL_CHECK(gpu.memory_free_bytes >= gpu_memory_bytes);
      gpu.memory_free_bytes -= gpu_memory_bytes;
    }
  }
  const uint64_t taken = uint64_t{share_millionths} * piece.gpus.size();
  server.share_free -= taken;
  share_free_ -= taken;
  ++server.version;
}

void Fleet::give(const Piece& piece, uint32_t share_millionths, uint64_t gpu_memory_bytes) {
  TENDRIL_CHECK(piece.server < servers_.size());
  Server& server = servers_[piece.server];
  server.cpu_free_milli += piece.host.cpu_milli;
  server.host_memory_free_bytes += piece.host.memory_bytes;
  TENDRIL_CHECK(server.cpu_free_milli <= server.spec.cpu_milli);
  TENDRIL_CHECK(server.host_memory_free_bytes <= server.spec.host_memory_bytes);
  for (uint32_t number : piece.gpus) {
    TENDRIL_CHECK(number < server.gpus.size());
    Gpu& gpu = server.gpus[number];
    gpu.share_free += share_millionths;
    TENDRIL_CHECK(gpu.share_free <= kWholeGpu);
    if (server.spec.gpu_memory_bytes != 0) {
      gpu.memory_free_bytes += gpu_memory_bytes;
      TENDRIL_CHECK(gpu.memory_free_bytes <= server.spec.gpu_memory_bytes);
    }
  }
  const uint64_t given = uint64_t{share_millionths} * piece.gpus.size();
  server.share_free += given;
  share_free_ += given;
  ++server.version;
}

}  // namespace tendril::pool
