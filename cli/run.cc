// SPDX-License-Identifier: Apache-2.0
// `tendril run`: takes leases, starts the program with the client library in front, waits, forwards
// signals and returns the program's status. The leases live as long as this process holds its
// control connections. So nothing can leak if it is killed. Servers say over them what will happen
// to the leases; with --requeue it then starts the program again with other ones.
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

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/clock.h"
#include "base/fd.h"
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/environment.h"
#include "cli/holders.h"
#include "cli/local/local_server.h"
#include "cli/notices.h"
#include "cli/pool/events.h"
#include "cli/progress/progress.h"
#include "cli/queueing.h"
#include "cli/servers.h"
#include "cli/slices.h"
#include "config/configuration.h"
#include "config/quantity.h"
#include "view/text.h"

namespace tendril::cli {
namespace {

constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// The leases of one start of the program.
struct Held {
  std::vector<TakenLease> leases;
  bool requeues = false;  // the program may be started again, with others
};

// One server that lends NCCL for the several GPUs that it gave.
bool lends_nccl(const Held& held) {
  if (held.leases.size() != 1 || held.leases[0].lease.slices.size() < 2) return false;
  auto list = held.leases[0].control->list();
  return list.ok() && !list->nccl_versions.empty();
}

// A loader of OpenCL takes the drivers that files in one folder name. So the program sees the
// leased devices, and none of this machine's.
void show_opencl(const std::string& client, const RunOptions& options, const Held& held) {
  const bool lent = std::any_of(held.leases.begin(), held.leases.end(),
                                [](const TakenLease& lease) { return lease.lends_opencl; });
  const std::string folder = client + "/opencl";
  if ((!lent && !options.opencl) || ::access((folder + "/tendril.icd").c_str(), R_OK) != 0) return;
  setenv("OCL_ICD_VENDORS", folder.c_str(), 1);
  const char* const path = getenv("LD_LIBRARY_PATH");
  setenv("LD_LIBRARY_PATH", prefixed_path(folder, path != nullptr ? path : "").c_str(), 1);
}

void set_variables(const RunOptions& options, const std::string& client, const Held& held,
                   uint32_t restarts, const std::string& progress) {
  std::vector<session::Endpoint> endpoints;
  for (const TakenLease& lease : held.leases) endpoints.push_back(lease.endpoint);
  const char* const old = getenv("LD_LIBRARY_PATH");
  setenv("LD_LIBRARY_PATH", prefixed_path(client, old != nullptr ? old : "").c_str(), 1);
  const char* const path = getenv("PATH");
  if (path != nullptr) setenv("PATH", suffixed_path(path, client + "/bin").c_str(), 1);
  show_opencl(client, options, held);
  const std::string nccl = nccl_to_preload(client, held.leases.size(), lends_nccl(held));
  const char* const preloaded = getenv("LD_PRELOAD");
  if (!nccl.empty())
    setenv("LD_PRELOAD", prefixed_path(nccl, preloaded != nullptr ? preloaded : "").c_str(), 1);
  setenv("TENDRIL_SERVERS", servers_text(endpoints).c_str(), 1);
  setenv("TENDRIL_LEASES", leases_text(held.leases).c_str(), 1);
  for (const char* const name :
       {"TENDRIL_GPUS", "TENDRIL_SLICE", "TENDRIL_MEMORY", "TENDRIL_CAP", "TENDRIL_PRIORITY",
        "TENDRIL_FILTER", "TENDRIL_CLASS", "TENDRIL_ACCOUNT", "TENDRIL_LAYOUT", "TENDRIL_MAX",
        "TENDRIL_WAIT"}) {
    unsetenv(name);
  }
  if (progress.empty())
    unsetenv("TENDRIL_PROGRESS");
  else
    setenv("TENDRIL_PROGRESS", progress.c_str(), 1);
  if (!options.outage.empty()) setenv("TENDRIL_OUTAGE", options.outage.c_str(), 1);
  if (held.requeues) setenv("TENDRIL_RESTART_COUNT", std::to_string(restarts).c_str(), 1);
  if (!options.token_file.empty()) {
    char absolute[PATH_MAX];
    const bool known = realpath(options.token_file.c_str(), absolute) != nullptr;
    setenv("TENDRIL_TOKEN_FILE", known ? absolute : options.token_file.c_str(), 1);
    unsetenv("TENDRIL_TOKEN");
  }
}

// "gpu1", "gpu1 and 3 more servers"
std::string places_of(const Held& held) {
  const size_t more = held.leases.size() - 1;
  return held.leases.front().endpoint.text +
         (more == 0 ? "" : " and " + view::counted(more, "more server"));
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

// What one connection that holds leases has to say. False: it has ended.
bool hear(session::Control* control, Notices* notices, const Events& events, Progress* progress) {
  for (;;) {
    auto notice = control->notice(0);
    if (!notice.ok()) return notice.status().code() == base::Code::kTimeout;
    const std::string line = notices->heard(*notice, base::now_ns());
    if (line.empty()) continue;
    progress->say("tendril: " + line);
    events.tell(*notice);
  }
}

int wait_for(pid_t child, int pidfd, int signals, Held* held, Notices* notices,
             const Events& events, Standing* standing, Progress* progress, Holders* holders) {
  std::vector<pollfd> waits = {{pidfd, POLLIN, 0}, {signals, POLLIN, 0}};
  for (const TakenLease& lease : held->leases) waits.push_back({lease.control->fd(), POLLIN, 0});
  const auto lost = [&](const TakenLease& lease) {
    progress->say("tendril: the server " + lease.endpoint.text +
                  " ended the lease or is gone; the program's GPUs there are lost");
    events.tell_lost(lease.endpoint.text);
    if (held->requeues) notices->requeue(base::now_ns());
  };
  for (;;) {
    const uint64_t next_ns = notices->next_ns(), now_ns = base::now_ns();
    int timeout_ms = standing->wait_ms();
    if (next_ns != Notices::kNever) {
      const uint64_t left_ms = next_ns > now_ns ? (next_ns - now_ns) / 1'000'000 + 1 : 0;
      const int notice_ms = static_cast<int>(std::min<uint64_t>(left_ms, 3'600'000));
      timeout_ms = timeout_ms < 0 ? notice_ms : std::min(timeout_ms, notice_ms);
    }
    timeout_ms = holders->wait_ms(timeout_ms);
    if (poll(waits.data(), waits.size(), timeout_ms) < 0 && errno != EINTR) break;
    if (waits[1].revents != 0) pass_signal_on(signals, child);
    if (waits[0].revents != 0) break;
    for (size_t i = 2; i < waits.size(); ++i) {
      if (waits[i].revents == 0 || waits[i].fd < 0) continue;
      TakenLease& lease = held->leases[i - 2];
      if (hear(lease.control.get(), notices, events, progress)) continue;
      waits[i].fd = -1;
      if (!notices->has_ended() && !holders->waits_for(&lease)) lost(lease);
    }
    for (const Holders::Outcome& outcome : holders->look()) {
      if (outcome.held)
        waits[2 + size_t(outcome.lease - held->leases.data())].fd = outcome.lease->control->fd();
      else
        lost(*outcome.lease);
    }
    if (const std::optional<int> number = notices->due(base::now_ns())) kill(child, *number);
    standing->look();
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int run_program(const RunOptions& options, Held* held, Notices* notices, const Events& events,
                Standing* standing, Progress* progress, Holders* holders) {
  sigset_t passed_on, before;
  sigemptyset(&passed_on);
  for (const int number : kPassedOn) sigaddset(&passed_on, number);
  sigprocmask(SIG_BLOCK, &passed_on, &before);
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
  progress->start(places_of(*held));
  const int status = wait_for(child, pidfd.get(), signals.get(), held, notices, events, standing,
                              progress, holders);
  progress->stop();
  // Whoever waits in a queue again must hear Ctrl-C. What came meanwhile was for the program.
  signalfd_siginfo ignored;
  while (read(signals.get(), &ignored, sizeof ignored) == sizeof ignored) {
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return status;
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

// What is asked for, each time.
struct Asking {
  wire::LeaseRequest request;
  uint64_t wait_s = 0;
  uint32_t outage_ms = 0;
  SignalWish signal;
};

base::Result<Asking> prepare(const RunOptions& options) {
  Asking asking;
  auto spec = slice_spec(options.slice);
  if (!spec.ok()) return spec.status();
  auto pool = pool_settings(options.pool);
  if (!pool.ok()) return pool.status();
  const char* const variable = getenv("TENDRIL_OUTAGE");
  const config::Named named =
      options.outage.empty() ? config::Named{"TENDRIL_OUTAGE", variable != nullptr ? variable : ""}
                             : config::Named{"--outage", options.outage};
  const auto outage = config::read_outage(named);
  if (!outage.ok()) return outage.status();
  asking.outage_ms = outage.value();
  if (!options.signal.empty()) {
    auto signal = parse_signal(options.signal);
    if (!signal.ok()) return signal.status();
    asking.signal = *signal;
  }
  asking.wait_s = pool->wait_s;
  asking.request.slice = *spec;
  asking.request.terms = lease_terms(options.slice);
  asking.request.client = client_info(options.program[0]);
  asking.request.wish = std::move(pool->wish);
  asking.request.wish.requeues = options.requeue;
  if (options.opencl)
    asking.request.wish.apis = {{kOpenclName, opencl_digest()}};
  else
    asking.request.wish.apis = {{kApiName, schema_digest()}};
  return asking;
}

base::Result<Held> take_others(const Reach& asked, const RunOptions& options,
                               const Asking& asking) {
  Held held;
  const ServerList& servers = asked.servers;
  uint32_t count = options.slice.count;
  Met met = meet_first(servers.endpoints, asked.connect);
  if (met.is_pool()) {
    PoolAsk ask;
    ask.pools = servers.endpoints;
    ask.connect = asked.connect;
    ask.request = asking.request;
    ask.request.count = std::max(count, 1u);
    ask.wait_s = asking.wait_s;
    ask.verbose = options.verbose;
    ask.say = [](const std::string& line) { fprintf(stderr, "tendril: %s\n", line.c_str()); };
    met.control.reset();
    auto lease = lease_from_pool(std::move(ask));
    if (!lease.ok()) return lease.status();
    held.leases = std::move(lease->leases);
    held.requeues = options.requeue;
    return held;
  }
  // Each server given by --server is wanted. The servers of a configuration are only places to
  // look.
  if (count == 0 && (servers.source != "--server" || servers.endpoints.size() == 1)) count = 1;
  auto leases =
      take_leases(servers.endpoints, asked.connect, count, asking.request, std::move(met));
  if (!leases.ok()) return leases.status();
  held.leases = leases.take();
  return held;
}

// This machine's slices come first, so they are the program's first devices.
base::Result<Held> take(const Reach& asked, const RunOptions& options, const Asking& asking,
                        LocalServer* local) {
  if (options.local == 0) return take_others(asked, options, asking);
  auto endpoint = local->find(asked.connect);
  if (!endpoint.ok()) return endpoint.status();
  const std::vector<session::Endpoint> here = {*endpoint};
  auto leases = take_leases(here, asked.connect, options.local, asking.request,
                            meet_first(here, asked.connect));
  if (!leases.ok()) return leases.status();
  Held held;
  if (options.slice.count != 0 || !options.servers.empty()) {
    auto others = take_others(asked, options, asking);
    if (!others.ok()) return others.status();
    held = others.take();
  }
  held.leases.insert(held.leases.begin(), std::make_move_iterator(leases->begin()),
                     std::make_move_iterator(leases->end()));
  return held;
}

// Without common windows each server gives turns by itself. What waits for the other server's turn
// holds its own.
void warn_of_turns(const Held& held) {
  const char* const windows = getenv("TENDRIL_WINDOWS");
  if (windows == nullptr || std::string_view(windows) != "off") return;
  bool parts = false;
  for (const TakenLease& lease : held.leases)
    for (const wire::SliceGrant& slice : lease.lease.slices)
      parts = parts || (slice.share_millionths < 1'000'000 && !slice.packed);
  if (!parts || held.leases.size() < 2) return;
  fprintf(stderr,
          "tendril: the program has parts of GPUs on several servers, whose turns know nothing of "
          "each other: where others use these GPUs too, a collective or a copy between servers can "
          "take some 100 ms longer. Unset TENDRIL_WINDOWS, or take whole GPUs (no -p)\n");
}

}  // namespace

int run(const RunOptions& options) {
  if (options.program.empty()) {
    return complain(
        kUsage,
        "no program given; write: tendril run [-n N] [-p FRACTION] [-m SIZE] -- program arguments");
  }
  auto asking = prepare(options);
  if (!asking.ok()) return complain(kUsage, asking.status());
  const Events events(options.events);
  if (base::Status good = events.check(); !good.ok()) return complain(kUsage, good);
  auto client = client_directory();
  if (!client.ok()) return complain(kNoLease, client.status());
  auto asked = reach(options);
  if (!asked.ok()) return complain(kNoLease, asked.status());
  LocalServer local;
  for (;; ++asking->request.wish.restarts) {
    auto held = take(*asked, options, *asking, &local);
    if (!held.ok()) return complain(kNoLease, held.status());
    if (options.verbose) describe(held->leases);
    if (asking->request.wish.restarts == 0) warn_of_turns(*held);
    Progress progress(!options.no_progress && terminal_shows_progress());
    set_variables(options, *client, *held, asking->request.wish.restarts, progress.address());
    Notices notices(asking->signal);
    std::vector<session::Endpoint> servers = asked->servers.endpoints;
    for (const TakenLease& lease : held->leases) servers.push_back(lease.endpoint);
    Standing standing(options, std::move(servers));
    Holders holders(asked->connect, asking->outage_ms,
                    [&progress](const std::string& line) { progress.say("tendril: " + line); });
    const int status =
        run_program(options, &*held, &notices, events, &standing, &progress, &holders);
    // Release explicitly instead of just closing the connection. Then a command that follows
    // directly is served.
    for (const TakenLease& lease : held->leases) {
      const base::Status ignored = lease.control->release(lease.lease.lease_id);
      (void)ignored;
    }
    if (!held->requeues || !notices.requeues()) return status;
    fprintf(stderr, "tendril: the program ended with status %d and is queued again\n", status);
  }
}

}  // namespace tendril::cli
