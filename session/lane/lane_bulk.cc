// SPDX-License-Identifier: Apache-2.0
// Bulk transfers of a lane.
//
// Out: the calling thread and one helper for each further channel send chunks side by side. A few
// chunks, the session's eager allowance, go at once. The rest wait for the worker's grant. So no
// order of threads and transfers can fill the worker's slots with data that it does not want yet.
//
// In: one receiver per channel writes straight into registered memory. It first checks every
// chunk's header against the registration. Threads start with the first transfer that needs them.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "session/lane/lane_impl.h"

namespace tendril::session {

using base::Code;
using base::Locked;
using base::Result;
using base::Status;

namespace {
constexpr uint32_t kReceiverSpinUs = 20;
// more grants for transfers that never began: a broken server
constexpr size_t kOutgoingMax = 1u << 16;
}  // namespace

// ---- worker -> client ----

Incoming* LaneImpl::find_incoming(uint64_t transfer) {
  Incoming* incoming = incoming_;
  while (incoming != nullptr && incoming->transfer != transfer) incoming = incoming->next;
  return incoming;
}

void LaneImpl::remove_incoming(Incoming* incoming) {
  for (Incoming** link = &incoming_; *link != nullptr; link = &(*link)->next) {
    if (*link == incoming) {
      *link = incoming->next;
      break;
    }
  }
  while (incoming->writers != 0) {  // the caller may reuse its memory after this
    uint32_t seen = incoming_event_.read();
    state_lock_.unlock();
    incoming_event_.wait(seen, 10'000);
    state_lock_.lock();
  }
  delete incoming;
}

void LaneImpl::register_incoming(uint64_t transfer, void* into, uint64_t bytes, bool async) {
  auto* incoming = new Incoming;
  incoming->transfer = transfer;
  incoming->into = static_cast<uint8_t*>(into);
  incoming->bytes = bytes;
  incoming->async = async;
  if (bytes == 0) incoming->waiter.state.store(Waiter::kDone, std::memory_order_relaxed);
  {
    Locked locked(state_lock_);
    incoming->next = incoming_;
    incoming_ = incoming;
  }
  stats_.bulk_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (bulk_.empty() || receivers_started_.load(std::memory_order_acquire)) return;
  Locked locked(start_lock_);
  if (receivers_started_.load(std::memory_order_relaxed) || is_lost()) return;
  for (auto& bulk : bulk_) {
    if (!bulk->receiver.start("tendril-bulk", &LaneImpl::bulk_receiver_main, bulk.get())) {
      // Without a receiver this channel's data would never arrive.
      lose(Status(Code::kExhausted, "no thread to receive bulk data"), false);
      return;
    }
  }
  receivers_started_.store(true, std::memory_order_release);
}

void LaneImpl::expect_bulk(uint64_t transfer, void* into, uint64_t bytes) {
  if (!is_lost()) register_incoming(transfer, into, bytes, false);
}
void LaneImpl::expect_bulk_async(uint64_t transfer, void* into, uint64_t bytes) {
  if (!is_lost()) register_incoming(transfer, into, bytes, true);
}

bool LaneImpl::wait_bulk(uint64_t transfer) {
  if (abandoned_) return false;
  Incoming* incoming;
  {
    Locked locked(state_lock_);
    incoming = find_incoming(transfer);
  }
  if (incoming == nullptr) return false;
  flush();
  wait_for(&incoming->waiter, bulk_.empty());
  Locked locked(state_lock_);
  bool arrived = !incoming->failed && incoming->received == incoming->bytes;
  remove_incoming(incoming);
  return arrived;
}

void LaneImpl::cancel_bulk(uint64_t transfer) {
  if (abandoned_) return;
  Locked locked(state_lock_);
  Incoming* incoming = find_incoming(transfer);
  if (incoming != nullptr) remove_incoming(incoming);
}

Incoming* LaneImpl::admit(const wire::ChunkHeader& chunk, bool* ok) {
  *ok = false;
  if (chunk.bytes == 0 || chunk.bytes > wire::kChunkBytesMax) return nullptr;
  Locked locked(state_lock_);
  if (is_lost()) return nullptr;
  Incoming* incoming = find_incoming(chunk.transfer);
  if (incoming == nullptr) {
    // Drop the rest of a cancelled transfer. A transfer that nobody ever asked for is a violation.
    *ok = chunk.transfer != 0 && chunk.transfer < next_transfer_.load(std::memory_order_relaxed);
    return nullptr;
  }
  if (chunk.offset > incoming->bytes || chunk.bytes > incoming->bytes - chunk.offset ||
      chunk.bytes > incoming->bytes - incoming->promised) {
    return nullptr;
  }
  incoming->promised += chunk.bytes;
  ++incoming->writers;
  *ok = true;
  return incoming;
}

void LaneImpl::settle() {
  if (abandoned_) return;
  while (delivering_.load(std::memory_order_seq_cst)) base::cpu_pause();
  for (;;) {
    uint32_t seen = incoming_event_.read();
    {
      Locked locked(state_lock_);
      bool writing = false;
      for (Incoming* one = incoming_; one != nullptr; one = one->next)
        writing = writing || one->writers != 0;
      if (!writing) return;
    }
    incoming_event_.wait(seen, 10'000);
  }
}

void LaneImpl::landed(Incoming* incoming, uint64_t bytes, bool arrived) {
  bool tell;
  {
    Locked locked(state_lock_);
    --incoming->writers;
    if (arrived) incoming->received += bytes;
    bool whole = incoming->received == incoming->bytes;
    tell = whole || incoming->writers == 0;
    if (whole) complete(&incoming->waiter);
  }
  if (tell) incoming_event_.signal();
}

bool LaneImpl::receive_chunk(transport::Channel* channel, uint8_t* scratch) {
  wire::ChunkHeader chunk;
  uint32_t spin = base::usable_cpus() > 1 ? kReceiverSpinUs : 0;
  Result<size_t> got = channel->receive(&chunk, sizeof chunk, sizeof chunk, {spin, -1});
  bool ok = false;
  if (got.ok()) {
    Incoming* incoming = admit(chunk, &ok);
    if (!ok) return violation("a bulk chunk that fits no transfer");
    if (incoming != nullptr) {
      got = channel->receive(incoming->into + chunk.offset, chunk.bytes, chunk.bytes, {spin, -1});
      landed(incoming, chunk.bytes, got.ok());
    } else {
      for (uint32_t left = chunk.bytes; left > 0 && got.ok();) {
        uint32_t step = std::min<uint32_t>(left, 64u << 10);
        got = channel->receive(scratch, step, step, {0, -1});
        left -= step;
      }
    }
    if (got.ok())
      stats_.bytes_received.fetch_add(sizeof chunk + chunk.bytes, std::memory_order_relaxed);
  }
  if (!got.ok()) lose_after_last_words(got.status());
  return got.ok();
}

void LaneImpl::bulk_receiver_main(void* bulk_channel) {
  auto* bulk = static_cast<BulkChannel*>(bulk_channel);
  auto* scratch = static_cast<uint8_t*>(malloc(64u << 10));
  if (scratch == nullptr)
    return bulk->lane->lose(Status(Code::kExhausted, "no memory for bulk data"), false);
  while (!bulk->lane->is_lost() && bulk->lane->receive_chunk(bulk->channel.get(), scratch)) {
  }
  free(scratch);
}

bool LaneImpl::handle_bulk_frame(const uint8_t* body, uint32_t bytes) {
  wire::ChunkHeader chunk;
  if (!bulk_.empty() || bytes < sizeof chunk) return violation("bulk data on the reply lane");
  std::memcpy(&chunk, body, sizeof chunk);
  bool ok = bytes - sizeof chunk == chunk.bytes;
  Incoming* incoming = ok ? admit(chunk, &ok) : nullptr;
  if (!ok) return violation("a bulk chunk that fits no transfer");
  if (incoming == nullptr) return true;
  std::memcpy(incoming->into + chunk.offset, body + sizeof chunk, chunk.bytes);
  landed(incoming, chunk.bytes, true);
  return true;
}

// ---- client -> worker ----

Outgoing* LaneImpl::outgoing(uint64_t transfer) {
  for (Outgoing* out = outgoing_; out != nullptr; out = out->next) {
    if (out->transfer == transfer) return out;
  }
  auto* out = new Outgoing;
  out->transfer = transfer;
  out->next = outgoing_;
  outgoing_ = out;
  return out;
}

void LaneImpl::retire(Outgoing* out) {
  for (Outgoing** link = &outgoing_; *link != nullptr; link = &(*link)->next) {
    if (*link != out) continue;
    *link = out->next;
    delete out;
    return;
  }
}

bool LaneImpl::handle_grant(const uint8_t* body, uint32_t bytes) {
  wire::GrantBody grant;
  if (bytes != sizeof grant) return violation("a grant's length");
  std::memcpy(&grant, body, sizeof grant);
  bool bad = grant.transfer >= next_transfer_.load(std::memory_order_relaxed);
  state_lock_.lock();
  if (grant.transfer == 0) {
    eager_left_ += std::min<uint64_t>(grant.bytes, 1u << 20);
  } else if (!bad) {
    Outgoing* out = outgoing(grant.transfer);
    eager_left_ += out->eager;
    out->eager = 0;
    bad = out->granted;
    out->granted = true;
    if (!out->sending && out->begun) retire(out);
  }
  size_t entries = 0;
  for (Outgoing* out = outgoing_; out != nullptr; out = out->next, ++entries)
    complete(&out->waiter);
  state_lock_.unlock();
  return bad || entries > kOutgoingMax ? violation("a grant for no transfer") : true;
}

bool LaneImpl::send_bulk(uint64_t transfer, const void* data, uint64_t bytes) {
  flush();
  if (is_lost()) return settle(), false;
  if (bytes == 0) return true;
  ChunkPlan plan = plan_chunks(bytes, bulk_.size());
  const uint64_t chunk = plan.chunk_bytes;
  Outgoing* out;
  {
    Locked locked(state_lock_);
    out = outgoing(transfer);
    out->sending = out->begun = true;
  }
  bool sent = true;
  for (uint64_t at = 0; at < bytes && sent;) {
    uint64_t limit = bytes;
    ChunkPlan part = plan;
    state_lock_.lock();
    if (!out->granted) {
      part.pieces |= wire::kChunkEager;
      uint64_t take = std::min(eager_left_, (bytes - at + chunk - 1) / chunk);
      eager_left_ -= take;
      out->eager += uint32_t(take);
      limit = std::min(bytes, at + take * chunk);
      out->waiter.state.store(Waiter::kWaiting, std::memory_order_relaxed);
    }
    state_lock_.unlock();
    if (limit == at) {
      wait_for(&out->waiter, true);
      sent = !is_lost();
      continue;
    }
    sent = send_range(transfer, static_cast<const uint8_t*>(data), at, limit, part);
    at = limit;
  }
  stats_.bulk_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (is_lost()) settle();
  Locked locked(state_lock_);
  out->sending = false;
  if (out->granted) retire(out);
  return sent && !is_lost();
}

bool LaneImpl::send_range(uint64_t transfer, const uint8_t* data, uint64_t begin, uint64_t end,
                          const ChunkPlan& plan) {
  if (bulk_.empty()) return send_on_lane(transfer, data, begin, end, plan);
  Status sent = striper_.send(transfer, data, begin, end, plan);
  stats_.bytes_sent.fetch_add(end - begin, std::memory_order_relaxed);
  if (!sent.ok()) lose_after_last_words(sent);
  return sent.ok() && !is_lost();
}

bool LaneImpl::send_on_lane(uint64_t transfer, const uint8_t* data, uint64_t begin, uint64_t end,
                            const ChunkPlan& plan) {
  while (begin < end) {
    uint32_t step = uint32_t(std::min<uint64_t>(end - begin, plan.chunk_bytes));
    wire::ChunkHeader chunk{transfer, begin, step, plan.pieces};
    uint8_t* at = begin_flagged(0, wire::kFlagBulkData, 0, uint32_t(sizeof chunk) + step, 0);
    if (at == nullptr) return false;
    std::memcpy(at, &chunk, sizeof chunk);
    std::memcpy(at + sizeof chunk, data + begin, step);
    commit();
    striper_.count(step);
    begin += step;
  }
  return true;
}

}  // namespace tendril::session
