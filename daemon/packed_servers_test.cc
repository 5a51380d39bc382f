// SPDX-License-Identifier: Apache-2.0
// Servers for packed slices, with a script in place of the vendor's control program. The script
// makes its socket, waits, and ends when a second run of itself says quit.
#include "daemon/packed_servers.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "base/clock.h"

namespace tendril::daemon {
namespace {

class PackedServersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tendril-packed-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    auto loop = EventLoop::create();
    ASSERT_TRUE(loop.ok());
    loop_ = loop.take();
    loop_->start();
  }
  void TearDown() override {
    loop_->stop();
    std::filesystem::remove_all(folder_);
  }

  PackedOptions with(const std::string& script) {
    PackedOptions options;
    options.control = folder_ + "/control";
    options.start_max_ms = 3000;
    options.idle_max_ms = 50;
    std::ofstream(options.control) << "#!/bin/sh\n" << script;
    std::filesystem::permissions(options.control, std::filesystem::perms::owner_all);
    return options;
  }
  std::string read(const std::string& name) {
    std::ifstream file(folder_ + "/" + name);
    std::string text;
    std::getline(file, text);
    return text;
  }

  std::unique_ptr<EventLoop> loop_;
  std::string folder_;
  const std::string well_ = R"(
here=$(dirname "$0")
pipe=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -f ]; then
  echo $$ > "$pipe/pid"
  : > "$pipe/control"
  while [ ! -e "$pipe/quit" ]; do sleep 0.02; done
  exit 0
fi
read words
echo "$words" > "$here/asked"
: > "$pipe/quit"
)";
};

// Measured on an H200: pairs, rounded down.
uint32_t given(uint32_t percent, uint32_t processors) { return processors * percent / 100 / 2 * 2; }

TEST(PackedPercent, IsTheLeastThatGivesSoMany) {
  for (const uint32_t processors : {132u, 188u, 108u, 16u, 2u}) {
    for (uint32_t wanted = 2; wanted <= processors; wanted += 2) {
      const uint32_t percent = packed_percent(wanted, processors, 1);
      ASSERT_GE(given(percent, processors), wanted) << processors;
      ASSERT_LT(given(percent - 1, processors), wanted) << processors;
    }
  }
}

TEST(PackedPercent, OfAnH200) {
  EXPECT_EQ(packed_percent(66, 132, 500'000), 50u);
  EXPECT_EQ(packed_percent(34, 132, 250'000), 26u);
  EXPECT_EQ(packed_percent(32, 132, 250'000), 25u);
  EXPECT_EQ(packed_percent(132, 132, 1'000'000), 100u);
}

TEST(PackedPercent, WithoutANumberTheShareIsRoundedUp) {
  for (const uint32_t processors : {0u, 13u}) {
    EXPECT_EQ(packed_percent(0, processors, 125'000), 13u);
    EXPECT_EQ(packed_percent(0, processors, 1'000'000), 100u);
    EXPECT_EQ(packed_percent(0, processors, 1), 1u);
  }
}

TEST_F(PackedServersTest, SeatsOfOneServerThenAnother) {
  PackedServers servers(loop_.get(), with(well_));
  std::set<uint32_t> used;
  for (uint32_t i = 0; i < PackedServers::kSeats; ++i) {
    auto seat = servers.take();
    ASSERT_TRUE(seat.ok()) << seat.status().message();
    used.insert(seat->server);
  }
  EXPECT_EQ(used.size(), 1u);
  auto more = servers.take();
  ASSERT_TRUE(more.ok());
  EXPECT_EQ(used.count(more->server), 0u);
}

TEST_F(PackedServersTest, EndsAWhileAfterItsLastClient) {
  PackedServers servers(loop_.get(), with(well_));
  auto one = servers.take(), two = servers.take();
  ASSERT_TRUE(one.ok() && two.ok());
  servers.give_back(one->server);
  usleep(100'000);
  EXPECT_TRUE(std::filesystem::exists(one->folder + "/control"));
  servers.give_back(two->server);
  for (int i = 0; i < 300 && std::filesystem::exists(one->folder); ++i) usleep(10'000);
  EXPECT_FALSE(std::filesystem::exists(one->folder));
  EXPECT_EQ(read("asked").substr(0, 4), "quit");
}

TEST_F(PackedServersTest, OneThatDiedIsReplaced) {
  PackedServers servers(loop_.get(), with(well_));
  auto first = servers.take();
  ASSERT_TRUE(first.ok());
  std::ifstream pid_file(first->folder + "/pid");
  pid_t pid = 0;
  pid_file >> pid;
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  base::Result<PackedServers::Seat> second = servers.take();
  for (int i = 0; i < 100 && second.ok() && second->server == first->server; ++i) {
    usleep(10'000);
    second = servers.take();
  }
  ASSERT_TRUE(second.ok());
  EXPECT_NE(second->server, first->server);
}

TEST_F(PackedServersTest, SaysWhatIsMissing) {
  PackedServers servers(loop_.get(), with("exit 4"));
  auto seat = servers.take();
  ASSERT_FALSE(seat.ok());
  EXPECT_NE(seat.status().message().find("exited with status 4"), std::string::npos)
      << seat.status().message();
  EXPECT_NE(seat.status().message().find("--packed"), std::string::npos);
}

TEST_F(PackedServersTest, KillsOneThatDoesNotQuit) {
  const std::string deaf = R"([ "$1" = -f ] || exit 0
: > "$CUDA_MPS_PIPE_DIRECTORY/control"
exec sleep 60)";
  const uint64_t began_ns = base::now_ns();
  std::string pipes;
  {
    PackedServers servers(loop_.get(), with(deaf));
    auto seat = servers.take();
    ASSERT_TRUE(seat.ok());
    pipes = seat->folder;
  }
  EXPECT_FALSE(std::filesystem::exists(pipes));
  EXPECT_LT(base::now_ns() - began_ns, 20'000'000'000u);
}

}  // namespace
}  // namespace tendril::daemon
