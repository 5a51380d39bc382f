// SPDX-License-Identifier: Apache-2.0
// The connections of one rank with the others: made when they are first needed, one for each pair
// and purpose, as NCCL makes its own. So a first use blocks until the peer comes. One thread at a
// time for each purpose.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "softnccl/bootstrap.h"
#include "softnccl/socket.h"

namespace tendril::softnccl {

enum class Purpose : uint32_t { kData, kControl, kCount };

// Bytes to or from one peer. `label` says what they are: both sides must agree, and on the length.
struct Piece {
  int peer;
  char* data;
  size_t bytes;
  uint32_t label;
};

class Mesh {
 public:
  // Listens. self() is what the others must know.
  ncclResult_t listen();
  const Member& self() const { return self_; }
  // Who the others are. Before anything else.
  void set_members(int rank, std::vector<Member> members);

  bool connected(Purpose purpose, const std::vector<int>& peers) const;
  // Blocks until all of `peers` want a connection with this rank, too.
  ncclResult_t connect(Purpose purpose, const std::vector<int>& peers, const Stop& stop);
  // Sends and receives at once. Between two ranks the order of pieces is kept.
  ncclResult_t exchange(Purpose purpose, std::vector<Piece> sends, std::vector<Piece> receives,
                        const Stop& stop);
  // As if this machine had lost its network: every connection ends.
  void lose();

 private:
  struct Connecting;
  Socket& line(Purpose purpose, int peer) {
    return lines_[static_cast<size_t>(purpose)][static_cast<size_t>(peer)];
  }
  ncclResult_t dial(Connecting* made, int peer, const Stop& stop);
  ncclResult_t take_visitors(Connecting* made);
  ncclResult_t read_greetings(Connecting* made);

  int rank_ = 0;
  Member self_;
  std::vector<Member> members_;
  Socket listener_;
  mutable std::mutex lock_;  // of what follows: both purposes share it
  std::vector<Socket> lines_[static_cast<size_t>(Purpose::kCount)];
  std::vector<Socket> early_[static_cast<size_t>(Purpose::kCount)];  // came before we wanted them
};

}  // namespace tendril::softnccl
