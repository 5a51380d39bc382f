// SPDX-License-Identifier: Apache-2.0
// `tendril run`: takes leases, starts the program with the client library in front, waits, forwards
// signals and returns the program's status. The leases live as long as this process holds its
// control connections. So nothing can leak if it is killed.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/environment.h"
#include "cli/servers.h"
#include "cli/slices.h"
#include "config/quantity.h"

namespace tendril::cli {
namespace {

constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

void set_variables(const RunOptions& options, const std::string& client,
                   const std::vector<TakenLease>& leases) {
  std::vector<session::Endpoint> endpoints;
  for (const TakenLease& lease : leases) endpoints.push_back(lease.endpoint);
  const char* const old = getenv("LD_LIBRARY_PATH");
  setenv("LD_LIBRARY_PATH", prefixed_path(client, old != nullptr ? old : "").c_str(), 1);
  setenv("TENDRIL_SERVERS", servers_text(endpoints).c_str(), 1);
  setenv("TENDRIL_LEASES", leases_text(leases).c_str(), 1);
  unsetenv("TENDRIL_GPUS");
  unsetenv("TENDRIL_SLICE");
  unsetenv("TENDRIL_MEMORY");
  unsetenv("TENDRIL_CAP");
  unsetenv("TENDRIL_PRIORITY");
  if (!options.token_file.empty()) {
    char absolute[PATH_MAX];
    const bool known = realpath(options.token_file.c_str(), absolute) != nullptr;
    setenv("TENDRIL_TOKEN_FILE", known ? absolute : options.token_file.c_str(), 1);
    unsetenv("TENDRIL_TOKEN");
  }
}

// Runs in the child. Reports through `report` why the program did not start.
[[noreturn]] void become_program(const RunOptions& options, pid_t parent, int report) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // Without its launcher the program has no leases.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kNoLease);
  std::vector<char*> argv;
  for (const std::string& word : options.program) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int error = errno;
  const ssize_t ignored = write(report, &error, sizeof error);
  (void)ignored;
  _exit(kNotFound);
}

void pass_signal_on(int signals, pid_t child) {
  signalfd_siginfo info;
  if (read(signals, &info, sizeof info) != sizeof info) return;
  // The terminal sends signals to the whole foreground group, so the program already has this one.
  if (info.ssi_code == SI_KERNEL) return;
  kill(child, static_cast<int>(info.ssi_signo));
}

int wait_for(pid_t child, int pidfd, int signals, const std::vector<TakenLease>& leases) {
  std::vector<pollfd> waits = {{pidfd, POLLIN, 0}, {signals, POLLIN, 0}};
  for (const TakenLease& lease : leases) waits.push_back({lease.control->fd(), POLLIN, 0});
  for (;;) {
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) break;
    if (waits[1].revents != 0) pass_signal_on(signals, child);
    if (waits[0].revents != 0) break;
    for (size_t i = 2; i < waits.size(); ++i) {
      if (waits[i].revents == 0 || waits[i].fd < 0) continue;
      if (!leases[i - 2].control->has_ended()) continue;
      fprintf(stderr,
              "tendril: the server %s ended the lease or is gone; the program's GPUs there are "
              "lost\n",
              leases[i - 2].endpoint.text.c_str());
      waits[i].fd = -1;
    }
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int run_program(const RunOptions& options, const std::vector<TakenLease>& leases) {
  sigset_t passed_on;
  sigemptyset(&passed_on);
  for (const int number : kPassedOn) sigaddset(&passed_on, number);
  sigprocmask(SIG_BLOCK, &passed_on, nullptr);
  const base::Fd signals(signalfd(-1, &passed_on, SFD_CLOEXEC | SFD_NONBLOCK));
  int ends[2];
  if (!signals.valid() || pipe2(ends, O_CLOEXEC) != 0) return complain(kNoLease, strerror(errno));
  const base::Fd reader(ends[0]);
  base::Fd writer(ends[1]);
  const pid_t parent = getpid(), child = fork();
  if (child < 0)
    return complain(kNoLease, std::string("cannot start a process: ") + strerror(errno));
  if (child == 0) become_program(options, parent, writer.get());
  writer.reset();
  int error = 0;
  if (read(reader.get(), &error, sizeof error) == sizeof error) {
    waitpid(child, nullptr, 0);
    return complain(error == ENOENT ? kNotFound : kCannotExecute,
                    "cannot run '" + options.program[0] + "': " + strerror(error));
  }
  const base::Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  return wait_for(child, pidfd.get(), signals.get(), leases);
}

void describe(const std::vector<TakenLease>& leases) {
  for (const TakenLease& lease : leases) {
    for (const wire::SliceGrant& slice : lease.lease.slices) {
      fprintf(stderr, "tendril: GPU %u of %s: %s with %s\n", slice.gpu_index,
              lease.endpoint.text.c_str(), config::format_fraction(slice.share_millionths).c_str(),
              config::format_size(slice.memory_bytes).c_str());
    }
  }
}

}  // namespace

int run(const RunOptions& options) {
  if (options.program.empty()) {
    return complain(
        kUsage,
        "no program given; write: tendril run [-n N] [-p FRACTION] [-m SIZE] -- program arguments");
  }
  auto spec = slice_spec(options.slice);
  if (!spec.ok()) return complain(kUsage, spec.status());
  auto client = client_directory();
  if (!client.ok()) return complain(kNoLease, client.status());
  auto asked = reach(options);
  if (!asked.ok()) return complain(kNoLease, asked.status());
  const ServerList& servers = asked->servers;
  wire::LeaseRequest request;
  request.slice = *spec;
  request.terms = lease_terms(options.slice);
  request.client = client_info(options.program[0]);
  // Each server given by --server is wanted. The servers of a configuration are only places to
  // look.
  uint32_t count = options.slice.count;
  if (count == 0 && (servers.source != "--server" || servers.endpoints.size() == 1)) count = 1;
  auto leases = take_leases(servers.endpoints, asked->connect, count, request);
  if (!leases.ok()) return complain(kNoLease, leases.status());
  if (options.verbose) describe(*leases);
  set_variables(options, *client, *leases);
  const int status = run_program(options, *leases);
  // Release explicitly instead of just closing the connection. Then a command that follows directly
  // is served.
  for (const TakenLease& lease : *leases) {
    const base::Status ignored = lease.control->release(lease.lease.lease_id);
    (void)ignored;
  }
  return status;
}

}  // namespace tendril::cli
