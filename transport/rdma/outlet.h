// SPDX-License-Identifier: Apache-2.0
// The sending half of a channel. It writes records into the peer's ring, as far as the peer has
// told that there is room, and says with an immediate how far it got. Long data of a bulk channel
// is only named in the ring, and the peer's card reads it: straight from the caller's memory if
// that is known, otherwise from a block into which it was copied. One thread at a time sends;
// `shutdown` may come from any.
#pragma once

#include "base/clock.h"
#include "transport/lasting/lasting.h"
#include "transport/parts.h"
#include "transport/rdma/line.h"
#include "transport/rdma/memory.h"

namespace tendril::transport::rdma {

// How a channel is laid out. Both ends have the same (rdma_transport.cc).
struct Layout {
  uint64_t ring_bytes = 512u << 10;
  uint32_t blocks = 0;  // for data that is not in known memory; 0: all travels in the ring
  uint64_t block_bytes = 256u << 10;
  uint64_t reference_min = 16u << 10;  // shorter parts travel in the ring
};

class Outlet final : public Sender {
 public:
  Outlet(std::shared_ptr<Session> session, std::unique_ptr<Line> line, const Layout& layout)
      : session_(std::move(session)), line_(std::move(line)), layout_(layout) {
    session_->enlist(this);
  }
  ~Outlet() { session_->strike_off(this); }
  // Gets its memory. kExhausted: none, or it cannot be registered.
  base::Status open();
  // The peer's ring. It must be as long as the layout says.
  void aim(const Remote& ring) { target_ = ring; }

  // Channel::send_some. `wake`: readable when the channel was shut down.
  base::Result<size_t> some(Parts* rest, int timeout_ms, int wake);
  // Channel::send_from_device.
  base::Result<size_t> some_of_device(uint64_t address, size_t bytes, int timeout_ms, int wake);
  base::Status look() override;
  // Any thread.
  void end() { line_->end(); }
  Line& line() { return *line_; }
  // Bytes of the stream that are in records, or were read from the caller's memory.
  uint64_t sent() const { return sent_bytes_; }
  // Carrier::leave, after `line().stop()`.
  base::Result<Carrier::Remains> remains(uint8_t* into, size_t into_bytes, uint64_t from,
                                         uint64_t shift);

 private:
  struct Sent {
    uint64_t begin = 0, end = 0;  // of the record in the ring
    int block = -1;
    uint32_t bytes = 0;  // of the stream, in the record or its block
  };
  // A record that names the caller's memory, which the peer has not read to its end.
  struct Pending {
    const void* data = nullptr;
    uint32_t bytes = 0;
    uint64_t end = 0;
    const Region* region = nullptr;
  };
  enum class Put { kDone, kNoRoom, kFailed };

  base::Result<size_t> some_locked(Parts* rest, int timeout_ms, int wake);
  base::Status collect();
  uint64_t room() const { return layout_.ring_bytes - (tail_ - head_); }
  // Puts as much as possible of `rest` into one record. *taken: bytes of the stream.
  Put put(Parts* rest, size_t* taken);
  Put put_bytes(Parts* rest, size_t* taken);
  Put put_long(Parts* rest, size_t* taken);
  void append(const Record& record, int block, uint32_t stream_bytes);
  // Posts what was appended, in one message, or two where the ring ends in between.
  base::Status publish();
  // Waits until more room is there. 1: yes; 0: the time is over.
  base::Result<int> wait_room(const base::Deadline& deadline, int wake);
  // Nobody reads the caller's memory any more.
  void give_up();

  const std::shared_ptr<Session> session_;
  base::Lock lock_;       // held while somebody sends, or looks
  RegisteredBlock ring_;  // as the peer's ring will be
  RegisteredBlock blocks_;
  const std::unique_ptr<Line> line_;  // ends before the memory does
  const Layout layout_;
  Remote target_;
  uint64_t tail_ = 0, posted_tail_ = 0, head_ = 0;
  Sent sent_[kRecordsMax];
  uint32_t sent_first_ = 0, sent_count_ = 0;
  uint64_t free_blocks_ = 0;  // as bits
  Pending pending_;
  Pending given_up_;  // when the line failed; its region is not held any more
  uint64_t sent_bytes_ = 0;
  bool of_device_ = false;  // what is offered now is a GPU's memory: it is named, never copied
};

}  // namespace tendril::transport::rdma
