// SPDX-License-Identifier: Apache-2.0
// Paths of processes as container engines and Slurm make them, and processes of this machine.
#include "observe/owner.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace tendril::observe {
namespace {

const std::string kNumber = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

TEST(ObserveOwner, FindsContainersOfEachEngine) {
  for (const std::string& path :
       {"0::/system.slice/docker-" + kNumber + ".scope\n", "12:pids:/docker/" + kNumber + "\n",
        "0::/kubepods.slice/kubepods-pod77.slice/cri-containerd-" + kNumber + ".scope\n",
        "0::/kubepods/burstable/pod1-2/" + kNumber,
        "0::/machine.slice/libpod-" + kNumber + ".scope/container\n"})
    EXPECT_EQ(owner_in_cgroups(path).container, "0123456789ab") << path;
  EXPECT_EQ(owner_in_cgroups("1:name=systemd:/lxc/web7/x\n").container, "web7");
  EXPECT_EQ(owner_in_cgroups("0::/lxc.payload.web8/init.scope\n").container, "web8");
  EXPECT_EQ(owner_in_cgroups("0::/user.slice/user-1000.slice\n").container, "");
  EXPECT_EQ(owner_in_cgroups("0::/docker/" + kNumber + "00\n").container, "");  // too long for one
}

TEST(ObserveOwner, FindsJobsOfSlurm) {
  EXPECT_EQ(owner_in_cgroups("0::/system.slice/slurmstepd.scope/job_123/step_0/user\n").job,
            "slurm-123");
  EXPECT_EQ(owner_in_cgroups("5:cpuset:/slurm/uid_1000/job_9/step_batch/task_0\n").job, "slurm-9");
  EXPECT_EQ(owner_in_cgroups("0::/slurm/job_9x\n").job, "");
  EXPECT_EQ(owner_in_cgroups("0::/other/job_9\n").job, "");
}

TEST(ObserveOwner, KnowsThisProcess) {
  Owners owners;
  const Owner& mine = owners.of(static_cast<uint32_t>(getpid()));
  const passwd* const entry = getpwuid(getuid());
  EXPECT_EQ(mine.user, entry != nullptr ? entry->pw_name : std::to_string(getuid()));
  if (mine.container.empty()) {
    EXPECT_NE(mine.job.find(" " + std::to_string(getpgrp())), std::string::npos) << mine.job;
  }
}

TEST(ObserveOwner, ReadsNamesWithAnythingInThem) {
  char folder[] = "/tmp/tendril-owner-XXXXXX";
  ASSERT_NE(nullptr, mkdtemp(folder));
  const std::string process = std::string(folder) + "/77";
  ASSERT_EQ(0, mkdir(process.c_str(), 0700));
  std::ofstream(process + "/cgroup") << "0::/user.slice\n";
  std::ofstream(process + "/status") << "Name:\tx) R 1 2\nUid:\t4000000001\t0\t0\t0\n";
  std::ofstream(process + "/stat") << "77 (x) R 1 2) S 1 55 55 0\n";
  Owners owners(folder);
  EXPECT_EQ(owners.of(77).user, "4000000001");
  EXPECT_EQ(owners.of(77).job, "x) R 1 2 55");
  EXPECT_EQ(owners.of(78).user, "");  // hidden, or gone
  EXPECT_EQ(owners.of(78).job, "process 78");
  for (const char* const name : {"cgroup", "status", "stat"})
    unlink((process + "/" + name).c_str());
  rmdir(process.c_str());
  rmdir(folder);
}

}  // namespace
}  // namespace tendril::observe
