// SPDX-License-Identifier: Apache-2.0
// GPUDirect in front of the software GPU, with cards that this file plays: which memory they know
// and until when, and which copies they get.
#include "worker/cuda/memory/direct.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <map>

#include "worker/cuda/testing/one_context.h"

namespace tendril::worker::cuda {
namespace {

using base::Code;
using base::Result;
using base::Status;

constexpr uint64_t kPage = base::kGpuPageBytes;

class PlayedPort final : public transport::CardPort {
 public:
  ~PlayedPort() override {
    while (!known_.empty()) remove_device(known_.begin()->first);
  }
  std::string name() const override { return "played0:1"; }
  Status add_device(const transport::DeviceRange& range) override {
    if (refuses_) return Status(Code::kUnsupported, "played0:1 takes no dma-buf of the GPU");
    EXPECT_EQ(known_.count(range.address), 0u) << "registered twice";
    if (range.descriptor < 0) return Status(Code::kUnsupported, "played0:1 takes dma-bufs only");
    void* const mapped = mmap(nullptr, range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                              range.descriptor, off_t(range.offset));
    EXPECT_NE(mapped, MAP_FAILED);
    known_[range.address] = {static_cast<uint8_t*>(mapped), range.bytes};
    return Status();
  }
  void remove_device(uint64_t address) override {
    const auto found = known_.find(address);
    if (found == known_.end()) return;
    munmap(found->second.mapped, found->second.bytes);
    known_.erase(found);
  }
  Result<uint64_t> move(uint64_t from, uint64_t to, uint64_t bytes) override {
    ++moves_;
    if (fails_) return Status(Code::kTimeout, "it took too long");
    const bool writes = holds(to, bytes), reads = holds(from, bytes);
    memmove(place_of(to), place_of(from), bytes);
    if (writes && writes_wrongly_) ++place_of(to)[bytes / 2];
    if (reads && reads_wrongly_) ++place_of(to)[bytes / 2];
    return writes ? to_device_ns_ : reads ? to_host_ns_ : 1'000;
  }
  bool holds(uint64_t address, uint64_t bytes) const {
    for (const auto& [begin, area] : known_)
      if (address >= begin && address + bytes <= begin + area.bytes) return true;
    return false;
  }
  size_t parts() const { return known_.size(); }

  bool refuses_ = false, fails_ = false, writes_wrongly_ = false, reads_wrongly_ = false;
  uint64_t to_device_ns_ = 1'000, to_host_ns_ = 1'000;
  unsigned moves_ = 0;

 private:
  struct Area {
    uint8_t* mapped;
    uint64_t bytes;
  };
  uint8_t* place_of(uint64_t address) {
    for (const auto& [begin, area] : known_)
      if (address >= begin && address < begin + area.bytes) return area.mapped + (address - begin);
    return reinterpret_cast<uint8_t*>(address);
  }
  std::map<uint64_t, Area> known_;
};

class PlayedCards final : public transport::PinnedMemory {
 public:
  Status add(void*, size_t) override { return Status(); }
  void remove(const void*) override {}
  std::vector<std::shared_ptr<transport::CardPort>> card_ports() override {
    return carries_ ? std::vector<std::shared_ptr<transport::CardPort>>{port_}
                    : std::vector<std::shared_ptr<transport::CardPort>>();
  }
  bool carries_ = true;
  std::shared_ptr<PlayedPort> port_ = std::make_shared<PlayedPort>();
};

class Told final : public Exports {
 public:
  wire::ExportAnswer publish(wire::ExportRecord*, int) override {
    return wire::ExportAnswer::kUnknown;
  }
  wire::ExportAnswer fetch(wire::ExportRecord*, base::Fd*) override {
    return wire::ExportAnswer::kUnknown;
  }
  void withdraw(const wire::ExportRecord&, bool) override {}
  void release(const wire::ExportRecord&) override {}
  void tell_direct(const std::string& text) override { text_ += text + "\n"; }
  std::string text_;
};

class DirectTest : public OneContextTest {
 protected:
  void start(const char* mode = "on") {
    setenv("TENDRIL_GPUDIRECT", mode, 1);
    exports_ = &told_;
    ASSERT_NO_FATAL_FAILURE(open());
    unsetenv("TENDRIL_GPUDIRECT");
    direct().lend(cards_);
  }
  Direct& direct() { return executor_->direct(); }
  PlayedPort& port() { return *cards_->port_; }
  CUdeviceptr make(uint64_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(executor_->blocks().make(bytes, &address), CUDA_SUCCESS);
    return address;
  }
  bool writes(CUdeviceptr address, uint64_t bytes, CUstream stream = CU_STREAM_LEGACY) {
    return direct().may_write(address, bytes, stream);
  }
  bool reads(CUdeviceptr address, uint64_t bytes, CUstream stream = CU_STREAM_LEGACY) {
    return direct().may_read(address, bytes, stream);
  }

  Told told_;
  std::shared_ptr<PlayedCards> cards_ = std::make_shared<PlayedCards>();
};

TEST_F(DirectTest, TheFirstLongCopyToTheDeviceTriesTheCard) {
  ASSERT_NO_FATAL_FAILURE(start());
  const CUdeviceptr memory = make(3 * kPage);
  EXPECT_FALSE(reads(memory, kPage)) << "nothing was tried, and reading tries nothing";
  EXPECT_FALSE(writes(memory, 100'000)) << "too short for a trial";
  EXPECT_EQ(port().moves_, 0u);
  EXPECT_TRUE(writes(memory + 4096, kPage));
  EXPECT_GT(port().moves_, 0u);
  EXPECT_EQ(told_.text_.rfind("played0:1, ", 0), 0u) << told_.text_;
  EXPECT_TRUE(port().holds(memory, 3 * kPage)) << "the whole block";
  EXPECT_EQ(port().parts(), 1u);
  const unsigned moves = port().moves_;
  EXPECT_TRUE(reads(memory, 3 * kPage));
  EXPECT_TRUE(writes(memory, 70'000)) << "it is registered";
  EXPECT_EQ(port().moves_, moves) << "tried once";
  EXPECT_FALSE(writes(memory + kPage, 2 * kPage + 1)) << "beyond the block";
  EXPECT_FALSE(writes(memory + 64 * kPage, kPage)) << "no block";
  std::vector<uint8_t> data(3000, 7), got(3000);
  ASSERT_EQ(driver_->cuMemcpyHtoD_v2(memory + 5, data.data(), data.size()), CUDA_SUCCESS);
  EXPECT_TRUE(direct().read(memory + 5, got.data(), got.size()));
  EXPECT_EQ(got, data);
  EXPECT_FALSE(direct().read(1, got.data(), got.size()));
}

TEST_F(DirectTest, OffNeitherTriesNorTells) {
  ASSERT_NO_FATAL_FAILURE(start("off"));
  EXPECT_FALSE(writes(make(kPage), kPage));
  EXPECT_EQ(port().moves_, 0u);
  EXPECT_EQ(told_.text_, "");
}

TEST_F(DirectTest, ACardThatMovesOtherBytesIsNotUsed) {
  port().writes_wrongly_ = true;
  ASSERT_NO_FATAL_FAILURE(start());
  const CUdeviceptr memory = make(kPage);
  EXPECT_FALSE(writes(memory, kPage));
  EXPECT_FALSE(reads(memory, kPage));
  EXPECT_NE(told_.text_.find("no: what the card wrote"), std::string::npos) << told_.text_;
  EXPECT_EQ(port().parts(), 0u);
}

TEST_F(DirectTest, ACardThatReadsOtherBytesIsNotUsed) {
  port().reads_wrongly_ = true;
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_FALSE(writes(make(kPage), kPage));
  EXPECT_NE(told_.text_.find("no: the card read other"), std::string::npos) << told_.text_;
}

TEST_F(DirectTest, ACardThatFailsIsNotAskedAgain) {
  port().fails_ = true;
  ASSERT_NO_FATAL_FAILURE(start());
  const CUdeviceptr memory = make(kPage);
  EXPECT_FALSE(writes(memory, kPage));
  port().fails_ = false;
  EXPECT_FALSE(writes(memory, kPage));
  EXPECT_EQ(port().moves_, 1u);
  EXPECT_EQ(told_.text_, "no: it took too long\n");
}

TEST_F(DirectTest, TheSlowerWayIsNotTaken) {
  port().to_host_ns_ = 1'000'000'000;
  port().to_device_ns_ = 1;
  ASSERT_NO_FATAL_FAILURE(start("auto"));
  const CUdeviceptr memory = make(kPage);
  EXPECT_TRUE(writes(memory, kPage));
  EXPECT_FALSE(reads(memory, kPage));
  EXPECT_NE(told_.text_.find("(no)"), std::string::npos) << told_.text_;
}

TEST_F(DirectTest, MemoryIsForgottenBeforeItGoes) {
  ASSERT_NO_FATAL_FAILURE(start());
  static PlayedPort* known = nullptr;
  static unsigned unmapped = 0;
  static cuMemUnmap_t* unmap = nullptr;
  known = &port();
  unmap = driver_->cuMemUnmap;
  driver_->cuMemUnmap = [](CUdeviceptr address, size_t bytes) {
    EXPECT_FALSE(known->holds(address, 1)) << "a card still knows it";
    ++unmapped;
    return unmap(address, bytes);
  };
  DeviceBlocks& blocks = executor_->blocks();
  const CUdeviceptr one = make(2 * kPage), two = make(kPage);
  EXPECT_TRUE(writes(one, kPage) && writes(two, kPage));
  EXPECT_EQ(port().parts(), 2u);
  EXPECT_EQ(blocks.give_back(blocks.find(one)), CUDA_SUCCESS);
  EXPECT_EQ(port().parts(), 1u);
  const CUdeviceptr again = make(2 * kPage);
  EXPECT_EQ(again, one);
  EXPECT_FALSE(reads(again, 70'000)) << "other memory, although it has the address";
  EXPECT_TRUE(reads(again, kPage));
  // Memory that leaves the GPU while the session is parked.
  DeviceBlocks::Block* const parked = blocks.find(two);
  ASSERT_EQ(blocks.release_memory(parked), CUDA_SUCCESS);
  EXPECT_FALSE(writes(two, kPage)) << "nothing is there";
  ASSERT_EQ(blocks.restore_memory(parked), CUDA_SUCCESS);
  EXPECT_TRUE(writes(two, kPage));
  blocks.forget(executor_->context(), [](uint64_t) {});
  EXPECT_EQ(port().parts(), 0u);
  EXPECT_EQ(unmapped, 4u);
}

TEST_F(DirectTest, WhatACopyMustComeAfterIsWaitedForByStaging) {
  ASSERT_NO_FATAL_FAILURE(start());
  const CUdeviceptr memory = make(kPage);
  ASSERT_TRUE(writes(memory, kPage));
  static std::atomic<bool> released{false};
  released = false;
  CUstream apart = nullptr, plain = nullptr;
  ASSERT_EQ(driver_->cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(driver_->cuStreamCreate(&plain, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  const auto hold = [](void*) {
    while (!released) usleep(100);
  };
  executor_->touch(plain);
  ASSERT_EQ(driver_->cuLaunchHostFunc(plain, hold, nullptr), CUDA_SUCCESS);
  EXPECT_FALSE(writes(memory, kPage, plain));
  EXPECT_FALSE(writes(memory, kPage)) << "the legacy stream waits for it";
  EXPECT_FALSE(reads(memory, kPage));
  EXPECT_TRUE(writes(memory, kPage, apart)) << "it waits for nobody";
  released = true;
  ASSERT_EQ(driver_->cuStreamSynchronize(plain), CUDA_SUCCESS);
  EXPECT_TRUE(writes(memory, kPage) && reads(memory, kPage, plain));
  released = false;
  ASSERT_EQ(driver_->cuLaunchHostFunc(apart, hold, nullptr), CUDA_SUCCESS);
  EXPECT_FALSE(writes(memory, kPage, apart));
  released = true;
  ASSERT_EQ(driver_->cuStreamSynchronize(apart), CUDA_SUCCESS);
  driver_->cuStreamDestroy_v2(apart);
  executor_->forget_stream(plain);
  driver_->cuStreamDestroy_v2(plain);
}

TEST_F(DirectTest, RegistrationsAreBounded) {
  ASSERT_NO_FATAL_FAILURE(start());
  std::vector<CUdeviceptr> all;
  for (size_t i = 0; i < kDirectPartsMost + 6; ++i) {
    all.push_back(make(kPage));
    EXPECT_TRUE(writes(all.back(), kPage));
    EXPECT_LE(port().parts(), kDirectPartsMost);
  }
  EXPECT_EQ(port().parts(), kDirectPartsMost);
  EXPECT_FALSE(port().holds(all.front(), kPage)) << "the one that was used longest ago";
  EXPECT_TRUE(writes(all.front(), kPage)) << "it may come again";
}

TEST_F(DirectTest, ACardThatTakesNoDescriptorsIsAskedOncePerBlock) {
  ASSERT_NO_FATAL_FAILURE(start());
  const CUdeviceptr one = make(kPage), two = make(kPage);
  EXPECT_TRUE(writes(one, kPage));
  port().refuses_ = true;
  EXPECT_FALSE(writes(two, kPage));
  port().refuses_ = false;
  EXPECT_FALSE(writes(two, kPage)) << "as long as that memory is there";
  EXPECT_TRUE(writes(one, kPage));
}

// The session has fallen back to TCP.
TEST_F(DirectTest, NothingIsLeftWhenTheSessionLeavesItsCards) {
  ASSERT_NO_FATAL_FAILURE(start());
  cards_->carries_ = false;
  const CUdeviceptr memory = make(kPage);
  EXPECT_FALSE(writes(memory, kPage)) << "not yet";
  cards_->carries_ = true;
  EXPECT_TRUE(writes(memory, kPage));
  cards_->carries_ = false;
  EXPECT_FALSE(reads(memory, kPage));
  EXPECT_EQ(port().parts(), 0u);
  cards_->carries_ = true;
  EXPECT_FALSE(writes(memory, kPage)) << "it does not come back";
}

}  // namespace
}  // namespace tendril::worker::cuda
