// SPDX-License-Identifier: Apache-2.0
// See connection.h.
#include "daemon/connection.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "config/quantity.h"
#include "daemon/log.h"

namespace tendril::daemon {
namespace {

constexpr char kCertificateScheme[] = "spiffe://", kProvenByToken[] = "token";

// Only this machine's own file is asked, because other name services may block.
std::string name_of_user(uint32_t user) {
  FILE* const file = fopen("/etc/passwd", "re");
  if (file == nullptr) return std::string();
  std::string name;
  char buffer[4096];
  passwd entry, *found = nullptr;
  while (name.empty() && fgetpwent_r(file, &entry, buffer, sizeof buffer, &found) == 0) {
    if (found->pw_uid == user) name = found->pw_name;
  }
  fclose(file);
  return name;
}

// Only a socket in the file system says which user came: an abstract one can be reached from any
// container that shares this network, whose users are others.
access::Evidence evidence_of(const session::Peer& peer, const std::string& administrators_socket) {
  access::Evidence evidence;
  evidence.from = peer.text;
  evidence.local = peer.local || peer.unix_socket;
  evidence.daemon_user = geteuid();
  if (peer.identity.rfind(kCertificateScheme, 0) == 0) evidence.certificate = peer.identity;
  if (peer.unix_socket && !peer.socket_path.empty() && peer.socket_path[0] == '/') {
    evidence.user = peer.user;
    evidence.user_name = name_of_user(peer.user);
    evidence.administrators =
        !administrators_socket.empty() && peer.socket_path == administrators_socket;
  }
  return evidence;
}

std::string lease_text(uint64_t lease_id) {
  return lease_id == 0 ? std::string() : "lease " + std::to_string(lease_id);
}

std::string claim_of(const wire::ClientInfo& client) { return client.user + "@" + client.host; }

}  // namespace

ConnectionHandler::ConnectionHandler(const ConnectionContext* context, session::Peer peer)
    : context_(context), peer_(std::move(peer)) {
  who_.from = peer_.text;
}

ConnectionHandler::~ConnectionHandler() {
  if (unattached_session_ != 0) context_->sessions->abandon(unattached_session_);
}

wire::Hello ConnectionHandler::hello() {
  wire::Hello hello = context_->hello;
  if (context_->guard->settings()->mode == access::Mode::kOpen) return hello;  // nothing is secret
  hello.nonce.resize(wire::kNonceBytes);
  // Without random bytes attaching fails later, and says so.
  if (!base::random_bytes(hello.nonce.data(), hello.nonce.size()))
    log(Level::kError, "the kernel gives no random bytes for %s", peer_.text.c_str());
  return hello;
}

base::Result<std::string> ConnectionHandler::attach_secret(wire::AttachKey key, uint64_t lease_id) {
  const base::Status waits = must_wait(base::now_ns());
  if (!waits.ok()) return waits;
  if (key == wire::AttachKey::kLeaseSecret) return context_->sessions->secret_of(lease_id);
  const std::shared_ptr<const access::Settings> settings = context_->guard->settings();
  if (settings->mode == access::Mode::kSecret && !settings->token.empty()) return settings->token;
  return base::Status(base::Code::kRefused,
                      "this server knows no token; take a lease with 'tendril run'");
}

void ConnectionHandler::attach_secret_unknown(wire::AttachKey key) {
  const char* const what = key == wire::AttachKey::kToken ? "token" : "lease's secret";
  const uint64_t now_ns = base::now_ns();
  context_->guesses->wrong(peer_.address, now_ns);
  uint64_t before = 0;
  if (context_->repeats->due(std::string(what) + " unknown " + peer_.address, now_ns, &before)) {
    log(Level::kWarning, "%s was refused: it does not know the %s that it attaches with%s",
        peer_.text.c_str(), what, reception::Repeats::text(before).c_str());
    context_->guard->record_stranger(
        who_, {false, "handshake", std::string("it does not know the ") + what}, now_ns);
  }
}

base::Status ConnectionHandler::must_wait(uint64_t now_ns) const {
  const uint64_t wait_ns = context_->guesses->wait_ns(peer_.address, now_ns);
  if (wait_ns == 0) return base::Status();
  const uint64_t wait_s = wait_ns / 1'000'000'000u + 1;
  return base::Status(
      base::Code::kRefused,
      base::format(
          "too many wrong tokens or secrets came from %s; the next one is looked at in %llu s",
          peer_.address.c_str(), static_cast<unsigned long long>(wait_s)));
}

session::Admission ConnectionHandler::admit(const wire::Hello& hello, const session::Peer& peer) {
  const std::shared_ptr<const access::Settings> settings = context_->guard->settings();
  const uint64_t now_ns = base::now_ns();
  const bool guesses = settings->mode == access::Mode::kSecret && !hello.token.empty();
  const uint64_t wait_ns = guesses ? context_->guesses->wait_ns(peer.address, now_ns) : 0;
  access::Evidence evidence = evidence_of(peer, context_->administrators_socket);
  evidence.knows_token = (wait_ns == 0 && context_->guard->token_is_right(hello.token)) ||
                         peer.proof == kProvenByToken;
  who_ = context_->guard->recognize(evidence);
  session::Admission admission;
  if (who_.role == access::Role::kAdmin)
    admission.standing = session::Standing::kAdministrator;
  else if (who_.role != access::Role::kNone)
    admission.standing = session::Standing::kMember;
  else if (settings->mode == access::Mode::kSecret)
    admission.refusal = refuse_stranger(hello, peer, wait_ns, now_ns);
  // In identity mode a stranger may use what it has a secret of: a lease, a session, an invitation.
  return admission;
}

base::Status ConnectionHandler::refuse_stranger(const wire::Hello& hello, const session::Peer& peer,
                                                uint64_t wait_ns, uint64_t now_ns) {
  const char* const what = hello.token.empty() ? "missing" : "wrong";
  base::Status refusal;
  if (wait_ns != 0) {
    refusal = context_->guesses->check(peer.address, now_ns);
  } else {
    refusal = session::admit_by_token(context_->guard->settings()->token, hello.token).refusal;
    if (!hello.token.empty()) context_->guesses->wrong(peer.address, now_ns);
  }
  uint64_t before = 0;
  if (context_->repeats->due(std::string(what) + " " + peer.address, now_ns, &before)) {
    log(Level::kWarning, "%s was refused: its token is %s%s", peer.text.c_str(), what,
        reception::Repeats::text(before).c_str());
    context_->guard->record_stranger(who_, {false, "token", std::string("its token is ") + what},
                                     now_ns);
  }
  return refusal;
}

base::Status ConnectionHandler::ask(access::Action action, const std::string& object,
                                    const std::string& owner,
                                    const access::Guard::Details& details) {
  const access::Decision decision = access::decide(who_, action, owner);
  return context_->guard->record(who_, access::action_name(action), object, decision, details)
      .status();
}

base::Status ConnectionHandler::ask_about(access::Action action, uint64_t lease_id,
                                          const access::Guard::Details& details) {
  const std::optional<access::Principal> owner = context_->sessions->owner_of(lease_id);
  // Who may not even list learns nothing about numbers.
  if (!owner && who_.role != access::Role::kNone) {
    return base::Status(base::Code::kNotFound,
                        "there is no lease " + std::to_string(lease_id) + " on this server");
  }
  access::Guard::Details more = details;
  if (owner) more.emplace_back("owner", owner->id);
  return ask(action, lease_text(lease_id), owner ? owner->id : std::string(), more);
}

base::Status ConnectionHandler::record(const char* what, uint64_t lease_id,
                                       const access::Decision& decision,
                                       const wire::ClientInfo& client, const base::Status& status) {
  access::Guard::Details details = {{"claims", claim_of(client)}, {"program", client.program}};
  if (decision.allowed && !status.ok()) details.emplace_back("failed", status.message());
  return context_->guard->record(who_, what, lease_text(lease_id), decision, details).status();
}

base::Result<wire::ListReply> ConnectionHandler::list(const wire::ListRequest& request) {
  const access::Decision decision = access::decide(who_, access::Action::kList);
  if (!decision.allowed) return ask(access::Action::kList, std::string(), std::string());
  return context_->list(who_, request);
}

base::Result<wire::LeaseReply> ConnectionHandler::lease(const wire::LeaseRequest& request) {
  access::Decision decision = access::decide(who_, access::Action::kLease);
  base::Result<wire::LeaseReply> reply = decision.status();
  if (decision.allowed) {
    access::Decision limits{true, std::string(), std::string()};
    reply = context_->sessions->lease(who_, request, &limits);
    if (!limits.allowed) decision = limits;
  }
  const uint64_t lease_id = reply.ok() ? reply->lease_id : 0;
  const base::Status recorded = record("lease", lease_id, decision, request.client, reply.status());
  if (!recorded.ok() && reply.ok()) {
    lease_connection_closed(lease_id);
    return recorded;
  }
  return reply;
}

base::Status ConnectionHandler::release(uint64_t lease_id) {
  const base::Status asked = ask_about(access::Action::kRelease, lease_id, {});
  if (!asked.ok()) return asked;
  log(Level::kInfo, "%s (%s) ends lease %llu", who_.name.c_str(), peer_.text.c_str(),
      static_cast<unsigned long long>(lease_id));
  return context_->sessions->release(lease_id);
}

base::Status ConnectionHandler::change(const wire::ChangeRequest& request) {
  access::Guard::Details details;
  if (request.share_millionths != 0)
    details.emplace_back("share", config::format_fraction(request.share_millionths));
  if (request.sets_priority)
    details.emplace_back("priority", std::to_string(request.terms.priority));
  if (request.sets_policy) {
    details.emplace_back("policy",
                         request.terms.policy == wire::SharePolicy::kCap ? "cap" : "lend");
  }
  const base::Status asked = ask_about(access::Action::kChange, request.lease_id, details);
  if (!asked.ok()) return asked;
  log(Level::kInfo, "%s (%s) changes lease %llu", who_.name.c_str(), peer_.text.c_str(),
      static_cast<unsigned long long>(request.lease_id));
  access::Decision limits{true, std::string(), std::string()};
  const base::Status changed = context_->sessions->change(who_, request, &limits);
  if (!limits.allowed) {
    context_->guard->record(who_, access::action_name(access::Action::kChange),
                            lease_text(request.lease_id), limits, details);
  }
  return changed;
}

void ConnectionHandler::lease_connection_closed(uint64_t lease_id) {
  // An administrator may have released it before. Then there is nothing to do.
  const base::Status ignored = context_->sessions->release(lease_id);
  (void)ignored;
}

base::Result<bool> ConnectionHandler::must_seal_for(const wire::AttachRequest& request,
                                                    bool has_key) const {
  const std::shared_ptr<const access::Settings> settings = context_->guard->settings();
  return must_seal(with_policy(context_->sealing, settings->policy), peer_, has_key,
                   request.insists_on_sealing);
}

base::Result<wire::AttachReply> ConnectionHandler::attach(
    const wire::AttachRequest& request, const wire::ConnectionRecord& connection) {
  const bool has_key = connection.key_bytes != 0;
  if (has_key && request.lease_id == 0) {  // the token was proven in the handshake
    access::Evidence evidence = evidence_of(peer_, context_->administrators_socket);
    evidence.knows_token = true;
    who_ = context_->guard->recognize(evidence);
  }
  const base::Result<bool> sealed = must_seal_for(request, has_key);
  if (!sealed.ok()) return sealed.status();
  wire::ConnectionRecord facts = connection;
  facts.sealed = sealed.value() ? 1 : 0;
  // Who knows a lease's secret attaches in its owner's name. Sessions compares the secret.
  access::Decision decision{true, "lease-secret", std::string()};
  if (request.lease_id == 0) decision = access::decide(who_, access::Action::kLease);
  base::Result<wire::AttachReply> reply = decision.status();
  if (decision.allowed) {
    access::Decision limits{true, std::string(), std::string()};
    reply = context_->sessions->attach(who_, request, facts, context_->descriptor_socket, &limits);
    if (!limits.allowed) decision = limits;
  }
  const uint64_t lease_id = reply.ok() ? reply->lease.lease_id : request.lease_id;
  const base::Status recorded =
      record("attach", lease_id, decision, request.client, reply.status());
  if (!recorded.ok() && reply.ok()) {
    context_->sessions->abandon(reply->session_id);
    return recorded;
  }
  if (reply.ok()) unattached_session_ = reply->session_id;
  return reply;
}

void ConnectionHandler::attached(uint64_t session_id, session::Connection connection) {
  unattached_session_ = 0;
  connection.allow_stalls();
  context_->sessions->attached(session_id, std::move(connection));
}

base::Status ConnectionHandler::join(const wire::JoinRequest& request) {
  return context_->sessions->join(request);
}

void ConnectionHandler::joined(const wire::JoinRequest& request, session::Connection connection) {
  connection.allow_stalls();
  context_->sessions->joined(request, std::move(connection));
}

base::Result<base::Fd> ConnectionHandler::fetch(const wire::JoinRequest& request) {
  return context_->sessions->fetch(request);
}

base::Result<std::vector<uint8_t>> ConnectionHandler::other(const session::Message& request,
                                                            const session::Facts& facts) {
  if (!reception::Doors::answers(request.kind))
    return session::ControlHandler::other(request, facts);
  base::Result<std::vector<uint8_t>> answer = context_->doors->answer(request, facts);
  if (wire::Request(request.kind) == wire::Request::kDenied) return answer;  // every few seconds
  const access::Decision decision{answer.ok(), "invitation", answer.status().message()};
  const char* const what = wire::Request(request.kind) == wire::Request::kEnroll ? "join" : "renew";
  const base::Status recorded =
      context_->guard->record(who_, what, std::string(), decision).status();
  if (answer.ok() && !recorded.ok()) return recorded;
  return answer;
}

base::Status ConnectionHandler::use(const wire::JoinRequest& request) {
  return context_->sessions->use(request);
}

}  // namespace tendril::daemon
