// SPDX-License-Identifier: Apache-2.0
// `tendril lease hold`: takes a lease in this user's name for a program that nobody launched, and
// holds it until the program ends. The client library starts it (client/core/lessor.cc) and speaks
// over the descriptor: the request of a lease, and its answer, as control messages. A lease of a
// pool may be waited for, with the lines of `tendril run`; it serves the processes that the program
// starts, too, until the last one has ended.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/notices.h"
#include "cli/pool/events.h"
#include "cli/queueing.h"
#include "cli/servers.h"
#include "session/control/control_io.h"
#include "session/control/lease_socket.h"

namespace tendril::cli {
namespace {

using base::Code;
using base::Status;

constexpr int kRequestMs = 10'000;
constexpr size_t kProcessesMax = 4096;  // that share one lease

void say(const std::string& line) { fprintf(stderr, "tendril: %s\n", line.c_str()); }

class Holding {
 public:
  Holding(const HoldOptions& options, session::Connection program)
      : options_(options), program_(program.descriptor()) {
    programs_.push_back(std::move(program));
  }

  int run() {
    auto message = session::receive_message(&programs_[0], base::Deadline(kRequestMs), kRequestMs);
    wire::LeaseRequest request;
    if (!message.ok() || !message->read(&request))
      return complain(kUsage, "'tendril lease hold' is started by the client library");
    kind_ = message->kind;
    answer_ = take(request);
    if (!answer(&programs_[0]) || !answer_.ok()) return kFailed;
    while (!programs_.empty() && !waits_.empty()) wait();
    return 0;
  }

 private:
  Status take(const wire::LeaseRequest& request) {
    auto asked = reach(options_);
    if (!asked.ok()) return asked.status();
    const std::vector<session::Endpoint>& endpoints = asked->servers.endpoints;
    Met met = meet_first(endpoints, asked->connect);
    if (met.is_pool()) return take_from_pool(*asked, request);
    if (endpoints.size() != 1)
      return Status(Code::kInvalid, "a lease is held on one server; name it with --server");
    if (met.control == nullptr) return met.silent[0];
    auto lease = met.control->lease(request);
    if (!lease.ok()) return lease.status();
    reply_ = lease.take();
    controls_.push_back(std::move(met.control));
    expect(endpoints);
    return Status();
  }

  Status take_from_pool(const Reach& asked, const wire::LeaseRequest& request) {
    auto settings = pool_settings(PoolOptions());
    if (!settings.ok()) return settings.status();
    // Before the queue: a process that the program starts meanwhile waits here and not there.
    listener_ = session::listen_for_lease(owner());
    PoolAsk ask;
    ask.pools = asked.servers.endpoints;
    ask.connect = asked.connect;
    ask.request = request;
    ask.wait_s = settings->wait_s;
    ask.cancel_fd = program_;
    ask.say = say;
    auto lease = lease_from_pool(std::move(ask));
    if (!lease.ok()) return lease.status();
    reply_ = std::move(lease->reply);
    std::vector<session::Endpoint> servers = asked.servers.endpoints;
    for (TakenLease& taken : lease->leases) {
      controls_.push_back(std::move(taken.control));
      servers.push_back(taken.endpoint);
    }
    expect(servers);
    return Status();
  }

  // The process that made the pair of sockets.
  pid_t owner() const {
    ucred peer = {};
    socklen_t bytes = sizeof peer;
    return getsockopt(program_, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 ? peer.pid : 0;
  }

  bool answer(session::Connection* program) const {
    const std::string& text = answer_.message();
    const std::vector<uint8_t> body =
        answer_.ok() ? wire::encode(reply_) : std::vector<uint8_t>(text.begin(), text.end());
    return session::send_message(program, kind_, answer_.code(), body, base::Deadline(kRequestMs))
        .ok();
  }

  void expect(const std::vector<session::Endpoint>& servers) {
    standing_.emplace(options_, servers);
    for (const auto& control : controls_) waits_.push_back(control.get());
  }

  // Until something happens to a server, a process or the listener.
  void wait() {
    std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
    for (const session::Control* control : waits_) polled.push_back({control->fd(), POLLIN, 0});
    for (const session::Connection& program : programs_)
      polled.push_back({program.descriptor(), POLLIN, 0});
    if (poll(polled.data(), polled.size(), standing_->wait_ms()) < 0) return;
    standing_->look();
    const size_t controls = waits_.size();
    for (size_t i = controls; i-- > 0;) {
      if (polled[1 + i].revents != 0 && !hear(waits_[i])) waits_.erase(waits_.begin() + long(i));
    }
    for (size_t i = programs_.size(); i-- > 0;) {
      if (polled[1 + controls + i].revents != 0) programs_.erase(programs_.begin() + long(i));
    }
    if (polled[0].revents != 0) join();
  }

  // A process that the program started. It proves nothing: the lease's user is its user.
  void join() {
    base::Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid() || programs_.size() >= kProcessesMax) return;
    ucred peer = {};
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.uid != geteuid())
      return;
    session::Connection program(std::move(fd), "a process of the program");
    auto message = session::receive_message(&program, base::Deadline(kRequestMs), kRequestMs);
    if (message.ok() && answer(&program)) programs_.push_back(std::move(program));
  }

  // False: it has ended.
  bool hear(session::Control* control) {
    for (;;) {
      auto notice = control->notice(0);
      if (!notice.ok()) return notice.status().code() == Code::kTimeout;
      const std::string line = notices_.heard(*notice, base::now_ns());
      if (line.empty()) continue;
      say(line);
      events_.tell(*notice);
    }
  }

  const HoldOptions& options_;
  const int program_;
  std::vector<session::Connection> programs_;
  base::Fd listener_;
  uint16_t kind_ = 0;
  Status answer_;
  wire::LeaseReply reply_;
  std::vector<std::unique_ptr<session::Control>> controls_;
  std::vector<session::Control*> waits_;  // those of controls_ that have not ended
  Notices notices_{SignalWish()};
  const Events events_{""};
  std::optional<Standing> standing_;
};

}  // namespace

int hold_lease(const HoldOptions& options) {
  // What the program has open is not for this process to keep open.
  const long most = sysconf(_SC_OPEN_MAX);
  for (int fd = STDERR_FILENO + 1; fd < most && fd < 65'536; ++fd) {
    if (fd != options.descriptor) close(fd);
  }
  // The library waits for its child, this process. The lease is held by another one.
  const pid_t holder = fork();
  if (holder != 0) _exit(holder < 0 ? kFailed : 0);
  setsid();
  signal(SIGPIPE, SIG_IGN);  // stderr may be closed
  return Holding(options, session::Connection(base::Fd(options.descriptor), "the program")).run();
}

}  // namespace tendril::cli
