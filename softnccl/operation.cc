// SPDX-License-Identifier: Apache-2.0
// What the operations do. See operation.h. Reductions add up in order of ranks, each element on
// one rank, which tells the others.
#include "softnccl/operation.h"

#include <algorithm>
#include <cstring>
#include <deque>

namespace tendril::softnccl {
namespace {

// One operation while it is carried out.
class Run {
 public:
  Run(const Operation& operation, Sides sides, int rank, int ranks, Mesh* mesh, const Stop& stop)
      : operation_(operation),
        sides_(sides),
        rank_(rank),
        ranks_(ranks),
        element_(type_bytes(operation.type)),
        mesh_(mesh),
        stop_(stop) {}

  ncclResult_t run() {
    const size_t bytes = operation_.count * element_;
    const bool root = rank_ == operation_.peer;
    prepare();
    switch (operation_.kind) {
      case Kind::kAllReduce:
        return all_reduce();
      case Kind::kReduce:
        return reduce(operation_.count, 0, root, false);
      case Kind::kReduceScatter:
        return reduce(operation_.count, bytes, true, true);
      case Kind::kBroadcast:
        return spread(bytes, 0, 0, operation_.peer, operation_.peer);
      case Kind::kAllGather:
        return spread(bytes, 0, bytes, -1, -1);
      case Kind::kAllToAll:
        return spread(bytes, bytes, bytes, -1, -1);
      case Kind::kGather:
        return spread(bytes, 0, bytes, -1, operation_.peer, root);
      default:
        return spread(bytes, bytes, 0, operation_.peer, -1);
    }
  }

 private:
  uint32_t label(uint32_t step) const {
    return static_cast<uint32_t>(operation_.kind) << 24 |
           static_cast<uint32_t>(operation_.type) << 16 |
           static_cast<uint32_t>(operation_.reduction) << 8 | step;
  }

  // What this rank does to its own data before others see it.
  void prepare() {
    if (!reduces(operation_.kind)) return;
    const size_t count = bytes_read(operation_, rank_, ranks_) / element_;
    if (operation_.reduction == Reduction::kScaledSum)
      scale(operation_.type, sides_.from, sides_.scalar, count);
    if (operation_.reduction == Reduction::kAverage)
      prepare_average(operation_.type, sides_.from, count, ranks_);
  }

  // to = parts[0] + parts[1] + ..., in this order
  void add_up(const std::vector<const char*>& parts, char* to, size_t count) {
    std::memmove(to, parts[0], count * element_);
    for (size_t i = 1; i < parts.size(); i++)
      combine(operation_.type, operation_.reduction, to, parts[i], count);
    if (operation_.reduction == Reduction::kAverage)
      finish_average(operation_.type, to, count, ranks_);
  }

  // Receives parts of `count` elements from all others, with own data at `own`, and adds up to
  // `to`. What goes to peer p lies at `sends[p]`, with its number of elements.
  ncclResult_t gather_and_add(std::vector<Piece> sends, const char* own, char* to, size_t count) {
    const size_t bytes = count * element_;
    std::vector<std::vector<char>> kept(static_cast<size_t>(ranks_));
    std::vector<const char*> parts(static_cast<size_t>(ranks_), own);
    std::vector<Piece> receives;
    for (int peer = 0; to != nullptr && peer < ranks_; peer++) {
      if (peer == rank_) continue;
      auto& part = kept[static_cast<size_t>(peer)];
      part.resize(bytes);
      parts[static_cast<size_t>(peer)] = part.data();
      receives.push_back({peer, part.data(), bytes, label(0)});
    }
    if (ncclResult_t bad = mesh_->exchange(Purpose::kData, std::move(sends), receives, stop_))
      return bad;
    if (to != nullptr && bytes != 0) add_up(parts, to, count);
    return ncclSuccess;
  }

  // Every rank (or the root) adds up `count` elements of all ranks; `stride` apart for each rank.
  ncclResult_t reduce(size_t count, size_t stride, bool receives, bool everybody) {
    std::vector<Piece> sends;
    for (int peer = 0; peer < ranks_; peer++)
      if (peer != rank_ && (everybody || peer == operation_.peer))
        sends.push_back(
            {peer, sides_.from + static_cast<size_t>(peer) * stride, count * element_, label(0)});
    return gather_and_add(std::move(sends), sides_.from + static_cast<size_t>(rank_) * stride,
                          receives ? sides_.to : nullptr, count);
  }

  size_t part_begin(int part) const {
    const auto all = static_cast<size_t>(ranks_), at = static_cast<size_t>(part);
    return operation_.count / all * at + std::min(at, operation_.count % all);
  }
  size_t part_count(int part) const { return part_begin(part + 1) - part_begin(part); }

  ncclResult_t all_reduce() {
    std::vector<Piece> sends;
    for (int peer = 0; peer < ranks_; peer++)
      if (peer != rank_)
        sends.push_back({peer, sides_.from + part_begin(peer) * element_,
                         part_count(peer) * element_, label(0)});
    char* mine = sides_.to + part_begin(rank_) * element_;
    if (ncclResult_t bad = gather_and_add(
            std::move(sends), sides_.from + part_begin(rank_) * element_, mine, part_count(rank_)))
      return bad;
    std::vector<Piece> results, receives;
    for (int peer = 0; peer < ranks_; peer++) {
      if (peer == rank_) continue;
      results.push_back({peer, mine, part_count(rank_) * element_, label(1)});
      receives.push_back(
          {peer, sides_.to + part_begin(peer) * element_, part_count(peer) * element_, label(1)});
    }
    return mesh_->exchange(Purpose::kData, results, receives, stop_);
  }

  // Moves `bytes` from each source to each destination without change. What goes to rank p lies
  // p * from_stride into the source's data; what comes from rank p, p * to_stride into the
  // destination's. source and only_to: the one rank that sends or receives, or -1 for all.
  ncclResult_t spread(size_t bytes, size_t from_stride, size_t to_stride, int source, int sink,
                      bool receives_here = true) {
    const bool broadcast = operation_.kind == Kind::kBroadcast;
    std::vector<Piece> sends, receives;
    for (int peer = 0; peer < ranks_; peer++) {
      const bool i_send =
          (source < 0 || source == rank_) && (broadcast || sink < 0 || sink == peer);
      const bool i_receive = receives_here && (source < 0 || source == peer);
      char* out = i_send ? sides_.from + static_cast<size_t>(peer) * from_stride : nullptr;
      char* in = i_receive ? sides_.to + static_cast<size_t>(peer) * to_stride : nullptr;
      if (peer != rank_ && i_send) sends.push_back({peer, out, bytes, label(0)});
      if (peer != rank_ && i_receive) receives.push_back({peer, in, bytes, label(0)});
      if (peer == rank_ && i_send && i_receive && bytes != 0) std::memmove(in, out, bytes);
    }
    return mesh_->exchange(Purpose::kData, sends, receives, stop_);
  }

  const Operation& operation_;
  Sides sides_;
  int rank_, ranks_;
  size_t element_;
  Mesh* mesh_;
  const Stop& stop_;
};

// Sends and receives of one group, all at once. A rank may send to itself.
ncclResult_t between_two(const std::vector<Operation>& operations, const std::vector<Sides>& sides,
                         int rank, Mesh* mesh, const Stop& stop) {
  std::vector<Piece> sends, receives;
  std::deque<Piece> own;
  for (size_t i = 0; i < operations.size(); i++) {
    const Operation& one = operations[i];
    const size_t bytes = one.count * type_bytes(one.type);
    const uint32_t label = static_cast<uint32_t>(Kind::kSend) << 24;
    if (one.kind == Kind::kSend && one.peer == rank)
      own.push_back({rank, sides[i].from, bytes, label});
    else if (one.kind == Kind::kSend)
      sends.push_back({one.peer, sides[i].from, bytes, label});
    else if (one.kind == Kind::kReceive && one.peer != rank)
      receives.push_back({one.peer, sides[i].to, bytes, label});
  }
  for (size_t i = 0; i < operations.size(); i++) {
    const Operation& one = operations[i];
    if (one.kind != Kind::kReceive || one.peer != rank || own.empty()) continue;
    const size_t bytes = std::min(own.front().bytes, one.count * type_bytes(one.type));
    if (bytes != 0) std::memcpy(sides[i].to, own.front().data, bytes);
    own.pop_front();
  }
  if (sends.empty() && receives.empty()) return ncclSuccess;
  return mesh->exchange(Purpose::kData, std::move(sends), std::move(receives), stop);
}

}  // namespace

bool is_between_two(Kind kind) { return kind == Kind::kSend || kind == Kind::kReceive; }

bool reduces(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
}

bool has_root(Kind kind) {
  return kind == Kind::kBroadcast || kind == Kind::kReduce || kind == Kind::kGather ||
         kind == Kind::kScatter;
}

size_t bytes_read(const Operation& operation, int rank, int ranks) {
  const size_t one = operation.count * type_bytes(operation.type);
  const bool root = rank == operation.peer;
  switch (operation.kind) {
    case Kind::kReduceScatter:
    case Kind::kAllToAll:
      return one * static_cast<size_t>(ranks);
    case Kind::kScatter:
      return root ? one * static_cast<size_t>(ranks) : 0;
    case Kind::kBroadcast:
      return root ? one : 0;
    case Kind::kReceive:
      return 0;
    default:
      return one;
  }
}

size_t bytes_written(const Operation& operation, int rank, int ranks) {
  const size_t one = operation.count * type_bytes(operation.type);
  const bool root = rank == operation.peer;
  switch (operation.kind) {
    case Kind::kAllGather:
    case Kind::kAllToAll:
      return one * static_cast<size_t>(ranks);
    case Kind::kGather:
      return root ? one * static_cast<size_t>(ranks) : 0;
    case Kind::kReduce:
      return root ? one : 0;
    case Kind::kSend:
      return 0;
    default:
      return one;
  }
}

std::vector<int> peers_of(const std::vector<Operation>& operations, int rank, int ranks) {
  std::vector<int> peers;
  bool all = false;
  for (const Operation& one : operations) {
    all = all || !is_between_two(one.kind);
    if (is_between_two(one.kind) && one.peer != rank) peers.push_back(one.peer);
  }
  if (all) {
    peers.clear();
    for (int peer = 0; peer < ranks; peer++)
      if (peer != rank) peers.push_back(peer);
  }
  return peers;
}

ncclResult_t carry_out(const std::vector<Operation>& operations, const std::vector<Sides>& sides,
                       int rank, int ranks, Mesh* mesh, const Stop& stop) {
  for (size_t i = 0; i < operations.size(); i++) {
    if (is_between_two(operations[i].kind)) continue;
    if (ncclResult_t bad = Run(operations[i], sides[i], rank, ranks, mesh, stop).run()) return bad;
  }
  return between_two(operations, sides, rank, mesh, stop);
}

}  // namespace tendril::softnccl
