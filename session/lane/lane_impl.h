// SPDX-License-Identifier: Apache-2.0
// The private parts of a lane, shared by lane.cc (calls out), lane_receive.cc (frames in, waiting)
// and lane_bulk.cc (transfers). Private to session/. Locks may nest in this order: lock_
// (encoding), then state_lock_. send_lock_ and the channels' locks are leaves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/lock.h"
#include "base/thread.h"
#include "session/lane/lane.h"
#include "session/lane/striper.h"

namespace tendril::session {

inline constexpr uint64_t kLaneRingBytes =
    2u << 20;  // twice the largest call; transport/shm/shm.h says why no larger
inline constexpr size_t kLaneReceiveBytes = size_t(wire::kReplyBytesMax) * 2 + 4096;

// A thread that waits for something that the receiving thread will notice. Guarded by state_lock_,
// except for reads of `state`.
struct Waiter {
  enum : uint32_t { kWaiting = 0, kDone = 1, kAsleep = 2 };
  std::atomic<uint32_t> state{kWaiting};
  Waiter* next = nullptr;
  Waiter* previous = nullptr;
  bool may_lead = true;
};

struct PendingReply {
  Waiter waiter;
  uint32_t id = 0;
  int32_t result = 0;
  uint8_t* body = nullptr;
  uint32_t bytes = 0;
  uint32_t capacity = 0;
  uint8_t* into =
      nullptr;  // where the body goes after its first 8 bytes, if it has the expected length
  uint32_t into_bytes = 0;
  bool placed = false;
  bool dropped = false;  // nobody will wait for it
  PendingReply* next = nullptr;
};

// The last reply of one thread. Its body stays valid until that thread waits again.
struct ThreadSlot {
  const void* thread = nullptr;
  PendingReply* last = nullptr;
  ThreadSlot* next = nullptr;
};

struct Incoming {  // worker -> client
  Waiter waiter;
  uint64_t transfer = 0;
  uint8_t* into = nullptr;
  uint64_t bytes = 0;
  uint64_t promised = 0;  // announced by the chunk headers seen
  uint64_t received = 0;
  uint32_t writers = 0;  // threads that are writing into it
  bool async = false;
  bool failed = false;
  Incoming* next = nullptr;
};

struct Outgoing {  // client -> worker
  Waiter waiter;
  uint64_t transfer = 0;
  uint32_t eager = 0;  // ungranted chunks sent
  bool granted = false;
  bool sending = false;
  bool begun = false;
  Outgoing* next = nullptr;
};

struct BulkChannel {
  std::unique_ptr<transport::Channel> channel;
  base::Thread receiver;
  class LaneImpl* lane = nullptr;
};

class LaneImpl final : public Lane {
 public:
  LaneImpl(std::unique_ptr<transport::Channel> command, std::unique_ptr<transport::Channel>* bulk,
           size_t bulk_count, LaneEvents* events);
  ~LaneImpl() override;
  bool usable() const {
    return (ring_ != nullptr || direct_ != nullptr) && receive_buffer_ != nullptr;
  }

  uint8_t* begin(uint16_t opcode, uint32_t context, uint32_t body_bytes,
                 uint32_t reply_id) override;
  void commit() override;
  void wait_is_near() override;
  uint32_t new_reply_id() override;
  void expect_bytes(uint32_t reply_id, void* into, uint32_t bytes) override;
  Reply wait(uint32_t reply_id) override;
  bool answered(uint32_t reply_id) override;
  bool take_result(uint32_t reply_id, int32_t* result) override;
  void drop_reply(uint32_t reply_id) override;
  void pump() override;
  void flush() override { flush_until(-1); }
  uint64_t new_transfer_id() override {
    return next_transfer_.fetch_add(1, std::memory_order_relaxed);
  }
  bool send_bulk(uint64_t transfer, const void* data, uint64_t bytes) override;
  void count_into(std::atomic<uint64_t>* sent_bytes) override { striper_.count_into(sent_bytes); }
  void expect_bulk(uint64_t transfer, void* into, uint64_t bytes) override;
  bool wait_bulk(uint64_t transfer) override;
  void expect_bulk_async(uint64_t transfer, void* into, uint64_t bytes) override;
  void cancel_bulk(uint64_t transfer) override;
  void start_receiver() override;
  bool has_bulk_channels() const override { return !bulk_.empty(); }
  bool is_lost() const override { return lost_.load(std::memory_order_acquire); }
  const char* transport_kind() const override { return command_->kind(); }
  const LaneStats& stats() const override { return stats_; }
  void abandon_after_fork() override;
  void close(int timeout_ms) override;

 private:
  // lane.cc
  uint8_t* begin_flagged(uint16_t opcode, uint16_t flags, uint32_t context, uint32_t body_bytes,
                         uint32_t reply_id);
  uint8_t* place(uint64_t need);
  bool is_too_far_ahead();  // lock_ held
  void let_worker_catch_up();
  bool send_pending(int timeout_ms);
  bool flush_until(int timeout_ms);
  void lose(const base::Status& why, bool quiet);
  void lose_after_last_words(const base::Status& why);
  void wake_sender();
  void await_company(uint64_t until_ns);
  static void sender_main(void* self);

  // lane_receive.cc
  void register_reply(uint32_t reply_id);
  PendingReply* find_reply(uint32_t reply_id);  // state_lock_ held
  void free_reply(PendingReply* reply);         // state_lock_ held
  void wait_for(Waiter* waiter, bool may_lead);
  bool try_lead();
  bool is_leader() const;
  void resign();
  void lead_for(const Waiter& waiter);
  bool receive_once(transport::Wait wait);
  bool handle_frames();
  uint8_t* place_of(const wire::ReplyHeader& header, const uint8_t* body, uint64_t bytes);
  bool place_rest(const wire::ReplyHeader& header);
  bool handle_frame(const wire::ReplyHeader& header, const uint8_t* body, uint32_t bytes);
  bool handle_reply(const wire::ReplyHeader& header, const uint8_t* body, uint32_t bytes,
                    bool placed);
  bool handle_delivery(const uint8_t* body, uint32_t bytes);
  bool handle_transfer(int32_t result, const uint8_t* body, uint32_t bytes);
  bool handle_grant(const uint8_t* body, uint32_t bytes);
  bool handle_progress(const uint8_t* body, uint32_t bytes);
  bool handle_bulk_frame(const uint8_t* body, uint32_t bytes);
  bool violation(const char* what);
  void complete(Waiter* waiter);  // state_lock_ held
  void unlink(Waiter* waiter);    // state_lock_ held
  void wake_all_sleepers();       // state_lock_ held
  ThreadSlot* thread_slot();
  static void receiver_main(void* self);

  // lane_bulk.cc
  Incoming* find_incoming(uint64_t transfer);  // state_lock_ held
  void remove_incoming(Incoming* incoming);    // state_lock_ held; waits for its writers
  void register_incoming(uint64_t transfer, void* into, uint64_t bytes, bool async);
  // For a lost session: returns when nothing is writing to the program's memory any more. Nothing
  // will from then on.
  void settle();
  // May `chunk` be written? If so, counts one writer more. Null with *ok true: drop the bytes.
  Incoming* admit(const wire::ChunkHeader& chunk, bool* ok);
  void landed(Incoming* incoming, uint64_t bytes, bool arrived);
  Outgoing* outgoing(uint64_t transfer);  // state_lock_ held; finds or makes
  void retire(Outgoing* outgoing);        // state_lock_ held
  bool send_range(uint64_t transfer, const uint8_t* data, uint64_t begin, uint64_t end,
                  const ChunkPlan& plan);
  bool send_on_lane(uint64_t transfer, const uint8_t* data, uint64_t begin, uint64_t end,
                    const ChunkPlan& plan);
  static void bulk_receiver_main(void* bulk_channel);
  bool receive_chunk(transport::Channel* channel, uint8_t* scratch);

  std::unique_ptr<transport::Channel> command_;
  std::vector<std::unique_ptr<BulkChannel>> bulk_;
  LaneEvents* events_;
  const uint64_t id_;
  uint32_t sender_spin_us_ = 0;
  uint32_t wait_spin_us_ = 0;
  base::LearntSpin waits_;

  // Calls out. Everything up to tail_ is committed. Everything up to head_ has been sent.
  alignas(64) base::Lock lock_;
  transport::OutgoingRing* direct_ = nullptr;
  uint8_t* ring_ = nullptr;
  uint64_t call_start_ = 0;
  uint64_t call_bytes_ = 0;
  bool call_wrapped_ = false;
  bool call_wants_reply_ = false;
  bool call_counts_ = false;
  uint64_t committed_ = 0;  // calls that count
  // this many may be committed, by the last known progress
  uint64_t hold_at_ = wire::kCallsAheadMax;
  uint64_t wrap_from_ = 0;
  std::atomic<uint64_t> wrap_at_{0};
  alignas(64) std::atomic<uint64_t> tail_{0};
  std::atomic<uint32_t> sender_asleep_{0};
  std::atomic<uint64_t> company_until_ns_{0};
  alignas(64) std::atomic<uint64_t> head_{0};
  base::Lock send_lock_;
  base::Thread sender_;
  bool sender_tried_ = false;

  // Frames in. The receiving thread holds `leading_`.
  alignas(64) base::Lock state_lock_;
  std::atomic<uint32_t> leading_{0};
  std::atomic<const void*> leader_{nullptr};  // the thread
  std::atomic<uint64_t> run_{0};              // calls that the worker has run
  Waiter* sleepers_ = nullptr;
  std::atomic<uint32_t> waiting_{0};
  uint8_t* receive_buffer_ = nullptr;
  size_t receive_at_ = 0, receive_end_ = 0;
  static constexpr uint32_t kBuckets = 256;
  PendingReply* pending_[kBuckets] = {};
  PendingReply* free_replies_ = nullptr;
  ThreadSlot* thread_slots_ = nullptr;
  std::atomic<uint32_t> next_reply_{1};
  std::atomic<uint64_t> next_transfer_{1};
  base::Thread receiver_;
  base::Lock start_lock_;
  base::Event stop_event_;

  // Transfers.
  Incoming* incoming_ = nullptr;
  Outgoing* outgoing_ = nullptr;
  uint64_t eager_left_ = 0;
  base::Event incoming_event_;
  Striper striper_;
  std::atomic<bool> receivers_started_{false};

  std::atomic<bool> lost_{false};
  std::atomic<bool> closing_{false};
  std::atomic<bool> delivering_{false};
  bool abandoned_ = false;
  LaneStats stats_;
};

}  // namespace tendril::session
