// SPDX-License-Identifier: Apache-2.0
// What the transport wants of RDMA hardware, and no more: memory that the card may touch, reliable
// queue pairs, and completions. ibverbs.h is the real thing, testing/verbs_double.h a double for
// tests. The rest of rdma/ knows only this. A pair is used by one thread at a time (line.h locks);
// everything else may be called from any thread. Destructors do nothing in a forked child.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "transport/device_memory.h"

namespace tendril::transport::rdma {

// What the peer's card may do to registered memory. This end's card may always read and write it.
enum class Rights : uint8_t { kNone, kPeerReads, kPeerWrites };

// Registered memory. The destructor takes all rights away.
class Region {
 public:
  virtual ~Region() = default;
  uint32_t local_key = 0, remote_key = 0;
};

// Memory at the other end.
struct Remote {
  uint64_t address = 0;
  uint32_t key = 0;
};

inline constexpr size_t kGidBytes = 16;

// Where a queue pair is, for its peer.
struct PairAddress {
  uint8_t gid[kGidBytes] = {};
  uint32_t number = 0;        // 24 bits
  uint32_t first_packet = 0;  // 24 bits, by chance
  uint16_t lid = 0;           // InfiniBand only
  uint8_t mtu_code = 0;       // 1: 256 bytes, ... 5: 4,096 bytes
  uint8_t reads = 1;          // of the peer, which this end answers at once
  bool ethernet = false;      // RoCE; false: InfiniBand
};

struct PairLimits {
  uint32_t sends = 0;     // posted and not yet reported
  uint32_t receives = 0;  // tellings for which the peer finds room
};

enum class WorkKind : uint8_t {
  kWrite,  // writes to the peer's memory, then tells it the immediate
  kRead,   // reads from the peer's memory
  kTell,   // tells the peer the immediate, and nothing else
};

struct Work {
  WorkKind kind = WorkKind::kTell;
  uint64_t id = 0;  // comes back with its completion
  void* local = nullptr;
  uint32_t bytes = 0;
  uint32_t local_key = 0;
  Remote remote;
  uint32_t immediate = 0;
  bool reported = true;  // false: only a failure is reported
};

// How a work ended.
enum class Fate : uint8_t {
  kDone,
  kUnanswered,    // the peer's card did not answer, however often it was asked
  kNotReady,      // the peer had no room for what it was told
  kRemoteAccess,  // the peer's card does not allow it
  kLocalError,    // this end's card does not allow it
  kFlushed,       // the pair had failed or was stopped before
  kOther,
};

struct Completion {
  uint64_t id = 0;  // of the work; 0 if `told`
  Fate fate = Fate::kDone;
  bool told = false;  // the peer told this end `immediate`
  uint32_t immediate = 0;
};

// A reliable queue pair with its completions. What is posted takes effect in order, except that
// a read is done only when it is reported.
class Pair {
 public:
  virtual ~Pair() = default;
  virtual PairAddress address() const = 0;
  // Brings the pair to where it can send and receive. Once.
  virtual base::Status connect(const PairAddress& peer) = 0;
  // Data up to this many bytes leaves with the work itself, so that the card need not fetch it.
  virtual base::Status post(const Work& work) = 0;
  virtual base::Status post_receives(uint32_t count) = 0;
  // Takes up to `most` completions. Negative: the card reports no more.
  virtual int poll(Completion* into, int most) = 0;
  // `descriptor` becomes readable with the next completion after `arm`. Poll once more after it.
  virtual void arm() = 0;
  virtual void drop_events() = 0;  // makes it unreadable again
  virtual int descriptor() const = 0;
  // Fails everything that is under way. Afterwards the peer touches nothing through this pair.
  virtual void stop() = 0;
};

// What a person wants to know of a port.
struct PortFacts {
  std::string name;       // "mlx5_0:1"
  bool ethernet = false;  // RoCE; false: InfiniBand
  uint64_t megabits_per_second = 0;
  // Whether a fork leaves registered memory of the program alone. If not, none is registered.
  bool fork_keeps_memory = true;
  // Another number when one of the ports that this machine could use has changed: its rate, its
  // address, its link was down meanwhile, it came or went.
  uint32_t ports_epoch = 0;
};

// One port of a card, opened.
class Device {
 public:
  virtual ~Device() = default;
  virtual const PortFacts& facts() const = 0;
  // kExhausted: the limit of locked memory is too low; the text says what it is.
  virtual base::Result<std::unique_ptr<Region>> register_memory(void* memory, size_t bytes,
                                                                Rights rights) = 0;
  // The same for a GPU's memory, which the peer may read. kUnsupported: this card, this kernel or
  // libibverbs cannot.
  virtual base::Result<std::unique_ptr<Region>> register_device(const DeviceRange& range) = 0;
  virtual base::Result<std::unique_ptr<Pair>> make_pair(const PairLimits& limits) = 0;
  // Readable when there may be events. -1: there are none.
  virtual int event_descriptor() const = 0;
  // Takes the events that have come. An error when the device is of no use any more.
  virtual base::Status look_at_events() = 0;
  // What the last events were, for the text of a failure; may be empty: "the port went down".
  virtual std::string last_event() const = 0;
  // Whether an event has said that the port's link or its addresses changed since it was opened.
  virtual bool link_changed() const = 0;
};

// Opens the fastest active port of this machine. The caller may name ports ("mlx5_0,mlx5_1:2");
// empty: any.
// kNotFound, kUnavailable, kMismatch or kRefused, each with its cause.
class Verbs {
 public:
  virtual base::Result<std::shared_ptr<Device>> open(const std::string& wanted) = 0;
  // The ports that `open` chooses among, the fastest first: at least one.
  virtual base::Result<std::vector<PortFacts>> ports(const std::string& wanted) = 0;

 protected:
  ~Verbs() = default;
};

}  // namespace tendril::transport::rdma
