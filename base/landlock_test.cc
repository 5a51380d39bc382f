// SPDX-License-Identifier: Apache-2.0
// Each case runs in its own child, because a process cannot take Landlock back.
#include "base/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

namespace tendril::base {
namespace {

int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

bool opens(const std::string& path, int flags) {
  return Fd(open(path.c_str(), flags | O_CLOEXEC, 0600)).valid();
}

TEST(Landlock, KeepsFromAllFilesButThose) {
  if (Landlock::version() == 0) GTEST_SKIP() << "this kernel has no Landlock";
  char folder[] = "/tmp/tendril-landlock-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string top = folder;
  for (const char* name : {"read", "write", "manage", "other"}) {
    std::filesystem::create_directory(top + "/" + name);
    ASSERT_TRUE(opens(top + "/" + name + "/file", O_WRONLY | O_CREAT));
  }
  EXPECT_EQ(in_child([&] {
              auto rules = Landlock::files();
              if (!rules.ok() || !rules->allow((top + "/read").c_str(), FileUse::kRead).ok() ||
                  !rules->allow((top + "/write").c_str(), FileUse::kWrite).ok() ||
                  !rules->allow((top + "/manage").c_str(), FileUse::kManage).ok() ||
                  !rules->allow((top + "/nowhere").c_str(), FileUse::kManage).ok() ||
                  !rules->allow("/dev/null", FileUse::kDevice).ok() ||
                  !rules->restrict_thread().ok())
                return 1;
              if (!opens(top + "/read/file", O_RDONLY)) return 2;
              if (opens(top + "/read/file", O_WRONLY)) return 3;
              if (!opens(top + "/write/file", O_RDWR | O_TRUNC)) return 4;
              if (opens(top + "/write/new", O_WRONLY | O_CREAT)) return 5;
              if (!opens(top + "/manage/new", O_WRONLY | O_CREAT)) return 6;
              if (unlink((top + "/manage/new").c_str()) != 0) return 7;
              if (symlink("/", (top + "/manage/link").c_str()) == 0) return 8;
              if (opens(top + "/other/file", O_RDONLY) || opens("/etc/passwd", O_RDONLY)) return 9;
              if (!opens("/dev/null", O_RDWR)) return 10;
              return 0;
            }),
            0);
  std::filesystem::remove_all(top);
}

TEST(Landlock, KeepsFromProcessesOutside) {
  if (Landlock::version() < Landlock::kScopesSince) GTEST_SKIP() << "this kernel has no scopes";
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  socklen_t bytes = sizeof name.sun_family;
  const Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto* address = reinterpret_cast<sockaddr*>(&name);
  ASSERT_EQ(bind(listener.get(), address, bytes), 0);
  ASSERT_EQ(listen(listener.get(), 8), 0);
  bytes = sizeof name;
  ASSERT_EQ(getsockname(listener.get(), address, &bytes), 0);
  EXPECT_EQ(in_child([&] {
              auto rules = Landlock::outside();
              if (!rules.ok() || !rules->restrict_thread().ok()) return 1;
              const Fd near(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
              if (connect(near.get(), address, bytes) == 0) return 2;
              if (kill(getppid(), 0) == 0) return 3;
              // Two children of this process are in one domain.
              const pid_t sibling = fork();
              if (sibling == 0) {
                pause();
                _exit(0);
              }
              const int signalled = in_child([&] { return kill(sibling, 0); });
              if (kill(sibling, SIGKILL) != 0) return 4;
              return signalled == 0 ? 0 : 5;
            }),
            0);
}

}  // namespace
}  // namespace tendril::base
