// SPDX-License-Identifier: Apache-2.0
// The card of this process: its pairs, what is registered, and the thread that does what hardware
// does. A work has its effect some time after it was posted, or never. Any thread, unless said
// otherwise. Never freed, because its thread lives as long as the process.
#pragma once

#include <unistd.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/cards/fabric.h"
#include "transport/rdma/ibverbs_abi.h"

namespace tendril::cards {

namespace abi = transport::rdma::abi;

// What TENDRIL_RDMA_DOUBLE says: "FILE,network=2,no-address,port-down,infiniband,locks=64".
struct Settings {
  std::string file;
  uint32_t network = 0;
  uint64_t locked_kib_most = UINT64_MAX;
  bool has_card = true, has_address = true, port_is_down = false, is_infiniband = false;
  bool takes_devices = true;
};
const Settings& settings();

struct Channel : abi::CompChannel {
  std::deque<abi::Cq*> events;
};
struct Queue : abi::Cq {
  std::deque<abi::Wc> reports;
  bool armed = false;
  uint32_t lost_wakes = 0;
};
struct Memory : abi::Mr {
  int rights = 0;
  uint8_t* mapped = nullptr;  // of a GPU: where this process has it
};

// A work as it was posted. Inline data is kept with it.
struct Work {
  uint64_t id = 0, local = 0, remote = 0;
  uint32_t opcode = 0, bytes = 0, local_key = 0, remote_key = 0, immediate = 0;
  bool signalled = false, is_inline = false;
  std::vector<uint8_t> data;
  // How far it is.
  bool begun = false, asked = false;
  uint32_t done_bytes = 0, refusals = 0;
  uint64_t since_ns = 0;
  Fault fault = Fault::kNone;
};

struct Pair : abi::Qp {
  uint32_t place = 0;  // among this card's slots
  uint32_t peer = 0;
  uint64_t patience_ns = 0;  // until a peer that does not answer is given up
  bool loses_reports = false;
  std::deque<Work> works;
  std::deque<uint64_t> posted_receives;
};

struct Opened : abi::Context {
  std::deque<uint32_t> events;
  abi::Device device_of_it{};
};

class Card {
 public:
  // Null: there is no card; errno says why.
  static Card* of_this_process();

  Opened* open();
  void close(Opened* opened);
  abi::Mr* add(abi::Pd* pd, void* at, size_t bytes, int rights);
  // Memory of a GPU, in a file. `address`: what works call its beginning.
  abi::Mr* add_device(abi::Pd* pd, uint64_t offset, size_t bytes, uint64_t address, int file,
                      int rights);
  void remove(abi::Mr* memory);
  Pair* make_pair(abi::Pd* pd, const abi::QpInitAttr& wanted);
  void destroy(Pair* pair);
  int modify(Pair* pair, const abi::QpAttr& attr, int mask);
  int post(Pair* pair, const abi::SendWr& work);
  int post_receive(Pair* pair, const abi::RecvWr& work);
  int poll(Queue* queue, int most, abi::Wc* into);
  void arm(Queue* queue);
  bool take_event(Channel* channel, abi::Cq** queue);
  bool take_event(Opened* opened, uint32_t* type);
  bool port_is_up() const;
  bool is_away() const { return fabric_->faults.cable == kCardsAway; }

 private:
  explicit Card(Fabric* fabric, uint32_t place) : fabric_(fabric), place_(place) {}
  CardSlot& slot() { return fabric_->cards[place_]; }
  static void* run(void* self);
  // All with the lock held. True: something was done.
  bool look();
  bool look_at_faults();
  bool advance(Pair* pair);
  void begin(Pair* pair, Work* work);
  bool ask(Pair* pair, Work* work, PairSlot* peer);
  bool take_answer(Pair* pair, Work* work, Mail* mail);
  bool answer(Pair* pair);
  uint32_t perform(Pair* pair, Mail* mail);
  void finish(Pair* pair, uint32_t status);
  void fail(Pair* pair, uint32_t status);
  void stop(Pair* pair);
  void report(abi::Cq* where, const abi::Wc& wc);
  void tell(Opened* opened, uint32_t type);
  abi::Mr* keep(abi::Pd* pd, uint64_t address, size_t bytes, int rights, uint8_t* mapped);
  bool is_allowed(uint64_t address, uint32_t bytes, uint32_t key, int right) const;
  // Where this process has what a key stands for, or had when the work was allowed.
  uint8_t* place_of(uint64_t address, uint32_t key) const;
  // The peer's slot; null: nobody can be reached there.
  PairSlot* find(uint32_t number);
  void ring(uint32_t card);

  Fabric* const fabric_;
  const uint32_t place_;
  const pid_t owner_ = getpid();
  std::mutex lock_;
  std::map<uint32_t, Memory*> memory_;  // by either key
  std::map<uint32_t, Pair*> pairs_;     // by place
  std::vector<Opened*> opened_;
  uint32_t next_key_ = 0x100;
  uint64_t locked_bytes_ = 0;
  uint32_t cable_ = kCableIn;
  bool is_dead_ = false;
};

}  // namespace tendril::cards
