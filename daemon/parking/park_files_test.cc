// SPDX-License-Identifier: Apache-2.0
// Files for parked memory: what a disk gives, what it refuses, and that nobody waits for it.
#include "daemon/parking/park_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <future>

namespace tendril::daemon {
namespace {

base::Result<ParkFiles::Files> wait_for(ParkFiles* files, const std::string& folder,
                                        const std::vector<uint64_t>& sizes) {
  std::promise<base::Result<ParkFiles::Files>> promise;
  auto future = promise.get_future();
  files->make(folder, sizes,
              [&](base::Result<ParkFiles::Files> made) { promise.set_value(std::move(made)); });
  return future.get();
}

TEST(ParkFiles, HaveNoNameAndAllTheirRoom) {
  char folder[] = "park-files-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  ParkFiles files;
  auto made = wait_for(&files, folder, {1 << 20, 0, 3 << 20});
  ASSERT_TRUE(made.ok()) << made.status().message();
  ASSERT_EQ(made->size(), 3u);
  struct stat found = {};
  ASSERT_EQ(fstat((*made)[2].get(), &found), 0);
  EXPECT_EQ(found.st_size, 3 << 20);
  EXPECT_GE(found.st_blocks * 512, 3 << 20);
  EXPECT_EQ(found.st_nlink, 0u);
  EXPECT_EQ(rmdir(folder), 0) << "there is nothing in it";
}

TEST(ParkFiles, SayWhatTheDiskDoesNotGive) {
  ParkFiles files;
  const auto made = wait_for(&files, "no/such/folder", {1 << 20});
  EXPECT_EQ(made.status().code(), base::Code::kRefused);
  EXPECT_NE(made.status().message().find("there is no room for a file of 1"), std::string::npos)
      << made.status().message();
}

// While the thread makes files for one, others do not wait. They get theirs afterwards.
TEST(ParkFiles, NobodyWaitsForTheDisk) {
  std::promise<void> begun, go_on, second;
  std::atomic<int> done{0};
  ParkFiles files;
  files.make("no/such/folder", {1}, [&](base::Result<ParkFiles::Files>) {
    begun.set_value();
    go_on.get_future().wait();
    ++done;
  });
  begun.get_future().wait();
  files.make("no/such/folder", {1}, [&](base::Result<ParkFiles::Files>) {
    ++done;
    second.set_value();
  });
  EXPECT_EQ(done, 0);
  go_on.set_value();
  second.get_future().wait();
  files.stop();
  EXPECT_EQ(done, 2);
}

TEST(ParkFiles, AfterItsEndNobodyGetsFiles) {
  std::atomic<int> done{0};
  {
    ParkFiles files;
    files.stop();
    files.make("no/such/folder", {1}, [&](base::Result<ParkFiles::Files>) { ++done; });
  }
  EXPECT_EQ(done, 0);
}

}  // namespace
}  // namespace tendril::daemon
