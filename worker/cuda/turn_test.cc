// SPDX-License-Identifier: Apache-2.0
// A reader that stays away is replaced, one that comes back soon is not, and two never have the turn.
#include "worker/cuda/turn.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tendril::worker::cuda {
namespace {

// Counts what its readers do, until it is told to stop.
struct Crew {
  Turn turn{[](void* self) { static_cast<Crew*>(self)->read(); }, this};
  std::atomic<bool> stop{false};
  std::atomic<int> readers{0};
  std::atomic<int> rounds{0};
  int inside = 0;  // with the turn
  bool overlap = false;

  void enter() { overlap |= inside++ != 0; }
  void leave() { --inside; }
  void read() {
    ++readers;
    for (bool reader = true; reader && !stop;) {
      turn.take();
      enter();
      ++rounds;
      leave();
      reader = turn.is_reader();
      turn.give();
      std::this_thread::yield();
    }
    --readers;
  }
};

// Stand-ins never end, so what they use must not either.
Crew* new_crew() {
  alarm(60);
  Crew* crew = new Crew;
  crew->turn.begin();
  return crew;
}

TEST(Turn, AReaderThatStaysAwayIsReplaced) {
  Crew* crew = new_crew();
  crew->turn.take();
  ASSERT_TRUE(crew->turn.is_reader());
  crew->turn.leave();
  while (crew->rounds < 100) std::this_thread::yield();  // somebody else reads
  crew->turn.come_back();
  crew->enter();
  EXPECT_FALSE(crew->turn.is_reader());
  crew->leave();
  crew->turn.give();
  crew->stop = true;
  while (crew->readers != 0) std::this_thread::yield();
  EXPECT_FALSE(crew->overlap);
}

TEST(Turn, AReaderThatIsBackSoonStays) {
  Crew* crew = new_crew();
  for (int i = 0; i < 1000; ++i) {
    crew->turn.take();
    if (!crew->turn.is_reader()) GTEST_SKIP() << "this machine is too busy to tell";
    crew->turn.leave();
    crew->turn.come_back();
    crew->turn.give();
  }
}

// Many calls under way at once, as of a client with many threads.
TEST(Turn, OneHasTheTurn) {
  Crew* crew = new_crew();
  crew->turn.take();
  crew->turn.leave();
  while (crew->readers == 0) std::this_thread::yield();
  std::vector<std::thread> callers;
  std::atomic<int> done{0};
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        crew->turn.take_back();
        crew->enter();
        crew->leave();
        crew->turn.leave();
        crew->turn.come_back();
        crew->enter();
        ++done;
        crew->leave();
        crew->turn.give();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  crew->turn.come_back();
  crew->turn.give();
  crew->stop = true;
  while (crew->readers != 0) std::this_thread::yield();
  EXPECT_EQ(done, 800);
  EXPECT_FALSE(crew->overlap);
}

}  // namespace
}  // namespace tendril::worker::cuda
