// SPDX-License-Identifier: Apache-2.0
// Two workers' passages in one process, or one and a test that plays the other. The software GPU
// copies.
#include "worker/cuda/passage/passage.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "transport/tcp/socket.h"
#include "worker/cuda/testing/driver.h"

namespace tendril::worker::cuda {
namespace {

using std::chrono::seconds;

constexpr uint64_t kMib = 1u << 20;

// One GPU's worker.
struct End {
  gpu::Driver* driver = nullptr;
  CUcontext context = nullptr;
  CUstream in = nullptr, out = nullptr;
  std::atomic<uint64_t> over{0};
  std::unique_ptr<Passage> passage;

  void open(gpu::Driver* with, int device) {
    driver = with;
    ASSERT_EQ(driver->cuCtxCreate_v2(&context, 0, device), CUDA_SUCCESS);
    ASSERT_EQ(driver->cuStreamCreate(&in, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(driver->cuStreamCreate(&out, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    passage = std::make_unique<Passage>(driver, [this](CUcontext, const PassageHold&) { ++over; });
    passage->pin(context);
  }
  CUdeviceptr holding(const std::vector<uint8_t>& bytes) const {
    CUdeviceptr at = 0;
    EXPECT_EQ(driver->cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(driver->cuMemAlloc_v2(&at, bytes.size()), CUDA_SUCCESS);
    EXPECT_EQ(driver->cuMemcpyHtoD_v2(at, bytes.data(), bytes.size()), CUDA_SUCCESS);
    return at;
  }
  std::vector<uint8_t> contents(CUdeviceptr at, size_t count) const {
    std::vector<uint8_t> bytes(count);
    EXPECT_EQ(driver->cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(driver->cuMemcpyDtoH_v2(bytes.data(), at, count), CUDA_SUCCESS);
    return bytes;
  }
  void begin(uint64_t operation, PassageRole role, CUdeviceptr at, uint64_t bytes, uint32_t* word) {
    PassageWork work;
    work.role = role;
    work.context = context;
    work.mover = role == PassageRole::kSend ? out : in;
    work.shape.address = at;
    work.shape.width = bytes;
    work.hold = {word, 1, 0};
    ASSERT_TRUE(passage->add(operation, work, bytes));
    passage->arrived(operation);
  }
};

std::unique_ptr<transport::Channel> connection(std::unique_ptr<transport::Channel>* other) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return nullptr;
  *other = transport::socket_channel(base::Fd(ends[1]));
  return transport::socket_channel(base::Fd(ends[0]));
}

class PassageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    driver_ = open_test_driver();
    ASSERT_NE(driver_, nullptr);
    here_.open(driver_.get(), 0);
    there_.open(driver_.get(), 1);
  }
  void connect(uint32_t line) {
    std::unique_ptr<transport::Channel> other;
    here_.passage->connect(line, connection(&other));
    there_.passage->connect(line, std::move(other));
  }
  static bool eventually(const std::function<bool()>& holds) {
    const auto until = std::chrono::steady_clock::now() + seconds(60);
    while (!holds() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return holds();
  }

  std::unique_ptr<gpu::Driver> driver_;
  End here_, there_;
};

// Each thread of a line has two pieces, and uses each again and again.
TEST_F(PassageTest, EveryByteArrivesInItsPlaceOverOneLineAndOverMany) {
  std::mt19937_64 dice(11);
  struct Copy {
    std::vector<uint8_t> bytes;
    End *from, *to;
    CUdeviceptr source, target;
    uint32_t words[2] = {0, 0};
  };
  uint64_t operation = 0, copies_of_all = 0;
  connect(0);
  for (const uint32_t lines : {1u, 3u, 8u}) {
    for (uint32_t line = lines == 3 ? 1 : 3; line < lines; ++line) connect(line);
    std::vector<Copy> copies(24);
    for (Copy& copy : copies) {
      copy.bytes.resize(1 + dice() % (dice() % 2 == 0 ? 5000 : 7 * kMib));
      for (uint8_t& byte : copy.bytes) byte = static_cast<uint8_t>(dice());
      const bool back = dice() % 2 == 0;
      copy.from = back ? &there_ : &here_;
      copy.to = back ? &here_ : &there_;
      copy.source = copy.from->holding(copy.bytes);
      copy.target = copy.to->holding(std::vector<uint8_t>(copy.bytes.size()));
    }
    for (Copy& copy : copies) {
      ++operation;
      copy.from->begin(operation, PassageRole::kSend, copy.source, copy.bytes.size(),
                       &copy.words[0]);
      copy.to->begin(operation, PassageRole::kReceive, copy.target, copy.bytes.size(),
                     &copy.words[1]);
    }
    copies_of_all += copies.size();
    ASSERT_TRUE(eventually([&] { return here_.over + there_.over == 2 * copies_of_all; }));
    for (const Copy& copy : copies) {
      EXPECT_EQ(copy.words[0] + copy.words[1], 2u);
      EXPECT_TRUE(copy.to->contents(copy.target, copy.bytes.size()) == copy.bytes);
    }
  }
}

// The peer takes nothing more, so a thread is in `send` with one piece while the GPU has copied the
// next one.
TEST_F(PassageTest, AContextEndsAlthoughThePeerTakesNothing) {
  std::unique_ptr<transport::Channel> peer;
  here_.passage->connect(0, connection(&peer));
  const uint64_t bytes = 64 * kMib;
  uint32_t word = 0;
  here_.begin(1, PassageRole::kSend, here_.holding(std::vector<uint8_t>(bytes)), bytes, &word);
  PassageFrame frame = {PassageSays::kReady, 0, 1, bytes};
  const iovec part = {&frame, sizeof frame};
  ASSERT_TRUE(peer->send(&part, 1).ok());
  ASSERT_TRUE(peer->receive(&frame, sizeof frame, sizeof frame, {}).ok());
  ASSERT_EQ(frame.says, PassageSays::kData);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the connection is full
  auto ended = std::async(std::launch::async, [&] { here_.passage->end_context(here_.context); });
  const bool in_time = ended.wait_for(seconds(10)) == std::future_status::ready;
  peer->shutdown();
  EXPECT_TRUE(in_time);
  EXPECT_EQ(word, 1u) << "its stream goes on";
  EXPECT_EQ(here_.over, 1u);
}

}  // namespace
}  // namespace tendril::worker::cuda
