// SPDX-License-Identifier: Apache-2.0
// How a session notices that its client is gone, and outlasts a cut of its network
// (docs/decisions/0039). See sessions.h.
#include <sys/epoll.h>

#include <algorithm>

#include "daemon/log.h"
#include "daemon/sessions.h"
#include "transport/lasting/lasting.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;
using transport::TcpEnd;

// The client notices a cut later than this end, and its time begins then.
constexpr uint32_t kMarginMs = 6000;
constexpr unsigned kSilentResent = 3;
constexpr int kDoubtfulMs = 800, kHopefulMs = 5000;  // as its worker waits (transport/lasting)

// A client that has said goodbye may leave a reset behind, and its worker ends a moment later.
constexpr int kEndIsSeenMs = 200;

size_t connections_of(uint16_t bulk_channels) { return size_t{bulk_channels} + 2; }

}  // namespace

// Detects errors and the peer's end of stream without reading, because the bytes are for the
// worker.
void Sessions::watch_client(const std::shared_ptr<Session>& session) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (session->liveness.valid()) watch_connection(session, session->liveness);
}

void Sessions::watch_connection(const std::shared_ptr<Session>& session,
                                const session::Connection& connection) {
  const int fd = connection.descriptor();
  const auto ended = [this, session, fd, returns = session->returns](uint32_t) {
    connection_ended(session, fd, returns);
  };
  const Status watched = loop_->watch(fd, EPOLLRDHUP, ended);
  if (!watched.ok()) end_session(session, watched.message().c_str());
}

void Sessions::connection_ended(const std::shared_ptr<Session>& session, int fd, uint32_t returns) {
  loop_->unwatch(fd);
  std::lock_guard<std::mutex> hold(mutex_);
  // The client is back over others, and the worker drops the old ones before joined_again's task
  // has come to the new ones. A cut of these would never be mended.
  if (session->returns != returns) return;
  const bool may_return = session->outage_ms != 0 && session->started;
  if (may_return && transport::tcp_end(fd) == TcpEnd::kCut) return client_is_cut(session);
  // A client that has ended says so on all connections. One in between that closed a single one
  // does not.
  int grace_ms = kGraceMs;
  for (const session::Connection* one : {&session->liveness, &session->acknowledgements}) {
    if (!may_return || !one->valid()) continue;
    const TcpEnd how = transport::tcp_end(one->descriptor());
    if (how == TcpEnd::kNone) grace_ms = kGraceMs + kHopefulMs;
    if (how == TcpEnd::kCut) grace_ms = std::max(grace_ms, kGraceMs + kDoubtfulMs);
  }
  client_is_gone(session, grace_ms);
}

// Its worker has so long to notice. A client that connects again meanwhile was not gone.
void Sessions::client_is_gone(const std::shared_ptr<Session>& session, int grace_ms) {
  session->client_gone = true;
  loop_->after(grace_ms, [this, id = session->id, returns = session->returns] {
    std::lock_guard<std::mutex> hold(mutex_);
    const std::shared_ptr<Session> late = find_session(id);
    if (late != nullptr && late->client_gone && late->returns == returns) late->worker->kill();
  });
}

// The worker waits for the client, too. Whoever comes again finds everything as it was.
void Sessions::client_is_cut(const std::shared_ptr<Session>& session) {
  if (session->is_cut || session->ending) return;
  session->is_cut = true;
  const uint32_t cut = ++session->cuts;
  loop_->after(kEndIsSeenMs, [this, id = session->id, cut] {
    std::lock_guard<std::mutex> hold(mutex_);
    const std::shared_ptr<Session> late = find_session(id);
    if (late == nullptr || late->ending || !late->is_cut || late->cuts != cut) return;
    log(Level::kInfo, "session %llu: the network to its client is cut; it has %u s to come back",
        static_cast<unsigned long long>(id), late->outage_ms / 1000);
  });
  loop_->after(static_cast<int>(session->outage_ms + kMarginMs), [this, id = session->id, cut] {
    std::lock_guard<std::mutex> hold(mutex_);
    const std::shared_ptr<Session> late = find_session(id);
    if (late != nullptr && late->is_cut && late->cuts == cut)
      end_session(late, "the network to its client was cut, and did not come back in time");
  });
}

bool Sessions::is_silent(const Session& session) {
  if (!session.liveness.valid()) return false;
  if (session.outage_ms == 0) return session.liveness.is_half_open();
  const uint32_t silent_ms = session.outage_ms + kMarginMs;
  return transport::tcp_is_silent(session.liveness.descriptor(), kSilentResent, silent_ms);
}

// The worker is gone, and the client is to know.
void Sessions::forget_connections(Session* session, EventLoop* loop) {
  for (session::Connection* connection : {&session->liveness, &session->acknowledgements}) {
    if (!connection->valid()) continue;
    loop->unwatch(connection->descriptor());
    connection->shutdown();
    *connection = session::Connection();
  }
  session->again.clear();
}

// ---- holders of leases ----

void Sessions::held_by(uint64_t lease_id, uint64_t holder) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return;
  found->second->holder = holder;
  found->second->holder_away = false;
}

bool Sessions::holder_gone(uint64_t lease_id, uint64_t holder, bool may_return) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return true;
  Lease& lease = *found->second;
  if (lease.holder != holder && lease.holder != 0) return false;
  if (!may_return || outage_ms_ == 0 || lease.ending) return true;
  lease.holder_away = true;
  log(Level::kInfo, "lease %llu: the network to its holder is cut; it has %u s to come back",
      static_cast<unsigned long long>(lease_id), outage_ms_ / 1000);
  loop_->after(static_cast<int>(outage_ms_ + kMarginMs), [this, lease_id, holder] {
    {
      std::lock_guard<std::mutex> inner(mutex_);
      const auto late = leases_.find(lease_id);
      if (late == leases_.end() || !late->second->holder_away || late->second->holder != holder)
        return;
      if (!late->second->ending)
        record_end(*late->second, "connection",
                   "the network to its holder was cut, and did not come back in time");
    }
    const Status ended = release(lease_id, "the network to its holder was cut");
    (void)ended;
  });
  return false;
}

// ---- connecting again ----

Status Sessions::join_again(Session* session, const wire::JoinRequest& request) {
  if (session->outage_ms == 0 || !session->started)
    return Status(Code::kRefused, "this session does not outlast a cut of its network");
  const size_t count = connections_of(session->channels_granted);
  if (request.channel >= count || request.attempt < session->attempt)
    return Status(Code::kInvalid, "that is not the client's last attempt to connect again");
  if (request.attempt > session->attempt) {
    session->attempt = request.attempt;
    session->again.clear();
    session->again.resize(count);
  }
  if (session->again.size() != count || session->again[request.channel].valid())
    return Status(Code::kInvalid, "that channel is connected already");
  return Status();
}

void Sessions::joined_again(const std::shared_ptr<Session>& session,
                            const wire::JoinRequest& request, session::Connection connection) {
  std::vector<session::Connection>& again = session->again;
  if (request.attempt != session->attempt || request.channel >= again.size()) return;
  again[request.channel] = std::move(connection);
  const auto here = [](const session::Connection& one) { return one.valid(); };
  if (!std::all_of(again.begin(), again.end(), here)) return;
  // The lane first, as a session's lines are counted.
  std::vector<int> fds = {again.back().descriptor()};
  for (size_t i = 0; i + 1 < again.size(); ++i) fds.push_back(again[i].descriptor());
  wire::WorkerMessage message = {};
  message.kind = wire::WorkerMessageKind::kResume;
  const Status sent = session->worker->send(message, fds.data(), fds.size());
  if (!sent.ok()) return end_session(session, sent.message().c_str());
  log(Level::kInfo, "session %llu: its client is back",
      static_cast<unsigned long long>(session->id));
  session->is_cut = session->client_gone = false;
  // It goes on over its connections.
  if (session->start_on == wire::StartOn::kFirst || !session->link.empty())
    session->link = session->answers.answers.back().kind;
  ++session->returns;
  const auto watched = std::make_shared<std::vector<session::Connection>>(std::move(again));
  again.clear();
  loop_->post([this, session, watched, returns = session->returns] {
    std::lock_guard<std::mutex> hold(mutex_);
    if (session->ending || find_session(session->id) == nullptr) return;
    if (session->returns != returns) return;  // it came again, and so does this
    for (session::Connection* old : {&session->liveness, &session->acknowledgements}) {
      if (old->valid()) loop_->unwatch(old->descriptor());
    }
    session->liveness = std::move((*watched)[watched->size() - 1]);
    session->acknowledgements = std::move((*watched)[watched->size() - 2]);
    watch_connection(session, session->liveness);
    watch_connection(session, session->acknowledgements);
  });
}

}  // namespace tendril::daemon
