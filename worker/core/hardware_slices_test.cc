// SPDX-License-Identifier: Apache-2.0
// Channel groups as a kernel driver in this test shows them, and slices that are set through it.
#include "worker/core/hardware_slices.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <cstring>
#include <map>
#include <vector>

namespace tendril::worker {
namespace {

struct Allocate {
  uint32_t client, parent, object, object_class;
  uint64_t parameters = 0, rights = 0;
  uint32_t parameter_bytes = 0, flags = 0, status = 0, padding = 0;
};
struct ShortAllocate {
  uint32_t client, parent, object, object_class;
  uint64_t parameters = 0;
  uint32_t parameter_bytes = 0, status = 0;
};
struct Free {
  uint32_t client, parent, object, status;
};
struct Control {
  uint32_t client, object, command, flags;
  uint64_t parameters;
  uint32_t parameter_bytes, status;
};
constexpr unsigned long kAllocate = _IOWR('F', 0x2b, Allocate);
constexpr unsigned long kShortAllocate = _IOWR('F', 0x2b, ShortAllocate);
constexpr unsigned long kFree = _IOWR('F', 0x29, Free);

std::map<uint32_t, uint64_t> slices_us;  // of groups, by handle
uint32_t refusal;
int calls, last_fd;

int kernel(int fd, unsigned long request, void* argument) {
  ++calls;
  last_fd = fd;
  Control control;
  std::memcpy(&control, argument, sizeof control);
  if (request != _IOWR('F', 0x2a, Control) || control.parameter_bytes != 8 ||
      slices_us.count(control.object) == 0)
    return -1;
  control.status = refusal;
  uint64_t* us = reinterpret_cast<uint64_t*>(control.parameters);
  if (control.command == 0xa06c0104) *us = slices_us[control.object];
  if (control.command == 0xa06c0103 && refusal == 0) slices_us[control.object] = *us;
  std::memcpy(argument, &control, sizeof control);
  return 0;
}

class HardwareSlicesTest : public testing::Test {
 protected:
  HardwareSlicesTest() {
    slices_us.clear();
    refusal = 0;
    calls = 0;
  }
  void make(uint32_t device, uint32_t group, uint64_t us = 1024, uint32_t status = 0) {
    Allocate call{1, device, group, 0xa06c};
    call.status = status;
    slices_us[group] = us;
    slices_.saw(40, kAllocate, &call);
  }
  HardwareSlices::Outcome set(uint32_t gpu, uint32_t us) {
    return slices_.set(gpu, us, kernel, &status_);
  }

  HardwareSlices slices_;
  uint32_t status_ = 0;
};

TEST_F(HardwareSlicesTest, SetsTheGroupsOfOneGpu) {
  make(10, 100, 2048);
  make(10, 101);
  slices_.claim(0);
  make(11, 110);
  slices_.claim(1);
  make(10, 102);  // later, of the first GPU
  EXPECT_EQ(slices_.groups(0), 3u);
  EXPECT_EQ(slices_.groups(1), 1u);
  EXPECT_EQ(set(0, 700), HardwareSlices::Outcome::kDone);
  EXPECT_EQ(slices_us[100], 700u);
  EXPECT_EQ(slices_us[101], 700u);
  EXPECT_EQ(slices_us[102], 700u);
  EXPECT_EQ(slices_us[110], 1024u);
  EXPECT_EQ(last_fd, 40);
  const int before = calls;
  EXPECT_EQ(set(0, 700), HardwareSlices::Outcome::kNothing);
  EXPECT_EQ(calls, before) << "what is set need not be set again";
  EXPECT_EQ(set(0, 0), HardwareSlices::Outcome::kDone);
  EXPECT_EQ(slices_us[100], 2048u);
  EXPECT_EQ(slices_us[101], 1024u);
}

TEST_F(HardwareSlicesTest, KnowsTheOtherLayoutAndOnlyChannelGroups) {
  ShortAllocate group{1, 10, 100, 0xa06c};
  slices_us[100] = 1024;
  slices_.saw(40, kShortAllocate, &group);
  Allocate memory{1, 10, 101, 0x40};
  slices_.saw(40, kAllocate, &memory);
  make(10, 102, 1024, 0x1a);  // refused
  slices_.saw(40, TIOCGWINSZ, &memory);
  slices_.saw(40, kAllocate, nullptr);
  slices_.claim(0);
  EXPECT_EQ(slices_.groups(0), 1u);
}

TEST_F(HardwareSlicesTest, ForgetsWhatIsFreed) {
  make(10, 100);
  make(10, 101);
  make(11, 110);
  slices_.claim(0);
  Free call{1, 10, 100, 0};
  slices_.saw(40, kFree, &call);
  EXPECT_EQ(slices_.groups(0), 2u);
  call = {1, 10, 101, 0x1a};  // refused
  slices_.saw(40, kFree, &call);
  EXPECT_EQ(slices_.groups(0), 2u);
  call = {1, 1, 11, 0};  // the device
  slices_.saw(40, kFree, &call);
  EXPECT_EQ(slices_.groups(0), 1u);
  call = {1, 0, 1, 0};  // everything
  slices_.saw(40, kFree, &call);
  EXPECT_EQ(slices_.groups(0), 0u);
}

TEST_F(HardwareSlicesTest, TellsARefusal) {
  make(10, 100);
  slices_.claim(0);
  refusal = 0x1b;
  EXPECT_EQ(set(0, 700), HardwareSlices::Outcome::kRefused);
  EXPECT_EQ(status_, 0x1bu);
  EXPECT_EQ(slices_us[100], 1024u);
  EXPECT_EQ(set(3, 700), HardwareSlices::Outcome::kNothing);
}

TEST_F(HardwareSlicesTest, HoldsABoundedNumber) {
  for (uint32_t i = 0; i < 10'000; ++i) make(10, 100 + i);
  slices_.claim(0);
  EXPECT_LE(slices_.groups(0), 256u);
  EXPECT_EQ(set(0, 700), HardwareSlices::Outcome::kDone);
}

}  // namespace
}  // namespace tendril::worker
