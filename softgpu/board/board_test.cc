// SPDX-License-Identifier: Apache-2.0
// The board between processes. Full is full for everybody, and dead processes leave nothing behind.

#include "softgpu/board/board.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

namespace tendril::softgpu {
namespace {

constexpr uint64_t kMiB = 1u << 20;

class SharedBoard : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/softgpu-board-XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(folder));
    folder_ = folder;
    path_ = folder_ + "/board";
    settings_.devices = 2;
    for (DeviceSettings& device : settings_.device) device.memory_bytes = 100 * kMiB;
    board_ = open();
    ASSERT_TRUE(board_);
    board_->join();
  }
  void TearDown() override {
    board_.reset();
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  std::unique_ptr<Board> open() {
    std::string complaint;
    std::unique_ptr<Board> opened = Board::open(path_, settings_, &complaint);
    EXPECT_EQ("", complaint);
    return opened;
  }
  // A process of its own on the board. It waits to be killed after `body`.
  pid_t start(const std::function<void(Board&)>& body) {
    int ready[2];
    EXPECT_EQ(0, pipe(ready));
    pid_t child = fork();
    if (child == 0) {
      board_->abandon_after_fork();
      std::unique_ptr<Board> mine = open();
      mine->join();
      body(*mine);
      if (write(ready[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(ready[1]);
    char byte;
    EXPECT_EQ(1, read(ready[0], &byte, 1));
    close(ready[0]);
    return child;
  }
  static void kill_it(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }

  std::string folder_, path_;
  Settings settings_;
  std::unique_ptr<Board> board_;
};

TEST_F(SharedBoard, AFullDeviceIsFullForEverybody) {
  pid_t other = start([](Board& board) { EXPECT_TRUE(board.charge(1, 70 * kMiB, UINT64_MAX)); });
  EXPECT_EQ(70 * kMiB, board_->memory_used(1));
  EXPECT_EQ(0u, board_->memory_used(0));
  EXPECT_FALSE(board_->charge(1, 31 * kMiB, UINT64_MAX));
  EXPECT_TRUE(board_->charge(1, 30 * kMiB, UINT64_MAX));
  EXPECT_TRUE(board_->charge(0, 100 * kMiB, UINT64_MAX));
  EXPECT_FALSE(board_->charge(0, 1, UINT64_MAX));
  kill_it(other);
  EXPECT_TRUE(board_->charge(1, 70 * kMiB, UINT64_MAX));
  EXPECT_EQ(100 * kMiB, board_->memory_used(1));
}

TEST_F(SharedBoard, ShowsProcessesAndForgetsTheDead) {
  pid_t other = start([](Board& board) {
    board.count_contexts(0, 1);
    EXPECT_TRUE(board.charge(0, 5 * kMiB, UINT64_MAX));
    board.begin_work(0);  // and it never ends
  });
  DeviceView view = board_->view(0);
  ASSERT_EQ(1u, view.processes.size());
  EXPECT_EQ(other, view.processes[0].pid);
  EXPECT_EQ(5 * kMiB, view.processes[0].memory_bytes);
  EXPECT_EQ(1u, view.processes[0].contexts);
  kill_it(other);
  view = board_->view(0);
  EXPECT_EQ(0u, view.processes.size());
  EXPECT_EQ(0u, view.memory_bytes);
  const int64_t busy = view.busy_ns;
  usleep(1000);
  EXPECT_EQ(busy, board_->view(0).busy_ns);  // nothing runs any more
}

TEST_F(SharedBoard, WatchersAreNoProcessesAndHoldNothing) {
  std::unique_ptr<Board> watcher = open();
  ASSERT_TRUE(board_->charge(0, kMiB, UINT64_MAX));
  EXPECT_EQ(kMiB, watcher->memory_used(0));
  EXPECT_EQ(1u, watcher->view(0).processes.size());
  watcher.reset();  // closing its descriptor of the same file must not free this process' place
  std::unique_ptr<Board> another = open();
  EXPECT_EQ(1u, another->view(0).processes.size());
}

TEST_F(SharedBoard, SurvivesADeathUnderItsLock) {
  ASSERT_TRUE(board_->charge(0, 10 * kMiB, UINT64_MAX));
  for (int round = 0; round < 3; ++round) {
    pid_t child = fork();
    if (child == 0) {
      board_->abandon_after_fork();
      std::unique_ptr<Board> mine = open();
      mine->join();
      mine->charge(0, 20 * kMiB, UINT64_MAX);
      BoardLock hold(*mine);
      kill(getpid(), SIGKILL);
    }
    waitpid(child, nullptr, 0);
    EXPECT_EQ(10 * kMiB, board_->memory_used(0));
  }
  EXPECT_TRUE(board_->charge(0, 90 * kMiB, UINT64_MAX));
}

TEST_F(SharedBoard, TheFirstDecidesTheSettings) {
  settings_.devices = 7;
  EXPECT_EQ(2u, open()->settings().devices);
}

TEST_F(SharedBoard, KnobsChangeForEverybody) {
  std::unique_ptr<Board> tool = open();
  std::string complaint;
  EXPECT_TRUE(tool->change_live("device.1.lost = 1; slow = 2.5", false, &complaint));
  EXPECT_EQ(1u, board_->live_generation());
  Faults faults = board_->faults();
  EXPECT_FALSE(faults.device[0].lost);
  EXPECT_TRUE(faults.device[1].lost);
  EXPECT_EQ(2.5, faults.device[0].slow);
  EXPECT_FALSE(tool->change_live("devices = 3", false, &complaint));
  EXPECT_NE(std::string::npos, complaint.find("cannot change while programs run")) << complaint;
  EXPECT_TRUE(tool->change_live("", true, &complaint));
  EXPECT_FALSE(board_->faults().device[1].lost);
}

TEST_F(SharedBoard, RefusesAFileOfAnotherKind) {
  const std::string path = folder_ + "/other";
  FILE* file = fopen(path.c_str(), "w");
  fputs("something else", file);
  fclose(file);
  std::string complaint;
  EXPECT_EQ(nullptr, Board::open(path, settings_, &complaint));
  EXPECT_NE(std::string::npos, complaint.find("not one of this version"));
  unlink(path.c_str());
}

TEST(PrivateBoard, IsItsOwn) {
  std::string complaint;
  Settings settings;
  std::unique_ptr<Board> one = Board::open("", settings, &complaint),
                         two = Board::open("", settings, &complaint);
  one->join();
  two->join();
  EXPECT_TRUE(one->charge(0, settings.device[0].memory_bytes, UINT64_MAX));
  EXPECT_TRUE(two->charge(0, settings.device[0].memory_bytes, UINT64_MAX));
  EXPECT_FALSE(one->charge(0, 1, UINT64_MAX));
}

TEST(PrivateBoard, BusyTimeIsTheDevices) {
  std::string complaint;
  std::unique_ptr<Board> board = Board::open("", Settings(), &complaint);
  board->join();
  board->begin_work(0);
  board->begin_work(0);  // two at once count as busy once
  usleep(20000);
  board->end_work(0);
  board->end_work(0);
  const int64_t busy = board->view(0).busy_ns;
  EXPECT_GE(busy, 20'000'000);
  usleep(5000);
  EXPECT_EQ(busy, board->view(0).busy_ns);
}

TEST(Knobs, SayWhatIsWrong) {
  Settings settings;
  Faults faults;
  std::string complaints;
  apply_knobs(
      "devices = 3 # three\n nonsense = 1; memory_mb = x; device.99.slow = 2; device.1.sms = 4\n "
      "lost",
      false, &settings, &faults, &complaints);
  EXPECT_EQ(3u, settings.devices);
  EXPECT_EQ(5, std::count(complaints.begin(), complaints.end(), '\n')) << complaints;
  complaints.clear();
  apply_knobs(
      "device.1.memory_mb = 64; fail = cuMemAlloc_v2:3:2,cuInit:2+:999; kernel_us = "
      "train:5.5,*:1/block",
      false, &settings, &faults, &complaints);
  EXPECT_EQ("", complaints);
  EXPECT_EQ(1024 * kMiB, settings.device[0].memory_bytes);
  EXPECT_EQ(64 * kMiB, settings.device[1].memory_bytes);
  ASSERT_EQ(2u, faults.fail.size());
  EXPECT_TRUE(faults.fail[1].for_ever);
  EXPECT_EQ(2u, faults.fail[1].nth);
  ASSERT_EQ(2u, faults.kernel_times.size());
  EXPECT_EQ(5500, faults.kernel_times[0].ns);
  EXPECT_TRUE(faults.kernel_times[1].per_block);
}

TEST(Knobs, ComeFromAFileAndThenTheEnvironment) {
  char path[] = "/tmp/softgpu-knobs-XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  const std::string content = "devices = 5  # of the file\nsms = 7\ndevice.2.slow = 3\n";
  ASSERT_EQ(static_cast<ssize_t>(content.size()), write(file, content.data(), content.size()));
  close(file);
  setenv("TENDRIL_SOFTGPU_FILE", path, 1);
  setenv("TENDRIL_SOFTGPU_SMS", "9", 1);
  Settings settings;
  Faults faults;
  std::string complaints;
  apply_knobs(knobs_of_environment(&complaints), false, &settings, &faults, &complaints);
  unlink(path);
  EXPECT_EQ("", complaints);
  EXPECT_EQ(5u, settings.devices);
  EXPECT_EQ(9u, settings.sm_count);
  EXPECT_EQ(3, faults.device[2].slow);
  knobs_of_environment(&complaints);
  EXPECT_NE("", complaints);  // the file is not there any more
  unsetenv("TENDRIL_SOFTGPU_FILE");
  unsetenv("TENDRIL_SOFTGPU_SMS");
}

}  // namespace
}  // namespace tendril::softgpu
