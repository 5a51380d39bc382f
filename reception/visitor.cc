// SPDX-License-Identifier: Apache-2.0
// See visitor.h.
#include "reception/visitor.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "reception/log.h"

namespace tendril::reception {
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

}  // namespace

Visitor::Visitor(Front* front, session::Peer peer) : front_(front), peer_(std::move(peer)) {
  who_.from = peer_.text;
}

void Visitor::add_nonce(wire::Hello* hello) const {
  if (front_->guard()->settings()->mode == access::Mode::kOpen) return;  // nothing is secret
  hello->nonce.resize(wire::kNonceBytes);
  // Without random bytes attaching fails later, and says so.
  if (!base::random_bytes(hello->nonce.data(), hello->nonce.size()))
    log(Level::kError, "the kernel gives no random bytes for %s", peer_.text.c_str());
}

void Visitor::guessed_wrong(const char* what) {
  const uint64_t now_ns = base::now_ns();
  front_->guesses()->wrong(peer_.address, now_ns);
  uint64_t before = 0;
  if (front_->repeats()->due(std::string(what) + " unknown " + peer_.address, now_ns, &before)) {
    log(Level::kWarning, "%s was refused: it does not know the %s that it attaches with%s",
        peer_.text.c_str(), what, Repeats::text(before).c_str());
    front_->guard()->record_stranger(
        who_, {false, "handshake", std::string("it does not know the ") + what}, now_ns);
  }
}

base::Status Visitor::must_wait(uint64_t now_ns) const {
  const uint64_t wait_ns = front_->guesses()->wait_ns(peer_.address, now_ns);
  if (wait_ns == 0) return base::Status();
  const uint64_t wait_s = wait_ns / 1'000'000'000u + 1;
  return base::Status(
      base::Code::kRefused,
      base::format(
          "too many wrong tokens or secrets came from %s; the next one is looked at in %llu s",
          peer_.address.c_str(), static_cast<unsigned long long>(wait_s)));
}

session::Admission Visitor::admit(const wire::Hello& hello, const session::Peer& peer) {
  const std::shared_ptr<const access::Settings> settings = front_->guard()->settings();
  const uint64_t now_ns = base::now_ns();
  const bool guesses = settings->mode == access::Mode::kSecret && !hello.token.empty();
  const uint64_t wait_ns = guesses ? front_->guesses()->wait_ns(peer.address, now_ns) : 0;
  access::Evidence evidence = evidence_of(peer, front_->administrators_socket());
  evidence.knows_token = (wait_ns == 0 && front_->guard()->token_is_right(hello.token)) ||
                         peer.proof == kProvenByToken;
  who_ = front_->guard()->recognize(evidence);
  administrators_ = evidence.administrators;
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

void Visitor::knows_token() {
  access::Evidence evidence = evidence_of(peer_, front_->administrators_socket());
  evidence.knows_token = true;
  who_ = front_->guard()->recognize(evidence);
}

base::Status Visitor::refuse_stranger(const wire::Hello& hello, const session::Peer& peer,
                                      uint64_t wait_ns, uint64_t now_ns) {
  const char* const what = hello.token.empty() ? "missing" : "wrong";
  base::Status refusal;
  if (wait_ns != 0) {
    refusal = front_->guesses()->check(peer.address, now_ns);
  } else {
    refusal = session::admit_by_token(front_->guard()->settings()->token, hello.token).refusal;
    if (!hello.token.empty()) front_->guesses()->wrong(peer.address, now_ns);
  }
  uint64_t before = 0;
  if (front_->repeats()->due(std::string(what) + " " + peer.address, now_ns, &before)) {
    log(Level::kWarning, "%s was refused: its token is %s%s", peer.text.c_str(), what,
        Repeats::text(before).c_str());
    front_->guard()->record_stranger(who_, {false, "token", std::string("its token is ") + what},
                                     now_ns);
  }
  return refusal;
}

base::Status Visitor::ask(access::Action action, const std::string& object,
                          const std::string& owner, const access::Guard::Details& details) const {
  const access::Decision decision = access::decide(who_, action, owner);
  return record(access::action_name(action), object, decision, details);
}

base::Status Visitor::record(const std::string& what, const std::string& object,
                             const access::Decision& decision,
                             const access::Guard::Details& details) const {
  return front_->guard()->record(who_, what, object, decision, details).status();
}

base::Result<std::vector<uint8_t>> Visitor::answer_at_door(const session::Message& request,
                                                           const session::Facts& facts) const {
  if (Doors::administers(request.kind)) return administer(request);
  const bool joins = wire::Request(request.kind) == wire::Request::kEnroll;
  wire::EnrollRequest enrolment;
  const bool guesses = joins && request.read(&enrolment) && enrolment.provider_token.empty();
  if (guesses) {
    const base::Status waits = must_wait(base::now_ns());
    if (!waits.ok()) return waits;
  }
  base::Result<std::vector<uint8_t>> answer = front_->doors().answer(request, facts);
  if (wire::Request(request.kind) == wire::Request::kDenied) return answer;  // every few seconds
  const char* const what = joins ? "join" : "renew";
  if (!answer.ok()) {
    refused_at_door(what, guesses, answer.status());
    return answer;
  }
  const base::Status recorded = record(what, std::string(), {true, "invitation", std::string()});
  if (!recorded.ok()) return recorded;
  return answer;
}

// Anybody may try, as often as the network lets it.
void Visitor::refused_at_door(const char* what, bool guesses, const base::Status& why) const {
  const uint64_t now_ns = base::now_ns();
  if (guesses && why.code() == base::Code::kRefused)
    front_->guesses()->wrong(peer_.address, now_ns);
  front_->guard()->record_stranger(who_, {false, "invitation", why.message()}, now_ns, what);
  uint64_t before = 0;
  if (!front_->repeats()->due(std::string(what) + " " + peer_.address, now_ns, &before)) return;
  log(Level::kWarning, "%s wants to %s and is refused: %s%s", peer_.text.c_str(), what,
      why.message().c_str(), Repeats::text(before).c_str());
}

// Written down before it is done, so that nobody is invited whom the audit log does not know.
base::Result<std::vector<uint8_t>> Visitor::administer(const session::Message& request) const {
  if (wire::Request(request.kind) == wire::Request::kIssued) {
    const base::Status asked = ask(access::Action::kIssued, std::string(), std::string());
    if (!asked.ok()) return asked;
    return front_->doors().administer(request);
  }
  const bool invites = wire::Request(request.kind) == wire::Request::kInvite;
  wire::InviteRequest invitation;
  wire::RevokeRequest revocation;
  std::string object;
  if (invites && request.read(&invitation))
    object = invitation.role + "/" + (invitation.name.empty() ? "*" : invitation.name);
  else if (!invites && request.read(&revocation))
    object = revocation.whom;
  else
    return base::Status(base::Code::kInvalid, "the request is malformed");
  const access::Action action = invites ? access::Action::kInvite : access::Action::kRevoke;
  const base::Status asked = ask(action, object, std::string());
  if (!asked.ok()) return asked;
  base::Result<std::vector<uint8_t>> answer = front_->doors().administer(request);
  const std::string said = base::printable(object, 128);
  const char* const did = action_name(action);
  if (answer.ok()) {
    log(Level::kInfo, "%s (%s): %s %s", who_.name.c_str(), peer_.text.c_str(), did, said.c_str());
    return answer;
  }
  front_->guard()->note(who_, did, object, {true, "failed", answer.status().message()});
  return answer;
}

}  // namespace tendril::reception
