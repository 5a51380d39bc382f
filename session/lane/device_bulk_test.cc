// SPDX-License-Identifier: Apache-2.0
// Bulk data between a client and a GPU's memory, which no processor of the worker's end touches:
// over cards that know the memory, over cards that know it not, and over connections. The test is
// the worker's executor. A watchdog ends the process when a test hangs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "session/lane/test_pair.h"

namespace tendril::session {
namespace {

using transport::ChannelSet;

constexpr uint64_t kBytes = 30'000'001;

class DeviceBulkTest : public ::testing::TestWithParam<bool>, public DeviceReader {
 protected:
  void SetUp() override {
    alarm(120);
    ChannelSet client, worker;
    if (by_cards()) {
      transport::rdma::Sizes sizes;
      sizes.channels = 1 + 2;
      ASSERT_TRUE(rdma_pair(&verbs_, sizes, &client, &worker, &parts_).ok());
    } else {
      transport::make_channels("tcp", 2, &client, &worker);
    }
    address_ = verbs_.add_device_memory(&device_);
    if (by_cards()) {
      const base::Status known = parts_.worker_memory->add_device({address_, kBytes, -1, 0});
      ASSERT_TRUE(known.ok()) << known.message();
    }
    lane_ = Lane::open(std::move(client.command), client.bulk.data(), client.bulk.size(), &events_);
    service_ = Service::open(std::move(worker.command), worker.bulk.data(), worker.bulk.size(),
                             SlotPool());
    service_->expect_aims();
  }
  void TearDown() override {
    lane_.reset();
    service_.reset();
    alarm(0);
  }
  bool by_cards() const { return GetParam(); }

  bool read(uint64_t address, void* into, uint64_t bytes) override {
    if (!reads_) return false;
    memcpy(into, &device_[address - address_], bytes);
    read_bytes_ += bytes;
    return true;
  }

  // Takes a transfer as worker/cuda does. Returns how many of its bytes cards have placed.
  uint64_t take(uint64_t transfer, uint64_t bytes) {
    uint64_t placed = 0;
    service_->aim(transfer, address_, bytes);
    for (uint64_t left = bytes; left != 0;) {
      Piece piece;
      if (!service_->take(transfer, &piece)) break;
      placed += piece.placed;
      memcpy(&device_[piece.offset + piece.placed], piece.data + piece.placed,
             piece.bytes - piece.placed);
      left -= piece.bytes;
      service_->release(piece);
    }
    service_->unaim(transfer);
    return placed;
  }

  transport::rdma::VerbsDouble verbs_;
  transport::RdmaParts parts_;
  std::vector<uint8_t> device_ = std::vector<uint8_t>(kBytes);
  uint64_t address_ = 0;
  bool reads_ = true;
  std::atomic<uint64_t> read_bytes_{0};
  TestEvents events_;
  std::unique_ptr<Lane> lane_;
  std::unique_ptr<Service> service_;
};

TEST_P(DeviceBulkTest, DataGoToTheDevice) {
  const uint64_t copied = by_cards() ? parts_.worker_counts->copied_bytes.load() : 0;
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{300'000}, kBytes}) {
    const std::vector<uint8_t> data = pattern(bytes, bytes);
    const uint64_t id = lane_->new_transfer_id();
    const uint64_t before = service_->counts().device_bytes_in;
    std::thread client([&] {
      usleep(20'000);  // after the executor has aimed
      EXPECT_TRUE(lane_->send_bulk(id, data.data(), bytes));
    });
    const uint64_t placed = take(id, bytes);
    client.join();
    EXPECT_EQ(memcmp(device_.data(), data.data(), bytes), 0);
    // A short end of data lies in a ring.
    EXPECT_GE(placed, by_cards() && bytes > 1 ? bytes - 2 * (16u << 10) : 0u);
    EXPECT_LE(placed, by_cards() ? bytes : 0u);
    EXPECT_EQ(service_->counts().device_bytes_in - before, placed);
  }
  if (by_cards()) {
    EXPECT_LT(parts_.worker_counts->copied_bytes - copied, 100'000u) << "headers and short ends";
  }
}

TEST_P(DeviceBulkTest, DataComeFromTheDevice) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{300'000}, kBytes}) {
    const std::vector<uint8_t> data = pattern(bytes, bytes + 1);
    memcpy(device_.data(), data.data(), bytes);
    std::vector<uint8_t> got(bytes);
    const uint64_t id = lane_->new_transfer_id(), before = read_bytes_;
    const uint64_t copied = by_cards() ? parts_.worker_counts->copied_bytes.load() : 0;
    lane_->expect_bulk(id, got.data(), bytes);
    const uint64_t half = bytes / 2;
    ASSERT_TRUE(service_->send_device_bulk(id, half, address_ + half, bytes - half, this));
    ASSERT_TRUE(half == 0 || service_->send_device_bulk(id, 0, address_, half, this));
    service_->transfer_sent(id);
    ASSERT_TRUE(lane_->wait_bulk(id));
    EXPECT_EQ(got, data);
    EXPECT_EQ(read_bytes_ - before, by_cards() ? 0 : bytes);
    if (by_cards()) {
      EXPECT_LT(parts_.worker_counts->copied_bytes - copied, 2'000u) << "headers";
    }
  }
  const uint64_t out = service_->counts().device_bytes_out;
  EXPECT_EQ(out, by_cards() ? kBytes + 300'001 : 0);
}

// Data that come first wait a moment, and then in slots: whoever takes them finds both kinds.
TEST_P(DeviceBulkTest, DataMayComeBeforeTheirCall) {
  const std::vector<uint8_t> data = pattern(kBytes, 7);
  const uint64_t id = lane_->new_transfer_id();
  std::thread client([&] { EXPECT_TRUE(lane_->send_bulk(id, data.data(), kBytes)); });
  usleep(30'000);
  const uint64_t placed = take(id, kBytes);
  client.join();
  EXPECT_EQ(device_, data);
  EXPECT_LT(placed, kBytes) << "what came first lies in slots";
  if (by_cards()) {
    EXPECT_GT(placed, kBytes / 4) << "what came later does not";
  }
}

TEST_P(DeviceBulkTest, MemoryThatTheCardDoesNotKnowIsStaged) {
  if (!by_cards()) return;
  parts_.worker_memory->remove_device(address_);
  const std::vector<uint8_t> data = pattern(kBytes, 8);
  const uint64_t id = lane_->new_transfer_id();
  std::thread client([&] { EXPECT_TRUE(lane_->send_bulk(id, data.data(), kBytes)); });
  EXPECT_EQ(take(id, kBytes), 0u);
  client.join();
  EXPECT_EQ(device_, data);
  std::vector<uint8_t> got(kBytes);
  const uint64_t other = lane_->new_transfer_id();
  lane_->expect_bulk(other, got.data(), kBytes);
  ASSERT_TRUE(service_->send_device_bulk(other, 0, address_, kBytes, this));
  service_->transfer_sent(other);
  ASSERT_TRUE(lane_->wait_bulk(other));
  EXPECT_EQ(got, data);
  EXPECT_EQ(read_bytes_, kBytes);
}

// The GPU has failed: the copy fails, and the session goes on.
TEST_P(DeviceBulkTest, AReaderThatFailsEndsTheCopyOnly) {
  if (by_cards()) parts_.worker_memory->remove_device(address_);
  reads_ = false;
  std::vector<uint8_t> got(300'000);
  const uint64_t id = lane_->new_transfer_id();
  lane_->expect_bulk(id, got.data(), got.size());
  EXPECT_FALSE(service_->send_device_bulk(id, 0, address_, got.size(), this));
  service_->transfer_failed(id, 700);
  (void)lane_->wait_bulk(id);
  reads_ = true;
  const uint64_t next = lane_->new_transfer_id();
  lane_->expect_bulk(next, got.data(), got.size());
  EXPECT_TRUE(service_->send_device_bulk(next, 0, address_, got.size(), this));
  service_->transfer_sent(next);
  EXPECT_TRUE(lane_->wait_bulk(next));
}

// A client that sends other pieces than its call said: whoever gave up the memory has it.
TEST_P(DeviceBulkTest, NothingIsPutThereAfterwards) {
  const std::vector<uint8_t> data = pattern(2 * kBytes / 3, 9);
  const uint64_t id = lane_->new_transfer_id();
  service_->aim(id, address_, data.size());
  service_->unaim(id);
  std::thread client([&] { (void)lane_->send_bulk(id, data.data(), data.size()); });
  uint64_t placed = 0, got = 0;
  for (Piece piece; got < data.size() && service_->take(id, &piece); service_->release(piece)) {
    placed += piece.placed;
    got += piece.bytes;
  }
  client.join();
  EXPECT_EQ(placed, 0u);
  EXPECT_EQ(device_, std::vector<uint8_t>(kBytes));
}

TEST_P(DeviceBulkTest, TheEndOfASessionEndsWhoeverWaits) {
  const uint64_t id = lane_->new_transfer_id();
  std::thread executor([&] { EXPECT_EQ(take(id, kBytes), 0u); });
  usleep(20'000);
  service_->end("over");
  executor.join();
  EXPECT_FALSE(service_->send_device_bulk(id, 0, address_, kBytes, this));
}

INSTANTIATE_TEST_SUITE_P(, DeviceBulkTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "cards" : "connections"; });

}  // namespace
}  // namespace tendril::session
