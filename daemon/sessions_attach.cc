// SPDX-License-Identifier: Apache-2.0
// How a session begins: its place on a lease, its worker, its connections, its start. See
// sessions.h.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"
#include "config/quantity.h"
#include "daemon/log.h"
#include "daemon/sessions.h"
#include "session/control/offers.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

constexpr int kWorkerWaitMs = 120'000;  // a start that hangs is ended sooner (worker_pool.cc)
constexpr int kAnswerMs = 60'000;       // from an assignment to the worker's answer

// How many connections join beside the one that attached.
size_t channels_of(const auto& session) {
  return size_t{session.channels_granted} + (session.outage_ms != 0 ? 1 : 0);
}

Status no_session() { return Status(Code::kRefused, "there is no such session on this server"); }

// An answer without a kind gives the reason why there is none.
Status refusal(const wire::TransportAnswers& answers) {
  if (!answers.answers.empty() && !answers.answers[0].kind.empty()) return Status();
  const std::string why = answers.answers.empty() ? "" : answers.answers[0].reason;
  return Status(Code::kUnsupported,
                why.empty() ? "the session's worker chose no transport; see the server's log"
                            : printable(why, wire::kTransportReasonBytesMax));
}

void forget_key(wire::ConnectionRecord* record) {
  record->key_bytes = 0;
  memset(record->keys, 0, sizeof record->keys);
}

}  // namespace

base::Result<std::shared_ptr<Sessions::Session>> Sessions::make_session(
    Hold* hold, const access::Principal& owner, const wire::AttachRequest& request,
    const wire::ConnectionRecord& connection, access::Decision* limits) {
  auto session = std::make_shared<Session>();
  if (!make_secret(&session->secret))
    return Status(Code::kExhausted, "the kernel gives no random bytes");
  wire::LeaseRequest implicit = request.lease;
  implicit.client = request.client;
  auto lease =
      request.lease_id != 0 ? find_lease(request) : make_lease(hold, owner, implicit, true, limits);
  if (!lease.ok()) {
    if (request.lease_id != 0) *limits = {false, "lease-secret", lease.status().message()};
    return lease.status();
  }
  *limits = count_session((*lease)->owner);
  if (!limits->allowed) {
    (*lease)->ending |= (*lease)->implicit;
    drop_lease_if_done((*lease)->id);
    return limits->status();
  }
  session->id = next_id_++;
  session->lease_id = (*lease)->id;
  session->client = cleaned(request.client, (*lease)->owner);
  session->api = request.api;
  session->gang = request.gang;
  session->networked = request.collectives && !pool_->nccl().empty();
  session->key.assign(reinterpret_cast<const char*>(connection.keys), connection.key_bytes);
  session->sealed = connection.sealed != 0;
  session->began_ns = base::now_ns();
  session->channels_granted = std::min(request.bulk_channels, kBulkMax);
  session->outage_ms = std::min(request.outage_ms, outage_ms_);
  session->channels_joined.resize(channels_of(*session));
  const access::Principal counted = (*lease)->owner;
  const Status seated = take_seat(hold, session.get());
  if (!seated.ok()) {
    forget_session(counted);
    const auto left = leases_.find(session->lease_id);
    if (left != leases_.end()) left->second->ending |= left->second->implicit;
    drop_lease_if_done(session->lease_id);
    return seated;
  }
  Lease& seat_on = *leases_[session->lease_id];
  session->expected = seat_on.expecting;
  seat_on.expecting = false;
  sessions_[session->id] = session;
  return session;
}

Status Sessions::take_seat(Hold* hold, Session* session) {
  // The program before this one may have ended a moment ago, and its worker not yet.
  const base::Deadline while_ending(kComingFreeMs), at_least(kGraceMs + 200),
      while_waking(kWakeForSeatMs);
  for (;;) {
    const auto found = leases_.find(session->lease_id);
    if (found == leases_.end() || found->second->ending)
      return Status(Code::kRefused, "the lease " + std::to_string(session->lease_id) +
                                        " ended while the program was attaching");
    Lease& lease = *found->second;
    if (!wakes_for_seat(&lease)) {
      if (while_waking.passed())
        return Status(Code::kRefused,
                      "the lease " + std::to_string(lease.id) +
                          " is parked, and others have its place on the GPU; 'tendril ls' shows "
                          "who. Try again when one of them has ended or is idle");
      freed_.wait_for(*hold, std::chrono::milliseconds(std::min(while_waking.left_ms(), 100)));
      continue;
    }
    uint32_t tally = 0;
    while (tally < kDaemonTally && lease.sessions.count(tally) != 0) ++tally;
    if (tally == kDaemonTally) {
      return Status(Code::kExhausted, "the lease " + std::to_string(lease.id) +
                                          " has its maximum of " + std::to_string(kDaemonTally) +
                                          " attached processes");
    }
    lease.sessions[tally] = session->id;
    charge_own(&lease);
    const int full = over_quota(lease);
    if (full < 0) {
      session->tally = tally;
      return Status();
    }
    lease.sessions.erase(tally);
    charge_own(&lease);
    bool ending = false;
    for (const auto& [other, id] : lease.sessions) {
      const std::shared_ptr<Session> sibling = find_session(id);
      ending |= sibling != nullptr && (sibling->ending || sibling->client_gone);
    }
    const base::Deadline& deadline = ending ? while_ending : at_least;
    if (deadline.passed()) return no_room(lease, static_cast<uint32_t>(full));
    freed_.wait_for(*hold, std::chrono::milliseconds(std::min(deadline.left_ms(), 100)));
  }
}

// Why a slice holds no further process.
Status Sessions::no_room(const Lease& lease, uint32_t index) const {
  const wire::SliceGrant& slice = lease.slices[index];
  return Status(Code::kRefused,
                "lease " + std::to_string(lease.id) + " has no room for another process: its " +
                    std::to_string(lease.sessions.size()) + " hold " +
                    config::format_size(charged_bytes(*lease.accounting->get(), index)) +
                    " of its " + config::format_size(slice.memory_bytes) + " on GPU " +
                    std::to_string(slice.gpu_index) + ", and each process takes " +
                    config::format_size(book_.process_bytes(slice.gpu_index)) +
                    " for its context and code. End one of them, or take a larger slice (-m)");
}

// The driver shares memory only between processes of one user. A program's processes share one
// lease. So the lease's first worker decides which user they all run as. The others wait until it
// has started.
void Sessions::bound_by(Cgroups* groups, uint64_t gpu_memory_bytes, uint64_t host_memory_bytes) {
  groups_ = groups;
  gpu_memory_bytes_ = std::max<uint64_t>(gpu_memory_bytes, 1);
  host_memory_bytes_ = host_memory_bytes;
}

void Sessions::bound(uint64_t lease_id, WorkerProcess* worker) {
  if (groups_ == nullptr) return;
  double part = 0;
  {
    const Hold hold(mutex_);
    const auto lease = leases_.find(lease_id);
    if (lease == leases_.end()) return;
    for (const wire::SliceGrant& slice : lease->second->slices)
      part += static_cast<double>(slice.memory_bytes) / static_cast<double>(gpu_memory_bytes_);
  }
  const lease::HostShare share =
      lease::host_share(static_cast<uint64_t>(part * 1'000'000), host_memory_bytes_, kDaemonTally);
  worker->visit([&](pid_t process) {
    const Status entered = groups_->enter(lease_id, share, process);
    if (!entered.ok()) log(Level::kWarning, "lease %lu: %s", lease_id, entered.message().c_str());
  });
}

base::Result<std::shared_ptr<WorkerProcess>> Sessions::take_worker(
    const std::shared_ptr<Session>& session) {
  const uint64_t id = session->id, lease_id = session->lease_id;
  std::shared_ptr<WorkerProcess> like;
  WorkerPool::Wish wish;
  wire::SliceGrant slice;
  uint32_t packed_part = 0;  // one value for the process, whichever GPU it uses
  {
    Hold hold(mutex_);
    Lease* const lease = leases_[lease_id].get();  // valid while this session is on it
    slice = lease->slices[0];
    for (size_t i = 0; i < lease->slices.size(); ++i) {
      const wire::SliceGrant& each = lease->slices[i];
      packed_part = std::max(
          packed_part, packed_percent(book_.packed_processors(lease_id, i),
                                      book_.processors(each.gpu_index), each.share_millionths));
    }
    if (pool_->separates_users() && !slice.packed) {
      freed_.wait(hold, [lease] { return !lease->choosing_user; });
      for (const auto& [tally, other] : lease->sessions) {
        const std::shared_ptr<Session> sibling = find_session(other);
        // A session that is ending can share nothing any more. A warm worker is quicker than one
        // started to be like its worker; programs often run one after another.
        const bool lives = sibling != nullptr && !sibling->ending && !sibling->client_gone;
        if (like == nullptr && lives) like = sibling->worker;
      }
      lease->choosing_user = like == nullptr;
    }
  }
  WorkerPool::Uses uses;
  uses.gone = [this, id](const std::string& how) { worker_gone(id, how); };
  uses.asked = [this, id](const wire::WorkerRequest& request, base::Fd fd,
                          const std::string& tail) {
    worker_asked(id, request, std::move(fd), tail);
  };
  uses.answered = [this, id](const wire::TransportAnswers& answers, base::Fd fd) {
    worker_answered(id, answers, std::move(fd));
  };
  wish.post = {slice.gpu_index, session->api};
  wish.expected = session->expected;
  wish.networked = session->networked;
  wish.like = like.get();
  if (slice.packed) {
    auto seat = packed_->take();
    if (!seat.ok()) return seat.status();
    session->packed_server = seat->server;
    wish.packed_folder = seat->folder;
    wish.packed_percent = packed_part;
  }
  auto worker = pool_->take(wish, std::move(uses), kWorkerWaitMs);
  Status bounded;
  if (worker.ok()) {
    bound(lease_id, worker->get());
    if (session->networked && bound_network_)
      (*worker)->visit([&](pid_t process) { bounded = bound_network_(process); });
    if (!bounded.ok()) (*worker)->kill();
  }
  Hold hold(mutex_);
  if (worker.ok()) session->worker = *worker;
  const auto lease = leases_.find(lease_id);
  if (like == nullptr && lease != leases_.end()) {
    lease->second->choosing_user = false;
    freed_.notify_all();
  }
  if (!bounded.ok()) return bounded;
  return worker;
}

base::Result<wire::AttachReply> Sessions::attach(const access::Principal& owner,
                                                 const wire::AttachRequest& request,
                                                 const wire::ConnectionRecord& connection,
                                                 const std::string& descriptor_socket,
                                                 access::Decision* limits) {
  std::shared_ptr<Session> session;
  {
    Hold hold(mutex_);
    auto made = make_session(&hold, owner, request, connection, limits);
    if (!made.ok()) {
      log(Level::kInfo, "refused %s: %s", who(cleaned(request.client, owner)).c_str(),
          made.status().message().c_str());
      return made.status();
    }
    session = made.take();
  }
  const uint64_t id = session->id;
  const auto worker = take_worker(session);
  Hold hold(mutex_);
  if (!worker.ok()) {
    drop_session(session.get());
    return worker.status();
  }
  // While this thread waited, the worker may have died or the lease may have ended.
  const auto is_over = [&] { return find_session(id) == nullptr || session->ending; };
  Status failure;
  if (!is_over()) {
    failure = assign(*session, request.transports, connection);
    answered_.wait_for(hold, std::chrono::milliseconds(failure.ok() ? kAnswerMs : 0),
                       [&] { return session->answered || is_over(); });
  }
  // A worker that refuses ends right after its answer. So look at its reason first.
  const Status refused = session->answered ? refusal(session->answers) : Status();
  if (!refused.ok())
    failure = refused;
  else if (is_over())
    failure = Status(Code::kClosed, "the session ended while it was being set up; see the log");
  else if (failure.ok() && !session->answered)
    failure = Status(Code::kTimeout, "the session's worker does not answer; see the server's log");
  if (!failure.ok()) {
    session->worker->kill();
    if (find_session(id) != nullptr) session->ending = true;
    return failure;
  }
  wire::AttachReply reply;
  reply.session_id = id;
  reply.session_secret = session->secret;
  reply.lease = reply_of(*leases_[session->lease_id]);
  reply.bulk_channels = session->channels_granted;
  reply.transports = session->answers;
  reply.sealed = session->sealed;
  reply.outage_ms = session->outage_ms;
  reply.nccl_versions = nccl_versions(pool_->nccl());
  if (session->descriptor.valid()) reply.descriptor_socket = descriptor_socket;
  return reply;
}

base::Result<wire::AttachReply> Sessions::look(const wire::AttachRequest& request,
                                               access::Decision* limits) {
  Hold hold(mutex_);
  auto found = find_lease(request);
  if (!found.ok()) {
    *limits = {false, "lease-secret", found.status().message()};
    return found.status();
  }
  const Lease& lease = **found;
  wire::AttachReply reply;
  reply.nccl_versions = nccl_versions(pool_->nccl());
  reply.lease = reply_of(lease);
  size_t bytes = 0;
  for (const wire::SliceGrant& slice : lease.slices) {
    const auto known = std::find_if(facts_.begin(), facts_.end(), [&](const gpu::ApiFacts& each) {
      return each.api == request.api && each.gpu == slice.gpu_index;
    });
    // A packed slice has a part of the processors, which only its worker's driver counts.
    if (known == facts_.end() || slice.packed) break;
    reply.facts.push_back(known->facts);
    bytes += known->facts.size();
  }
  if (reply.facts.size() != lease.slices.size() || bytes > wire::kFactsBytesMax)
    reply.facts.clear();
  return reply;
}

Status Sessions::assign(const Session& session, const wire::TransportOffers& offers,
                        const wire::ConnectionRecord& connection) {
  const Lease& lease = *leases_[session.lease_id];
  wire::WorkerMessage message = {};
  message.kind = wire::WorkerMessageKind::kAssign;
  message.connection = connection;
  if (!session.sealed) forget_key(&message.connection);
  message.assignment.session_id = session.id;
  memcpy(message.assignment.server_id, server_id_.data(), server_id_.size());
  message.assignment.slice_count = static_cast<uint32_t>(lease.slices.size());
  message.assignment.tally = session.tally;
  message.assignment.bulk_channels = session.channels_granted;
  message.assignment.outage_ms = session.outage_ms;
  message.assignment.forbids_rdma = guard_->limits_of(lease.owner).rdma.value_or(true) ? 0 : 1;
  for (size_t i = 0; i < lease.slices.size(); ++i) {
    const wire::SliceGrant& slice = lease.slices[i];
    message.assignment.slices[i] = {slice.gpu_index, slice.share_millionths, slice.memory_bytes,
                                    book_.context_bytes(slice.gpu_index)};
  }
  arbiter_->set_gang(lease.id, session.gang);
  const auto seat = arbiter_->join(session.id, lease.id);
  if (!seat.ok()) return seat.status();
  const int fds[] = {lease.accounting->fd(), seat.value().page_fd, seat.value().bell_fd};
  wire::TransportOffers allowed = offers;
  if (message.assignment.forbids_rdma != 0) {
    session::forbid_fabrics(&allowed, "the server's policy forbids RDMA to " +
                                          printable(lease.owner.name, 64) +
                                          " (its administrator allows it with 'rdma = true')");
  }
  return session.worker->send(message, fds, 3, wire::encode(allowed));
}

// Supervisor's thread.
void Sessions::worker_answered(uint64_t session_id, const wire::TransportAnswers& answers,
                               base::Fd fd) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(session_id);
  if (session == nullptr || session->answered) return;
  session->answered = true;
  session->answers = answers;
  session->trial.open(answers, session->channels_granted, session->outage_ms != 0);
  session->descriptor = std::move(fd);
  answered_.notify_all();
}

bool Sessions::hand_over(const std::shared_ptr<Session>& session, wire::WorkerMessageKind kind,
                         uint16_t channel, const session::Connection& connection) {
  wire::WorkerMessage message = {};
  message.kind = kind;
  message.reserved = channel;
  message.connection = connection.record();
  forget_key(&message.connection);  // the worker has had it
  const int fd = connection.descriptor();
  const Status sent = session->worker->send(message, &fd, 1);
  if (!sent.ok()) end_session(session, sent.message().c_str());
  return sent.ok();
}

void Sessions::attached(uint64_t session_id, session::Connection connection) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(session_id);
  if (session == nullptr || session->ending) return;
  if (!hand_over(session, wire::WorkerMessageKind::kCommand, 0, connection)) return;
  ++counters_.sessions_begun;
  session->attached = true;
  session->liveness = std::move(connection);
  log(Level::kInfo, "session %llu on lease %llu: %s, worker %d",
      static_cast<unsigned long long>(session_id),
      static_cast<unsigned long long>(session->lease_id), who(session->client).c_str(),
      session->worker->pid());
  loop_->post([this, session] { watch_client(session); });
  start_if_complete(session.get());
  if (session->started) return;
  // By id, because a timer must not keep alive what a session holds.
  loop_->after(kJoinMaxMs, [this, session_id] {
    std::lock_guard<std::mutex> inner(mutex_);
    const std::shared_ptr<Session> late = find_session(session_id);
    if (late != nullptr && !late->started)
      end_session(late, "its connections did not arrive in time");
  });
}

void Sessions::abandon(uint64_t session_id) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(session_id);
  if (session == nullptr || session->attached) return;
  log(Level::kInfo, "session %llu: the client went before it was attached",
      static_cast<unsigned long long>(session_id));
  session->ending = true;
  if (session->worker != nullptr) session->worker->kill();
}

Status Sessions::join(const wire::JoinRequest& request) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(wire::Request::kJoin, request);
  if (session == nullptr) return no_session();
  if (request.attempt != 0) return join_again(session.get(), request);
  if (request.channel >= wire::kTrialChannels)
    return session->trial.join(uint16_t(request.channel - wire::kTrialChannels), base::now_ns());
  if (request.channel >= session->channels_joined.size() ||
      session->channels_joined[request.channel]) {
    return Status(Code::kInvalid,
                  "channel " + std::to_string(request.channel) + " is not free in this session");
  }
  session->channels_joined[request.channel] = true;
  return Status();
}

void Sessions::joined(const wire::JoinRequest& request, session::Connection connection) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(request.session_id);
  if (session == nullptr || session->ending) return;
  if (request.attempt != 0) return joined_again(session, request, std::move(connection));
  if (request.channel >= wire::kTrialChannels) {
    (void)hand_over(session, wire::WorkerMessageKind::kTrial,
                    uint16_t(request.channel - wire::kTrialChannels), connection);
    return;
  }
  if (!hand_over(session, wire::WorkerMessageKind::kChannel, request.channel, connection)) return;
  ++session->channels_here;
  if (request.channel == session->channels_granted) {
    session->acknowledgements = std::move(connection);
    loop_->post([this, session] {
      std::lock_guard<std::mutex> inner(mutex_);
      if (session->acknowledgements.valid()) watch_connection(session, session->acknowledgements);
    });
  }
  start_if_complete(session.get());
}

base::Result<base::Fd> Sessions::fetch(const wire::JoinRequest& request) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(wire::Request::kFetch, request);
  if (session == nullptr) return no_session();
  if (session->started || !session->descriptor.valid())
    return Status(Code::kInvalid, "this session has no descriptor to fetch, or gave it already");
  return std::move(session->descriptor);
}

Status Sessions::use(const wire::JoinRequest& request) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(wire::Request::kUse, request);
  if (session == nullptr) return no_session();
  // This may come before attached(): the client has its reply a moment before this side continues.
  if (session->started || !session->answered || session->channels_here != 0)
    return Status(Code::kInvalid, "this session cannot change its transport any more");
  session->start_on = wire::StartOn::kFirst;
  session->trial.close();
  if (request.channel == wire::kUseWithConnections && session->outage_ms != 0) return Status();
  session->outage_ms = 0;
  session->channels_here = session->channels_granted;
  session->channels_joined.assign(session->channels_granted, true);
  start_if_complete(session.get());
  return Status();
}

void Sessions::start_if_complete(Session* session) {
  if (!session->attached || session->started || session->channels_here < channels_of(*session))
    return;
  session->started = true;
  session->trial.begin(base::now_ns());
  session->descriptor.reset();
  wire::WorkerMessage message = {};
  message.kind = wire::WorkerMessageKind::kStart;
  message.reserved = static_cast<uint32_t>(session->start_on);
  const Status sent = session->worker->send(message, nullptr, 0);
  if (!sent.ok()) session->worker->kill();
}

}  // namespace tendril::daemon
