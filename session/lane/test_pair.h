// SPDX-License-Identifier: Apache-2.0
// For the tests of session/: a lane and a service joined by a chosen transport, and a small worker
// that echoes, counts, delivers and moves bulk data on request.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "session/lane/lane.h"
#include "session/lane/service.h"
#include "transport/testing/rdma_channels.h"

namespace tendril::session {

inline constexpr const char* kTestTransports[] = {"unix",     "tcp",    "shm",
                                                  "loopback", "shaped", "rdma"};

enum TestCall : uint16_t {
  kEcho = 1,
  kCount,
  kCounted,
  kDeliver,
  kNothing,
  kTake,
  kTakeInto,  // the same, in one piece
  kGive,
  kDiscard,
  kFailTransfer,
  kPush,
  kEnd,
  kSlow,
  kHold,  // holds the executor until kRelease is seen
  kRelease,
};

inline std::vector<uint8_t> pattern(uint64_t bytes, uint64_t seed) {
  std::vector<uint8_t> data(bytes);
  uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    memcpy(&data[i], &x, 8);
  }
  for (; i < bytes; ++i) data[i] = uint8_t(seed + i);
  return data;
}

struct TestEvents : LaneEvents {
  bool accepts_delivery(uint64_t address, uint64_t bytes) override {
    return address >= begin && bytes <= end - begin && address - begin <= end - begin - bytes;
  }
  void allow(void* memory, size_t bytes) {
    begin = reinterpret_cast<uint64_t>(memory);
    end = begin + bytes;
  }
  void delivered(uint64_t, uint64_t bytes) override { delivered_bytes += bytes; }
  bool awaits_callbacks() override { return awaited; }
  void output(const char* text, size_t bytes) override { output_text.append(text, bytes); }
  void callback(const uint8_t*, size_t) override { ++callbacks; }
  void sticky_error(int32_t result, const char*, size_t) override { sticky = result; }
  void memory_written() override { ++writes; }
  void news(const uint8_t* body, size_t bytes) override {
    told.append(reinterpret_cast<const char*>(body), bytes);
  }
  void lost(const base::Status& status) override {
    why = status;
    ++lost_count;
  }
  uint64_t begin = 0, end = 0;
  std::string output_text, told;
  std::atomic<uint64_t> delivered_bytes{0};
  std::atomic<bool> awaited{false};
  std::atomic<int> callbacks{0}, sticky{0}, writes{0}, lost_count{0};
  base::Status why;
};

class TestSession {
 public:
  TestSession(const char* transport, size_t bulk, uint32_t spin_us = 0) : spin_us_(spin_us) {
    transport::ChannelSet client, worker;
    transport::make_any_channels(transport, bulk, &client, &worker);
    open(std::move(client), std::move(worker));
  }
  TestSession(transport::ChannelSet client, transport::ChannelSet worker) : spin_us_(0) {
    open(std::move(client), std::move(worker));
  }
  ~TestSession() {
    lane.reset();
    join_worker();
  }
  void join_worker() {
    if (worker_.joinable()) worker_.join();
  }
  bool post(uint16_t opcode, const void* body, size_t bytes, uint32_t reply_id = 0) {
    uint8_t* at = lane->begin(opcode, 0, uint32_t(bytes), reply_id);
    if (at == nullptr) return false;
    if (bytes != 0) memcpy(at, body, bytes);
    lane->commit();
    return true;
  }
  Reply call(uint16_t opcode, const std::string& body) {
    uint32_t id = lane->new_reply_id();
    if (!post(opcode, body.data(), body.size(), id)) {
      Reply lost;
      lost.lost = true;
      return lost;
    }
    return lane->wait(id);
  }

  TestEvents events;
  std::unique_ptr<Lane> lane;
  std::unique_ptr<Service> service;
  std::atomic<uint64_t> counted{0};
  std::atomic<uint64_t> looked_ahead{0};
  std::atomic<int> releases{0};
  std::atomic<int> pending_after_hold{-1};
  base::Status service_end;

 private:
  void open(transport::ChannelSet client, transport::ChannelSet worker) {
    lane = Lane::open(std::move(client.command), client.bulk.data(), client.bulk.size(), &events);
    service = Service::open(std::move(worker.command), worker.bulk.data(), worker.bulk.size(),
                            SlotPool());
    service->on_sight([this](const Call& call) {
      if (call.opcode != kRelease) return false;
      ++releases;
      return true;
    });
    worker_ = std::thread([this] { run(); });
  }
  // Calls may arrive corrupted on purpose.
  static bool sane(const Call& call) {
    uint64_t words[3] = {};
    memcpy(words, call.body, std::min<size_t>(call.bytes, sizeof words));
    switch (call.opcode) {
      case kCount:
      case kDiscard:
      case kFailTransfer:
        return call.bytes >= 8;
      case kDeliver:
        return call.bytes >= 16 && uint32_t(words[1]) <= wire::kReplyInlineMax;
      case kTake:
      case kTakeInto:
      case kGive:
        return call.bytes >= 24 && words[1] < (64u << 20);
      default:
        return true;
    }
  }
  void take(const Call& call) {
    uint64_t ask[3];
    memcpy(ask, call.body, sizeof ask);
    std::vector<uint8_t> data(ask[1]);
    uint64_t got = 0;
    Piece piece;
    while (got < ask[1] && service->take(ask[0], &piece)) {
      if (piece.offset + piece.bytes > ask[1]) break;
      memcpy(data.data() + piece.offset, piece.data, piece.bytes);
      got += piece.bytes;
      service->release(piece);
    }
    bool same = call.reply_id == 0 || data == pattern(ask[1], ask[2]);
    service->reply(call.reply_id, same ? 0 : 1, nullptr, 0);
  }
  void take_into(const Call& call) {
    uint64_t ask[3];
    memcpy(ask, call.body, sizeof ask);
    std::vector<uint8_t> data(ask[1] + 1, 0xee);
    const bool all = service->take_into(ask[0], data.data(), ask[1]) && data.back() == 0xee;
    data.resize(ask[1]);
    const bool same = all && (call.reply_id == 0 || data == pattern(ask[1], ask[2]));
    service->reply(call.reply_id, same ? 0 : 1, nullptr, 0);
  }
  void deliver(const Call& call) {
    struct {
      uint64_t address;
      uint32_t bytes, value;
    } ask;
    memcpy(&ask, call.body, sizeof ask);
    std::vector<uint8_t> data(ask.bytes, uint8_t(ask.value));
    service->deliver(ask.address, data.data(), ask.bytes);
  }
  // False: the call's bytes have changed since.
  bool hold(const Call& call) {
    const std::vector<uint8_t> before(call.body, call.body + call.bytes);
    while (releases == 0) std::this_thread::yield();
    pending_after_hold = service->pending();
    return std::equal(before.begin(), before.end(), call.body);
  }
  void give(const Call& call) {
    uint64_t ask[3];
    memcpy(ask, call.body, sizeof ask);
    std::vector<uint8_t> data = pattern(ask[1], ask[2]);
    uint64_t half = ask[1] / 2;
    service->send_bulk(ask[0], half, data.data() + half, ask[1] - half);
    if (half != 0) service->send_bulk(ask[0], 0, data.data(), half);
    service->transfer_sent(ask[0]);
  }
  // Together with the calls that follow, as the worker takes launches. All bodies stay valid until
  // the next `next`.
  void count(const Call& call, uint64_t* expected, uint64_t* wrong) {
    std::vector<Call> calls(5, call);
    calls.resize(1 + service->take_alike(call, &calls[1], 4));
    looked_ahead += calls.size() - 1;
    for (const Call& one : calls) {
      if (!sane(one)) return service->end("a call that makes no sense");
      uint64_t number;
      memcpy(&number, one.body, 8);
      if (number != (*expected)++) ++*wrong;
      ++counted;
    }
  }
  void run() {
    uint64_t next = 0, wrong = 0;
    for (;;) {
      base::Result<Call> got = service->next({spin_us_, -1});
      if (!got.ok()) {
        service_end = got.status();
        service->end("over");
        return;
      }
      Call& call = *got;
      if (!sane(call)) {
        service->end("a call that makes no sense");
        continue;
      }
      switch (call.opcode) {
        case kEcho:
          service->reply(call.reply_id, 7, call.body, call.bytes);
          break;
        case kCount:
          count(call, &next, &wrong);
          break;
        case kCounted: {
          service->reply2(call.reply_id, 0, &next, 8, &wrong, 8);
          break;
        }
        case kDeliver:
          deliver(call);
          break;
        case kTake:
          take(call);
          break;
        case kTakeInto:
          take_into(call);
          break;
        case kGive:
          give(call);
          break;
        case kDiscard: {
          uint64_t id;
          memcpy(&id, call.body, 8);
          service->discard(id);
          service->reply(call.reply_id, 0, nullptr, 0);
          break;
        }
        case kFailTransfer: {
          uint64_t id;
          memcpy(&id, call.body, 8);
          service->transfer_failed(id, 5);
          break;
        }
        case kPush:
          service->push(wire::FrameKind::kOutput, 0, "hello", 5);
          service->push(wire::FrameKind::kError, 700, "bad", 3);
          service->push(wire::FrameKind::kCallback, 0, "cb", 2);
          break;
        case kHold:
          if (!hold(call)) ++wrong;
          break;
        case kRelease:
          ++wrong;  // it should be seen, not run
          break;
        case kEnd:
          service->end("out of patience");
          break;
        default:
          break;
      }
    }
  }

  uint32_t spin_us_;
  std::thread worker_;
};

}  // namespace tendril::session
