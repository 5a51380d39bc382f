// SPDX-License-Identifier: Apache-2.0
// One end of a session over RDMA: its queue pairs, rings and blocks, from their making until they
// are channels. Each channel has two pairs, one for each direction, so that its sender and its
// receiver share nothing. rdma_transport.cc uses it at attach, tests with a double. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/rdma/inlet.h"
#include "transport/rdma/memory.h"
#include "transport/rdma/outlet.h"
#include "transport/transport.h"

namespace tendril::transport::rdma {

inline constexpr uint32_t kChannelsMax = 9;

struct Sizes {
  uint32_t channels = 1;  // the first is the command lane
  Layout command{512u << 10, 0, 0, 0};
  Layout bulk{64u << 10, 4, 256u << 10, 16u << 10};
  int report_ms = kReportMs;  // tests wait less
};

// What trying the way to the peer has shown.
struct Trial {
  double read_us = 0;  // a read of 8 bytes there and back, median
  double gigabytes_per_second = 0;
};

class End {
 public:
  // Everything that can fail at this end fails here, with its cause.
  static base::Result<std::unique_ptr<End>> make(std::shared_ptr<Device> device,
                                                 const Sizes& sizes);
  // For the other end: where the pairs and rings are.
  std::string blob() const;
  uint32_t channel_count() const { return sizes_.channels; }
  // How many channels an end with that blob has; 0: it makes no sense.
  static uint32_t channels_of(const std::string& blob);
  // This end's port and that one's, for people and to recognise them: "mlx5_0:1 ..., peer ...".
  std::string way(const std::string& blob) const;
  // Whether this end's link or addresses changed since it was made, as far as its card has said.
  bool link_changed() const;
  // The other end's blob, which is not trusted. kMismatch: laid out otherwise, or of another kind
  // of network.
  base::Status connect(const std::string& blob);
  // Reads what the other end has laid out for this, and measures. The other end needs to do
  // nothing. After an error the end is of no use.
  base::Result<Trial> try_out();
  // The last step. `connection`: the one that shows that the peer lives.
  std::vector<std::unique_ptr<Carrier>> channels(base::Fd connection);
  const std::shared_ptr<ProgramMemory>& memory() const { return memory_; }
  const PortFacts& facts() const { return session_->device->facts(); }
  // Of all channels. Lives as long as one of them.
  std::shared_ptr<CopyCounts> counts() const { return {session_, &session_->counts}; }

 private:
  base::Status add_channel(const Layout& layout);
  base::Status read_probe(RegisteredBlock* into, uint32_t bytes, uint32_t times);

  Sizes sizes_;
  std::shared_ptr<Session> session_;
  std::shared_ptr<ProgramMemory> memory_;
  RegisteredBlock probe_;
  std::string nonce_;
  std::vector<PairAddress> addresses_;  // out and in of each channel
  std::vector<Pair*> pairs_;            // likewise; the lines own them
  std::vector<std::unique_ptr<Outlet>> outlets_;
  std::vector<std::unique_ptr<Inlet>> inlets_;
  Remote peer_probe_;
  std::string peer_nonce_;
};

}  // namespace tendril::transport::rdma
