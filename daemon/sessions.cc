// SPDX-License-Identifier: Apache-2.0
// See sessions.h.
#include "daemon/sessions.h"

#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"
#include "config/quantity.h"
#include "daemon/log.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

constexpr int kWorkerWaitMs = 30'000;
constexpr int kAnswerMs = 10'000;  // from an assignment to the worker's answer
constexpr int kSweepMs = 2000;
constexpr size_t kSecretBytes = 16;

bool make_secret(std::string* secret) {
  secret->resize(kSecretBytes);
  return base::random_bytes(secret->data(), secret->size());
}

wire::ClientInfo cleaned(const wire::ClientInfo& info) {
  wire::ClientInfo out = info;
  out.host = printable(info.host, 64);
  out.user = printable(info.user, 64);
  out.program = printable(info.program, 128);
  return out;
}

std::string who(const wire::ClientInfo& client) {
  return client.user + "@" + client.host + " (" + client.program + ", pid " +
         std::to_string(client.pid) + ")";
}

Status no_session() { return Status(Code::kRefused, "there is no such session on this server"); }

uint64_t charged_bytes(const wire::AccountingPage& page, uint32_t slice) {
  uint64_t sum = 0;
  for (const auto& tally : page.used_bytes[slice]) sum += tally.load(std::memory_order_relaxed);
  return sum;
}

// 0: the process is gone.
uint64_t processor_ns(pid_t pid) {
  clockid_t clock = 0;
  timespec used = {};
  if (pid <= 0 || clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
    return 0;
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(used.tv_nsec);
}

// An answer without a kind gives the reason why there is none.
Status refusal(const wire::TransportAnswers& answers) {
  if (!answers.answers.empty() && !answers.answers[0].kind.empty()) return Status();
  const std::string why = answers.answers.empty() ? "" : answers.answers[0].reason;
  return Status(Code::kUnsupported,
                why.empty() ? "the session's worker chose no transport; see the server's log"
                            : printable(why, wire::kTransportReasonBytesMax));
}

uint64_t age_s(uint64_t began_ns) { return (base::now_ns() - began_ns) / 1'000'000'000u; }

}  // namespace

Sessions::Sessions(EventLoop* loop, WorkerPool* pool, PackedServers* packed, Arbiter* arbiter,
                   lease::LeaseBook book, size_t descriptors_max, const ServerId& server_id)
    : loop_(loop),
      pool_(pool),
      packed_(packed),
      arbiter_(arbiter),
      book_(std::move(book)),
      exports_(descriptors_max),
      server_id_(server_id) {
  pool_->when_trimmed([this] { trimmed(); });
  tell_room();
}

void Sessions::tell_room() {
  for (uint32_t gpu = 0; gpu < book_.gpu_count(); ++gpu) {
    const uint64_t bytes = book_.memory_usable(gpu) - book_.memory_promised(gpu);
    pool_->set_room(gpu, bytes / std::max<uint64_t>(1, book_.context_bytes(gpu)));
  }
}

bool Sessions::is_trimming(const std::vector<wire::SliceGrant>& slices) const {
  return std::any_of(slices.begin(), slices.end(), [this](const wire::SliceGrant& slice) {
    return pool_->is_trimming(slice.gpu_index);
  });
}

// Supervisor's thread. The memory of an idle worker is free now.
void Sessions::trimmed() {
  std::lock_guard<std::mutex> hold(mutex_);
  std::vector<uint64_t> ids;
  for (const auto& [id, lease] : leases_) ids.push_back(id);
  for (const uint64_t id : ids) drop_lease_if_done(id);
  freed_.notify_all();
}

wire::LeaseReply Sessions::reply_of(const Lease& lease) const {
  wire::LeaseReply reply;
  reply.lease_id = lease.id;
  reply.secret = lease.secret;
  reply.slices = lease.slices;
  return reply;
}

bool Sessions::is_something_ending() const {
  for (const auto& [id, lease] : leases_) {
    if (lease->ending) return true;
  }
  for (const auto& [id, session] : sessions_) {
    if (session->ending || session->client_gone) return true;
  }
  return false;
}

base::Result<std::vector<wire::SliceGrant>> Sessions::place(Hold* hold, uint64_t lease_id,
                                                            const wire::LeaseRequest& request) {
  const base::Deadline deadline(kComingFreeMs);
  for (;;) {
    auto slices = book_.grant(lease_id, request);
    if (slices.ok() || slices.status().code() != Code::kRefused || deadline.passed() ||
        !is_something_ending()) {
      return slices;
    }
    freed_.wait_for(*hold, std::chrono::milliseconds(deadline.left_ms()));
  }
}

base::Result<Sessions::Lease*> Sessions::make_lease(Hold* hold, const wire::LeaseRequest& request,
                                                    bool implicit) {
  auto lease = std::make_unique<Lease>();
  lease->id = next_id_++;
  lease->implicit = implicit;
  lease->client = cleaned(request.client);
  lease->began_ns = base::now_ns();
  if (!make_secret(&lease->secret))
    return Status(Code::kExhausted, "the kernel gives no random bytes");
  lease->terms = request.terms;
  auto accounting = SharedPage<wire::AccountingPage>::create("tendril-accounting");
  if (!accounting.ok()) return accounting.status();
  lease->accounting = std::make_unique<SharedPage<wire::AccountingPage>>(accounting.take());
  auto slices = place(hold, lease->id, request);
  if (!slices.ok()) {
    ++counters_.leases_refused;
    return slices.status();
  }
  ++counters_.leases_granted;
  lease->slices = slices.take();
  arbiter_->open(lease->id, lease->slices, lease->terms);
  lease->expecting = !implicit && !request.slice.packed;
  if (lease->expecting) pool_->expect(lease->slices[0].gpu_index);
  tell_room();
  // The promised memory must be free before anybody uses it.
  const base::Deadline deadline(kComingFreeMs);
  while (is_trimming(lease->slices) && !deadline.passed())
    freed_.wait_for(*hold, std::chrono::milliseconds(deadline.left_ms()));
  Lease* const raw = lease.get();
  leases_[raw->id] = std::move(lease);
  return raw;
}

base::Result<wire::LeaseReply> Sessions::lease(const wire::LeaseRequest& request) {
  Hold hold(mutex_);
  auto lease = make_lease(&hold, request, false);
  if (!lease.ok()) {
    log(Level::kInfo, "refused %s: %s", who(cleaned(request.client)).c_str(),
        lease.status().message().c_str());
    return lease.status();
  }
  log(Level::kInfo, "lease %llu: %zu slices for %s", static_cast<unsigned long long>((*lease)->id),
      (*lease)->slices.size(), who((*lease)->client).c_str());
  return reply_of(**lease);
}

Status Sessions::release(uint64_t lease_id) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = leases_.find(lease_id);
  if (found == leases_.end() || found->second->ending) {
    return Status(Code::kNotFound,
                  "there is no lease " + std::to_string(lease_id) + " on this server");
  }
  Lease& lease = *found->second;
  lease.ending = true;
  log(Level::kInfo, "lease %llu ends after %llu s", static_cast<unsigned long long>(lease_id),
      static_cast<unsigned long long>(age_s(lease.began_ns)));
  for (const auto& [tally, session_id] : lease.sessions)
    end_session(find_session(session_id), "its lease ended");
  drop_lease_if_done(lease_id);
  return Status();
}

Status Sessions::change(const wire::ChangeRequest& request) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = leases_.find(request.lease_id);
  if (found == leases_.end() || found->second->ending) {
    return Status(Code::kNotFound,
                  "there is no lease " + std::to_string(request.lease_id) + " on this server");
  }
  Lease& lease = *found->second;
  wire::LeaseTerms terms = lease.terms;
  if (request.sets_policy) terms.policy = request.terms.policy;
  if (request.sets_priority) terms.priority = request.terms.priority;
  const Status valid = lease::LeaseBook::check(terms);
  if (!valid.ok()) return valid;
  if (request.share_millionths != 0) {
    auto slices = book_.change(lease.id, request.share_millionths);
    if (!slices.ok()) return slices.status();
    lease.slices = slices.take();
  }
  lease.terms = terms;
  arbiter_->change(lease.id, lease.slices, terms);
  log(Level::kInfo, "lease %llu: %s of each GPU now, %s, priority %d",
      static_cast<unsigned long long>(lease.id),
      config::format_fraction(lease.slices[0].share_millionths).c_str(),
      terms.policy == wire::SharePolicy::kCap ? "capped" : "and idle time of others",
      terms.priority);
  return Status();
}

base::Result<Sessions::Lease*> Sessions::find_lease(const wire::AttachRequest& request) {
  const auto found = leases_.find(request.lease_id);
  if (found == leases_.end() || found->second->ending ||
      !base::equal_in_constant_time(found->second->secret, request.secret)) {
    return Status(
        Code::kRefused,
        "the lease " + std::to_string(request.lease_id) +
            " is not valid here: it ended with the command that took it, or the server was "
            "restarted; run the program again under 'tendril run'");
  }
  return found->second.get();
}

base::Result<std::shared_ptr<Sessions::Session>> Sessions::make_session(
    Hold* hold, const wire::AttachRequest& request) {
  auto session = std::make_shared<Session>();
  if (!make_secret(&session->secret))
    return Status(Code::kExhausted, "the kernel gives no random bytes");
  wire::LeaseRequest implicit = request.lease;
  implicit.client = request.client;
  auto lease = request.lease_id != 0 ? find_lease(request) : make_lease(hold, implicit, true);
  if (!lease.ok()) return lease.status();
  uint32_t tally = 0;
  while (tally < kDaemonTally && (*lease)->sessions.count(tally) != 0) ++tally;
  if (tally == kDaemonTally) {
    return Status(Code::kExhausted, "the lease " + std::to_string((*lease)->id) +
                                        " has its maximum of " + std::to_string(kDaemonTally) +
                                        " attached processes");
  }
  session->id = next_id_++;
  session->lease_id = (*lease)->id;
  session->tally = tally;
  session->client = cleaned(request.client);
  session->api = request.api;
  session->began_ns = base::now_ns();
  session->channels_granted = std::min(request.bulk_channels, kBulkMax);
  session->channels_joined.resize(session->channels_granted);
  (*lease)->sessions[tally] = session->id;
  charge_own(*lease);
  session->expected = (*lease)->expecting;
  (*lease)->expecting = false;
  sessions_[session->id] = session;
  return session;
}

void Sessions::charge_own(Lease* lease) {
  for (uint32_t slice = 0; slice < lease->slices.size(); ++slice) {
    const uint32_t gpu = lease->slices[slice].gpu_index;
    uint64_t bytes = book_.process_bytes(gpu) * lease->sessions.size();
    // If several slices are on one GPU, the first pays.
    bool first = true;
    for (uint32_t before = 0; before < slice; ++before)
      first = first && lease->slices[before].gpu_index != gpu;
    for (const auto& [tally, session_id] : lease->sessions)
      bytes += first ? exports_.orphaned_bytes(session_id, gpu) : 0;
    lease->accounting->get()->used_bytes[slice][kDaemonTally] = bytes;
  }
}

void Sessions::drop_session(Session* session) {
  const auto found = leases_.find(session->lease_id);
  if (found != leases_.end()) {
    Lease& lease = *found->second;
    for (uint32_t slice = 0; slice < lease.slices.size(); ++slice) {
      lease.accounting->get()->used_bytes[slice][session->tally] = 0;
    }
    lease.sessions.erase(session->tally);
    charge_own(&lease);
    if (lease.implicit && lease.sessions.empty()) lease.ending = true;
  }
  arbiter_->leave(session->id);
  if (exports_.end(session->id)) {
    for (const auto& [id, lease] : leases_) charge_own(lease.get());
  }
  if (session->packed_server != 0) packed_->give_back(session->packed_server);
  const uint64_t lease_id = session->lease_id;
  sessions_.erase(session->id);  // may destroy *session
  drop_lease_if_done(lease_id);
}

void Sessions::drop_lease_if_done(uint64_t lease_id) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end() || !found->second->ending || !found->second->sessions.empty()) return;
  Lease& lease = *found->second;
  if (lease.expecting) pool_->expect_no_more(lease.slices[0].gpu_index);
  lease.expecting = false;
  if (is_trimming(lease.slices)) return;  // trimmed() will try again
  arbiter_->close(lease_id);
  book_.release(lease_id);
  leases_.erase(found);
  tell_room();
  freed_.notify_all();
}

std::shared_ptr<Sessions::Session> Sessions::find_session(uint64_t id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second;
}

std::shared_ptr<Sessions::Session> Sessions::find_session(const wire::JoinRequest& request) {
  const std::shared_ptr<Session> session = find_session(request.session_id);
  const bool valid = session != nullptr && !session->ending &&
                     base::equal_in_constant_time(session->secret, request.session_secret);
  return valid ? session : nullptr;
}

// The driver shares memory only between processes of one user. A program's processes share one
// lease. So the lease's first worker decides which user they all run as. The others wait until it
// has started.
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
  uses.asked = [this, id](const wire::WorkerRequest& request, base::Fd fd) {
    worker_asked(id, request, std::move(fd));
  };
  uses.answered = [this, id](const wire::TransportAnswers& answers, base::Fd fd) {
    worker_answered(id, answers, std::move(fd));
  };
  wish.post = {slice.gpu_index, session->api};
  wish.expected = session->expected;
  wish.like = like.get();
  if (slice.packed) {
    auto seat = packed_->take();
    if (!seat.ok()) return seat.status();
    session->packed_server = seat->server;
    wish.packed_folder = seat->folder;
    wish.packed_percent = packed_part;
  }
  auto worker = pool_->take(wish, std::move(uses), kWorkerWaitMs);
  Hold hold(mutex_);
  if (worker.ok()) session->worker = *worker;
  const auto lease = leases_.find(lease_id);
  if (like == nullptr && lease != leases_.end()) {
    lease->second->choosing_user = false;
    freed_.notify_all();
  }
  return worker;
}

base::Result<wire::AttachReply> Sessions::attach(const wire::AttachRequest& request,
                                                 const session::Connection& connection,
                                                 const std::string& descriptor_socket) {
  std::shared_ptr<Session> session;
  {
    Hold hold(mutex_);
    auto made = make_session(&hold, request);
    if (!made.ok()) {
      log(Level::kInfo, "refused %s: %s", who(cleaned(request.client)).c_str(),
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
  if (session->descriptor.valid()) reply.descriptor_socket = descriptor_socket;
  return reply;
}

Status Sessions::assign(const Session& session, const wire::TransportOffers& offers,
                        const session::Connection& connection) {
  const Lease& lease = *leases_[session.lease_id];
  wire::WorkerMessage message = {};
  message.kind = wire::WorkerMessageKind::kAssign;
  message.connection = connection.record();
  message.assignment.session_id = session.id;
  memcpy(message.assignment.server_id, server_id_.data(), server_id_.size());
  message.assignment.slice_count = static_cast<uint32_t>(lease.slices.size());
  message.assignment.tally = session.tally;
  message.assignment.bulk_channels = session.channels_granted;
  for (size_t i = 0; i < lease.slices.size(); ++i) {
    const wire::SliceGrant& slice = lease.slices[i];
    message.assignment.slices[i] = {slice.gpu_index, slice.share_millionths, slice.memory_bytes};
  }
  const auto seat = arbiter_->join(session.id, lease.id);
  if (!seat.ok()) return seat.status();
  const int fds[] = {lease.accounting->fd(), seat.value().page_fd, seat.value().bell_fd};
  return session.worker->send(message, fds, 3, wire::encode(offers));
}

// Supervisor's thread.
void Sessions::worker_answered(uint64_t session_id, const wire::TransportAnswers& answers,
                               base::Fd fd) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(session_id);
  if (session == nullptr || session->answered) return;
  session->answered = true;
  session->answers = answers;
  session->descriptor = std::move(fd);
  answered_.notify_all();
}

void Sessions::attached(uint64_t session_id, session::Connection connection) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(session_id);
  if (session == nullptr || session->ending) return;
  wire::WorkerMessage message = {};
  message.kind = wire::WorkerMessageKind::kCommand;
  message.connection = connection.record();
  const int fd = connection.descriptor();
  const Status sent = session->worker->send(message, &fd, 1);
  if (!sent.ok()) {
    end_session(session, sent.message().c_str());
    return;
  }
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
  const std::shared_ptr<Session> session = find_session(request);
  if (session == nullptr) return no_session();
  if (request.channel >= session->channels_granted || session->channels_joined[request.channel]) {
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
  wire::WorkerMessage message = {};
  message.kind = wire::WorkerMessageKind::kChannel;
  message.reserved = request.channel;
  message.connection = connection.record();
  const int fd = connection.descriptor();
  const Status sent = session->worker->send(message, &fd, 1);
  if (!sent.ok()) {
    end_session(session, sent.message().c_str());
    return;
  }
  ++session->channels_here;
  start_if_complete(session.get());
}

base::Result<base::Fd> Sessions::fetch(const wire::JoinRequest& request) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(request);
  if (session == nullptr) return no_session();
  if (session->started || !session->descriptor.valid())
    return Status(Code::kInvalid, "this session has no descriptor to fetch, or gave it already");
  return std::move(session->descriptor);
}

Status Sessions::use(const wire::JoinRequest& request) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(request);
  if (session == nullptr) return no_session();
  // This may come before attached(): the client has its reply a moment before this side continues.
  if (session->started || !session->answered || session->channels_here != 0)
    return Status(Code::kInvalid, "this session cannot change its transport any more");
  session->start_on = wire::StartOn::kFirst;
  session->channels_here = session->channels_granted;
  session->channels_joined.assign(session->channels_granted, true);
  start_if_complete(session.get());
  return Status();
}

void Sessions::start_if_complete(Session* session) {
  if (!session->attached || session->started || session->channels_here < session->channels_granted)
    return;
  session->started = true;
  session->descriptor.reset();
  wire::WorkerMessage message = {};
  message.kind = wire::WorkerMessageKind::kStart;
  message.reserved = static_cast<uint32_t>(session->start_on);
  const Status sent = session->worker->send(message, nullptr, 0);
  if (!sent.ok()) session->worker->kill();
}

// Asks the worker to end, and kills it after the grace time. The rest happens when it has exited.
void Sessions::end_session(const std::shared_ptr<Session>& session, const char* why) {
  if (session == nullptr || session->ending) return;
  session->ending = true;
  answered_.notify_all();
  if (session->worker == nullptr)
    return;  // attach() still waits for a worker and will see `ending`
  log(Level::kInfo, "session %llu ends: %s", static_cast<unsigned long long>(session->id), why);
  wire::WorkerMessage message = {};
  message.kind = wire::WorkerMessageKind::kStop;
  const Status sent = session->worker->send(message, nullptr, 0);
  if (!sent.ok() || !session->started) {
    session->worker->kill();
    return;
  }
  loop_->after(kGraceMs, [worker = session->worker] { worker->kill(); });
}

// Supervisor's thread. Detects errors and the peer's end of stream without reading, because the
// bytes are for the worker.
void Sessions::watch_client(const std::shared_ptr<Session>& session) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (!session->liveness.valid()) return;
  const int fd = session->liveness.descriptor();
  const Status watched = loop_->watch(fd, EPOLLRDHUP, [this, session, fd](uint32_t) {
    loop_->unwatch(fd);
    {
      std::lock_guard<std::mutex> inner(mutex_);
      session->client_gone = true;
    }
    loop_->after(kGraceMs, [worker = session->worker] { worker->kill(); });
  });
  if (!watched.ok()) end_session(session, watched.message().c_str());
}

void Sessions::worker_gone(uint64_t session_id, const std::string& how) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(session_id);
  if (session == nullptr) return;
  log(Level::kInfo, "session %llu over after %.1f s: its worker %s",
      static_cast<unsigned long long>(session_id),
      static_cast<double>(base::now_ns() - session->began_ns) / 1e9, how.c_str());
  if (session->liveness.valid()) {
    loop_->unwatch(session->liveness.descriptor());
    session->liveness.shutdown();
    session->liveness = session::Connection();
  }
  session->ending = true;
  answered_.notify_all();
  drop_session(session.get());
}

// Supervisor's thread. Handles what workers share with each other; see daemon/exports.h.
void Sessions::worker_asked(uint64_t session_id, const wire::WorkerRequest& request, base::Fd fd) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(session_id);
  if (session == nullptr || session->worker == nullptr) return;
  const uint32_t user = pool_->user_of(*session->worker);
  wire::WorkerMessage message = {};
  message.kind = wire::WorkerMessageKind::kExport;
  message.exported = request.record;
  auto answer = [&](wire::ExportAnswer with, int descriptor) {
    message.reserved = static_cast<uint32_t>(with);
    session->worker->answer(message, descriptor);
  };
  bool orphans = false;
  int descriptor = -1;
  switch (request.kind) {
    case wire::WorkerRequestKind::kPublish:
      answer(exports_.publish(session_id, user, &message.exported, std::move(fd)), -1);
      break;
    case wire::WorkerRequestKind::kFetch: {
      const wire::ExportAnswer found =
          exports_.fetch(session_id, user, &message.exported, &descriptor);
      answer(found, descriptor);
      break;
    }
    case wire::WorkerRequestKind::kWithdraw:
    case wire::WorkerRequestKind::kFreed:
      orphans = exports_.withdraw(session_id, request.record,
                                  request.kind == wire::WorkerRequestKind::kFreed);
      answer(wire::ExportAnswer::kDone, -1);
      break;
    case wire::WorkerRequestKind::kRelease:
      orphans = exports_.release(session_id, request.record);
      break;
    case wire::WorkerRequestKind::kReady:
    case wire::WorkerRequestKind::kTransport:
      break;
  }
  if (!orphans) return;
  for (const auto& [id, lease] : leases_) charge_own(lease.get());
}

void Sessions::describe(wire::ListReply* reply) {
  std::lock_guard<std::mutex> hold(mutex_);
  for (wire::GpuRecord& gpu : reply->gpus) {
    if (gpu.index >= book_.gpu_count()) continue;
    lease::describe(book_.room(gpu.index), &gpu);
    gpu.memory_used_bytes = 0;
  }
  for (const auto& [id, lease] : leases_) {
    wire::LeaseRecord record;
    record.lease_id = id;
    record.client = lease->client;
    record.slices = lease->slices;
    record.processes = static_cast<uint32_t>(lease->sessions.size());
    record.age_s = age_s(lease->began_ns);
    record.terms = lease->terms;
    record.uses = arbiter_->use_of(id);
    for (uint32_t slice = 0; slice < lease->slices.size(); ++slice) {
      const uint64_t used_bytes = charged_bytes(*lease->accounting->get(), slice);
      record.memory_used_bytes.push_back(used_bytes);
      for (wire::GpuRecord& gpu : reply->gpus) {
        if (gpu.index == lease->slices[slice].gpu_index) gpu.memory_used_bytes += used_bytes;
      }
    }
    reply->leases.push_back(std::move(record));
  }
  for (const auto& [id, session] : sessions_) {
    if (session->attached) reply->sessions.push_back(record_of(*session));
  }
  reply->now_ns = base::now_ns();
}

wire::SessionRecord Sessions::record_of(const Session& session) {
  wire::SessionRecord record;
  record.session_id = session.id;
  record.lease_id = session.lease_id;
  record.client = session.client;
  record.worker_pid = session.worker == nullptr ? 0 : static_cast<uint32_t>(session.worker->pid());
  record.age_s = age_s(session.began_ns);
  record.processor_ns = processor_ns(static_cast<pid_t>(record.worker_pid));
  const auto lease = leases_.find(session.lease_id);
  if (lease != leases_.end()) {  // the lease may know people's names; the library knows numbers
    record.client.user = lease->second->client.user;
    record.client.host = lease->second->client.host;
  }
  for (uint32_t slice = 0; lease != leases_.end() && slice < lease->second->slices.size();
       ++slice) {
    const auto& tally = (*lease->second->accounting)->used_bytes[slice][session.tally];
    record.memory_used_bytes.push_back(tally.load(std::memory_order_relaxed));
  }
  arbiter_->describe(session.id, &record);
  return record;
}

void Sessions::sweep() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    for (const auto& [id, session] : sessions_) {
      if (session->liveness.valid() && session->liveness.is_half_open()) {
        end_session(session, "the client's machine does not answer any more");
      }
    }
  }
  loop_->after(kSweepMs, [this] { sweep(); });
}

view::Counters Sessions::counters() {
  std::lock_guard<std::mutex> hold(mutex_);
  view::Counters counters = counters_;
  counters.worker_processes = pool_->process_count();
  for (uint32_t gpu = 0; gpu < book_.gpu_count(); ++gpu) {
    counters.gpus.push_back({book_.memory_usable(gpu), book_.memory_promised(gpu),
                             arbiter_->used_ns(gpu), arbiter_->turns_given(gpu)});
  }
  return counters;
}

size_t Sessions::session_count() {
  std::lock_guard<std::mutex> hold(mutex_);
  return sessions_.size();
}

}  // namespace tendril::daemon
