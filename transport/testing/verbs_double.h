// SPDX-License-Identifier: Apache-2.0
// For tests: RDMA cards that exist in this process only, and do wrong what a test wants. It is
// stricter than cards are: whoever is told something without having posted a receive fails the
// sender at once, and memory that was not registered with the right to it is refused. Works are
// done where they are posted, in order. Any thread.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/rdma/verbs.h"

namespace tendril::transport::rdma {

class Fabric;

class VerbsDouble final : public Verbs {
 public:
  VerbsDouble();
  ~VerbsDouble();
  // Each call opens a card of its own on the one fabric: at the port of that name, or the fastest.
  base::Result<std::shared_ptr<Device>> open(const std::string& wanted) override;

  base::Result<std::vector<PortFacts>> ports(const std::string& wanted) override;

  // ---- what goes wrong ----
  // What `open` answers instead.
  void refuse_to_open(const base::Status& why);
  // Registering more than so many bytes in all fails, as without locked memory.
  void lock_at_most(uint64_t bytes);
  // Memory of a GPU: bytes that stand for it, behind addresses that no processor of this process
  // reaches. Returns its address. The bytes must live as long as the double.
  uint64_t add_device_memory(std::vector<uint8_t>* bytes);
  // Registering it fails, as with cards that cannot.
  void refuse_devices(bool refused);
  // The reports of the next works are lost; what they did is done.
  void lose_reports(uint32_t count);
  // The next tellings reach the peer's memory, and nobody hears of them.
  void lose_tellings(uint32_t count);
  // Nobody is woken any more.
  void lose_events(bool lost);
  // After so many works, the next one fails so.
  void fail_after(uint32_t works, Fate fate);
  // The cable: works fail as when nobody answers. Each change is another epoch of the port.
  void set_link(bool up);
  // After so many works the link goes down and comes up at once.
  void flap_after(uint32_t works);
  // Every card reports that it failed.
  void kill_devices();
  // As when a card is taken away whose driver waits until nobody has it open: works succeed.
  void take_devices_away();
  uint32_t devices() const;  // that are open
  uint64_t locked_bytes() const;
  void set_facts(const PortFacts& facts);
  // Another port of every machine. Only ports of one network meet; that of the first one is 0.
  void add_port(const PortFacts& facts, uint8_t network = 0);
  // Moving a MiB over that port takes so long.
  void slow_down(const std::string& port, uint32_t us_per_mib);
  uint64_t moved_bytes(const std::string& port) const;  // over it, by works posted there

 private:
  const std::shared_ptr<Fabric> fabric_;
};

}  // namespace tendril::transport::rdma
