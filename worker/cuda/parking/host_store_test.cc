// SPDX-License-Identifier: Apache-2.0
// What is copied to the host and back, and what need not be: counted at the driver. Whose pages of
// the host are used again, and when they go back to the system.
#include "worker/cuda/parking/host_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <numeric>

#include "worker/cuda/testing/driver.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kMib = 1u << 20;
std::atomic<uint64_t> g_out_bytes, g_in_bytes;
std::atomic<int> g_copies_left;  // then they fail
cuMemcpyDtoHAsync_v2_t* g_out = nullptr;
cuMemcpyHtoDAsync_v2_t* g_in = nullptr;

CUresult copy_out(void* host, CUdeviceptr device, size_t bytes, CUstream stream) {
  if (--g_copies_left < 0) return CUDA_ERROR_LAUNCH_FAILED;
  g_out_bytes += bytes;
  return g_out(host, device, bytes, stream);
}
CUresult copy_in(CUdeviceptr device, const void* host, size_t bytes, CUstream stream) {
  if (--g_copies_left < 0) return CUDA_ERROR_LAUNCH_FAILED;
  g_in_bytes += bytes;
  return g_in(device, host, bytes, stream);
}

int64_t resident_mib() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE) / (1 << 20);
}

class HostStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    driver_ = open_test_driver();
    ASSERT_NE(driver_, nullptr);
    ASSERT_EQ(driver_->cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver_->cuCtxSetCurrent(context_), CUDA_SUCCESS);
    g_out = driver_->cuMemcpyDtoHAsync_v2;
    g_in = driver_->cuMemcpyHtoDAsync_v2;
    driver_->cuMemcpyDtoHAsync_v2 = copy_out;
    driver_->cuMemcpyHtoDAsync_v2 = copy_in;
    g_copies_left = 1 << 30;
    staging_ = std::make_unique<Staging>(driver_.get());
    store_ = std::make_unique<HostStore>(driver_.get(), staging_.get());
  }
  void TearDown() override {
    driver_->cuCtxSetCurrent(context_);
    store_.reset();
    staging_->forget();
    for (const CUdeviceptr address : made_) driver_->cuMemFree_v2(address);
    driver_->cuDevicePrimaryCtxRelease_v2(0);
  }
  // Memory with words of its own: `seed` and their number.
  HostStore::Range make(uint64_t bytes, uint32_t seed) {
    CUdeviceptr address = 0;
    EXPECT_EQ(driver_->cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
    made_.push_back(address);
    fill({address, bytes, context_}, seed);
    return {address, bytes, context_};
  }
  void fill(const HostStore::Range& range, uint32_t seed) {
    std::vector<uint32_t> words(range.bytes / 4);
    std::iota(words.begin(), words.end(), seed);
    EXPECT_EQ(driver_->cuMemcpyHtoD_v2(range.address, words.data(), range.bytes), CUDA_SUCCESS);
  }
  bool holds(const HostStore::Range& range, uint32_t seed) {
    std::vector<uint32_t> words(range.bytes / 4), wanted(range.bytes / 4);
    std::iota(wanted.begin(), wanted.end(), seed);
    EXPECT_EQ(driver_->cuMemcpyDtoH_v2(words.data(), range.address, range.bytes), CUDA_SUCCESS);
    return words == wanted;
  }
  CUresult save(const std::vector<HostStore::Lot>& lots) {
    g_out_bytes = 0;
    return store_->save(lots, nullptr, nullptr);
  }
  CUresult load(const std::vector<HostStore::Lot>& lots) {
    return store_->load(lots, nullptr, nullptr);
  }

  std::unique_ptr<gpu::Driver> driver_;
  CUcontext context_ = nullptr;
  std::vector<CUdeviceptr> made_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<HostStore> store_;
};

TEST_F(HostStoreTest, BytesLeaveAndComeBack) {
  const std::vector<HostStore::Lot> lots = {{make(20 * kMib, 1), make(2 * kMib, 50)},
                                            {make(34 * kMib, 7)}};
  ASSERT_EQ(save(lots), CUDA_SUCCESS);
  EXPECT_EQ(g_out_bytes, 56 * kMib);
  for (const HostStore::Lot& lot : lots)
    for (const HostStore::Range& range : lot) fill(range, 99);
  ASSERT_EQ(load(lots), CUDA_SUCCESS);
  EXPECT_TRUE(holds(lots[0][0], 1));
  EXPECT_TRUE(holds(lots[0][1], 50));
  EXPECT_TRUE(holds(lots[1][0], 7));
}

TEST_F(HostStoreTest, StepsComeInOrderAroundTheirLots) {
  std::vector<HostStore::Lot> lots;
  for (uint32_t i = 0; i < 12; ++i) lots.push_back({make(2 * kMib, i)});
  size_t begun = 0, saved = 0;
  ASSERT_EQ(store_->save(
                lots,
                [&](size_t lot) {
                  EXPECT_EQ(lot, begun++);
                  return CUDA_SUCCESS;
                },
                [&](size_t lot) {
                  EXPECT_EQ(lot, saved++);
                  EXPECT_LE(saved, begun);
                  EXPECT_TRUE(store_->has(lots[lot]));
                  return CUDA_SUCCESS;
                }),
            CUDA_SUCCESS);
  EXPECT_EQ(saved, lots.size());
}

TEST_F(HostStoreTest, WhatWasNotWrittenIsNotCopiedAgain) {
  const HostStore::Range one = make(16 * kMib, 1), two = make(16 * kMib, 2);
  ASSERT_EQ(save({{one}, {two}}), CUDA_SUCCESS);
  EXPECT_TRUE(store_->any_current());
  ASSERT_EQ(save({{one, two}}), CUDA_SUCCESS);
  EXPECT_EQ(g_out_bytes, 0u);
  fill(two, 3);
  store_->wrote(two.address + 5 * kMib, 1);
  EXPECT_FALSE(store_->has(two.address, 1));
  EXPECT_TRUE(store_->has(one.address, one.bytes));
  ASSERT_EQ(save({{one}, {two}}), CUDA_SUCCESS);
  EXPECT_EQ(g_out_bytes, two.bytes);
  fill(two, 4);
  ASSERT_EQ(load({{two}}), CUDA_SUCCESS);
  EXPECT_TRUE(holds(two, 3));
  store_->wrote();
  EXPECT_FALSE(store_->any_current());
  EXPECT_EQ(load({{two}}), CUDA_ERROR_INVALID_VALUE) << "the copy is old";
  ASSERT_EQ(save({{one}, {two}}), CUDA_SUCCESS);
  EXPECT_EQ(g_out_bytes, one.bytes + two.bytes);
}

TEST_F(HostStoreTest, PagesOfTheHostAreUsedAgainAndGoBack) {
  const HostStore::Range one = make(64 * kMib, 1), other = make(64 * kMib, 2);
  const int64_t before = resident_mib();
  ASSERT_EQ(save({{one}}), CUDA_SUCCESS);
  const int64_t with_copy = resident_mib();
  EXPECT_GE(with_copy, before + 60);
  store_->wrote();
  ASSERT_EQ(save({{one}}), CUDA_SUCCESS);
  EXPECT_EQ(g_out_bytes, one.bytes);
  EXPECT_LT(resident_mib(), with_copy + 30);
  // The pages of what is not kept any more serve what comes instead.
  ASSERT_EQ(save({{other}}), CUDA_SUCCESS);
  EXPECT_LT(resident_mib(), with_copy + 30);
  EXPECT_FALSE(store_->has(one.address, one.bytes));
  // What nobody uses goes back at the next time.
  ASSERT_EQ(save({{{other.address, 2 * kMib, context_}}}), CUDA_SUCCESS);
  EXPECT_LT(resident_mib(), with_copy - 30);
  store_->drop();
  EXPECT_LT(resident_mib(), before + 30) << "staging stays";
}

TEST_F(HostStoreTest, AReadMayCrossFromOneCopyToTheNext) {
  const HostStore::Range all = make(8 * kMib, 1);
  const uint64_t half = all.bytes / 2;
  ASSERT_EQ(save({{{all.address, half, context_}}, {{all.address + half, half, context_}}}),
            CUDA_SUCCESS);
  std::vector<uint32_t> words(1024);
  const uint64_t from = half - 2048;
  ASSERT_TRUE(store_->has(all.address + from, 4096));
  store_->read(all.address + from, 4096, [&](uint64_t at, const uint8_t* data, uint64_t bytes) {
    memcpy(reinterpret_cast<uint8_t*>(words.data()) + at, data, bytes);
  });
  EXPECT_EQ(words.front(), 1 + from / 4);
  EXPECT_EQ(words.back(), 1 + from / 4 + 1023);
  EXPECT_FALSE(store_->has(all.address + half, half + 1));
  EXPECT_FALSE(store_->has(UINT64_MAX - 5, 10));
}

TEST_F(HostStoreTest, AFailureEndsItAndIsTold) {
  std::vector<HostStore::Lot> lots;
  for (uint32_t i = 0; i < 6; ++i) lots.push_back({make(10 * kMib, i)});
  g_copies_left = 5;
  size_t saved = 0;
  EXPECT_EQ(store_->save(lots, nullptr,
                         [&](size_t) {
                           ++saved;
                           return CUDA_SUCCESS;
                         }),
            CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_LT(saved, lots.size());
  for (size_t i = 0; i < lots.size(); ++i) EXPECT_EQ(store_->has(lots[i]), i < saved);
  g_copies_left = 1 << 30;
  EXPECT_EQ(store_->save(lots, nullptr,
                         [](size_t lot) { return lot == 2 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }),
            CUDA_ERROR_NOT_READY);
  ASSERT_EQ(save(lots), CUDA_SUCCESS);
  // Without room on the GPU for the fourth, the first three are there.
  for (const HostStore::Lot& lot : lots) fill(lot[0], 77);
  size_t loaded = 0;
  EXPECT_EQ(store_->load(
                lots, [](size_t lot) { return lot == 3 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS; },
                [&](size_t) {
                  ++loaded;
                  return CUDA_SUCCESS;
                }),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(loaded, 3u);
  for (uint32_t i = 0; i < 6; ++i) EXPECT_TRUE(holds(lots[i][0], i < 3 ? i : 77));
}

// One large block is one lot. Who watches sees it go on, and may end it in the middle.
TEST_F(HostStoreTest, WhoWatchesSeesEachPieceAndMayEndIt) {
  const std::vector<HostStore::Lot> lots = {{make(60 * kMib, 1)}};
  std::atomic<uint64_t> copied{0}, most{20 * kMib};
  store_->watch([&](uint64_t bytes) { return copied.fetch_add(bytes) + bytes < most; });
  size_t saved = 0;
  EXPECT_EQ(store_->save(lots, nullptr,
                         [&](size_t) {
                           ++saved;
                           return CUDA_SUCCESS;
                         }),
            CUDA_ERROR_NOT_READY);
  EXPECT_EQ(saved, 0u);
  EXPECT_GE(copied, 20 * kMib);
  EXPECT_LT(copied, 60 * kMib);
  copied = 0;
  most = UINT64_MAX;
  ASSERT_EQ(save(lots), CUDA_SUCCESS);
  EXPECT_EQ(copied, 60 * kMib);
}

// Its size is bounded here, which a program is told in the same way.
TEST_F(HostStoreTest, ADiskThatFillsUpEndsItAndWhatIsThereComesBack) {
  char path[] = "park-disk-XXXXXX";
  base::Fd file(mkstemp(path));
  ASSERT_TRUE(file.valid());
  unlink(path);
  std::vector<HostStore::Lot> lots;
  for (uint32_t i = 0; i < 6; ++i) lots.push_back({make(10 * kMib, i)});
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little = {25 * kMib, before.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  store_->use_file(ParkFile::open(std::move(file)));
  size_t saved = 0;
  const CUresult result = store_->save(lots, nullptr, [&](size_t) {
    ++saved;
    return CUDA_SUCCESS;
  });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(result, CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_LE(saved, 2u);
  for (size_t i = 0; i < saved; ++i) fill(lots[i][0], 77);
  lots.resize(saved);
  EXPECT_EQ(store_->load(lots, nullptr, nullptr), CUDA_SUCCESS);
  for (uint32_t i = 0; i < saved; ++i) EXPECT_TRUE(holds(lots[i][0], i));
}

}  // namespace
}  // namespace tendril::worker::cuda
