// SPDX-License-Identifier: Apache-2.0
// The receiving half of a channel. The peer writes records into this end's ring and tells how far
// it got. Bytes in the ring are copied out. Bytes that a record only names are read by this
// end's card, straight into the caller's memory if that is known. When records are used up the peer
// is told, and has room again. One thread at a time receives; `end` may come from any.
#pragma once

#include "transport/rdma/memory.h"
#include "transport/rdma/outlet.h"
#include "transport/transport.h"

namespace tendril::transport::rdma {

class Inlet {
 public:
  Inlet(std::shared_ptr<Session> session, std::unique_ptr<Line> line, const Layout& layout)
      : session_(std::move(session)), line_(std::move(line)), layout_(layout) {}
  base::Status open();
  // For the peer: where its outlet writes.
  Remote ring() const { return ring_.remote(); }

  // Channel::receive. `wake`: readable when the channel was shut down.
  base::Result<size_t> receive(void* into, size_t min, size_t max, Wait wait, int wake) {
    return receive_any(static_cast<uint8_t*>(into), min, max, wait, wake, false);
  }
  // Channel::receive_to_device.
  base::Result<size_t> receive_to_device(uint64_t address, size_t max, int wake) {
    return receive_any(reinterpret_cast<uint8_t*>(address), 1, max, {kSpinUs, -1}, wake, true);
  }
  // Any thread.
  void end() { line_->end(); }
  Line& line() { return *line_; }
  // Bytes of the stream that the caller got.
  uint64_t received() const { return received_; }

 private:
  static constexpr uint32_t kSpinUs = 20;  // before a receiver of a GPU's memory sleeps
  base::Status collect();
  base::Result<size_t> receive_any(uint8_t* at, size_t min, size_t max, Wait wait, int wake,
                                   bool to_device);
  // Whether the card alone can put the current record's bytes there.
  bool lands(const uint8_t* at, size_t max) const;
  // Makes the next record current, if there is one.
  base::Result<bool> next();
  // Takes up to `max` bytes of the current record.
  base::Status take(uint8_t* into, size_t max, size_t* taken, int wake);
  base::Status read_direct(uint8_t* into, size_t bytes, const Region& region, int wake);
  base::Status read_through_block(uint8_t* into, size_t bytes, int wake);
  base::Status post_read(uint64_t done, void* into, uint32_t key, size_t bytes, uint64_t* id);
  base::Status wait_read(uint64_t id, int wake);
  base::Status pass_record();
  base::Status lost_telling();
  // Says once more what the peer may have missed.
  base::Status repeat_credit();

  const std::shared_ptr<Session> session_;
  RegisteredBlock ring_;
  RegisteredBlock landing_;           // opened with the first read that needs it
  const std::unique_ptr<Line> line_;  // ends before the memory does
  const Layout layout_;
  bool has_landing_ = false;
  uint64_t head_ = 0, tail_ = 0, told_head_ = 0;
  uint64_t received_ = 0;
  uint32_t records_since_ = 0;  // since the peer was told
  Record record_;
  uint32_t left_ = 0;  // of the current record
  bool current_ = false;
  uint32_t polls_ = 0;
  uint32_t sleeps_ = 0;  // since the peer was told
  uint64_t suspected_since_ns_ = 0;
};

}  // namespace tendril::transport::rdma
