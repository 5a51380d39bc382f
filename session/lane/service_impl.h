// SPDX-License-Identifier: Apache-2.0
// The private parts of a service, shared by service.cc (calls in, frames out) and service_bulk.cc
// (transfers). Private to session/.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/lock.h"
#include "base/thread.h"
#include "session/lane/service.h"
#include "session/lane/striper.h"

namespace tendril::session {

inline constexpr size_t kServiceOutBytes = 256u << 10;
inline constexpr size_t kInboxBytes = size_t(wire::kCallBytesMax) * 2 + 4096;
inline constexpr size_t kInboxBytesMax =
    size_t(256) << 20;  // backlog of calls while a take waits for a transfer without bulk channels
inline constexpr size_t kAttendedBytesMax = size_t(64)
                                            << 20;  // of these, received while the executor is busy
inline constexpr uint32_t kOwnSlots = 16;

// The calls that have arrived and have not been run. Private memory, so a call cannot change while
// it is decoded.
class Inbox {
 public:
  Inbox() = default;
  ~Inbox();
  bool open();
  // Room to receive into. With `keep`, the current call stays where it is. Null: the backlog is too
  // large.
  uint8_t* room(size_t* bytes, bool keep);
  void received(size_t bytes) { end_ += bytes; }
  // The call at the front, which has this many bytes, has been taken.
  void pass(size_t bytes);
  // The next complete call. 1: found; 0: none yet; -1: malformed. `at`: its position; add its
  // length to pass it.
  int peek(size_t at, wire::CallHeader* header) const {
    if (end_ - at < sizeof *header) return 0;
    std::memcpy(header, data_ + at, sizeof *header);
    const uint32_t pad = header->flags & wire::kFlagPadMask;
    if (header->bytes % wire::kCallAlign != 0 || header->bytes < sizeof *header + pad ||
        header->bytes > wire::kCallBytesMax) {
      return -1;
    }
    return end_ - at >= header->bytes ? 1 : 0;
  }
  bool empty() const { return at_ == end_; }

  uint8_t* data_ = nullptr;
  size_t capacity_ = 0;
  size_t at_ = 0;     // next call to run
  size_t scan_ = 0;   // next call that take looks at
  size_t sight_ = 0;  // next call that attend shows
  size_t end_ = 0;

 private:
  void compact(uint8_t* into);
  void let_go();
  std::vector<uint8_t*>
      held_;  // memory of the calls that are being run, when `room` had to use another buffer
};

// In the inbox only: take or attend has consumed the call.
inline constexpr uint16_t kFlagTaken = 1u << 15;

class ServiceImpl final : public Service {
 public:
  ServiceImpl(std::unique_ptr<transport::Channel> command,
              std::unique_ptr<transport::Channel>* bulk, size_t bulk_count, SlotPool pool,
              wire::SessionCounts* counts);
  ~ServiceImpl() override;
  bool start();
  wire::SessionCounts& counts() override { return *counts_; }

  base::Result<Call> next(transport::Wait wait) override;
  size_t take_alike(const Call& current, Call* calls, size_t max) override;
  bool pending() override;
  void on_sight(std::function<bool(const Call&)> taken) override {
    taken_on_sight_ = std::move(taken);
  }
  bool attend() override;
  void reply(uint32_t reply_id, int32_t result, const void* body, uint32_t bytes) override;
  void reply2(uint32_t reply_id, int32_t result, const void* body, uint32_t bytes, const void* more,
              uint32_t more_bytes) override;
  void deliver(uint64_t address, const void* data, uint32_t bytes) override;
  void push(wire::FrameKind kind, int32_t result, const void* body, uint32_t bytes) override;
  void transfer_sent(uint64_t transfer) override;
  void transfer_failed(uint64_t transfer, int32_t result) override;
  void flush() override;
  bool take(uint64_t transfer, Piece* piece) override;
  void release(const Piece& piece) override;
  void aim(uint64_t transfer, uint64_t address, uint64_t bytes) override;
  void unaim(uint64_t transfer) override;
  void expect_aims() override { expects_aims_.store(true, std::memory_order_relaxed); }
  bool take_into(uint64_t transfer, void* into, uint64_t bytes) override;
  void discard(uint64_t transfer) override;
  bool send_bulk(uint64_t transfer, uint64_t offset, const void* data, uint64_t bytes) override;
  bool send_device_bulk(uint64_t transfer, uint64_t offset, uint64_t address, uint64_t bytes,
                        DeviceReader* reader) override;
  void end(const char* why) override;

 private:
  struct Part {
    const void* data;
    uint32_t bytes;
  };
  struct Transfer {
    uint64_t id = 0;
    uint32_t pieces = 0;   // in the whole transfer; 0: not known yet
    uint32_t arrived = 0;  // pieces that are in slots, handed out or dropped
    uint32_t handed = 0;
    uint32_t eager = 0;  // of these, parked without a grant
    bool granted = false;
    bool discarded = false;
    std::vector<Piece> ready;
    // Of take_into. Null: nobody has called it.
    uint8_t* into = nullptr;
    uint64_t into_bytes = 0, expected = 0;  // expected: those of which no piece has come
    uint32_t writers = 0;                   // receivers that write there, or to the device
    // Of aim. 0: nobody has called it.
    uint64_t device = 0, device_bytes = 0;
    Transfer* next = nullptr;
  };
  struct Line {
    std::unique_ptr<transport::Channel> channel;
    base::Thread receiver;
    ServiceImpl* service = nullptr;
  };

  // service.cc
  void frame(wire::FrameKind kind, int32_t result, uint32_t reply_id, const Part* parts, int count);
  void frame_in_ring(const wire::ReplyHeader& header, const Part* parts, int count, uint32_t pad);
  void send_gathered(const wire::ReplyHeader& header, const Part* parts, int count, uint32_t pad);
  void send_now();  // out_lock_ held
  void finish(const base::Status& why);
  base::Status reason();
  bool on_executor() const;
  base::Status malformed(const char* what);
  bool receive_more(transport::Wait wait, bool keep, base::Status* failure);
  Call call_at(size_t at, const wire::CallHeader& header) const;
  void show_calls();
  void tell_progress();
  void reply_due();
  void replied();

  // service_bulk.cc
  static void receiver_main(void* line);
  bool receive_chunk(transport::Channel* channel, uint8_t* scratch);
  uint32_t put_on_device(transport::Channel* channel, const wire::ChunkHeader& chunk,
                         uint64_t device);
  const char* check_chunk(const wire::ChunkHeader& chunk);
  // Where a chunk's bytes go.
  struct Place {
    uint8_t* at = nullptr;  // null: nowhere, they are dropped
    uint32_t slot = kTakers;
    uint64_t device = 0;  // not 0: what a card can put there by itself goes there
    static constexpr uint32_t kTakers = UINT32_MAX;  // no slot: the memory of take_into's caller
  };
  // Finds the chunk's place. Waits if it needs a slot, except without bulk channels. False: the
  // session has ended, or *why says what is wrong.
  bool admit(const wire::ChunkHeader& chunk, Place* place, const char** why);
  // `whole`: all of its bytes are there; of these the first `placed` on the device.
  void landed(const wire::ChunkHeader& chunk, const Place& place, bool whole, uint32_t placed = 0);
  void take_slot(Transfer* of, const wire::ChunkHeader& chunk, bool eager,
                 Place* place);  // slots_lock_ held
  // Data that come before their call wait a moment for it.
  void await_aim(const wire::ChunkHeader& chunk);
  // Whether the taker of this transfer still expects so many bytes there; from now on it does not.
  static bool expects(Transfer* transfer, uint64_t offset, uint64_t bytes);  // slots_lock_ held
  bool copy_piece(Transfer* of, const Piece& piece);
  Transfer* transfer(uint64_t id, bool make);  // slots_lock_ held
  void drop_if_done(Transfer* transfer);       // slots_lock_ held
  void free_slot(uint32_t slot);               // slots_lock_ held
  bool grant(Transfer* transfer);              // slots_lock_ held; true: tell the client
  void tell_grant(uint64_t id, uint64_t chunks);
  int stow(const wire::CallHeader& header, const uint8_t* body, uint32_t bytes);
  bool scan_lane();
  uint8_t* slot_memory(uint32_t slot) const {
    return pool_.base + size_t(slot) * wire::kChunkBytesMax;
  }

  std::unique_ptr<transport::Channel> command_;
  transport::OutgoingRing* direct_ = nullptr;
  std::vector<std::unique_ptr<Line>> lines_;
  Striper striper_;
  uint32_t take_spin_us_ = 0;

  base::Lock inbox_lock_;  // held by the receiving thread for as long as it receives
  Inbox inbox_;
  std::function<bool(const Call&)> taken_on_sight_;
  std::atomic<const void*> executor_{nullptr};
  uint64_t told_ = 0;  // calls that the client knows as run; the executor's

  base::Lock out_lock_;
  uint8_t* out_ = nullptr;
  size_t out_used_ = 0;
  std::atomic<uint64_t> out_since_ns_{0};  // 0: nothing waits to be sent

  base::Lock slots_lock_;
  SlotPool pool_;
  void* own_pool_ = nullptr;
  std::vector<uint32_t> free_slots_;
  uint32_t eager_max_ = 0;
  uint32_t eager_parked_ = 0;
  Transfer* transfers_ = nullptr;
  uint32_t transfer_count_ = 0;
  std::atomic<bool> expects_aims_{false};
  base::Event slot_event_;
  base::Event piece_event_;

  wire::SessionCounts own_counts_;  // used when the opener passed none
  wire::SessionCounts* const counts_;
  std::atomic<uint64_t> due_since_ns_{0};

  std::atomic<bool> ended_{false};
  base::Lock why_lock_;
  base::Status why_;
};

}  // namespace tendril::session
