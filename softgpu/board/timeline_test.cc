// SPDX-License-Identifier: Apache-2.0
// The simulated clock: in one process, between processes, and with one of them gone.

#include "softgpu/board/timeline.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace tendril::softgpu {
namespace {

constexpr int64_t kMs = 1'000'000;

// One program: submits work and waits for it.
class Program {
 public:
  Program(const std::string& path, const Settings& settings) {
    std::string complaint;
    board_ = Board::open(path, settings, &complaint);
    board_->join();
    timeline_ = std::make_unique<Timeline>(*board_);
  }
  void submit(int64_t cost_ns, Engine engine = Engine::kCompute, uint64_t context = 0) {
    JobRequest request;
    request.engine = engine;
    request.context = (static_cast<uint64_t>(board_->slot()) + 1) << 32 | context;
    request.cost_ns = cost_ns;
    request.order = request.cookie = ++order_;
    timeline_->host_runs();
    timeline_->submit(request);
  }
  // Waits for the next end and returns its cookie; 0 if none comes within the host's patience.
  uint64_t wait(int64_t patience_ms = 30'000) {
    uint64_t cookie = 0;
    timeline_->host_blocks();
    if (!timeline_->next_end(patience_ms, &cookie)) return 0;
    timeline_->host_resumes(1);
    timeline_->delivered();
    return cookie;
  }
  // Two questions, both answered "not yet".
  void polls() {
    timeline_->host_polls();
    timeline_->host_polls();
  }
  int64_t now() { return timeline_->now_ns(); }
  Board& board() { return *board_; }
  Timeline& timeline() { return *timeline_; }

 private:
  std::unique_ptr<Board> board_;
  std::unique_ptr<Timeline> timeline_;
  uint64_t order_ = 0;
};

Settings simulated() {
  Settings settings;
  settings.mode = TimeMode::kVirtual;
  return settings;
}

TEST(Timeline, JumpsToTheNextEnd) {
  Program program("", simulated());
  const int64_t start = program.now(), host_start = host_now_ns();
  program.submit(3600'000 * kMs);
  EXPECT_EQ(start, program.now());
  EXPECT_EQ(1u, program.wait());
  EXPECT_EQ(start + 3600'000 * kMs, program.now());
  EXPECT_LT(host_now_ns() - host_start, 60000 * kMs);
}

TEST(Timeline, CopiesRunBesideKernels) {
  Program program("", simulated());
  const int64_t start = program.now();
  program.submit(10 * kMs);
  program.submit(3 * kMs, Engine::kCopyIn);
  program.submit(3 * kMs, Engine::kCopyIn);  // behind the other of its direction
  program.submit(4 * kMs, Engine::kCopyOut);
  EXPECT_EQ(2u, program.wait());
  EXPECT_EQ(start + 3 * kMs, program.now());
  EXPECT_EQ(4u, program.wait());
  EXPECT_EQ(start + 4 * kMs, program.now());
  EXPECT_EQ(3u, program.wait());
  EXPECT_EQ(start + 6 * kMs, program.now());
  EXPECT_EQ(1u, program.wait());
  EXPECT_EQ(start + 10 * kMs, program.now());
  EXPECT_EQ(10 * kMs, program.board().view(0).busy_ns);
}

TEST(Timeline, StandsStillWhileTheHostMaySubmit) {
  Program program("", simulated());
  program.submit(kMs);
  uint64_t cookie = 0;
  EXPECT_FALSE(program.timeline().next_end(50, &cookie));  // nobody waits
  EXPECT_EQ(1u, program.wait());
}

TEST(Timeline, PollingIsWaiting) {
  Program program("", simulated());
  program.submit(kMs);
  program.polls();
  uint64_t cookie = 0;
  EXPECT_TRUE(program.timeline().next_end(5000, &cookie));
  program.submit(kMs);  // the program that polled has the clock again
  program.timeline().delivered();
  EXPECT_FALSE(program.timeline().next_end(50, &cookie));
}

// A thread of the pool may be late with work that needs no time. Then the program goes on at this
// instant, however often it has asked.
TEST(Timeline, PollingIsNoWaitingWhileWorkIsExecuted) {
  Program program("", simulated());
  program.submit(kMs);
  program.timeline().task_begins();
  for (int i = 0; i < 5; ++i) program.polls();
  program.timeline().task_ends();
  uint64_t cookie = 0;
  EXPECT_FALSE(program.timeline().next_end(50, &cookie));
  program.polls();  // in vain as well, and nothing has happened since
  EXPECT_TRUE(program.timeline().next_end(5000, &cookie));
}

TEST(Timeline, WorkThatLooksForAValueStopsNoClockOfWhoPolls) {
  Program program("", simulated());
  program.submit(kMs);
  program.timeline().task_begins();
  for (int i = 0; i < 3; ++i) {
    program.timeline().task_ends();
    program.timeline().host_polls();
    program.timeline().tasks_resume(1);
  }
  program.timeline().task_ends();
  uint64_t cookie = 0;
  EXPECT_TRUE(program.timeline().next_end(5000, &cookie));
}

TEST(Timeline, ContextsTakeTurns) {
  Program program("", simulated());
  const int64_t start = program.now();
  program.submit(20 * kMs, Engine::kCompute, 1);
  program.submit(20 * kMs, Engine::kCompute, 2);
  EXPECT_EQ(1u, program.wait());
  const int64_t first = program.now() - start;
  EXPECT_EQ(2u, program.wait());
  const int64_t second = program.now() - start;
  EXPECT_GT(first, 38 * kMs);
  EXPECT_GT(second, 40 * kMs);  // and what changing cost
  EXPECT_LT(second, 46 * kMs);
}

TEST(Timeline, WorkOfOneContextIsInOrder) {
  Program program("", simulated());
  for (int i = 0; i < 5; ++i) program.submit(kMs);
  for (uint64_t i = 1; i <= 5; ++i) EXPECT_EQ(i, program.wait());
}

TEST(Timeline, CancelledWorkEndsAtOnce) {
  Program program("", simulated());
  program.submit(kForEverNs, Engine::kCompute, 1);
  program.submit(kMs, Engine::kCompute, 2);
  EXPECT_EQ(2u, program.wait());
  EXPECT_EQ(0u, program.wait(50));  // it never ends
  program.timeline().cancel((static_cast<uint64_t>(program.board().slot()) + 1) << 32 | 1);
  uint64_t cookie = 0;
  EXPECT_TRUE(program.timeline().next_end(5000, &cookie));
  EXPECT_EQ(1u, cookie);
}

TEST(Timeline, UtilisationIsOfTheLastSimulatedSecond) {
  Program program("", simulated());
  program.submit(5000 * kMs);
  program.wait();
  EXPECT_EQ(100u, program.board().view(0).utilization_percent);
  program.submit(500 * kMs, Engine::kTimer);
  program.wait();
  EXPECT_NEAR(50, program.board().view(0).utilization_percent, 4);
  program.submit(5000 * kMs, Engine::kTimer);
  program.wait();
  EXPECT_EQ(0u, program.board().view(0).utilization_percent);
}

TEST(Timeline, APacedClockFollowsTheHosts) {
  Settings settings;
  settings.mode = TimeMode::kPaced;
  Program program("", settings);
  const int64_t start = host_now_ns();
  program.submit(30 * kMs);
  EXPECT_EQ(1u, program.wait());
  EXPECT_GE(host_now_ns() - start, 30 * kMs);
}

class Together : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/softgpu-clock-XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(folder));
    folder_ = folder;
  }
  void TearDown() override { rmdir(folder_.c_str()); }

  // Runs `count` programs on one device. Returns what each saw, in the order of their seats.
  std::vector<std::string> run(unsigned count, bool one_dies) {
    Settings settings = simulated();
    settings.quorum = count;
    settings.patience_ms = 20'000;
    const std::string path = folder_ + "/board";
    std::vector<int> outputs;
    std::vector<pid_t> children;
    for (unsigned i = 0; i < count; ++i) {
      int ends[2];
      EXPECT_EQ(0, pipe(ends));
      pid_t child = fork();
      if (child == 0) {
        usleep(
            static_cast<useconds_t>(rand_r(&seed_) % 5000));  // the host starts them in any order
        play(i, path, settings, ends[1], one_dies && i == 1);
        _exit(0);
      }
      seed_ += 77;
      close(ends[1]);
      outputs.push_back(ends[0]);
      children.push_back(child);
    }
    std::vector<std::string> seen(count);
    for (unsigned i = 0; i < count; ++i) {
      char buffer[4096];
      for (ssize_t got; (got = read(outputs[i], buffer, sizeof buffer)) > 0;)
        seen[i].append(buffer, static_cast<size_t>(got));
      close(outputs[i]);
    }
    for (pid_t child : children) waitpid(child, nullptr, 0);
    unlink(path.c_str());
    return seen;
  }

  static void play(unsigned seat, const std::string& path, const Settings& settings, int output,
                   bool dies) {
    setenv("TENDRIL_SOFTGPU_SEAT", std::to_string(seat).c_str(), 1);
    Program program(path, settings);
    for (int i = 0; i < 40; ++i) {
      program.submit((1 + (seat * 7 + static_cast<unsigned>(i) * 3) % 5) * kMs);
      if (dies && i == 20) kill(getpid(), SIGKILL);  // holding the clock
      program.wait(20'000);
      dprintf(output, "%lld\n", static_cast<long long>(program.now()));
    }
  }

  std::string folder_;
  unsigned seed_ = static_cast<unsigned>(getpid());
};

TEST_F(Together, TheSameProgramsSeeTheSameTimes) {
  const std::vector<std::string> first = run(4, false);
  for (const std::string& one : first)
    EXPECT_EQ(40, std::count(one.begin(), one.end(), '\n')) << one;
  EXPECT_NE(first[0], first[1]);
  for (int again = 0; again < 3; ++again) EXPECT_EQ(first, run(4, false));
}

TEST_F(Together, OneThatDiesHoldsNobodyUp) {
  const std::vector<std::string> seen = run(3, true);
  EXPECT_EQ(40, std::count(seen[0].begin(), seen[0].end(), '\n'));
  EXPECT_EQ(20, std::count(seen[1].begin(), seen[1].end(), '\n'));
  EXPECT_EQ(40, std::count(seen[2].begin(), seen[2].end(), '\n'));
}

// A process that dies with the board's lock, after `half_done` with what lies there.
void die_with_the_lock(const std::string& path, void (*half_done)(BoardData& data)) {
  const pid_t child = fork();
  if (child == 0) {
    std::string complaint;
    std::unique_ptr<Board> board = Board::open(path, simulated(), &complaint);
    const BoardLock hold(*board);
    half_done(board->data());
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

// A program may end like this: its main thread returns while another thread looks for an end.
TEST_F(Together, WhoDiesLookingChangesNoTimes) {
  const std::string path = folder_ + "/board";
  Program program(path, simulated());
  const int64_t start = program.now();
  program.submit(10 * kMs);
  program.submit(4 * kMs, Engine::kTimer);
  EXPECT_EQ(2u, program.wait());
  die_with_the_lock(path, [](BoardData&) {});
  EXPECT_EQ(1u, program.wait());
  EXPECT_EQ(start + 10 * kMs, program.now());
  unlink(path.c_str());
}

TEST_F(Together, WhoDiesInTheMiddleOfAChangeCostsTimeOnly) {
  const std::string path = folder_ + "/board";
  Program program(path, simulated());
  const int64_t start = program.now();
  program.submit(10 * kMs);
  program.submit(4 * kMs, Engine::kTimer);
  EXPECT_EQ(2u, program.wait());
  program.submit(kMs, Engine::kTimer);
  die_with_the_lock(path, [](BoardData& data) {
    ++data.changing;
    data.devices[0].ring.count = 0;
    data.arrived = 7;
  });
  EXPECT_EQ(3u, program.wait());
  EXPECT_EQ(1u, program.wait());
  EXPECT_EQ(start + 14 * kMs, program.now());  // begun again at 4 ms
  program.submit(kMs);
  EXPECT_EQ(4u, program.wait());
  EXPECT_EQ(0u, program.board().data().changing);
  unlink(path.c_str());
}

TEST_F(Together, OneThatIsSilentHoldsNobodyUpForLong) {
  Settings settings = simulated();
  settings.patience_ms = 100;
  const std::string path = folder_ + "/board";
  Program silent(path, settings), busy(path, settings);
  const int64_t start = host_now_ns();
  silent.submit(3 * kMs);  // and then it is busy with itself
  busy.submit(kMs);
  EXPECT_EQ(1u, busy.wait());
  EXPECT_GE(host_now_ns() - start, 80 * kMs);
  unlink(path.c_str());
}

TEST_F(Together, WorkThatSpinsHoldsNobodyUpForLong) {
  Settings settings = simulated();
  settings.patience_ms = 50;
  const std::string path = folder_ + "/board";
  Program spinning(path, settings), busy(path, settings);
  const int64_t start = host_now_ns();
  spinning.timeline().task_begins();
  busy.submit(kMs);
  EXPECT_EQ(1u, busy.wait());
  EXPECT_GE(host_now_ns() - start,
            200 * kMs);             // more patience than with a program: it may just take long
  spinning.timeline().task_ends();  // and the sums are right again
  busy.submit(kMs);
  EXPECT_EQ(2u, busy.wait());
  unlink(path.c_str());
}

}  // namespace
}  // namespace tendril::softgpu
