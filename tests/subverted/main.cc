// SPDX-License-Identifier: Apache-2.0
// A worker that has been taken over: it serves nobody, and tries everything. See README.md.
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "worker/cuda/worker.h"
#include "worker/process/process.h"

extern char** environ;

namespace tendril::worker {
namespace {

// An attempt succeeds if `call` returns 0 or more.
void attempt(const char* what, const std::function<long()>& call) {
  errno = 0;
  const bool broken = call() >= 0;
  fprintf(stderr, "attempt %s: %s (%s)\n", what, broken ? "BROKEN" : "held", strerror(errno));
  usleep(25'000);  // the daemon shows a limited number of lines a second
}

long opened(const std::string& path, int flags) {
  return open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0600);
}

std::string setting(const char* name) {
  const char* value = getenv(name);
  return value != nullptr ? value : "/nowhere";
}

std::vector<pid_t> other_processes() {
  std::vector<pid_t> found;
  DIR* folder = opendir("/proc");
  while (const dirent* entry = folder != nullptr ? readdir(folder) : nullptr) {
    const auto process = static_cast<pid_t>(strtol(entry->d_name, nullptr, 10));
    if (process > 0 && process != getpid()) found.push_back(process);
  }
  if (folder != nullptr) closedir(folder);
  return found;
}

// 0 if it works with any process.
long any_process(const std::function<long(pid_t)>& call) {
  for (const pid_t process : other_processes()) {
    if (call(process) >= 0) return 0;
  }
  return -1;
}

std::string of_process(pid_t process, const char* what) {
  return "/proc/" + std::to_string(process) + "/" + what;
}

void try_files() {
  const std::string secret = setting("TENDRIL_WORKER_SECRET");
  attempt("environment holds a token", [] {
    for (char** each = environ; *each != nullptr; ++each) {
      if (strncmp(*each, "TENDRIL_TOKEN", 13) == 0 || strstr(*each, "squeamish")) return 0;
    }
    return -1;
  });
  attempt("read the token file", [&] { return opened(secret, O_RDONLY); });
  attempt("write the token file", [&] { return opened(secret, O_WRONLY); });
  attempt("unlink the token file", [&] { return unlink(secret.c_str()); });
  attempt("chmod the token file", [&] { return chmod(secret.c_str(), 0666); });
  attempt("list the store",
          [] { return opened(setting("TENDRIL_WORKER_STORE"), O_RDONLY | O_DIRECTORY); });
  for (const char* path : {"/etc/shadow", "/etc/passwd", "/usr/bin/env"})
    attempt(path, [&] { return opened(path, O_WRONLY); });
  attempt("read /etc/passwd", [] { return opened("/etc/passwd", O_RDONLY); });
  attempt("file in /etc", [] { return opened("/etc/tendril-was-here", O_WRONLY | O_CREAT); });
  attempt("file in /tmp", [] { return opened("/tmp/tendril-was-here", O_WRONLY | O_CREAT); });
  attempt("fifo in /tmp", [] { return mkfifo("/tmp/tendril-was-here", 0600); });
  attempt("inherited files", [] {
    for (int fd = 0; fd < 1024; ++fd) {
      char target[256] = {};
      const std::string link = "/proc/self/fd/" + std::to_string(fd);
      if (readlink(link.c_str(), target, sizeof target - 1) <= 0) continue;
      if (target[0] != '/' || strncmp(target, "/dev/", 5) == 0) continue;
      const std::string own = of_process(getpid(), "task");  // the sandbox keeps it open
      if (own == target) continue;
      if (strncmp(target, "/memfd:", 7) != 0) return 0;
    }
    return -1;
  });
}

void try_processes() {
  const pid_t daemon = getppid();
  char byte;
  const auto read_memory = [&](pid_t process) {
    iovec here = {&byte, 1}, there = {reinterpret_cast<void*>(0x400000), 1};
    const long got = process_vm_readv(process, &here, 1, &there, 1, 0);
    return got >= 0 || errno == EFAULT ? 0L : -1L;
  };
  const auto trace = [](pid_t process) { return ptrace(PTRACE_SEIZE, process, nullptr, nullptr); };
  attempt("daemon's memory", [&] { return opened(of_process(daemon, "mem"), O_RDWR); });
  attempt("daemon's environment", [&] {
    const int file = static_cast<int>(opened(of_process(daemon, "environ"), O_RDONLY));
    return file < 0 ? -1L : read(file, &byte, 1) - 1;
  });
  attempt("daemon's descriptors",
          [&] { return opened(of_process(daemon, "fd"), O_RDONLY | O_DIRECTORY); });
  attempt("trace the daemon", [&] { return trace(daemon); });
  attempt("daemon's bounds", [&] {
    rlimit limit = {64, 64};
    return syscall(SYS_prlimit64, daemon, RLIMIT_NOFILE, &limit, nullptr);
  });
  attempt("daemon's processors", [&] {
    unsigned long first = 1;
    return syscall(SYS_sched_setaffinity, daemon, sizeof first, &first);
  });
  attempt("signal any process", [] { return any_process([](pid_t p) { return kill(p, 0); }); });
  attempt("read any process", [&] { return any_process(read_memory); });
  attempt("trace any process", [&] { return any_process(trace); });
  attempt("open any process' memory", [] {
    return any_process([](pid_t p) { return opened(of_process(p, "mem"), O_RDONLY); });
  });
  attempt("descriptors of any process",
          [] { return any_process([](pid_t p) { return syscall(SYS_pidfd_open, p, 0); }); });
  attempt("SIGIO to the daemon", [&] { return fcntl(0, F_SETOWN, daemon); });
}

void try_programs() {
  char* const none[] = {nullptr};
  attempt("execve", [&] { return execve("/bin/true", none, none); });
  attempt("fork", [] {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    return child;
  });
  attempt("clone without a thread", [] { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); });
  attempt("clone3", [] { return syscall(SYS_clone3, nullptr, 0) < 0 && errno == ENOSYS ? -1 : 0; });
  attempt("user namespace", [] { return unshare(CLONE_NEWUSER); });
  attempt("mount", [] { return mount("none", "/tmp", "tmpfs", 0, nullptr); });
  attempt("chroot", [] { return chroot("/"); });
  attempt("become root", [] { return setuid(0); });
  attempt("io_uring", [] { return syscall(SYS_io_uring_setup, 8, nullptr); });
  attempt("bpf", [] { return syscall(SYS_bpf, 0, nullptr, 0) < 0 && errno == EPERM ? -1 : 0; });
  attempt("keyring", [] { return syscall(SYS_keyctl, 0, -3, 1, 0, 0); });
  attempt("userfaultfd", [] { return syscall(SYS_userfaultfd, 0); });
  attempt("perf", [] { return syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0); });
}

// Connected within half a second: 0.
long reaches(const sockaddr_in& address) {
  const int near = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (near < 0) return -1;
  if (connect(near, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno != EINPROGRESS)
    return -1;
  pollfd wait = {near, POLLOUT, 0};
  int error = 0;
  socklen_t bytes = sizeof error;
  if (poll(&wait, 1, 500) != 1) return -1;
  getsockopt(near, SOL_SOCKET, SO_ERROR, &error, &bytes);
  return error == 0 ? 0 : -1;
}

sockaddr_in address_of(const char* host, const std::string& port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(strtoul(port.c_str(), nullptr, 10)));
  inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

// A worker that may use NCCL: the servers that were named are this machine's 127.0.0.1.
void try_network_of_nccl() {
  attempt("no contact with a named server", [] {
    sockaddr_in own = address_of("127.0.0.1", "0");
    socklen_t bytes = sizeof own;
    const int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(far, reinterpret_cast<sockaddr*>(&own), bytes) != 0 || listen(far, 1) != 0 ||
        getsockname(far, reinterpret_cast<sockaddr*>(&own), &bytes) != 0)
      return 0L;
    return reaches(own) == 0 ? -1L : 0L;
  });
  attempt("a server that was not named",
          [] { return reaches(address_of("127.0.0.2", setting("TENDRIL_WORKER_ELSEWHERE"))); });
  attempt("a service of this machine",
          [] { return reaches(address_of("127.0.0.1", setting("TENDRIL_WORKER_SERVICE"))); });
  attempt("UDP", [] {
    const sockaddr_in address = address_of("127.0.0.1", "53000");
    const int near = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return sendto(near, "x", 1, 0, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  });
}

void try_sockets() {
  if (setting("TENDRIL_WORKER_NETWORK") == "nccl") {
    try_network_of_nccl();
  } else {
    attempt("TCP", [] { return socket(AF_INET, SOCK_STREAM, 0); });
    attempt("TCP over IPv6", [] { return socket(AF_INET6, SOCK_STREAM, 0); });
  }
  attempt("raw packets", [] { return socket(AF_PACKET, SOCK_RAW, 0); });
  attempt("the hypervisor", [] { return socket(AF_VSOCK, SOCK_STREAM, 0); });
  // Not in user namespaces, one for each worker: drivers' processes would not find each other.
  if (setting("TENDRIL_WORKER_NETWORK") == "own") {
    attempt("see the machine's network", [] {
      std::ifstream interfaces("/proc/net/dev");
      for (std::string line; std::getline(interfaces, line);) {
        if (line.find(':') == std::string::npos) continue;
        if (line.substr(line.find_first_not_of(' '), 3) != "lo:") return 0;
      }
      return -1;
    });
    attempt("see the machine's connections", [] {
      std::ifstream connections("/proc/net/tcp");
      std::string line;
      std::getline(connections, line);  // the heading
      return std::getline(connections, line) ? 0 : -1;
    });
  }
  attempt("abstract sockets of others", [] {
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);) {
      const size_t at = line.find(" @");
      if (at == std::string::npos || line.find("softgpu") != std::string::npos) continue;
      sockaddr_un name = {};
      name.sun_family = AF_UNIX;
      const std::string text = line.substr(at + 2, sizeof name.sun_path - 1);
      memcpy(name.sun_path + 1, text.data(), text.size());
      const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
      for (const int type : {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM}) {
        const int near = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        const int answer = connect(near, reinterpret_cast<sockaddr*>(&name), bytes);
        close(near);
        if (answer == 0) return 0;
      }
    }
    return -1;
  });
}

void try_bounds() {
  attempt("forget the parent", [] { return prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0); });
  attempt("become dumpable", [] { return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); });
  for (const auto& [name, which] :
       {std::pair("more descriptors", RLIMIT_NOFILE), std::pair("more threads", RLIMIT_NPROC),
        std::pair("core files", RLIMIT_CORE)}) {
    attempt(name, [which = which] {
      const rlimit endless = {RLIM_INFINITY, RLIM_INFINITY};
      return setrlimit(which, &endless);
    });
  }
  attempt("descriptors without end", [] {
    for (int count = 0; count < 100'000; ++count) {
      if (dup(2) < 0) return -1;
    }
    return 0;
  });
}

// Everything but serving is the real worker's.
class Subverted : public Worker {
 public:
  explicit Subverted(std::unique_ptr<Worker> real) : real_(std::move(real)) {}
  base::Status warm(uint32_t gpu_index) override { return real_->warm(gpu_index); }
  session::SlotPool slot_pool() override { return real_->slot_pool(); }
  int run(session::Service*, const wire::Assignment&, wire::AccountingPage*, transport::HostWindow,
          Exports*, Turns) override {
    try_files();
    try_processes();
    try_programs();
    try_sockets();
    try_bounds();
    fprintf(stderr, "attempts are over\n");
    return 0;
  }

 private:
  std::unique_ptr<Worker> real_;
};

base::Result<std::unique_ptr<Worker>> create(const std::string& driver) {
  auto real = cuda::api().create(driver);
  if (!real.ok()) return real.status();
  return std::unique_ptr<Worker>(std::make_unique<Subverted>(real.take()));
}

}  // namespace
}  // namespace tendril::worker

int main(int argc, char** argv) {
  using tendril::worker::Api;
  const Api real = tendril::worker::cuda::api();
  tendril::worker::process_main(argc, argv, {Api{real.name, real.digest, tendril::worker::create}});
}
