// SPDX-License-Identifier: Apache-2.0
// Occupancy queries. Numbers depend on the registers that each compiler chooses, so the test checks
// bounds and relations.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class OccupancyTest : public CudaTest {
 protected:
  static int blocks(CUfunction function, int block_size, size_t shared = 0) {
    int count = -1;
    EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, function, block_size, shared),
              CUDA_SUCCESS);
    return count;
  }
};

TEST_F(OccupancyTest, ThreadsLimitTheBlocks) {
  const int threads = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  const int most = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  EXPECT_EQ(blocks(basic("nothing"), 1024), threads / 1024);
  EXPECT_EQ(blocks(basic("nothing"), 256), threads / 256);
  EXPECT_EQ(blocks(basic("nothing"), 32), most);
}

TEST_F(OccupancyTest, SharedMemoryLimitsTheBlocks) {
  const int per_sm = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  const int reserved = attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  EXPECT_EQ(blocks(basic("nothing"), 32, 40960), per_sm / (40960 + reserved));
}

TEST_F(OccupancyTest, TooMuchSharedMemoryGivesNone) {
  EXPECT_EQ(blocks(basic("nothing"), 32, 16 << 20), 0);
}

TEST_F(OccupancyTest, WithFlags) {
  int plain = blocks(basic("fill"), 128), flagged = -1;
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&flagged, basic("fill"), 128, 0,
                                                          CU_OCCUPANCY_DEFAULT));
  EXPECT_EQ(flagged, plain);
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&flagged, basic("fill"), 128, 0,
                                                          CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE));
  EXPECT_EQ(flagged, plain);
}

TEST_F(OccupancyTest, Errors) {
  int count = 0;
  INVALID(cuOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, basic("fill"), 128, 0));
  INVALID(cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, basic("fill"), 0, 0));
  BAD_HANDLE(cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, nullptr, 128, 0));
}

TEST_F(OccupancyTest, PotentialBlockSize) {
  int grid = 0, block = 0;
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, basic("fill"), nullptr, 0, 0));
  EXPECT_GT(block, 0);
  EXPECT_LE(block, 1024);
  EXPECT_EQ(block % 32, 0);
  EXPECT_EQ(grid,
            attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) * blocks(basic("fill"), block));
}

TEST_F(OccupancyTest, PotentialBlockSizeWithLimit) {
  int grid = 0, block = 0;
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, basic("fill"), nullptr, 0, 192));
  EXPECT_LE(block, 192);
  EXPECT_GT(block, 0);
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, basic("bounded"), nullptr, 0, 0));
  EXPECT_LE(block, 128);
}

size_t shared_for_block(int block_size) { return static_cast<size_t>(block_size) * 64; }

TEST_F(OccupancyTest, PotentialBlockSizeWithCallback) {
  int grid = 0, block = 0;
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, basic("reverse_dynamic"), shared_for_block, 0,
                                      0));
  EXPECT_GT(block, 0);
  // Drivers differ in whether 48 KiB or what a kernel may ask for is the limit.
  EXPECT_LE(shared_for_block(block),
            static_cast<size_t>(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)));
  OK(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, basic("fill"), nullptr, 0, 0,
                                               CU_OCCUPANCY_DEFAULT));
  EXPECT_GT(block, 0);
}

TEST_F(OccupancyTest, AvailableDynamicSharedMemory) {
  size_t few = 0, many = 0;
  OK(cuOccupancyAvailableDynamicSMemPerBlock(&few, basic("nothing"), 1, 128));
  OK(cuOccupancyAvailableDynamicSMemPerBlock(&many, basic("nothing"), 8, 128));
  EXPECT_GT(many, 0u);
  EXPECT_GE(few, many);
  // An H200 (580.159.04) answers a size with which one block fewer fits: it rounds without its
  // reserve per block.
  EXPECT_GE(blocks(basic("nothing"), 128, many), many <= (48u << 10) ? 7 : 0);
}

// Functions must ask for more than every block may have.
TEST_F(OccupancyTest, DynamicSharedMemoryIsWhatTheFunctionMayHave) {
  const int usual = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  const int most = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  if (most <= usual) GTEST_SKIP() << "the device has no more for those that ask";
  Module module(basic_ptx());
  CUfunction function = nullptr;
  MUST(cuModuleGetFunction(&function, module, "nothing"));
  size_t available = 0;
  OK(cuOccupancyAvailableDynamicSMemPerBlock(&available, function, 1, 128));
  EXPECT_LE(available, static_cast<size_t>(usual));
  EXPECT_EQ(blocks(function, 128, static_cast<size_t>(most)), 0);
  OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most));
  OK(cuOccupancyAvailableDynamicSMemPerBlock(&available, function, 1, 128));
  EXPECT_GT(available, static_cast<size_t>(usual));
  EXPECT_EQ(blocks(function, 128, static_cast<size_t>(most)), 1);
}

}  // namespace
}  // namespace tendril::conformance
