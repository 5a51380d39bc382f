// SPDX-License-Identifier: Apache-2.0
// All slices or none, on one server or on several.
#include "pool/placement/placer.h"

#include <string>
#include <utility>

namespace tendril::pool {

namespace {

base::Status check(const Request& request) {
  if (request.slices > kMostSlices)
    return base::Status(base::Code::kInvalid, "the request has " + std::to_string(request.slices) +
                                                  " slices; ask for at most " +
                                                  std::to_string(kMostSlices));
  if (request.slices != 0 &&
      (request.share_millionths == 0 || request.share_millionths > kWholeGpu))
    return base::Status(base::Code::kInvalid, "a slice's share is " +
                                                  std::to_string(request.share_millionths) +
                                                  " millionths; it must be from 1 to 1000000");
  return {};
}

base::Status no_room(const Request& request, size_t found) {
  return base::Status(base::Code::kUnavailable,
                      "the pool has room for " + std::to_string(found) + " of " +
                          std::to_string(request.slices) + " slices of " +
                          std::to_string(request.share_millionths) +
                          " millionths of a GPU now; wait, or ask for less");
}

}  // namespace

base::Result<uint32_t> Placer::add_server(ServerSpec spec) {
  base::Result<uint32_t> added = fleet_.add(std::move(spec));
  if (added) strategy_->changed(fleet_, *added);
  return added;
}

void Placer::set_open(uint32_t server, bool open) {
  fleet_.set_open(server, open);
  strategy_->changed(fleet_, server);
}

base::Result<Placement> Placer::place(const Request& request) {
  if (base::Status status = check(request); !status) return status;
  if (request.spread == Spread::kAnyServers && request.slices > 1)
    return place_over_servers(request);
  std::optional<Piece> piece = strategy_->choose(fleet_, request);
  if (!piece) return no_room(request, 0);
  take(*piece, request.share_millionths, request.gpu_memory_bytes);
  Placement placement{request.share_millionths, request.gpu_memory_bytes, {}};
  placement.pieces.push_back(std::move(*piece));
  return placement;
}

base::Result<Placement> Placer::place_over_servers(const Request& request) {
  Request slice = request;
  slice.slices = 1;
  slice.host.cpu_milli = (request.host.cpu_milli + request.slices - 1) / request.slices;
  slice.host.memory_bytes = (request.host.memory_bytes + request.slices - 1) / request.slices;
  Placement placement{request.share_millionths, request.gpu_memory_bytes, {}};
  // Every slice is on a GPU of its own. So the rest of each chosen GPU is taken as well, until the
  // last slice has its place.
  std::vector<uint32_t> rests;
  while (placement.pieces.size() < request.slices) {
    std::optional<Piece> piece = strategy_->choose(fleet_, slice);
    if (!piece) break;
    const Gpu& gpu = fleet_.server(piece->server).gpus[piece->gpus[0]];
    rests.push_back(gpu.share_free - request.share_millionths);
    fleet_.take(*piece, request.share_millionths, request.gpu_memory_bytes);
    take(Piece{piece->server, piece->gpus, {}}, rests.back(), 0);
    placement.pieces.push_back(std::move(*piece));
  }
  const size_t found = placement.pieces.size();
  for (size_t i = 0; i < found; ++i)
    give(Piece{placement.pieces[i].server, placement.pieces[i].gpus, {}}, rests[i], 0);
  if (found == request.slices) return placement;
  release(placement);
  return no_room(request, found);
}

void Placer::release(const Placement& placement) {
  for (const Piece& piece : placement.pieces)
    give(piece, placement.share_millionths, placement.gpu_memory_bytes);
}

void Placer::take(const Piece& piece, uint32_t share_millionths, uint64_t gpu_memory_bytes) {
  fleet_.take(piece, share_millionths, gpu_memory_bytes);
  strategy_->changed(fleet_, piece.server);
}

void Placer::give(const Piece& piece, uint32_t share_millionths, uint64_t gpu_memory_bytes) {
  fleet_.give(piece, share_millionths, gpu_memory_bytes);
  strategy_->changed(fleet_, piece.server);
}

}  // namespace tendril::pool
