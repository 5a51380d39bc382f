// SPDX-License-Identifier: Apache-2.0
// See verbs_double.h.
#include "transport/testing/verbs_double.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>

#include "base/fd.h"
#include "base/text.h"

namespace tendril::transport::rdma {

using base::Code;
using base::Result;
using base::Status;

class DoublePair;

class Fabric {
 public:
  struct Area {
    uint64_t begin, bytes;
    Rights rights;
    bool holds(uint64_t address, uint64_t count) const {
      return address >= begin && address - begin <= bytes && count <= bytes - (address - begin);
    }
  };
  const Area* area(uint32_t key) const {
    const auto found = areas.find(key);
    return found == areas.end() ? nullptr : &found->second;
  }

  // Of a GPU: where the bytes behind an address are.
  struct DeviceMemory {
    uint64_t address;
    std::vector<uint8_t>* bytes;
  };
  uint8_t* place_of(uint64_t address) const {
    for (const DeviceMemory& each : device_memory) {
      if (address - each.address < each.bytes->size())
        return each.bytes->data() + (address - each.address);
    }
    return reinterpret_cast<uint8_t*>(address);
  }

  std::mutex mutex;  // guards everything
  std::vector<DeviceMemory> device_memory;
  bool refuses_devices = false;
  std::map<uint32_t, Area> areas;
  std::map<uint32_t, DoublePair*> pairs;
  uint32_t next_key = 0x1000, next_number = 0x100;
  uint64_t locked_bytes = 0, locked_most = UINT64_MAX;
  uint32_t lost_reports = 0, lost_tellings = 0;
  bool lost_events = false, link_up = true, dead = false, away = false;
  uint32_t devices = 0;
  uint64_t until_failure = UINT64_MAX, until_flap = UINT64_MAX;
  Fate failure = Fate::kDone;
  Status closed;
  std::string last_event;
  uint32_t link_changes = 0;
  struct Port {
    PortFacts facts;
    uint8_t network = 0;
    uint32_t us_per_mib = 0;
    uint64_t moved_bytes = 0;
  };
  std::vector<Port> ports{{{"double0:1", true, 100'000, true}}};
  uint8_t gid[kGidBytes] = {};
};

namespace {

class DoubleRegion final : public Region {
 public:
  DoubleRegion(std::shared_ptr<Fabric> fabric, uint32_t key) : fabric_(std::move(fabric)) {
    local_key = key;
    remote_key = key + 1;
  }
  ~DoubleRegion() override {
    std::lock_guard<std::mutex> guard(fabric_->mutex);
    const auto area = fabric_->areas.find(local_key);
    fabric_->locked_bytes -= area->second.bytes;
    fabric_->areas.erase(area);
    fabric_->areas.erase(remote_key);
  }

 private:
  const std::shared_ptr<Fabric> fabric_;
};

}  // namespace

class DoublePair final : public Pair {
 public:
  DoublePair(std::shared_ptr<Fabric> fabric, size_t port, const PairLimits& limits)
      : fabric_(std::move(fabric)),
        port_(port),
        limits_(limits),
        event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    std::lock_guard<std::mutex> guard(fabric_->mutex);
    number_ = ++fabric_->next_number;
    fabric_->pairs[number_] = this;
  }
  ~DoublePair() override {
    std::lock_guard<std::mutex> guard(fabric_->mutex);
    fabric_->pairs.erase(number_);
  }

  PairAddress address() const override {
    PairAddress address;
    std::lock_guard<std::mutex> guard(fabric_->mutex);
    memcpy(address.gid, fabric_->gid, sizeof address.gid);
    address.gid[kGidBytes - 1] = fabric_->ports[port_].network;
    address.number = number_;
    address.first_packet = number_ * 3;
    address.mtu_code = 5;
    address.reads = 16;
    address.ethernet = fabric_->ports[port_].facts.ethernet;
    return address;
  }
  Status connect(const PairAddress& peer) override {
    // A card of another fabric is never reached.
    const PairAddress own = address();
    peer_ = memcmp(peer.gid, own.gid, sizeof peer.gid) == 0 ? peer.number : 0;
    return Status();
  }

  Status post_receives(uint32_t count) override {
    std::lock_guard<std::mutex> guard(fabric_->mutex);
    if (receives_ + count > limits_.receives) return Status(Code::kExhausted, "too many receives");
    receives_ += count;
    return Status();
  }

  Status post(const Work& work) override {
    take_time(work.bytes);
    std::lock_guard<std::mutex> guard(fabric_->mutex);
    if (work.id - reported_ > limits_.sends)
      return Status(Code::kExhausted, "the send queue is full");
    const Fate fate = failed_ ? Fate::kFlushed : perform(work);
    if (fate != Fate::kDone) failed_ = true;
    if (fate == Fate::kDone && fabric_->lost_reports != 0 && work.reported) {
      --fabric_->lost_reports;
      return Status();
    }
    if (work.reported || fate != Fate::kDone) report({work.id, fate, false, 0});
    return Status();
  }

  int poll(Completion* into, int most) override {
    std::lock_guard<std::mutex> guard(fabric_->mutex);
    if (fabric_->dead) return -1;
    int count = 0;
    for (; count < most && !reports_.empty(); ++count) {
      into[count] = reports_.front();
      reports_.pop_front();
      // Reports come in order, so one that comes stands for those before it.
      if (!into[count].told) reported_ = into[count].id;
    }
    return count;
  }
  void arm() override {
    std::lock_guard<std::mutex> guard(fabric_->mutex);
    armed_ = true;
  }
  void drop_events() override {
    eventfd_t count;
    (void)eventfd_read(event_.get(), &count);
  }
  int descriptor() const override { return event_.get(); }
  void stop() override {
    std::lock_guard<std::mutex> guard(fabric_->mutex);
    failed_ = true;
  }

 private:
  void report(const Completion& completion) {
    reports_.push_back(completion);
    if (!armed_ || fabric_->lost_events) return;
    armed_ = false;
    (void)eventfd_write(event_.get(), 1);
  }

  void take_time(uint64_t bytes) {
    uint64_t us;
    {
      std::lock_guard<std::mutex> guard(fabric_->mutex);
      Fabric::Port& port = fabric_->ports[port_];
      port.moved_bytes += bytes;
      us = port.us_per_mib * bytes >> 20;
    }
    if (us != 0) usleep(uint32_t(us));
  }

  Fate perform(const Work& work) {
    if (fabric_->until_flap-- == 0) {
      fabric_->until_flap = UINT64_MAX;
      fabric_->link_changes += 2;
    }
    if (fabric_->until_failure-- == 0) {
      fabric_->until_failure = UINT64_MAX;
      return fabric_->failure;
    }
    const auto found = fabric_->pairs.find(peer_);
    if (!fabric_->link_up || found == fabric_->pairs.end() || found->second->peer_ != number_ ||
        found->second->failed_)
      return Fate::kUnanswered;
    DoublePair* peer = found->second;
    if (work.bytes != 0) {
      const auto local = reinterpret_cast<uint64_t>(work.local);
      const Fabric::Area* here = fabric_->area(work.local_key);
      if (here == nullptr || !here->holds(local, work.bytes)) return Fate::kLocalError;
      const Fabric::Area* there = fabric_->area(work.remote.key);
      const Rights needed = work.kind == WorkKind::kRead ? Rights::kPeerReads : Rights::kPeerWrites;
      if (there == nullptr || there->rights != needed ||
          !there->holds(work.remote.address, work.bytes))
        return Fate::kRemoteAccess;
      uint8_t* const far = fabric_->place_of(work.remote.address);
      uint8_t* const near = fabric_->place_of(local);
      if (work.kind == WorkKind::kRead)
        memcpy(near, far, work.bytes);
      else
        memcpy(far, near, work.bytes);
    }
    if (work.kind == WorkKind::kRead) return Fate::kDone;
    if (peer->receives_ == 0) return Fate::kNotReady;
    --peer->receives_;
    if (fabric_->lost_tellings != 0)
      --fabric_->lost_tellings;
    else
      peer->report({0, Fate::kDone, true, work.immediate});
    return Fate::kDone;
  }

  const std::shared_ptr<Fabric> fabric_;
  const size_t port_;
  const PairLimits limits_;
  const base::Fd event_;
  uint32_t number_ = 0, peer_ = 0;
  uint32_t receives_ = 0;
  uint64_t reported_ = 0;
  bool armed_ = false, failed_ = false;
  std::deque<Completion> reports_;
};

namespace {

class DoubleDevice final : public Device {
 public:
  DoubleDevice(std::shared_ptr<Fabric> fabric, size_t port)
      : fabric_(std::move(fabric)),
        port_(port),
        facts_(fabric_->ports[port].facts),
        link_changes_(fabric_->link_changes) {
    facts_.ports_epoch = link_changes_ + (uint32_t(fabric_->ports.size()) << 16);
    ++fabric_->devices;  // whoever opens has the lock
  }
  ~DoubleDevice() override {
    std::lock_guard<std::mutex> guard(fabric_->mutex);
    --fabric_->devices;
  }
  const PortFacts& facts() const override { return facts_; }
  Result<std::unique_ptr<Region>> register_memory(void* memory, size_t bytes,
                                                  Rights rights) override {
    uint32_t key;
    {
      std::lock_guard<std::mutex> guard(fabric_->mutex);
      if (bytes > fabric_->locked_most - fabric_->locked_bytes)
        return Status(Code::kExhausted,
                      "double0:1 cannot lock memory: raise the limit (ulimit -l)");
      fabric_->locked_bytes += bytes;
      key = fabric_->next_key += 2;
      const auto begin = reinterpret_cast<uint64_t>(memory);
      fabric_->areas[key] = {begin, bytes, Rights::kNone};
      fabric_->areas[key + 1] = {begin, bytes, rights};
    }
    return std::unique_ptr<Region>(new DoubleRegion(fabric_, key));
  }
  Result<std::unique_ptr<Region>> register_device(const DeviceRange& range) override {
    {
      std::lock_guard<std::mutex> guard(fabric_->mutex);
      if (fabric_->refuses_devices)
        return Status(Code::kUnsupported, "double0:1 takes no dma-buf of the GPU");
    }
    return register_memory(reinterpret_cast<void*>(range.address), range.bytes, Rights::kPeerReads);
  }
  Result<std::unique_ptr<Pair>> make_pair(const PairLimits& limits) override {
    return std::unique_ptr<Pair>(new DoublePair(fabric_, port_, limits));
  }
  int event_descriptor() const override { return -1; }
  Status look_at_events() override {
    std::lock_guard<std::mutex> guard(fabric_->mutex);
    if (fabric_->away) return Status(Code::kUnavailable, facts_.name + " was taken away");
    return fabric_->dead ? Status(Code::kUnavailable, facts_.name + " failed") : Status();
  }
  std::string last_event() const override {
    std::lock_guard<std::mutex> guard(fabric_->mutex);
    return fabric_->last_event;
  }
  bool link_changed() const override {
    std::lock_guard<std::mutex> guard(fabric_->mutex);
    return fabric_->link_changes != link_changes_;
  }

 private:
  const std::shared_ptr<Fabric> fabric_;
  const size_t port_;
  PortFacts facts_;
  const uint32_t link_changes_;  // when it was opened
};

}  // namespace

VerbsDouble::VerbsDouble() : fabric_(std::make_shared<Fabric>()) {
  (void)base::random_bytes(fabric_->gid, sizeof fabric_->gid - 1);
}
VerbsDouble::~VerbsDouble() = default;

Result<std::shared_ptr<Device>> VerbsDouble::open(const std::string& wanted) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  if (!fabric_->closed.ok()) return fabric_->closed;
  size_t best = 0;
  for (size_t i = 1; i < fabric_->ports.size(); ++i) {
    const PortFacts& facts = fabric_->ports[i].facts;
    if (wanted.empty() &&
        facts.megabits_per_second > fabric_->ports[best].facts.megabits_per_second)
      best = i;
    if (facts.name == wanted) best = i;
  }
  return std::shared_ptr<Device>(std::make_shared<DoubleDevice>(fabric_, best));
}

Result<std::vector<PortFacts>> VerbsDouble::ports(const std::string&) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  if (!fabric_->closed.ok()) return fabric_->closed;
  std::vector<PortFacts> all;
  for (const Fabric::Port& each : fabric_->ports) all.push_back(each.facts);
  return all;
}

void VerbsDouble::refuse_to_open(const Status& why) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  fabric_->closed = why;
}
void VerbsDouble::lock_at_most(uint64_t bytes) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  fabric_->locked_most = bytes;
}
uint64_t VerbsDouble::add_device_memory(std::vector<uint8_t>* bytes) {
  constexpr uint64_t kFirst = uint64_t{3} << 48,
                     kApart = uint64_t{1} << 40;  // no process has these
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  const uint64_t address = kFirst + kApart * fabric_->device_memory.size();
  fabric_->device_memory.push_back({address, bytes});
  return address;
}
void VerbsDouble::refuse_devices(bool refused) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  fabric_->refuses_devices = refused;
}
void VerbsDouble::lose_reports(uint32_t count) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  fabric_->lost_reports = count;
}
void VerbsDouble::lose_tellings(uint32_t count) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  fabric_->lost_tellings = count;
}
void VerbsDouble::lose_events(bool lost) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  fabric_->lost_events = lost;
}
void VerbsDouble::fail_after(uint32_t works, Fate fate) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  fabric_->until_failure = works;
  fabric_->failure = fate;
}
void VerbsDouble::set_link(bool up) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  fabric_->link_changes += fabric_->link_up != up ? 1 : 0;
  fabric_->link_up = up;
  fabric_->last_event = up ? "the port came up again" : "the port went down";
}
void VerbsDouble::flap_after(uint32_t works) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  fabric_->until_flap = works;
}
void VerbsDouble::kill_devices() {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  fabric_->dead = true;
}
void VerbsDouble::take_devices_away() {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  fabric_->away = true;
}
uint32_t VerbsDouble::devices() const {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  return fabric_->devices;
}
uint64_t VerbsDouble::locked_bytes() const {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  return fabric_->locked_bytes;
}
void VerbsDouble::set_facts(const PortFacts& facts) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  fabric_->ports[0].facts = facts;
}
void VerbsDouble::add_port(const PortFacts& facts, uint8_t network) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  fabric_->ports.push_back({facts, network, 0, 0});
}
void VerbsDouble::slow_down(const std::string& port, uint32_t us_per_mib) {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  for (Fabric::Port& each : fabric_->ports) {
    if (each.facts.name == port) each.us_per_mib = us_per_mib;
  }
}
uint64_t VerbsDouble::moved_bytes(const std::string& port) const {
  std::lock_guard<std::mutex> guard(fabric_->mutex);
  for (const Fabric::Port& each : fabric_->ports) {
    if (each.facts.name == port) return each.moved_bytes;
  }
  return 0;
}

}  // namespace tendril::transport::rdma
