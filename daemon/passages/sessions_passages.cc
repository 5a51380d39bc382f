// SPDX-License-Identifier: Apache-2.0
// Passages: a token for each, and the connection that comes for it. See sessions.h.
#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"
#include "daemon/log.h"
#include "daemon/passages/peers.h"
#include "daemon/sessions.h"
#include "session/control/secure_attach.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

constexpr uint64_t kTokenNs = 30'000'000'000;
// What is remembered of ways to servers, for so many owners and servers, a text each.
constexpr size_t kWaysMost = 1024, kWayBytesMost = 2048;

// What a request to join says of the passage and its line.
struct AskedLine {
  explicit AskedLine(const wire::JoinRequest& request)
      : number(request.channel & ~uint32_t{wire::kPassageChannels | wire::kSealedPassage}),
        passage(number % wire::kPassageLine),
        index(number / wire::kPassageLine),
        sealed((request.channel & wire::kSealedPassage) != 0) {}

  uint32_t number, passage, index;
  bool sealed;
};

wire::WorkerMessage passage_message(uint32_t number, const session::Connection& connection,
                                    bool sealed) {
  wire::WorkerMessage message = {};
  message.kind = wire::WorkerMessageKind::kPassage;
  message.reserved = number;
  message.connection = connection.record();
  message.connection.sealed = sealed ? 1 : 0;
  return message;
}

}  // namespace

wire::ExportAnswer Sessions::offer_passage(Session* session, wire::ExportRecord* record) {
  const uint64_t now_ns = base::now_ns();
  std::erase_if(session->passages,
                [now_ns](const auto& each) { return each.second.until_ns < now_ns; });
  const uint64_t number = record->bytes;
  if (session->passages.size() >= wire::kPassagesMax || number >= wire::kPassageLine)
    return wire::ExportAnswer::kFull;
  wire::PassageToken token = {};
  memcpy(token.server_id, server_id_.data(), server_id_.size());
  token.session_id = session->id;
  token.number = static_cast<uint32_t>(number);
  if (!base::random_bytes(token.key, sizeof token.key)) return wire::ExportAnswer::kFull;
  Session::Offered& offered = session->passages[token.number];
  offered.key.assign(reinterpret_cast<const char*>(token.key), sizeof token.key);
  offered.until_ns = now_ns + kTokenNs;
  memcpy(record->content, &token, sizeof token);
  return wire::ExportAnswer::kDone;
}

void Sessions::dial_passage(const Session& session, const wire::ExportRecord& record) {
  wire::PassageToken token;
  memcpy(&token, record.content, sizeof token);
  const auto number = static_cast<uint32_t>(record.bytes);
  const std::string server_id(reinterpret_cast<const char*>(token.server_id),
                              sizeof token.server_id);
  std::vector<uint8_t> known;
  const auto lease = leases_.find(session.lease_id);
  if (number / wire::kPassageLine == wire::kPassageLinesMax && lease != leases_.end()) {
    const auto way = ways_.find({lease->second->owner.id, server_id});
    if (way != ways_.end()) known.assign(way->second.begin(), way->second.end());
  }
  auto done = [this, id = session.id, worker = session.worker, number, server_id,
               known](base::Result<Peers::Passage> passage) {
    wire::WorkerMessage message = {};
    if (!passage.ok()) {
      message.kind = wire::WorkerMessageKind::kPassage;
      message.reserved = number;
      const std::string why = printable(passage.status().message(), 1000);
      (void)worker->send(message, nullptr, 0, {why.begin(), why.end()});
      return;
    }
    message = passage_message(number, passage->connection, passage->sealed);
    const int fd = passage->connection.descriptor();
    // On a thread of Peers. Before its worker has it, which then says more of it.
    const std::string server = printable(passage->server, wire::kNewsTextBytesMax);
    if (number < wire::kPassageLine)
      connected_to(id, {number, server_id, {server, passage->sealed, ""}});
    (void)worker->send(message, &fd, 1, known);
  };
  if (peers_ == nullptr || token.number >= wire::kSealedPassage)
    return done(Status(Code::kRefused, "this server makes no connections to others"));
  if (memcmp(token.server_id, server_id_.data(), server_id_.size()) == 0)
    return done(Status(Code::kInvalid, "both sessions are on this server"));
  peers_->dial(token, session.sealed, std::move(done));
}

void Sessions::connected_to(uint64_t session_id, Session::Connected passage) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (const std::shared_ptr<Session> session = find_session(session_id))
    session->connected.push_back(std::move(passage));
}

void Sessions::passage_goes(Session* session, const wire::ExportRecord& record,
                            const std::string& brief, const std::string& tail) {
  const auto passage =
      std::find_if(session->connected.begin(), session->connected.end(),
                   [&](const Session::Connected& each) { return each.number == record.bytes; });
  if (passage == session->connected.end()) return;
  passage->record.way = brief;
  const size_t end = std::min(tail.find('\n'), tail.size());
  log(Level::kInfo, "session %lu: copies to and from %s go over %s; %s",
      static_cast<unsigned long>(session->id), passage->record.server.c_str(), brief.c_str(),
      printable(tail.substr(0, end), 1000).c_str());
  const auto lease = leases_.find(session->lease_id);
  if (passage->server_id.empty() || lease == leases_.end()) return;
  const std::pair<std::string, std::string> key(lease->second->owner.id, passage->server_id);
  const std::string way = tail.substr(std::min(end + 1, tail.size()), kWayBytesMost);
  if (ways_.size() >= kWaysMost) ways_.clear();
  if (way.empty())
    ways_.erase(key);
  else
    ways_[key] = way;
}

Status Sessions::join_passage(const wire::JoinRequest& request, bool must_seal) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(request.session_id);
  const AskedLine line(request);
  // One text for all that a stranger could guess at.
  const Status unknown(Code::kNotFound, "no session of this server expects that connection");
  if (session == nullptr || session->ending || !session->started) return unknown;
  const auto offered = session->passages.find(line.passage);
  if (offered == session->passages.end() ||
      line.index >= wire::kPassageLinesMax + wire::kTrialLinesMax ||
      (offered->second.taken & 1u << line.index) != 0 ||
      offered->second.until_ns < base::now_ns() ||
      !session::is_proven(offered->second.key, wire::Request::kJoin, request))
    return unknown;
  if ((must_seal || session->sealed) && !line.sealed)
    return Status(Code::kUnsupported, "this server wants the connection sealed");
  offered->second.taken |= 1u << line.index;
  return Status();
}

void Sessions::joined_passage(const wire::JoinRequest& request, session::Connection connection) {
  std::lock_guard<std::mutex> hold(mutex_);
  const std::shared_ptr<Session> session = find_session(request.session_id);
  if (session == nullptr || session->ending) return;
  const AskedLine line(request);
  const auto offered = session->passages.find(line.passage);
  if (offered == session->passages.end()) return;
  connection.keep_alive();
  connection.set_keys(offered->second.key);
  const wire::WorkerMessage message = passage_message(line.number, connection, line.sealed);
  const int fd = connection.descriptor();
  (void)session->worker->send(message, &fd, 1);
  if (line.index != 0) return;
  session->connected.push_back({line.number, "", {connection.peer().address, line.sealed, ""}});
  log(Level::kInfo, "session %lu: a worker of %s copies to and from it",
      static_cast<unsigned long>(session->id), connection.peer().text.c_str());
}

}  // namespace tendril::daemon
