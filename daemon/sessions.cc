// SPDX-License-Identifier: Apache-2.0
// See sessions.h. Here: leases, and the end of sessions. How a session begins is in
// sessions_attach.cc, what is shown of them in sessions_describe.cc.
#include "daemon/sessions.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"
#include "config/quantity.h"
#include "daemon/log.h"
#include "session/control/rejoin.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

constexpr int kSweepMs = 1000;
constexpr size_t kSecretBytes = 32;
constexpr char kDrainingText[] =
    "this server is about to end and takes no new leases; ask another one, or the pool";

Status lease_not_valid(uint64_t lease_id) {
  return Status(Code::kRefused,
                "the lease " + std::to_string(lease_id) +
                    " is not valid here: it ended with the command that took it, or the server was "
                    "restarted; run the program again under 'tendril run'");
}

}  // namespace

bool Sessions::make_secret(std::string* secret) {
  secret->resize(kSecretBytes);
  return base::random_bytes(secret->data(), secret->size());
}

wire::ClientInfo Sessions::cleaned(const wire::ClientInfo& info) {
  wire::ClientInfo out = info;
  out.host = printable(info.host, 64);
  out.user = printable(info.user, 64);
  out.program = printable(info.program, 128);
  return out;
}

wire::ClientInfo Sessions::cleaned(const wire::ClientInfo& info, const access::Principal& owner) {
  wire::ClientInfo out = cleaned(info);
  out.owner = printable(owner.name, 64);
  out.proof = access::proof_name(owner.proof);
  return out;
}

std::string Sessions::who(const wire::ClientInfo& client) {
  return client.owner + ", who says to be " + client.user + "@" + client.host + " (" +
         client.program + ", pid " + std::to_string(client.pid) + ")";
}

uint64_t Sessions::age_s(uint64_t began_ns) { return (base::now_ns() - began_ns) / 1'000'000'000u; }

Sessions::Sessions(EventLoop* loop, WorkerPool* pool, PackedServers* packed, Arbiter* arbiter,
                   access::Guard* guard, lease::LeaseBook book, size_t descriptors_max,
                   const ServerId& server_id)
    : loop_(loop),
      pool_(pool),
      packed_(packed),
      arbiter_(arbiter),
      guard_(guard),
      book_(std::move(book)),
      holds_(&book_),
      parking_(&book_),
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

base::Result<Sessions::Lease*> Sessions::make_lease(Hold* hold, const access::Principal& owner,
                                                    const wire::LeaseRequest& request,
                                                    bool implicit, access::Decision* limits) {
  auto lease = std::make_unique<Lease>();
  lease->id = next_id_++;
  lease->implicit = implicit;
  lease->owner = owner;
  lease->client = cleaned(request.client, owner);
  lease->began_ns = base::now_ns();
  lease->idle = lease::IdleWatch(lease->began_ns);
  if (draining_) return Status(Code::kRefused, kDrainingText);
  if (request.slice.packed) {
    const Status packs = packed_->available();
    if (!packs.ok()) return packs;
  }
  if (!make_secret(&lease->secret))
    return Status(Code::kExhausted, "the kernel gives no random bytes");
  lease->terms = access::granted_terms(guard_->limits_of(owner), request.terms);
  auto accounting = SharedPage<wire::AccountingPage>::create("tendril-accounting");
  if (!accounting.ok()) return accounting.status();
  lease->accounting = std::make_unique<SharedPage<wire::AccountingPage>>(accounting.take());
  *limits = count_lease(lease.get(), uint64_t{request.count} * request.slice.share_millionths);
  if (!limits->allowed) {
    ++counters_.leases_refused;
    return limits->status();
  }
  auto slices = place(hold, lease->id, request);
  uint64_t share_millionths = 0;
  for (size_t i = 0; slices.ok() && i < slices->size(); ++i)
    share_millionths += (*slices)[i].share_millionths;
  if (slices.ok()) *limits = count_lease(lease.get(), share_millionths);
  if (!slices.ok() || !limits->allowed) {
    ++counters_.leases_refused;
    if (slices.ok()) book_.release(lease->id);
    forget_lease(*lease);
    return slices.ok() ? limits->status() : slices.status();
  }
  ++counters_.leases_granted;
  lease->slices = slices.take();
  publish_memory(*lease);
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

base::Result<wire::LeaseReply> Sessions::lease(const access::Principal& owner,
                                               const wire::LeaseRequest& request,
                                               access::Decision* limits) {
  Hold hold(mutex_);
  auto lease = make_lease(&hold, owner, request, false, limits);
  if (!lease.ok()) {
    log(Level::kInfo, "refused %s: %s", who(cleaned(request.client, owner)).c_str(),
        lease.status().message().c_str());
    return lease.status();
  }
  log(Level::kInfo, "lease %llu: %zu slices for %s", static_cast<unsigned long long>((*lease)->id),
      (*lease)->slices.size(), who((*lease)->client).c_str());
  return reply_of(**lease);
}

Status Sessions::release(uint64_t lease_id, const std::string& why) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = leases_.find(lease_id);
  if (found == leases_.end() || found->second->ending) {
    return Status(Code::kNotFound,
                  "there is no lease " + std::to_string(lease_id) + " on this server");
  }
  end_lease(found->second.get(), why);
  return Status();
}

// May destroy *lease.
void Sessions::end_lease(Lease* lease, const std::string& why) {
  const uint64_t lease_id = lease->id;
  lease->ending = true;
  lease->why = why;
  if (!why.empty()) tell(*lease, wire::NoticeKind::kEnded, why);
  log(Level::kInfo, "lease %llu ends after %llu s%s%s", static_cast<unsigned long long>(lease_id),
      static_cast<unsigned long long>(age_s(lease->began_ns)), why.empty() ? "" : ": ",
      why.c_str());
  for (const auto& [tally, session_id] : lease->sessions)
    end_session(find_session(session_id), "its lease ended");
  drop_lease_if_done(lease_id);
}

Status Sessions::change(const access::Principal& by, const wire::ChangeRequest& request,
                        access::Decision* limits) {
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
  *limits = check_change(lease, request, by);
  if (!limits->allowed) return limits->status();
  if (request.memory_bytes != 0 && lease.pool_lease_id != 0) {
    return Status(
        Code::kRefused,
        "lease " + std::to_string(lease.id) +
            " is a pool's, which has limits for its memory; ask the pool: 'tendril lease "
            "set NUMBER -m SIZE' at its address, with the number that the lease has there");
  }
  return refit(&lease, request.share_millionths, request.memory_bytes, terms);
}

void Sessions::publish_memory(const Lease& lease) {
  for (size_t slice = 0; slice < lease.slices.size(); ++slice)
    (*lease.accounting)->quota_bytes[slice].store(lease.slices[slice].memory_bytes);
}

// From now on the lease takes no more than that. Refused, and nothing changed: it has more already.
Status Sessions::lower_memory(const Lease& lease, uint64_t memory_bytes) {
  for (size_t slice = 0; slice < lease.slices.size(); ++slice) {
    if (memory_bytes < lease.slices[slice].memory_bytes)
      (*lease.accounting)->quota_bytes[slice].store(memory_bytes);
  }
  // Whoever charges adds first and then reads the limit.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (uint32_t slice = 0; slice < lease.slices.size(); ++slice) {
    const uint64_t used = charged_bytes(*lease.accounting->get(), slice);
    if (used <= memory_bytes) continue;
    publish_memory(lease);
    return Status(Code::kRefused, "lease " + std::to_string(lease.id) + " uses " +
                                      config::format_size(used) + " of GPU " +
                                      std::to_string(lease.slices[slice].gpu_index) +
                                      ", so it cannot have " + config::format_size(memory_bytes) +
                                      "; let its programs free memory first, or ask for more");
  }
  return Status();
}

// A share or a memory of 0 stays as it is.
Status Sessions::refit(Lease* changed, uint32_t share_millionths, uint64_t memory_bytes,
                       const wire::LeaseTerms& terms) {
  Lease& lease = *changed;
  if (memory_bytes != 0) {
    const Status lowered = lower_memory(lease, memory_bytes);
    if (!lowered.ok()) return lowered;
  }
  if (share_millionths != 0 || memory_bytes != 0) {
    auto slices = book_.change(lease.id, share_millionths, memory_bytes);
    if (slices.ok()) lease.slices = slices.take();
    publish_memory(lease);
    if (!slices.ok()) return slices.status();
    holds_.changed(lease.pool_lease_id, lease.slices);
  }
  if (share_millionths != 0) {
    const uint64_t wanted = uint64_t{share_millionths} * lease.slices.size();
    usage_[lease.owner.id].share_millionths += wanted - lease.share_counted;
    lease.share_counted = wanted;
  }
  lease.terms = terms;
  arbiter_->change(lease.id, lease.slices, terms);
  wake_ready();  // it may have become smaller
  log(Level::kInfo, "lease %llu: %s and %s of each GPU now, %s, priority %d",
      static_cast<unsigned long long>(lease.id),
      config::format_fraction(lease.slices[0].share_millionths).c_str(),
      config::format_size(lease.slices[0].memory_bytes).c_str(),
      terms.policy == wire::SharePolicy::kCap ? "capped" : "and idle time of others",
      terms.priority);
  return Status();
}

base::Result<Sessions::Lease*> Sessions::find_lease(const wire::AttachRequest& request) {
  const auto found = leases_.find(request.lease_id);
  if (found == leases_.end() || found->second->ending ||
      found->second->phase != wire::LeasePhase::kClaimed ||
      !base::equal_in_constant_time(found->second->secret, request.secret)) {
    return lease_not_valid(request.lease_id);
  }
  return found->second.get();
}

void Sessions::charge_own(Lease* lease) {
  for (uint32_t slice = 0; slice < lease->slices.size(); ++slice) {
    const uint32_t gpu = lease->slices[slice].gpu_index;
    uint64_t bytes = book_.process_bytes(gpu) * lease->sessions.size();
    // If several slices are on one GPU, the first pays.
    bool first = true;
    for (uint32_t before = 0; before < slice; ++before)
      first = first && lease->slices[before].gpu_index != gpu;
    bytes += first ? exports_.charged_bytes(lease->id, gpu) : 0;
    lease->accounting->get()->used_bytes[slice][kDaemonTally] = bytes;
  }
}

// The first slice that is charged more than its memory; -1: none is.
int Sessions::over_quota(const Lease& lease) const {
  for (uint32_t slice = 0; slice < lease.slices.size(); ++slice) {
    if (charged_bytes(*lease.accounting->get(), slice) > lease.slices[slice].memory_bytes)
      return static_cast<int>(slice);
  }
  return -1;
}

void Sessions::drop_session(Session* session) {
  // What others have open of its memory is charged before its own account is cleared.
  if (exports_.end(session->id)) {
    for (const auto& [id, lease] : leases_) charge_own(lease.get());
  }
  const auto found = leases_.find(session->lease_id);
  if (found != leases_.end()) {
    Lease& lease = *found->second;
    for (uint32_t slice = 0; slice < lease.slices.size(); ++slice) {
      lease.accounting->get()->ahead_bytes[slice][session->tally] = 0;
      lease.accounting->get()->used_bytes[slice][session->tally] = 0;
    }
    for (uint32_t slice = 0; slice < lease.slices.size(); ++slice)
      lease.accounting->get()->parked_bytes[slice][session->tally] = 0;
    lease.accounting->get()->keeps[session->tally] = 0;
    lease.accounting->get()->wanted_ns[session->tally] = 0;
    lease.sessions.erase(session->tally);
    charge_own(&lease);
    if (!lease.ending) forget_move(&lease, session->id);
    if (lease.implicit && lease.sessions.empty() && !lease.ending) {
      lease.ending = true;
      record_end(lease, "connection", "its last session's connection closed");
    }
  }
  if (found != leases_.end()) {
    found->second->attached_ns = base::now_ns();
    forget_session(found->second->owner);
  }
  arbiter_->leave(session->id);
  if (session->packed_server != 0) packed_->give_back(session->packed_server);
  const uint64_t lease_id = session->lease_id;
  sessions_.erase(session->id);  // may destroy *session
  drop_lease_if_done(lease_id);
  freed_.notify_all();
}

// Since it did anything; negative: not known.
double Sessions::idle_seconds(const Lease& lease) {
  return lease.idle.known() ? double(lease.idle.idle_ns(base::now_ns())) / 1e9 : -1;
}

void Sessions::record_end(const Lease& lease, const char* rule, const char* why) {
  guard_->note(lease.owner, "end", "lease " + std::to_string(lease.id), {true, rule, why});
}

void Sessions::drop_lease_if_done(uint64_t lease_id) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end() || !found->second->ending || !found->second->sessions.empty()) return;
  Lease& lease = *found->second;
  if (lease.expecting) pool_->expect_no_more(lease.slices[0].gpu_index);
  lease.expecting = false;
  if (is_trimming(lease.slices)) return;  // trimmed() will try again
  keep_record(lease);
  if (lease.phase != wire::LeasePhase::kHeld)
    ended_unscraped_.add({record_of(lease, nullptr), idle_seconds(lease)});
  arbiter_->close(lease_id);
  parking_.end(lease_id);
  book_.release(lease_id);
  if (lease.pool_lease_id != 0)
    holds_.release(lease.pool_lease_id, lease.why.empty() ? "it ended" : lease.why);
  forget_lease(lease);
  leases_.erase(found);
  // Without this lock: the kernel may take a while.
  if (groups_ != nullptr) loop_->post([groups = groups_, lease_id] { groups->remove(lease_id); });
  wake_ready();
}

std::shared_ptr<Sessions::Session> Sessions::find_session(uint64_t id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second;
}

std::shared_ptr<Sessions::Session> Sessions::find_session(wire::Request kind,
                                                          const wire::JoinRequest& request) {
  const std::shared_ptr<Session> session = find_session(request.session_id);
  if (session == nullptr || session->ending) return nullptr;
  const bool valid =
      session::is_member({session->id, session->secret, session->key}, kind, request);
  return valid ? session : nullptr;
}

base::Result<std::string> Sessions::secret_of(uint64_t lease_id) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = leases_.find(lease_id);
  if (found != leases_.end() && !found->second->ending) return found->second->secret;
  return lease_not_valid(lease_id);
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

void Sessions::worker_gone(uint64_t session_id, const std::string& how) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(session_id);
  if (session == nullptr) return;
  log(Level::kInfo, "session %llu over after %.1f s: its worker %s",
      static_cast<unsigned long long>(session_id),
      static_cast<double>(base::now_ns() - session->began_ns) / 1e9, how.c_str());
  forget_connections(session.get(), loop_);
  session->ending = true;
  answered_.notify_all();
  drop_session(session.get());
}

// The store answers later, on a thread of its own. Only what an owner has proven counts: with names
// that clients claim, one of them could fill the store under many.
void Sessions::worker_asked_for_image(const Session& session, const wire::WorkerRequest& request,
                                      base::Fd fd) {
  auto answer = [worker = session.worker](wire::ExportAnswer with, base::Fd image) {
    wire::WorkerMessage message = {};
    message.kind = wire::WorkerMessageKind::kExport;
    message.reserved = static_cast<uint32_t>(with);
    worker->answer(message, image.get());
  };
  if (images_ == nullptr) return answer(wire::ExportAnswer::kUnknown, {});
  const auto lease = leases_.find(session.lease_id);
  if (lease == leases_.end()) return answer(wire::ExportAnswer::kUnknown, {});
  const std::string& owner = lease->second->owner.id;
  if (request.kind == wire::WorkerRequestKind::kFindImage)
    images_->find(owner, request.record, std::move(answer));
  else
    images_->keep(owner, request.record, std::move(fd), std::move(answer));
}

namespace {

// What a worker says for people.
std::string text_of(const wire::ExportRecord& record) {
  const auto* text = reinterpret_cast<const char*>(record.content);
  return base::printable(std::string(text, strnlen(text, sizeof record.content)));
}

}  // namespace

void Sessions::worker_told(Session* session, const wire::WorkerRequest& request,
                           const std::string& tail) {
  if (request.kind == wire::WorkerRequestKind::kPassageWay)
    return passage_goes(session, request.record, text_of(request.record), tail);
  if (request.kind == wire::WorkerRequestKind::kLink) {
    session->link = text_of(request.record);
    return;
  }
  const std::string text = base::printable(tail);
  log(Level::kInfo, "session %llu: GPUDirect: %s", static_cast<unsigned long long>(session->id),
      text.c_str());
  session->direct = session->direct || text.rfind("no: ", 0) != 0;
  if (text.rfind("moved ", 0) != 0) last_direct_ = text;
}

// Supervisor's thread. Handles what workers share with each other; see daemon/exports.h.
void Sessions::worker_asked(uint64_t session_id, const wire::WorkerRequest& request, base::Fd fd,
                            const std::string& tail) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(session_id);
  if (session == nullptr || session->worker == nullptr) return;
  const Exports::Peer peer = {session_id, session->lease_id, pool_->user_of(*session->worker)};
  wire::WorkerMessage message = {};
  message.kind = wire::WorkerMessageKind::kExport;
  message.exported = request.record;
  auto answer = [&](wire::ExportAnswer with, int descriptor) {
    message.reserved = static_cast<uint32_t>(with);
    session->worker->answer(message, descriptor);
  };
  const auto recharge = [this](bool changed) {
    for (auto lease = leases_.begin(); changed && lease != leases_.end(); ++lease)
      charge_own(lease->second.get());
  };
  int descriptor = -1;
  switch (request.kind) {
    case wire::WorkerRequestKind::kPublish:
      answer(exports_.publish(peer, &message.exported, std::move(fd)), -1);
      break;
    case wire::WorkerRequestKind::kFetch: {
      bool charges = false;
      wire::ExportAnswer found = exports_.fetch(peer, &message.exported, &descriptor, &charges);
      recharge(charges);
      Lease* const lease = leases_[session->lease_id].get();
      if (charges && over_quota(*lease) >= 0) {
        recharge(exports_.release(session_id, message.exported));
        found = wire::ExportAnswer::kFull;
        descriptor = -1;
      }
      answer(found, descriptor);
      break;
    }
    case wire::WorkerRequestKind::kWithdraw:
    case wire::WorkerRequestKind::kFreed:
      recharge(exports_.withdraw(session_id, request.record,
                                 request.kind == wire::WorkerRequestKind::kFreed));
      answer(wire::ExportAnswer::kDone, -1);  // only now does the owner stop paying
      break;
    case wire::WorkerRequestKind::kRelease:
      recharge(exports_.release(session_id, request.record));
      break;
    case wire::WorkerRequestKind::kOfferPassage:
      answer(offer_passage(session.get(), &message.exported), -1);
      break;
    case wire::WorkerRequestKind::kDialPassage:
      dial_passage(*session, request.record);
      break;
    case wire::WorkerRequestKind::kFindImage:
    case wire::WorkerRequestKind::kKeepImage:
      worker_asked_for_image(*session, request, std::move(fd));
      break;
    case wire::WorkerRequestKind::kParked:
    case wire::WorkerRequestKind::kStays:
    case wire::WorkerRequestKind::kWantsWake:
    case wire::WorkerRequestKind::kReturned:
    case wire::WorkerRequestKind::kForgot:
      return worker_moved(session.get(), request);
    case wire::WorkerRequestKind::kLink:
    case wire::WorkerRequestKind::kDirect:
    case wire::WorkerRequestKind::kPassageWay:
      return worker_told(session.get(), request, tail);
    case wire::WorkerRequestKind::kReady:
    case wire::WorkerRequestKind::kTransport:
    case wire::WorkerRequestKind::kLearned:
      break;
  }
}

void Sessions::sweep() {
  std::vector<Overdue> ended;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    for (const auto& [id, session] : sessions_) {
      if (is_silent(*session))
        end_session(session, "the client's machine does not answer any more");
    }
    look_at_work();
    resume_overdue();
    park_idle();
    expire_holds();
    ended = end_overdue();
  }
  for (const Overdue& lease : ended) {
    guard_->note(lease.owner, "end", "lease " + std::to_string(lease.lease_id),
                 {true, lease.ending.rule, lease.ending.text});
  }
  loop_->after(kSweepMs, [this] { sweep(); });
}

}  // namespace tendril::daemon
