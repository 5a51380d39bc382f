// SPDX-License-Identifier: Apache-2.0
// One attached server, for one API: the lane, how messages of any API go through it, and what the
// lane reports unasked. An API derives its session from Calls, which turns replies into the API's
// results. Any thread. Enqueuing allocates nothing, and takes only the lane's lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/lock.h"
#include "client/core/record.h"
#include "client/core/staging.h"
#include "client/core/tally.h"
#include "client/core/uploads.h"
#include "session/lane/lane.h"
#include "transport/host_window.h"
#include "transport/registry.h"
#include "wire/message.h"

namespace tendril::session {
class BackgroundTrial;
}
namespace tendril::client::core {

class Session : public session::LaneEvents {
 public:
  uint32_t index = 0;    // among the sessions of this process and API, in device order
  std::string endpoint;  // as the user wrote it
  std::vector<uint32_t> nccl_versions;  // that the server lends
  std::unique_ptr<session::Lane> lane;
  transport::HostWindow window;  // valid when the server is on this host
  // Null, unless the transport moves data straight from and to memory that it knows (RDMA).
  std::shared_ptr<transport::PinnedMemory> pinned;
  std::shared_ptr<session::BackgroundTrial> trial;  // of a fabric; null: there is none
  // Numbers event records and other things whose completion is remembered.
  std::atomic<uint64_t> serial{0};
  Staging staging;  // for copies with pageable memory, when the server is on this host
  Uploads uploads;  // large copies from pinned memory, when it is not

  // How many calls have been sent. Two sessions never have the same number.
  uint64_t calls() const {
    return lane->stats().calls.load(std::memory_order_relaxed) + (uint64_t{index + 1} << 48);
  }

  // Sends a message. `context`: the index of its record; 0: none. reply_id 0: no answer comes.
  // `into`: if the answer's body has `into_bytes` bytes, it goes straight there. False: the session
  // is lost.
  template <typename Request>
  bool append(uint32_t context, const Request& request, uint32_t reply_id, void* into = nullptr,
              uint64_t into_bytes = 0) {
    const uint64_t bytes = wire::message_bytes(request);
    uint8_t* body = lane->begin(static_cast<uint16_t>(Request::kOp), context,
                                static_cast<uint32_t>(bytes), reply_id);
    if (body == nullptr) return false;
    wire::write_message(request, body);
    if (into != nullptr) lane->expect_bytes(reply_id, into, static_cast<uint32_t>(into_bytes));
    lane->commit();
    tally_bytes(bytes);
    return true;
  }
  session::Reply wait(uint32_t reply_id) {
    const Blocked blocked(0, 1);
    const session::Reply reply = lane->wait(reply_id);
    tally_bytes(reply.bytes);
    return reply;
  }

  // The lane's functions, with counting.
  bool send_bulk(uint64_t transfer, const void* data, uint64_t bytes);
  bool wait_bulk(uint64_t transfer, uint64_t bytes);

  // The record of an object whose id the worker chose (api::kWorkerBit). Null: unknown.
  Record* remembered(uint64_t wire_id);
  void remember(uint64_t wire_id, Record* record);
  void forget(uint64_t wire_id);

  // For staging. False: not now; ask again later.
  virtual bool may_share_pages() { return false; }
  // Makes pages that the worker has at the same addresses. `owner`, a context of the API, pins
  // them. Null: impossible.
  virtual void* share_pages(void* /*owner*/, uint64_t /*bytes*/) { return nullptr; }
  virtual void unshare_pages(void* /*pages*/, uint64_t /*bytes*/) {}

  // What the lane reports unasked. The defaults suit an API that has no asynchronous copies to the
  // host, host functions, sticky errors, or host memory that devices write. `lost` has no default.
  bool accepts_delivery(uint64_t /*address*/, uint64_t /*bytes*/) override { return false; }
  void delivered(uint64_t /*address*/, uint64_t /*bytes*/) override {}
  bool awaits_callbacks() override { return false; }
  void callback(const uint8_t* /*body*/, size_t /*bytes*/) override {}
  void sticky_error(int32_t /*result*/, const char* /*text*/, size_t /*bytes*/) override {}
  void memory_written() override {}
  // What devices print. The first byte of `text` is the descriptor of the program's output.
  void output(const char* text, size_t bytes) override;

 protected:
  // One line on stderr. `answer`: the API's name of the result that every call gives from now on.
  void tell_lost(const base::Status& why, const char* answer) const;

 private:
  base::Lock known_lock_;
  std::unordered_map<uint64_t, Record*> known_;
};

// Calls with the results of one API. Results has:
//   using Result = ...;                an integer or enumeration, as replies carry it
//   static constexpr Result kSuccess;
//   static constexpr Result kLost;     the session has ended
//   static constexpr Result kGarbled;  an answer that cannot be read
template <typename Results>
class Calls : public Session {
 public:
  using Result = typename Results::Result;

  // Sends a message and awaits no answer.
  template <typename Request>
  Result enqueue(uint32_t context, const Request& request) {
    static_assert(!Request::kReplies);
    return append(context, request, 0) ? Results::kSuccess : Results::kLost;
  }

  // Round trip. The arrays in `reply` lie in the lane's receive buffer: use them before the
  // thread's next call.
  template <typename Request, typename Answer>
  Result call(uint32_t context, const Request& request, Answer& reply) {
    static_assert(Request::kReplies);
    const uint32_t id = lane->new_reply_id();
    if (!append(context, request, id)) return Results::kLost;
    return answer(id, reply);
  }

  // Like call, for an answer that is only bytes. They go straight to `into`.
  template <typename Request>
  Result call_for_bytes(uint32_t context, const Request& request, void* into, uint64_t bytes) {
    const uint32_t id = lane->new_reply_id();
    if (!append(context, request, id, into, bytes)) return Results::kLost;
    const session::Reply reply = wait(id);
    if (reply.lost) return Results::kLost;
    const auto result = static_cast<Result>(reply.result);
    if (result != Results::kSuccess) return result;
    tally_bytes(bytes);
    return reply.placed ? Results::kSuccess : Results::kGarbled;
  }

  // The second half of a call, for callers that do something between request and wait.
  template <typename Answer>
  Result answer(uint32_t reply_id, Answer& into) {
    const session::Reply reply = wait(reply_id);
    if (reply.lost) return Results::kLost;
    if (reply.bytes != 0 && !wire::read_message(into, reply.body, reply.bytes))
      return Results::kGarbled;
    return static_cast<Result>(reply.result);
  }
};

}  // namespace tendril::client::core
