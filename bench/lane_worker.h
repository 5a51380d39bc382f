// SPDX-License-Identifier: Apache-2.0
// For benchmarks: a lane, and a worker of this process that answers it: it echoes, takes bulk data
// and gives some.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "session/lane/lane.h"
#include "session/lane/service.h"
#include "transport/testing/test_channels.h"

namespace tendril::bench {

inline constexpr uint64_t kGivenBytes = 64u << 20;  // the most that kGive gives

struct Silent : session::LaneEvents {
  bool accepts_delivery(uint64_t, uint64_t) override { return false; }
  void delivered(uint64_t, uint64_t) override {}
  bool awaits_callbacks() override { return false; }
  void output(const char*, size_t) override {}
  void callback(const uint8_t*, size_t) override {}
  void sticky_error(int32_t, const char*, size_t) override {}
  void memory_written() override {}
  void lost(const base::Status& why) override {
    if (!over) fprintf(stderr, "lost: %s\n", why.message().c_str());
  }
  bool over = false;
};

enum : uint16_t { kPing = 1, kSink = 2, kTake = 3, kGive = 4 };

class Worker {
 public:
  Worker(transport::ChannelSet client, transport::ChannelSet worker, uint32_t spin_us)
      : spin_us_(spin_us) {
    pool_.resize(size_t(64) * wire::kChunkBytesMax);
    lane = session::Lane::open(std::move(client.command), client.bulk.data(), client.bulk.size(),
                               &events);
    service_ = session::Service::open(std::move(worker.command), worker.bulk.data(),
                                      worker.bulk.size(), {pool_.data(), 64});
    source_.assign(kGivenBytes, 1);
    thread_ = std::thread([this] { run(); });
  }
  ~Worker() {
    events.over = true;
    lane->close(1000);
    thread_.join();
  }
  session::Reply call(uint16_t opcode, const void* body, uint32_t bytes) {
    uint32_t id = lane->new_reply_id();
    post(opcode, body, bytes, id);
    return lane->wait(id);
  }
  void post(uint16_t opcode, const void* body, uint32_t bytes, uint32_t reply_id) {
    uint8_t* at = lane->begin(opcode, 0, bytes, reply_id);
    memcpy(at, body, bytes);
    lane->commit();
  }
  // The worker's memory for bulk data: where it arrives, and where it comes from.
  std::vector<uint8_t>& slots() { return pool_; }
  std::vector<uint8_t>& source() { return source_; }
  Silent events;
  std::unique_ptr<session::Lane> lane;

 private:
  void run() {
    for (;;) {
      auto call = service_->next({spin_us_, -1});
      if (!call.ok()) break;
      uint64_t ask[2] = {};
      memcpy(ask, call->body, std::min<size_t>(call->bytes, sizeof ask));
      if (call->opcode == kPing) service_->reply(call->reply_id, 0, call->body, call->bytes);
      if (call->opcode == kTake) {
        uint64_t got = 0;
        session::Piece piece;
        while (got < ask[1] && service_->take(ask[0], &piece)) {
          got += piece.bytes;
          service_->release(piece);
        }
        service_->reply(call->reply_id, 0, nullptr, 0);
      }
      if (call->opcode == kGive) {
        service_->send_bulk(ask[0], 0, source_.data(), ask[1]);
        service_->transfer_sent(ask[0]);
      }
    }
    service_.reset();
  }
  const uint32_t spin_us_;
  std::vector<uint8_t> pool_, source_;
  std::unique_ptr<session::Service> service_;
  std::thread thread_;
};

}  // namespace tendril::bench
