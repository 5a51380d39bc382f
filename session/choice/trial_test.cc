// SPDX-License-Identifier: Apache-2.0
// Measuring a session's connections, and a client that does it wrong: the worker gives it so much
// and no more.
#include "session/choice/trial.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "transport/testing/test_channels.h"

namespace tendril::session {
namespace {

using base::Code;
using base::Result;
using transport::Measured;
using transport::Streams;

class TrialTest : public ::testing::Test {
 protected:
  void SetUp() override {
    alarm(60);
    client_.command = transport::tcp_sockets(&worker_.command);
    for (int i = 0; i < 3; ++i) {
      worker_.bulk.emplace_back();
      client_.bulk.push_back(transport::tcp_sockets(&worker_.bulk.back()));
    }
  }
  void TearDown() override { alarm(0); }
  // What the worker's end says to these bytes, after which nothing comes.
  Result<WayChoice> answer_to(const std::string& bytes) {
    Streams streams;
    base::Fd client = transport::tcp_sockets(&streams.command);
    EXPECT_EQ(send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
    ::shutdown(client.get(), SHUT_WR);
    return serve_trial(streams, "rdma", "tcp");
  }
  Streams client_, worker_;
};

// As trial.cc lays an order out.
std::string order(uint32_t mark, uint32_t kind, uint32_t calls = 0, uint32_t bulk = 0,
                  Measured fabric = {}, Measured connections = {}) {
  const uint32_t words[4] = {mark, kind, calls, bulk};
  std::string bytes(reinterpret_cast<const char*>(words), sizeof words);
  bytes.append(reinterpret_cast<const char*>(&fabric), sizeof fabric);
  return bytes.append(reinterpret_cast<const char*>(&connections), sizeof connections);
}
constexpr uint32_t kMark = 0x314c5254;
constexpr uint32_t kEcho = 1, kBurst = 2, kChoose = 3;

TEST_F(TrialTest, BothEndsComeToTheSameChoice) {
  Result<WayChoice> there = base::Status(Code::kInternal, "");
  std::thread worker([&] { there = serve_trial(worker_, "rdma", "tcp"); });
  Result<Measured> measured = measure_connections(client_);
  EXPECT_TRUE(measured.ok());
  const Measured connections = measured.take();
  EXPECT_GT(connections.round_trip_us, 0);
  EXPECT_GT(connections.gigabytes_per_second, 0);
  const Measured fabric{connections.round_trip_us / 2, connections.gigabytes_per_second / 2};
  const WayChoice here = choose_way("rdma", fabric, "tcp", connections);
  EXPECT_TRUE(tell_choice(client_, here, fabric, connections).ok());
  worker.join();
  ASSERT_TRUE(there.ok()) << there.status().message();
  EXPECT_TRUE(there->calls);
  EXPECT_FALSE(there->bulk);
  EXPECT_EQ(there->brief, "rdma (calls 2.0x) + tcp (bulk 2.0x)");
  char byte;
  for (const base::Fd& fd : client_.bulk)
    EXPECT_EQ(recv(fd.get(), &byte, 1, MSG_DONTWAIT), -1) << "something is left";
}

TEST_F(TrialTest, NonsenseEndsTheSession) {
  for (const std::string& bytes :
       {order(kMark + 1, kChoose), order(kMark, 0), order(kMark, 4), order(kMark, kChoose, 2, 0),
        order(kMark, kChoose, 0, 7), order(kMark, kChoose, 1, 1, {std::nan(""), 1}, {1, 1}),
        order(kMark, kChoose, 1, 1, {1, 1}, {-1, 1}),
        order(kMark, kChoose, 1, 1, {1, 1}, {1, HUGE_VAL})})
    EXPECT_EQ(answer_to(bytes).status().code(), Code::kInvalid);
  EXPECT_EQ(answer_to("").status().code(), Code::kClosed);
  EXPECT_EQ(answer_to(order(kMark, kChoose).substr(0, 47)).status().code(), Code::kClosed);
}

TEST_F(TrialTest, NobodyGetsMoreThanATrial) {
  std::string many;
  for (int i = 0; i < 65; ++i) many += order(kMark, kEcho);
  EXPECT_EQ(answer_to(many).status().code(), Code::kInvalid);
  Result<WayChoice> there = base::Status(Code::kInternal, "");
  std::thread worker([&] { there = serve_trial(worker_, "rdma", "tcp"); });
  many.clear();
  for (int i = 0; i < 3; ++i) many += order(kMark, kBurst);
  EXPECT_EQ(send(client_.command.get(), many.data(), many.size(), 0), ssize_t(many.size()));
  std::vector<std::thread> readers;
  std::atomic<size_t> all{0};
  for (const base::Fd& fd : client_.bulk) {
    readers.emplace_back([&all, raw = fd.get()] {
      char block[65536];
      for (ssize_t moved; (moved = recv(raw, block, sizeof block, 0)) > 0;) all += size_t(moved);
    });
  }
  worker.join();
  EXPECT_EQ(there.status().code(), Code::kInvalid);
  worker_ = Streams();
  for (std::thread& reader : readers) reader.join();
  EXPECT_LE(all, 4u << 20);
  EXPECT_GT(all, 3u << 20);
}

}  // namespace
}  // namespace tendril::session
