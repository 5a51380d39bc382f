// SPDX-License-Identifier: Apache-2.0
// The page between a program and `tendril run`: which file is one, and who takes the line away.
#include "client/core/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "base/clock.h"

namespace tendril::client::core {
namespace {

class ProgressTest : public ::testing::Test {
 protected:
  void make(bool sealed, off_t bytes = sizeof(wire::ProgressPage)) {
    file_ = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(0, ftruncate(file_, bytes));
    if (sealed) {
      ASSERT_EQ(0, fcntl(file_, F_ADD_SEALS, F_SEAL_SHRINK));
    }
    page_ = static_cast<wire::ProgressPage*>(
        mmap(nullptr, sizeof(wire::ProgressPage), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    if (bytes >= off_t{4}) page_->magic.store(wire::kProgressMagic);
    setenv("TENDRIL_PROGRESS", ("/proc/self/fd/" + std::to_string(file_)).c_str(), 1);
  }
  void TearDown() override {
    g_progress.store(nullptr);
    unsetenv("TENDRIL_PROGRESS");
    if (file_ >= 0) close(file_);
  }
  int file_ = -1;
  wire::ProgressPage* page_ = nullptr;
};

TEST_F(ProgressTest, WithoutAPageNothingHappens) {
  find_progress();
  EXPECT_EQ(nullptr, g_progress.load());
  upload_begins(100);
  upload_ended(100);
  const AttachProgress attach;
}

TEST_F(ProgressTest, OnlyASealedPageIsOne) {
  make(false);
  find_progress();
  EXPECT_EQ(nullptr, g_progress.load());
  close(file_);
  make(true, 0);
  find_progress();
  EXPECT_EQ(nullptr, g_progress.load());
}

TEST_F(ProgressTest, SaysWhatGoesOn) {
  make(true);
  {
    const AttachProgress attach;
    EXPECT_EQ(1u, page_->attaching.load());
  }
  EXPECT_EQ(0u, page_->attaching.load());
  upload_begins(100);
  EXPECT_EQ(1u, page_->uploading.load());
  upload_ended(7);
  EXPECT_EQ(0u, page_->uploading.load());
  EXPECT_EQ(100u, page_->begun_bytes.load());
  EXPECT_EQ(7u, page_->upload_ns.load());
}

TEST_F(ProgressTest, WaitsUntilTheLineIsTakenAway) {
  make(true);
  find_progress();
  upload_begins(1);
  page_->line.store(wire::kLineStands);
  std::thread run([this] {
    while (page_->line.load() != wire::kLineUnwanted) std::this_thread::yield();
    usleep(2000);
    page_->line.store(wire::kNoLine);
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&page_->line), FUTEX_WAKE, 8, nullptr, nullptr,
            0);
  });
  upload_ended(1);
  EXPECT_EQ(wire::kNoLine, page_->line.load());
  run.join();
}

TEST_F(ProgressTest, ARunThatIsGoneHoldsNobodyUp) {
  make(true);
  find_progress();
  upload_begins(1);
  page_->line.store(wire::kLineStands);
  const uint64_t begun_ns = base::now_ns();
  upload_ended(1);
  EXPECT_LT(base::now_ns() - begun_ns, 1'000'000'000u);
}

}  // namespace
}  // namespace tendril::client::core
