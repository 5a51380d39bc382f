// SPDX-License-Identifier: Apache-2.0
// See child_process.h.
#include "daemon/child_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "base/clock.h"

extern char** environ;

namespace tendril::daemon {
namespace {

constexpr size_t kOutputMax = 1u << 20;

// posix_spawn's dup2 clears close-on-exec only when source and target differ. A daemon's
// descriptors are never 0 to 3 by then. But a test may run with closed standard streams, so move
// them out of the way first.
int lifted(int fd, base::Fd* keeper) {
  if (fd < 0 || fd > 3) return fd;
  keeper->reset(fcntl(fd, F_DUPFD_CLOEXEC, 10));
  return keeper->get();
}

// Makes the child close every descriptor from `first` on that it would inherit: each that is open
// now and is not close-on-exec. posix_spawn_file_actions_addclosefrom_np would do this in one call,
// but it came with glibc 2.34, and `tendril` runs on older systems. All the daemon's own
// descriptors are close-on-exec, so no other thread can add one meanwhile.
base::Status close_inherited(posix_spawn_file_actions_t* actions, int first) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open_files(opendir("/proc/self/fd"), closedir);
  if (!open_files) {
    return base::errno_status(base::Code::kUnavailable,
                              "cannot start a child process: /proc/self/fd cannot be read", errno);
  }
  while (const dirent* const entry = readdir(open_files.get())) {
    char* end = nullptr;
    const long fd = strtol(entry->d_name, &end, 10);
    if (end == entry->d_name || fd < first) continue;  // "." and ".."
    const int flags = fcntl(static_cast<int>(fd), F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0)
      posix_spawn_file_actions_addclose(actions, static_cast<int>(fd));
  }
  return base::Status();
}

// What a child gets of the daemon's environment: how libraries are found and what is set for the
// driver, for the worker and for the tools that test them. Everything else may be a secret.
bool is_passed_on(const char* variable) {
  constexpr const char* kNames[] = {"PATH",
                                    "TZ",
                                    "LD_LIBRARY_PATH",
                                    "LD_PRELOAD",
                                    "GLIBC_TUNABLES",
                                    "TENDRIL_GPUDIRECT",
                                    "TENDRIL_HOST_COPIES_MB",
                                    "TENDRIL_LOG",
                                    "TENDRIL_RECORD",
                                    "TENDRIL_SPIN_US",
                                    "TENDRIL_WAIT_SPIN_US"};
  constexpr const char* kPrefixes[] = {
      "CUDA_",           "NVIDIA_",           "NCCL_",           "OCL_ICD_",
      "POCL_",           "OCLGRIND_",         "RUSTICL_",        "LP_NUM_THREADS",
      "TENDRIL_RDMA_",   "TENDRIL_TEST_FPGA", "TENDRIL_WORKER_", "TENDRIL_SOFTNCCL",
      "TENDRIL_SOFTGPU", "TENDRIL_DELAYS_",   "ASAN_OPTIONS",    "LSAN_OPTIONS",
      "TSAN_OPTIONS",    "UBSAN_OPTIONS"};
  const size_t length = strcspn(variable, "=");
  for (const char* name : kNames) {
    if (strlen(name) == length && strncmp(variable, name, length) == 0) return true;
  }
  for (const char* prefix : kPrefixes) {
    if (strncmp(variable, prefix, strlen(prefix)) == 0) return true;
  }
  return false;
}

std::vector<char*> variables_of(ChildEnvironment environment) {
  std::vector<char*> variables;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    if (environment == ChildEnvironment::kWhole || is_passed_on(*each)) variables.push_back(*each);
  }
  variables.push_back(nullptr);
  return variables;
}

}  // namespace

base::Result<Child> start_child(const std::string& executable,
                                const std::vector<std::string>& arguments, int output, int control,
                                ChildEnvironment environment) {
  base::Fd keep_output, keep_control;
  output = lifted(output, &keep_output);
  control = lifted(control, &keep_control);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_adddup2(&actions, output, 2);
  if (control >= 0) posix_spawn_file_actions_adddup2(&actions, control, 3);
  const base::Status closed = close_inherited(&actions, control >= 0 ? 4 : 3);
  if (!closed.ok()) {
    posix_spawn_file_actions_destroy(&actions);
    return closed;
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  // A separate process group: the daemon must handle Ctrl-C in its terminal.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> argv;
  argv.push_back(const_cast<char*>(executable.c_str()));
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  Child child;
  std::vector<char*> variables = variables_of(environment);
  const int error = posix_spawn(&child.pid, executable.c_str(), &actions, &attributes, argv.data(),
                                variables.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return base::errno_status(base::Code::kUnavailable,
                              ("cannot start '" + executable + "'").c_str(), error);
  }
  child.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0)));
  if (!child.pidfd.valid()) {
    const int why = errno;
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
    return base::errno_status(base::Code::kExhausted, "cannot watch a child process", why);
  }
  fcntl(child.pidfd.get(), F_SETFD, FD_CLOEXEC);
  return child;
}

void kill_child(const Child& child) {
  if (child.pidfd.valid()) syscall(SYS_pidfd_send_signal, child.pidfd.get(), SIGKILL, nullptr, 0);
}

int reap_child(Child* child) {
  int status = 0;
  while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
  }
  child->pidfd.reset();
  return status;
}

std::string describe_exit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    const char* name = strsignal(signal);
    return "was killed by signal " + std::to_string(signal) + " (" +
           (name != nullptr ? name : "unknown") + ")";
  }
  return "exited with status " + std::to_string(WEXITSTATUS(wait_status));
}

base::Result<ChildOutput> run_child(const std::string& executable,
                                    const std::vector<std::string>& arguments, int timeout_ms,
                                    ChildEnvironment environment) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return base::errno_status(base::Code::kExhausted, "cannot make a pipe", errno);
  base::Fd reader(ends[0]), writer(ends[1]);
  base::Result<Child> started = start_child(executable, arguments, writer.get(), -1, environment);
  if (!started.ok()) return started.status();
  Child child = started.take();
  writer.reset();
  const base::Deadline deadline(timeout_ms);
  ChildOutput output;
  bool late = false;
  for (;;) {
    pollfd wait = {reader.get(), POLLIN, 0};
    const int ready = poll(&wait, 1, deadline.left_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      late = true;
      break;
    }
    char buffer[4096];
    const ssize_t got = read(reader.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (output.text.size() < kOutputMax) output.text.append(buffer, static_cast<size_t>(got));
  }
  // The output ends when the child exits. A child that closed its output and stays is killed like
  // one that takes too long.
  pollfd gone = {child.pidfd.get(), POLLIN, 0};
  if (late || poll(&gone, 1, deadline.left_ms()) == 0) {
    late = true;
    kill_child(child);
  }
  output.wait_status = reap_child(&child);
  if (late) {
    return base::Status(base::Code::kTimeout, "'" + executable + "' did not finish within " +
                                                  std::to_string(timeout_ms / 1000) + " s");
  }
  return output;
}

}  // namespace tendril::daemon
