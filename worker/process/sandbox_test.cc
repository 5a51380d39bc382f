// SPDX-License-Identifier: Apache-2.0
// Tests the sandbox. Each case runs in its own child, because a process cannot leave the sandbox.
#include "worker/process/sandbox.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "base/landlock.h"
#include "worker/core/testing/in_child.h"

namespace tendril::worker {
namespace {

const Calls kSoftware = {"libtendril-softgpu.so", {}, {}};

Confinement of_parent(pid_t parent) {
  Confinement wanted;
  wanted.parent = parent;
  return wanted;
}

Confinement as_user(uint32_t user) {
  Confinement wanted = of_parent(getppid());
  wanted.user = user;
  return wanted;
}

// 0 when `call` fails with EPERM.
int is_denied(const std::function<long()>& call) {
  return in_child([&] {
    if (!lock_down(kSoftware).ok()) return 99;
    errno = 0;
    const long result = call();
    return result == -1 && errno == EPERM ? 0 : 1;
  });
}

TEST(Sandbox, DeniesWhatDriversDoNotNeed) {
  char* const argv[] = {nullptr};
  EXPECT_EQ(is_denied([&] { return static_cast<long>(execve("/bin/true", argv, argv)); }), 0);
  EXPECT_EQ(is_denied([] { return static_cast<long>(fork()); }), 0);
  EXPECT_EQ(is_denied([] { return static_cast<long>(kill(getppid(), 0)); }), 0);
  EXPECT_EQ(is_denied([] { return static_cast<long>(socket(AF_INET, SOCK_STREAM, 0)); }), 0);
  EXPECT_EQ(is_denied([] { return static_cast<long>(socket(AF_INET6, SOCK_DGRAM, 0)); }), 0);
  EXPECT_EQ(is_denied([] { return static_cast<long>(socket(AF_PACKET, SOCK_RAW, 0)); }), 0);
  EXPECT_EQ(is_denied([] { return static_cast<long>(socket(AF_ALG, SOCK_SEQPACKET, 0)); }), 0);
  // The kernel looks only at the lower half of the register.
  EXPECT_EQ(is_denied([] { return syscall(SYS_socket, 1L << 32 | AF_INET, SOCK_STREAM, 0); }), 0);
  EXPECT_EQ(is_denied([] { return static_cast<long>(chroot("/")); }), 0);
  EXPECT_EQ(is_denied([] { return static_cast<long>(setuid(0)); }), 0);
}

// Drivers share memory between processes in this way: one listens, another fetches a descriptor.
TEST(Sandbox, LetsLocalProcessesMeet) {
  EXPECT_EQ(in_child([] {
              if (!lock_down(kSoftware).ok()) return 99;
              sockaddr_un name = {};
              name.sun_family = AF_UNIX;  // bound to an abstract name of the kernel's choice
              socklen_t bytes = sizeof name;
              const int listener = socket(AF_UNIX, SOCK_STREAM, 0),
                        near = socket(AF_UNIX, SOCK_STREAM, 0);
              const auto* address = reinterpret_cast<const sockaddr*>(&name);
              if (bind(listener, address, sizeof name.sun_family) != 0 || listen(listener, 1) != 0)
                return 1;
              if (getsockname(listener, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return 2;
              if (connect(near, address, bytes) != 0) return 3;
              return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC) >= 0 ? 0 : 4;
            }),
            0);
}

TEST(Sandbox, GivesTcpToWorkersWithNccl) {
  EXPECT_EQ(in_child([] {
              Confinement wanted = of_parent(getppid());
              Calls calls = kSoftware;
              wanted.networked = calls.networked = true;
              if (!enter_sandbox(wanted).ok() || !lock_down(calls).ok()) return 99;
              sockaddr_in name = {};
              name.sin_family = AF_INET;
              name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
              socklen_t bytes = sizeof name;
              const int listener = socket(AF_INET, SOCK_STREAM, 0),
                        near = socket(AF_INET, SOCK_STREAM, 0);
              const auto* address = reinterpret_cast<const sockaddr*>(&name);
              if (bind(listener, address, bytes) != 0 || listen(listener, 1) != 0) return 1;
              if (getsockname(listener, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return 2;
              if (connect(near, address, bytes) != 0) return 3;
              return socket(AF_PACKET, SOCK_RAW, 0) == -1 && errno == EPERM ? 0 : 4;
            }),
            0);
}

TEST(Sandbox, LetsADriverWork) {
  EXPECT_EQ(in_child([] {
              int out = 1;
              std::thread before([] { usleep(200'000); });
              if (!lock_down(kSoftware).ok()) return 99;
              std::thread thread([&] { out = 0; });
              thread.join();
              before.join();
              void* at = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                              -1, 0);
              if (at == MAP_FAILED) return 2;
              const int fd = open("/dev/null", O_RDWR);
              if (fd < 0) return 3;
              if (kill(getpid(), 0) != 0) return 4;
              return out;
            }),
            0);
}

TEST(Sandbox, FilterHoldsForThreadsThatWereThereBefore) {
  EXPECT_EQ(in_child([] {
              int answer = 1;
              std::thread before([&] {
                usleep(200'000);
                answer = socket(AF_INET, SOCK_STREAM, 0) == -1 && errno == EPERM ? 0 : 1;
              });
              if (!lock_down(kSoftware).ok()) return 99;
              before.join();
              return answer;
            }),
            0);
}

TEST(Sandbox, AbortStillEndsTheProcess) {
  EXPECT_EQ(in_child([] {
              if (!enter_sandbox(of_parent(getppid())).ok() || !lock_down(kSoftware).ok())
                return 99;
              abort();
              return 0;
            }),
            -SIGABRT);
}

TEST(Sandbox, LeavesNoCoreAndNoNewPrivileges) {
  EXPECT_EQ(in_child([] {
              if (!enter_sandbox(of_parent(getppid())).ok() || !lock_down(kSoftware).ok())
                return 99;
              rlimit core;
              getrlimit(RLIMIT_CORE, &core);
              return core.rlim_max == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : 1;
            }),
            0);
}

TEST(Sandbox, RootBecomesSomebodyElse) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  EXPECT_EQ(in_child([] {
              if (!enter_sandbox(as_user(61000)).ok()) return 99;
              return getuid() == 61000 && geteuid() == 61000 && getgid() == 61000 && setuid(0) != 0
                         ? 0
                         : 1;
            }),
            0);
  // A worker that stays root may not do what root may.
  EXPECT_EQ(in_child([] {
              if (!enter_sandbox(of_parent(getppid())).ok()) return 99;
              return chroot("/") == -1 && errno == EPERM ? 0 : 1;
            }),
            0);
}

TEST(Sandbox, NobodyLooksIn) {
  EXPECT_EQ(in_child([] {
              if (!enter_sandbox(of_parent(getppid())).ok()) return 99;
              return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : 1;
            }),
            0);
}

TEST(Sandbox, OpensNoFileButADriversOwn) {
  if (base::Landlock::version() == 0) GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(in_child([] {
              if (!enter_sandbox(of_parent(getppid())).ok()) return 99;
              for (const char* secret : {"/etc/passwd", "/etc/shadow", "/etc", "/var"}) {
                if (open(secret, O_RDONLY) >= 0 || errno != EACCES) return 1;
              }
              for (const char* place : {"/tmp/a", "/etc/a", "/dev/shm/a", "/var/tmp/a"}) {
                if (open(place, O_WRONLY | O_CREAT, 0600) >= 0 || errno != EACCES) return 2;
              }
              if (open("/usr/bin/env", O_WRONLY) >= 0) return 3;
              if (open("/proc/self/maps", O_RDONLY) < 0) return 4;
              if (open("/etc/ld.so.cache", O_RDONLY) < 0) return 5;
              // As fopen does. NVIDIA's driver names its threads so.
              const std::string name = "/proc/self/task/" + std::to_string(getpid()) + "/comm";
              if (open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666) < 0) return 6;
              return 0;
            }),
            0);
}

// An unprivileged daemon's workers have its user, and neither it nor each other.
TEST(Sandbox, AnotherNamespaceIsAnotherUser) {
  if (base::Landlock::version() == 0) GTEST_SKIP() << "this kernel has no Landlock";
  const int answer = in_child([] {
    if (geteuid() == 0 && (setresgid(61000, 61000, 61000) != 0 || setresuid(61000, 61000, 61000)))
      return 98;
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    const pid_t neighbour = fork();
    if (neighbour == 0) {
      pause();
      _exit(0);
    }
    const int result = in_child([neighbour] {
      Confinement wanted = of_parent(getppid());
      wanted.own_namespace = true;
      const base::Status entered = enter_sandbox(wanted);
      if (!entered.ok())
        return entered.message().find("user namespace") != std::string::npos ? 97 : 99;
      if (geteuid() != 61000 && geteuid() == 0) return 1;
      if (ptrace(PTRACE_ATTACH, neighbour, nullptr, nullptr) == 0) return 2;
      const std::string memory = "/proc/" + std::to_string(neighbour) + "/mem";
      if (open(memory.c_str(), O_RDONLY) >= 0) return 3;
      __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct held[2] = {};
      syscall(SYS_capget, &header, held);
      return held[0].permitted == 0 && held[1].permitted == 0 ? 0 : 4;
    });
    kill(neighbour, SIGKILL);
    return result;
  });
  if (answer == 97) GTEST_SKIP() << "this system allows no user namespaces";
  EXPECT_EQ(answer, 0);
}

TEST(Sandbox, KeepsWhatTiesItToItsParent) {
  const auto denied = [](int option, unsigned long value) {
    return is_denied([&] { return static_cast<long>(prctl(option, value, 0, 0, 0)); });
  };
  EXPECT_EQ(denied(PR_SET_PDEATHSIG, 0), 0);
  EXPECT_EQ(denied(PR_SET_DUMPABLE, 1), 0);
  EXPECT_EQ(denied(PR_SET_PTRACER, 1), 0);
  EXPECT_EQ(in_child([] {
              if (!lock_down(kSoftware).ok()) return 99;
              return prctl(PR_SET_NAME, "another", 0, 0, 0) == 0 ? 0 : 1;
            }),
            0);
}

TEST(Sandbox, ActsOnNoOtherProcess) {
  EXPECT_EQ(is_denied([] {
              rlimit limit;
              return syscall(SYS_prlimit64, getppid(), RLIMIT_NOFILE, nullptr, &limit);
            }),
            0);
  EXPECT_EQ(is_denied([] {
              unsigned long all = ~0ul;
              return syscall(SYS_sched_setaffinity, getppid(), sizeof all, &all);
            }),
            0);
  EXPECT_EQ(is_denied([] { return static_cast<long>(fcntl(0, F_SETOWN, getppid())); }), 0);
  EXPECT_EQ(is_denied([] { return syscall(SYS_ioctl, 0, 1L << 32 | FIOASYNC, 0); }), 0);
  EXPECT_EQ(is_denied([] { return static_cast<long>(setpriority(PRIO_PROCESS, 0, 1)); }), 0);
}

TEST(Sandbox, LearnsWhatIsOnNoList) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(in_child([&] {
              Calls calls = kSoftware;
              calls.learned = [&](const std::string& name) {
                (void)!write(ends[1], name.data(), name.size());
              };
              if (!lock_down(calls).ok()) return 99;
              return setpriority(PRIO_PROCESS, 0, 1) == 0 && setpriority(PRIO_PROCESS, 0, 2) == 0 &&
                             socket(AF_INET, SOCK_STREAM, 0) < 0
                         ? 0
                         : 1;
            }),
            0);
  close(ends[1]);
  char text[64] = {};
  (void)!read(ends[0], text, sizeof text - 1);
  EXPECT_STREQ(text, "setpriority");
  close(ends[0]);
  Calls more = kSoftware;
  more.extra = {"setpriority", "no_such_call"};
  EXPECT_EQ(in_child([&] {
              if (!lock_down(more).ok()) return 99;
              return setpriority(PRIO_PROCESS, 0, 1);
            }),
            0);
}

TEST(Sandbox, EndsWithItsParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(in_child([&] {
              const pid_t parent = getpid();
              if (fork() == 0) {
                close(ends[0]);
                if (!enter_sandbox(of_parent(parent)).ok()) _exit(1);
                if (write(ends[1], "x", 1) != 1) _exit(1);
                pause();  // holds the pipe's last writing end
              }
              close(ends[1]);
              char byte;
              return read(ends[0], &byte, 1) == 1 ? 0 : 1;
            }),
            0);
  close(ends[1]);
  char byte;
  alarm(5);
  EXPECT_EQ(read(ends[0], &byte, 1), 0);  // end of file: no process holds it any more
  alarm(0);
  close(ends[0]);
}

TEST(Sandbox, RefusesAnotherParent) {
  EXPECT_EQ(in_child([] { return enter_sandbox(of_parent(1234567)).ok() ? 1 : 0; }), 0);
}

}  // namespace
}  // namespace tendril::worker
