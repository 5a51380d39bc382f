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
#include "cli/holders.h"
#include "cli/notices.h"
#include "cli/pool/events.h"
#include "cli/queueing.h"
#include "cli/servers.h"
#include "config/configuration.h"
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
    while (!programs_.empty() && (!waits_.empty() || away_ != 0)) wait();
    return 0;
  }

 private:
  Status take(const wire::LeaseRequest& request) {
    auto asked = reach(options_);
    if (!asked.ok()) return asked.status();
    if (take_offered(*asked)) return Status();
    const std::vector<session::Endpoint>& endpoints = asked->servers.endpoints;
    Met met = meet_first(endpoints, asked->connect);
    if (met.is_pool()) return take_from_pool(*asked, request);
    if (endpoints.size() != 1)
      return Status(Code::kInvalid, "a lease is held on one server; name it with --server");
    if (met.control == nullptr) return met.silent[0];
    auto lease = met.control->lease(request);
    if (!lease.ok()) return lease.status();
    reply_ = lease.take();
    TakenLease taken;
    taken.endpoint = endpoints[0];
    taken.control = std::move(met.control);
    taken.lease.lease_id = reply_.lease_id;
    taken.lease.secret = reply_.secret;
    leases_.push_back(std::move(taken));
    expect(*asked, endpoints);
    return Status();
  }

  // What somebody holds for this program (TENDRIL_OFFER). Who claims a lease last holds it. False:
  // nothing, or one of the leases has ended, because a program has had them already. Then this
  // program asks for its own.
  bool take_offered(const Reach& asked) {
    const char* const text = getenv("TENDRIL_OFFER");
    auto offered = config::read_leases({"TENDRIL_OFFER", text != nullptr ? text : ""});
    if (!offered.ok()) say(offered.status().message());
    if (!offered.ok() || offered->empty()) return false;
    std::vector<TakenLease> leases;
    wire::LeaseReply reply;
    for (const config::Server& server : *offered) {
      auto endpoint = session::parse_endpoint(server.endpoint);
      if (!endpoint.ok()) return false;
      TakenLease taken;
      taken.endpoint = endpoint.take();
      taken.lease.lease_id = server.lease_id;
      taken.lease.secret = server.lease_secret;
      if (!claim_lease(asked.connect, &taken).ok()) return false;
      reply.parts.push_back({taken.endpoint.text, taken.endpoint.text, server.lease_id,
                             server.lease_secret, taken.lease.slices});
      leases.push_back(std::move(taken));
    }
    listener_ = session::listen_for_lease(owner());
    reply.lease_id = reply.parts.front().lease_id;
    reply_ = std::move(reply);
    leases_ = std::move(leases);
    std::vector<session::Endpoint> servers;
    for (const TakenLease& taken : leases_) servers.push_back(taken.endpoint);
    expect(asked, servers);
    return true;
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
    leases_ = std::move(lease->leases);
    for (const TakenLease& taken : leases_) servers.push_back(taken.endpoint);
    expect(asked, servers);
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

  void expect(const Reach& asked, const std::vector<session::Endpoint>& servers) {
    standing_.emplace(options_, servers);
    const char* const text = getenv("TENDRIL_OUTAGE");
    const auto outage = config::read_outage({"TENDRIL_OUTAGE", text != nullptr ? text : ""});
    // The program's library has read the same, and says what is wrong with it.
    holders_.emplace(asked.connect, outage.ok() ? outage.value() : wire::kOutageMs, say);
    for (TakenLease& lease : leases_) waits_.push_back(&lease);
  }

  // Until something happens to a server, a process or the listener.
  void wait() {
    std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
    for (const TakenLease* lease : waits_) polled.push_back({lease->control->fd(), POLLIN, 0});
    for (const session::Connection& program : programs_)
      polled.push_back({program.descriptor(), POLLIN, 0});
    if (poll(polled.data(), polled.size(), holders_->wait_ms(standing_->wait_ms())) < 0) return;
    standing_->look();
    const size_t controls = waits_.size();
    for (size_t i = controls; i-- > 0;) {
      if (polled[1 + i].revents == 0 || hear(waits_[i]->control.get())) continue;
      if (holders_->waits_for(waits_[i])) ++away_;
      waits_.erase(waits_.begin() + long(i));
    }
    for (size_t i = programs_.size(); i-- > 0;) {
      if (polled[1 + controls + i].revents != 0) programs_.erase(programs_.begin() + long(i));
    }
    if (polled[0].revents != 0) join();
    for (const Holders::Outcome& outcome : holders_->look()) {
      --away_;
      if (outcome.held) waits_.push_back(outcome.lease);
    }
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
  std::vector<TakenLease> leases_;
  std::vector<TakenLease*> waits_;  // those whose connections have not ended
  size_t away_ = 0;                 // those whose networks are cut
  std::optional<Holders> holders_;
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
