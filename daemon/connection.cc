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
#include "daemon/passages/peers.h"
#include "wire/page.h"

namespace tendril::daemon {
namespace {

std::string lease_text(uint64_t lease_id) {
  return lease_id == 0 ? std::string() : "lease " + std::to_string(lease_id);
}

std::string claim_of(const wire::ClientInfo& client) { return client.user + "@" + client.host; }

}  // namespace

ConnectionHandler::ConnectionHandler(const ConnectionContext* context, session::Peer peer)
    : context_(context),
      visitor_(context->front, std::move(peer)),
      number_(context->sessions->new_holder()) {}

ConnectionHandler::~ConnectionHandler() {
  if (unattached_session_ != 0) context_->sessions->abandon(unattached_session_);
}

wire::Hello ConnectionHandler::hello() {
  wire::Hello hello = context_->hello;
  visitor_.add_nonce(&hello);
  return hello;
}

base::Result<std::string> ConnectionHandler::attach_secret(wire::AttachKey key, uint64_t lease_id) {
  const base::Status waits = visitor_.must_wait(base::now_ns());
  if (!waits.ok()) return waits;
  if (key == wire::AttachKey::kLeaseSecret) return context_->sessions->secret_of(lease_id);
  const std::shared_ptr<const access::Settings> settings = context_->front->guard()->settings();
  if (settings->mode == access::Mode::kSecret && !settings->token.empty()) return settings->token;
  return base::Status(base::Code::kRefused,
                      "this server knows no token; take a lease with 'tendril run'");
}

void ConnectionHandler::attach_secret_unknown(wire::AttachKey key) {
  visitor_.guessed_wrong(key == wire::AttachKey::kToken ? "token" : "lease's secret");
}

session::Admission ConnectionHandler::admit(const wire::Hello& hello, const session::Peer& peer) {
  return visitor_.admit(hello, peer);
}

base::Status ConnectionHandler::ask_about(access::Action action, uint64_t lease_id,
                                          const access::Guard::Details& details) {
  const std::optional<access::Principal> owner = context_->sessions->owner_of(lease_id);
  // Who may not even list learns nothing about numbers.
  if (!owner && visitor_.who().role != access::Role::kNone) {
    return base::Status(base::Code::kNotFound,
                        "there is no lease " + std::to_string(lease_id) + " on this server");
  }
  access::Guard::Details more = details;
  if (owner) more.emplace_back("owner", owner->id);
  return visitor_.ask(action, lease_text(lease_id), owner ? owner->id : std::string(), more);
}

base::Status ConnectionHandler::record(const char* what, uint64_t lease_id,
                                       const access::Decision& decision,
                                       const wire::ClientInfo& client, const base::Status& status) {
  access::Guard::Details details = {{"claims", claim_of(client)}, {"program", client.program}};
  if (decision.allowed && !status.ok()) details.emplace_back("failed", status.message());
  return visitor_.record(what, lease_text(lease_id), decision, details);
}

base::Result<wire::ListReply> ConnectionHandler::list(const wire::ListRequest& request) {
  const access::Decision decision = access::decide(visitor_.who(), access::Action::kList);
  if (!decision.allowed) return visitor_.ask(access::Action::kList, std::string(), std::string());
  return context_->list(visitor_.who(), request);
}

base::Status ConnectionHandler::may_lease() const {
  return context_->pool == nullptr || visitor_.is_administrators() ? base::Status()
                                                                   : context_->pool->may_lease();
}

void ConnectionHandler::listen_for(uint64_t lease_id) {
  context_->sessions->held_by(lease_id, number_);
  if (caller_ == nullptr) return;
  context_->sessions->when_noticed(
      lease_id, [caller = caller_](const wire::Notice& notice) { caller->notice(notice); });
}

base::Result<wire::LeaseReply> ConnectionHandler::claim(const wire::ClaimRequest& request) {
  const base::Status waits = visitor_.must_wait(base::now_ns());
  if (!waits.ok()) return waits;
  access::Decision limits{true, "lease-secret", std::string()};
  auto reply = context_->sessions->claim(request, &limits);
  const base::Status recorded =
      record("claim", request.lease_id, limits, wire::ClientInfo(), reply.status());
  if (!recorded.ok() && reply.ok()) {
    undo(request.lease_id);
    return recorded;
  }
  if (reply.ok()) listen_for(request.lease_id);
  return reply;
}

base::Result<wire::LeaseReply> ConnectionHandler::lease(const wire::LeaseRequest& request) {
  access::Decision decision = access::decide(visitor_.who(), access::Action::kLease);
  if (decision.allowed) {
    const base::Status may = may_lease();
    if (!may.ok()) decision = {false, "pool", may.message()};
  }
  base::Result<wire::LeaseReply> reply = decision.status();
  if (decision.allowed) {
    access::Decision limits{true, std::string(), std::string()};
    reply = context_->sessions->lease(visitor_.who(), request, &limits);
    if (!limits.allowed) decision = limits;
  }
  const uint64_t lease_id = reply.ok() ? reply->lease_id : 0;
  const base::Status recorded = record("lease", lease_id, decision, request.client, reply.status());
  if (!recorded.ok() && reply.ok()) {
    undo(lease_id);
    return recorded;
  }
  if (reply.ok()) listen_for(lease_id);
  return reply;
}

base::Status ConnectionHandler::release(uint64_t lease_id) {
  const base::Status asked = ask_about(access::Action::kRelease, lease_id, {});
  if (!asked.ok()) return asked;
  log(Level::kInfo, "%s (%s) ends lease %llu", visitor_.who().name.c_str(),
      visitor_.peer().text.c_str(), static_cast<unsigned long long>(lease_id));
  const std::optional<access::Principal> owner = context_->sessions->owner_of(lease_id);
  const bool own = owner && owner->id == visitor_.who().id;
  return context_->sessions->release(
      lease_id, own ? "its owner ended it" : printable(visitor_.who().name, 64) + " ended it");
}

base::Status ConnectionHandler::change(const wire::ChangeRequest& request) {
  access::Guard::Details details;
  if (request.share_millionths != 0)
    details.emplace_back("share", config::format_fraction(request.share_millionths));
  if (request.memory_bytes != 0)
    details.emplace_back("memory", config::format_size(request.memory_bytes));
  if (request.sets_priority)
    details.emplace_back("priority", std::to_string(request.terms.priority));
  if (request.sets_policy) {
    details.emplace_back("policy",
                         request.terms.policy == wire::SharePolicy::kCap ? "cap" : "lend");
  }
  const base::Status asked = ask_about(access::Action::kChange, request.lease_id, details);
  if (!asked.ok()) return asked;
  log(Level::kInfo, "%s (%s) changes lease %llu", visitor_.who().name.c_str(),
      visitor_.peer().text.c_str(), static_cast<unsigned long long>(request.lease_id));
  access::Decision limits{true, std::string(), std::string()};
  const base::Status changed = context_->sessions->change(visitor_.who(), request, &limits);
  if (!limits.allowed) {
    context_->front->guard()->record(visitor_.who(), access::action_name(access::Action::kChange),
                                     lease_text(request.lease_id), limits, details);
  }
  return changed;
}

base::Result<std::vector<uint8_t>> ConnectionHandler::park(const session::Message& message) {
  wire::ParkRequest request;
  if (!message.read(&request))
    return base::Status(base::Code::kInvalid, "the request to park a lease is malformed");
  const base::Status asked = ask_about(access::Action::kChange, request.lease_id,
                                       {{"memory", request.wake ? "wake" : "park"}});
  if (!asked.ok()) return asked;
  const std::string by = printable(visitor_.who().name, 64);
  log(Level::kInfo, "%s (%s) %s lease %llu", by.c_str(), visitor_.peer().text.c_str(),
      request.wake ? "wakes" : "parks", static_cast<unsigned long long>(request.lease_id));
  const std::optional<access::Principal> owner = context_->sessions->owner_of(request.lease_id);
  const bool own = owner && owner->id == visitor_.who().id;
  auto reply = context_->sessions->park(request, own ? "its owner parked it" : by + " parked it");
  if (!reply.ok()) return reply.status();
  return wire::encode(*reply);
}

void ConnectionHandler::lease_connection_closed(uint64_t lease_id) {
  const bool may_return = cut_ && !visitor_.peer().unix_socket;
  if (!context_->sessions->holder_gone(lease_id, number_, may_return)) return;
  const std::optional<access::Principal> owner = context_->sessions->owner_of(lease_id);
  // Somebody may have released it before, and that was recorded then.
  if (!context_->sessions->release(lease_id).ok()) return;
  access::Guard::Details details;
  if (owner) details.emplace_back("owner", owner->id);
  context_->front->guard()->note(visitor_.who(), "end", lease_text(lease_id),
                                 {true, "connection", "its holder's connection closed"}, details);
}

void ConnectionHandler::undo(uint64_t lease_id) {
  const base::Status ignored = context_->sessions->release(lease_id);
  (void)ignored;
}

base::Result<bool> ConnectionHandler::must_seal_for(const wire::AttachRequest& request,
                                                    bool has_key) const {
  const std::shared_ptr<const access::Settings> settings = context_->front->guard()->settings();
  return must_seal(with_policy(context_->sealing, settings->policy), visitor_.peer(), has_key,
                   request.insists_on_sealing);
}

base::Result<wire::AttachReply> ConnectionHandler::attach(
    const wire::AttachRequest& request, const wire::ConnectionRecord& connection) {
  const bool has_key = connection.key_bytes != 0;
  if (has_key && request.lease_id == 0) visitor_.knows_token();  // proven in the handshake
  const base::Result<bool> sealed = must_seal_for(request, has_key);
  if (!sealed.ok()) return sealed.status();
  wire::ConnectionRecord facts = connection;
  facts.sealed = sealed.value() ? 1 : 0;
  // Who knows a lease's secret attaches in its owner's name. Sessions compares the secret.
  access::Decision decision{true, "lease-secret", std::string()};
  if (request.lease_id == 0) decision = access::decide(visitor_.who(), access::Action::kLease);
  if (request.lease_id == 0 && decision.allowed) {
    const base::Status may = may_lease();
    if (!may.ok()) decision = {false, "pool", may.message()};
  }
  base::Result<wire::AttachReply> reply = decision.status();
  if (decision.allowed) {
    access::Decision limits{true, std::string(), std::string()};
    wire::AttachRequest asked = request;
    if (visitor_.peer().unix_socket) asked.outage_ms = 0;  // nothing between it and here is cut
    reply = request.only_looks
                ? context_->sessions->look(request, &limits)
                : context_->sessions->attach(visitor_.who(), asked, facts,
                                             context_->front->descriptor_socket(), &limits);
    if (!limits.allowed) decision = limits;
  }
  const uint64_t lease_id = reply.ok() ? reply->lease.lease_id : request.lease_id;
  const base::Status recorded = record(request.only_looks ? "look" : "attach", lease_id, decision,
                                       request.client, reply.status());
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
  if ((request.channel & wire::kPassageChannels) != 0) {
    const base::Result<bool> sealed = must_seal_for({}, true);
    if (!sealed.ok()) return sealed.status();
    return context_->sessions->join_passage(request, sealed.value());
  }
  return context_->sessions->join(request);
}

void ConnectionHandler::joined(const wire::JoinRequest& request, session::Connection connection) {
  if ((request.channel & wire::kPassageChannels) != 0)
    return context_->sessions->joined_passage(request, std::move(connection));
  connection.allow_stalls();
  context_->sessions->joined(request, std::move(connection));
}

base::Result<base::Fd> ConnectionHandler::fetch(const wire::JoinRequest& request) {
  return context_->sessions->fetch(request);
}

base::Result<std::vector<uint8_t>> ConnectionHandler::other(const session::Message& request,
                                                            const session::Facts& facts) {
  if (reception::Doors::answers(request.kind)) return visitor_.answer_at_door(request, facts);
  if (request.kind == uint16_t(wire::Request::kMeet)) return answer_server();
  if (request.kind == uint16_t(wire::Request::kReach)) return way_to(request);
  if (request.kind == wire::kPagePassKind) return dashboard::Port::invite(context_->page, visitor_);
  if (request.kind == uint16_t(wire::Request::kPark)) return park(request);
  return session::ControlHandler::other(request, facts);
}

// Another server that looks for somebody among those that its operator named.
base::Result<std::vector<uint8_t>> ConnectionHandler::answer_server() const {
  const base::Result<bool> sealed = must_seal_for({}, true);
  if (!sealed.ok()) return sealed.status();
  wire::MeetReply reply;
  reply.server_id = context_->server_id;
  reply.seals = sealed.value();
  return wire::encode(reply);
}

// A user, who could find it out by copying.
base::Result<std::vector<uint8_t>> ConnectionHandler::way_to(
    const session::Message& request) const {
  wire::ReachRequest asked;
  if (!request.read(&asked)) return base::Status(base::Code::kInvalid, "the request is malformed");
  const access::Decision decision = access::decide(visitor_.who(), access::Action::kList);
  if (!decision.allowed) return visitor_.ask(access::Action::kList, std::string(), std::string());
  auto reply = context_->peers->reach(asked.server_id);
  if (!reply.ok())
    return base::Status(reply.status().code(), printable(reply.status().message(), 500));
  return wire::encode(*reply);
}

base::Status ConnectionHandler::use(const wire::JoinRequest& request) {
  return context_->sessions->use(request);
}

}  // namespace tendril::daemon
