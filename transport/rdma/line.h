// SPDX-License-Identifier: Apache-2.0
// What the two halves of a channel (outlet.h, inlet.h) share: a queue pair that two threads may
// post to, and how to sleep until it reports, somebody wakes the sleeper, or the peer is gone.
// Private to rdma/.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/lock.h"
#include "transport/rdma/record.h"
#include "transport/rdma/verbs.h"

namespace tendril::transport::rdma {

// A work must be reported within this time, or the card is given up. The slowest honest report is
// that of a peer that does not answer: 8 * 67 ms, doubled by some cards for each repetition.
inline constexpr int kReportMs = 10'000;
inline constexpr uint32_t kReadBytes = 256u << 10;  // of one read of the peer's memory
inline constexpr uint32_t kReadsAhead = 4;          // under way at once
// Counts what processors copied. Tests and `stats` read it.
struct CopyCounts {
  std::atomic<uint64_t> copied_bytes{0};  // into or out of rings and blocks
  std::atomic<uint64_t> direct_bytes{0};  // by cards alone, from or to the caller's own memory
  std::atomic<uint64_t> messages{0};      // told with data
  std::atomic<uint64_t> credits{0};       // told without data
  std::atomic<uint64_t> reads{0};         // of the peer's memory
};

// Memory of this process that cards may touch, besides the channels' own. One for each session;
// both halves of every channel look here whether bytes can go without a copy. Any thread.
class KnownMemory {
 public:
  virtual ~KnownMemory() = default;
  // The region that holds all of it; null: none. It stays valid until `let_go`.
  virtual const Region* hold(const void* at, size_t bytes) = 0;
  virtual void let_go(const Region* region) = 0;
  // No more memory will be of use.
  virtual void retire() {}
};

// A half that sends. If nothing more is sent, nobody would notice that the last message failed, so
// those who wait for an answer look.
class Sender {
 public:
  // An error when what was sent has failed. Does nothing while somebody sends. Any thread.
  virtual base::Status look() = 0;

 protected:
  ~Sender() = default;
};
inline constexpr size_t kSendersMax = 9;  // of a session

// The session as its channels see it: the device, and the connection that shows that the peer
// lives.
struct Session {
  std::shared_ptr<Device> device;
  base::Fd connection;  // invalid: nobody watches the peer (tests)
  std::atomic<bool> dead{false};
  std::shared_ptr<KnownMemory> known;
  CopyCounts counts;
  int report_ms = kReportMs;

  // False once the connection has ended.
  bool peer_lives();
  void enlist(Sender* sender);
  void strike_off(const Sender* sender);
  // At all that send. Cheap enough for each wake-up of a sleeper.
  base::Status look_at_senders();

 private:
  const pid_t owner_ = getpid();
  base::Lock senders_lock_;
  Sender* senders_[kSendersMax] = {};
};

// One half's queue pair. Its owner is the thread that sends (or receives) on the channel; `end` may
// come from any other.
class Line {
 public:
  Line(std::shared_ptr<Session> session, std::unique_ptr<Pair> pair, const PairLimits& limits)
      : session_(std::move(session)), pair_(std::move(pair)), limits_(limits), owner_(getpid()) {}
  // Waits a moment for what was posted, so that the peer gets the last bytes.
  ~Line();

  static constexpr uint32_t kSpareSends = 4;  // kept for `end` and tellings
  // A work of the owner; it gets its id here. Fails if the pair has failed, or if nothing was
  // reported for kReportMs.
  base::Status post(Work work, uint64_t* id = nullptr);
  // Tells the peer that nothing more comes. Any thread; once.
  void end();
  // Takes what was reported. An error when the pair has failed.
  base::Status collect();
  // The position that came last, if one came since the last call. Earlier ones say less.
  bool take_told(uint32_t* immediate);
  // Whether the peer has said that nothing more comes.
  bool closed() const { return closed_.load(std::memory_order_relaxed); }
  // Gives the peer room again for what was taken.
  base::Status renew();
  bool is_reported(uint64_t id) const { return reported_.load(std::memory_order_acquire) >= id; }

  // Sleeps until there may be something to collect, `wake` is readable, the device or the
  // connection has news, or the time is over. Call `arm` first, then look once more. True: `wake`
  // is readable.
  void arm() { pair_->arm(); }
  bool sleep(int wake, int timeout_ms);
  // An error when the device is of no use any more. Any thread.
  base::Status look_at_device();
  // Nobody touches memory through this pair any more. Owner only.
  void stop();
  // Ends the line from now on: this is why.
  base::Status fail(Fate fate);
  base::Status fail(const std::string& why, base::Code code = base::Code::kClosed);
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  base::Status failure() const;

 private:
  base::Status wait_for_room();
  bool all_over() const {
    base::Locked locked(lock_);
    return over_ >= posted_;
  }

  const std::shared_ptr<Session> session_;
  const std::unique_ptr<Pair> pair_;
  const PairLimits limits_;
  const pid_t owner_;
  mutable base::Lock lock_;
  uint64_t posted_ = 0;                // guarded by lock_
  std::atomic<uint64_t> reported_{0};  // all up to this id are done
  uint64_t over_ = 0;                  // all up to this id are done, or have failed
  uint32_t taken_ = 0;                 // receives since the last renew
  uint32_t told_ = 0;
  bool has_told_ = false;
  std::atomic<bool> closed_{false};
  bool stopped_ = false;
  std::atomic<bool> ended_{false};
  std::atomic<bool> broken_{false};
  base::Status why_;  // guarded by lock_
};

}  // namespace tendril::transport::rdma
