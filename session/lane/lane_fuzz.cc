// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes as a worker's reply lane. The client's side may lose the
// session. It may write only where a call allowed it.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "session/lane/lane.h"
#include "transport/testing/test_channels.h"

using namespace tendril;  // NOLINT: a program

namespace {
uint8_t g_target[4096];
struct Events : session::LaneEvents {
  bool accepts_delivery(uint64_t address, uint64_t bytes) override {
    auto begin = reinterpret_cast<uint64_t>(g_target);
    return address >= begin && bytes <= sizeof g_target &&
           address - begin <= sizeof g_target - bytes;
  }
  void delivered(uint64_t address, uint64_t bytes) override {
    const bool transfer =
        address == reinterpret_cast<uint64_t>(transferred.data()) && bytes == transferred.size();
    if (!transfer && !accepts_delivery(address, bytes)) abort();
  }
  bool awaits_callbacks() override { return (sum & 1) != 0; }
  void output(const char* text, size_t bytes) override {
    use(reinterpret_cast<const uint8_t*>(text), bytes);
  }
  void callback(const uint8_t* body, size_t bytes) override { use(body, bytes); }
  void sticky_error(int32_t, const char* text, size_t bytes) override {
    use(reinterpret_cast<const uint8_t*>(text), bytes);
  }
  void memory_written() override { ++sum; }
  void news(const uint8_t* body, size_t bytes) override { use(body, bytes); }
  void lost(const base::Status&) override {
    if (++losses > 1) abort();
  }
  void use(const uint8_t* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) sum += data[i];
  }
  std::vector<uint8_t> transferred = std::vector<uint8_t>(1000);
  int losses = 0;
  uint64_t sum = 0;
};
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes > 60000) return 0;
  transport::ChannelSet client, worker;
  transport::make_channels("unix", 0, &client, &worker);
  Events events;
  auto lane = session::Lane::open(std::move(client.command), nullptr, 0, &events);
  uint64_t transfer = lane->new_transfer_id();
  lane->expect_bulk_async(transfer, events.transferred.data(), events.transferred.size());
  uint32_t ids[2] = {lane->new_reply_id(), lane->new_reply_id()};
  for (uint32_t id : ids) {
    if (lane->begin(1, 0, 0, id) != nullptr) lane->commit();
  }
  iovec part{const_cast<uint8_t*>(data), bytes};
  if (bytes != 0) (void)worker.command->send(&part, 1);
  worker.command->shutdown();
  for (uint32_t id : ids) {
    session::Reply reply = lane->wait(id);
    if (!reply.lost) events.use(reply.body, reply.bytes);
  }
  lane->cancel_bulk(transfer);
  lane.reset();
  return 0;
}
