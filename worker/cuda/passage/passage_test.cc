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
#include "transport/testing/rdma_channels.h"
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
  void reopen(gpu::Driver* with) {
    passage.reset();
    passage = std::make_unique<Passage>(with, [this](CUcontext, const PassageHold&) { ++over; });
    passage->pin(context);
  }
  void forget(CUdeviceptr at) const {
    EXPECT_EQ(driver->cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(driver->cuMemFree_v2(at), CUDA_SUCCESS);
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

  // What a trial would do: RDMA over the double carries the pieces from now on.
  void move_to_fabric() {
    transport::rdma::Sizes sizes;
    sizes.channels = 1 + kFabricLinesMax;
    sizes.report_ms = 200;
    std::unique_ptr<transport::rdma::End> ends[2];
    for (auto& end : ends) end = transport::rdma::End::make(verbs_.open("").take(), sizes).take();
    ASSERT_TRUE(ends[1]->connect(ends[0]->blob()).ok());
    ASSERT_TRUE(ends[0]->connect(ends[1]->blob()).ok());
    base::Fd theirs, ours = transport::tcp_sockets(&theirs);
    base::Fd* const witnesses[] = {&ours, &theirs};
    Passage* const passages[] = {here_.passage.get(), there_.passage.get()};
    for (int i = 0; i < 2; ++i) {
      passages[i]
          ->open_fabric([this, i](const std::string&) { ++left_[i]; })
          ->settle(ends[i]->memory());
      ASSERT_TRUE(passages[i]->take_carriers(ends[i]->channels(std::move(*witnesses[i]))).ok());
      counts_[i] = ends[i]->counts();
    }
    for (Passage* passage : passages) passage->use_carriers();
    here_.passage->pin(here_.context);
    there_.passage->pin(there_.context);
  }

  struct Copy {
    std::vector<uint8_t> bytes;
    End *from, *to;
    CUdeviceptr source, target;
    uint32_t words[2] = {0, 0};
  };
  // Both ways at once, of random sizes. False: they do not end.
  bool copies_arrive(
      size_t count, uint64_t bytes_most, std::mt19937_64* dice,
      const std::function<void()>& meanwhile = [] {}) {
    std::vector<Copy> copies(count);
    for (Copy& copy : copies) {
      copy.bytes.resize(1 + (*dice)() % ((*dice)() % 2 == 0 ? 5000 : bytes_most));
      uint64_t word = (*dice)();
      for (uint8_t& byte : copy.bytes)
        byte =
            static_cast<uint8_t>((word = word * 6364136223846793005u + 1442695040888963407u) >> 56);
      const bool back = (*dice)() % 2 == 0;
      copy.from = back ? &there_ : &here_;
      copy.to = back ? &here_ : &there_;
      copy.source = copy.from->holding(copy.bytes);
      copy.target = copy.to->holding(std::vector<uint8_t>(copy.bytes.size()));
    }
    for (Copy& copy : copies) {
      ++operation_;
      copy.from->begin(operation_, PassageRole::kSend, copy.source, copy.bytes.size(),
                       &copy.words[0]);
      copy.to->begin(operation_, PassageRole::kReceive, copy.target, copy.bytes.size(),
                     &copy.words[1]);
    }
    meanwhile();
    const bool over = eventually([&] { return here_.over + there_.over == 2 * operation_; });
    bytes_ = 0;
    for (const Copy& copy : copies) {
      EXPECT_EQ(copy.words[0] + copy.words[1], 2u);
      EXPECT_TRUE(copy.to->contents(copy.target, copy.bytes.size()) == copy.bytes);
      bytes_ += copy.bytes.size();
      copy.from->forget(copy.source);
      copy.to->forget(copy.target);
    }
    return over;
  }

  std::unique_ptr<gpu::Driver> driver_;
  transport::rdma::VerbsDouble verbs_;
  std::shared_ptr<transport::rdma::CopyCounts> counts_[2];
  std::atomic<int> left_[2] = {0, 0};  // how often an end said that the fabric is left
  uint64_t operation_ = 0, bytes_ = 0;
  End here_, there_;
};

// Each thread of a line has two pieces, and uses each again and again.
TEST_F(PassageTest, EveryByteArrivesInItsPlaceOverOneLineAndOverMany) {
  std::mt19937_64 dice(11);
  connect(0);
  for (const uint32_t lines : {1u, 3u, 8u}) {
    for (uint32_t line = lines == 3 ? 1 : 3; line < lines; ++line) connect(line);
    ASSERT_TRUE(copies_arrive(24, 7 * kMib, &dice));
  }
}

// No processor copies what is long: cards read from pinned memory into pinned memory.
TEST_F(PassageTest, AFabricCarriesThePieces) {
  std::mt19937_64 dice(12);
  for (uint32_t line = 0; line < 3; ++line) connect(line);
  ASSERT_TRUE(copies_arrive(8, 3 * kMib, &dice)) << "before it is there";
  move_to_fabric();
  ASSERT_TRUE(copies_arrive(24, 7 * kMib, &dice));
  const uint64_t copied = counts_[0]->copied_bytes + counts_[1]->copied_bytes;
  const uint64_t direct = counts_[0]->direct_bytes + counts_[1]->direct_bytes;
  EXPECT_GE(direct + copied, 2 * bytes_) << "everything went over it, sent and received";
  EXPECT_LT(copied, bytes_ / 20) << "heads, and pieces below 16 KiB";
  EXPECT_EQ(left_[0] + left_[1], 0);
}

// The card fails at any work, with any result: before its effect or after it, one line or all.
TEST_F(PassageTest, AFabricThatFailsLosesNothing) {
  using transport::rdma::Fate;
  std::mt19937_64 dice(std::random_device{}());
  const Fate fates[] = {Fate::kUnanswered, Fate::kNotReady, Fate::kRemoteAccess, Fate::kOther};
  int rounds_left = 0;
  for (int round = 0; round < 16; ++round) {
    const uint64_t seed = dice();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 chance(seed);
    here_.reopen(driver_.get());
    there_.reopen(driver_.get());
    operation_ = here_.over = there_.over = left_[0] = left_[1] = 0;
    for (uint32_t line = 0; line < 3; ++line) connect(line);
    move_to_fabric();
    const auto works = uint32_t(chance() % 120);
    switch (chance() % 4) {
      case 0:
        verbs_.lose_reports(1 + works % 3);
        break;
      case 1:
        ASSERT_TRUE(copies_arrive(10, 3 * kMib, &chance, [&] {
          std::this_thread::sleep_for(std::chrono::microseconds(chance() % 3000));
          verbs_.set_link(false);
        }));
        break;
      default:
        verbs_.fail_after(works, fates[chance() % std::size(fates)]);
    }
    ASSERT_TRUE(copies_arrive(14, 5 * kMib, &chance));
    verbs_.set_link(true);
    EXPECT_FALSE(here_.passage->is_lost() || there_.passage->is_lost());
    ASSERT_TRUE(copies_arrive(6, 2 * kMib, &chance)) << "and it goes on";
    verbs_.fail_after(UINT32_MAX, Fate::kOther);
    verbs_.lose_reports(0);
    rounds_left += left_[0] + left_[1] > 0 ? 1 : 0;
  }
  EXPECT_GE(rounds_left, 5) << "most faults end the fabric";
}

TEST_F(PassageTest, BothEndsHearThatAFabricWasLeft) {
  std::mt19937_64 dice(13);
  connect(0);
  move_to_fabric();
  ASSERT_TRUE(copies_arrive(4, 3 * kMib, &dice));
  verbs_.set_link(false);
  ASSERT_TRUE(copies_arrive(8, 3 * kMib, &dice));
  EXPECT_TRUE(eventually([this] { return left_[0] == 1 && left_[1] == 1; }));
}

// The other worker may be its tenant's.
TEST_F(PassageTest, WhoSpeaksNonsenseOfAFabricEndsThePassage) {
  const PassageFrame all[] = {
      {PassageSays::kLeft, 0, 0, 1},                // of a piece that was never sent
      {PassageSays::kLeft, 0, kFabricLinesMax, 0},  // of a line that there is not
      {PassageSays::kLeft, 7, 0, 0},                // with bytes
  };
  for (const PassageFrame& frame : all) {
    here_.reopen(driver_.get());
    std::unique_ptr<transport::Channel> peer;
    here_.passage->connect(0, connection(&peer));
    const iovec part = {const_cast<PassageFrame*>(&frame), sizeof frame};
    ASSERT_TRUE(peer->send(&part, 1).ok());
    EXPECT_TRUE(eventually([this] { return here_.passage->is_lost(); })) << frame.operation;
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
