// SPDX-License-Identifier: Apache-2.0
// See peers.h.
#include "daemon/passages/peers.h"

#include <cstring>
#include <utility>

#include "base/clock.h"
#include "config/servers.h"
#include "config/text.h"
#include "session/control/secure_attach.h"

namespace tendril::daemon {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr unsigned kThreads = 4;
constexpr size_t kWaitingMax = 64;
constexpr int kReachMs = 3000;
constexpr int kLookMs = 10'000;       // for one server among those that are named
constexpr unsigned kReachingMax = 2;  // at a time: each holds a thread that leases need, too
constexpr size_t kPeersMax = 1024;

Status nobody_named() {
  return Status(Code::kNotFound,
                "its operator has named no other servers (tendril serve --peers), and no pool has");
}

// What somebody who is named answered instead of being the one that is looked for.
void note(const session::Endpoint& endpoint, const Status& status, std::string* against) {
  *against += (against->empty() ? "" : "; ") + endpoint.text + ": " + status.message();
}

Status found_nowhere(const std::vector<session::Endpoint>& endpoints, const std::string& against) {
  if (!against.empty()) return Status(Code::kUnavailable, against);
  if (endpoints.empty()) return nobody_named();
  return Status(Code::kNotFound,
                "its operator has not named the other server (tendril serve --peers), nor has a "
                "pool");
}

std::string server_id_of(const wire::PassageToken& token) {
  return {reinterpret_cast<const char*>(token.server_id), sizeof token.server_id};
}

std::string passage_key(const wire::PassageToken& token) {
  return {reinterpret_cast<const char*>(token.key), sizeof token.key};
}

}  // namespace

Result<std::unique_ptr<Peers>> Peers::open(const std::string& file, const PoolPeers* pool,
                                           Rule rule, std::vector<std::string> interfaces) {
  std::unique_ptr<Peers> peers(new Peers(file, pool, std::move(rule), std::move(interfaces)));
  const auto read = peers->read();
  if (!read.ok()) return read.status();
  for (unsigned i = 0; i < kThreads && !(file.empty() && pool == nullptr); ++i)
    peers->threads_.emplace_back([each = peers.get()] { each->work(); });
  return peers;
}

Peers::~Peers() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Peers::work() {
  std::unique_lock<std::mutex> hold(mutex_);
  while (!ending_) {
    if (waiting_.empty()) {
      changed_.wait(hold);
      continue;
    }
    const std::function<void()> next = std::move(waiting_.front());
    waiting_.pop_front();
    hold.unlock();
    next();
    hold.lock();
  }
}

Result<std::vector<session::Endpoint>> Peers::read() const {
  std::vector<session::Endpoint> endpoints;
  if (file_.empty()) return endpoints;
  Result<std::string> text = config::read_file(file_);
  if (!text.ok()) return text.status();
  for (const config::Server& server : config::servers_in_file(*text, file_)) {
    Result<session::Endpoint> endpoint = session::parse_endpoint(server.endpoint);
    if (!endpoint.ok())
      return Status(endpoint.status().code(), server.where + ": " + endpoint.status().message());
    if (endpoints.size() < kPeersMax) endpoints.push_back(endpoint.take());
  }
  return endpoints;
}

std::vector<std::string> Peers::names() const {
  std::vector<std::string> names;
  auto endpoints = read();
  if (!endpoints.ok()) return names;
  for (const session::Endpoint& endpoint : *endpoints) names.push_back(endpoint.text);
  return names;
}

void Peers::dial(const wire::PassageToken& token, bool sealed, Done done) {
  if (threads_.empty()) return done(nobody_named());
  std::unique_lock<std::mutex> hold(mutex_);
  if (waiting_.size() < kWaitingMax) {
    waiting_.push_back([this, token, sealed, done] { done(find(token, sealed)); });
    changed_.notify_one();
    return;
  }
  hold.unlock();
  done(Status(Code::kExhausted, "this server is making many such connections; try again"));
}

// Of the pool's servers the id says which one is meant. Of the operator's it is not known before
// one has answered. So each is asked in turn.
Result<std::vector<session::Endpoint>> Peers::read_for(const std::string& server_id) {
  auto endpoints = read();
  if (!endpoints.ok()) return endpoints;
  std::vector<session::Endpoint> all;
  if (pool_ != nullptr) all = pool_->with_passage_id(server_id);
  std::lock_guard<std::mutex> hold(mutex_);
  const auto known = known_.find(server_id);
  for (size_t i = 0; known != known_.end() && i < endpoints->size(); ++i)
    if ((*endpoints)[i].text == known->second) std::swap((*endpoints)[0], (*endpoints)[i]);
  all.insert(all.end(), endpoints->begin(), endpoints->end());
  return all;
}

void Peers::learn(const std::string& server_id, const session::Endpoint& endpoint) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (known_.size() >= kPeersMax) known_.clear();
  known_[server_id] = endpoint.text;
}

// Only the right one knows the passage.
Result<Peers::Passage> Peers::find(const wire::PassageToken& token, bool sealed) {
  const std::string id = server_id_of(token);
  auto endpoints = read_for(id);
  if (!endpoints.ok()) return endpoints.status();
  std::string against;
  for (const session::Endpoint& endpoint : *endpoints) {
    Result<Passage> passage = ask(endpoint, token, sealed);
    // It wants the bytes sealed, which this end did not propose.
    if (!passage.ok() && passage.status().code() == Code::kUnsupported && !sealed)
      passage = ask(endpoint, token, true);
    if (passage.ok()) {
      learn(id, endpoint);
      passage->server = endpoint.text;
      return passage;
    }
    if (passage.status().code() == Code::kNotFound) continue;
    note(endpoint, passage.status(), &against);
  }
  return found_nowhere(*endpoints, against);
}

Result<wire::ReachReply> Peers::reach(const std::string& server_id) {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    if (reaching_ >= kReachingMax)
      return Status(Code::kExhausted, "this server is asked by many for the way; try again");
    ++reaching_;
  }
  auto reply = look_for(server_id);
  std::lock_guard<std::mutex> hold(mutex_);
  --reaching_;
  return reply;
}

Result<wire::ReachReply> Peers::look_for(const std::string& server_id) {
  auto endpoints = read_for(server_id);
  if (!endpoints.ok()) return endpoints.status();
  std::string against;
  Result<session::ConnectOptions> options = this->options();
  if (!options.ok()) return options.status();
  const base::Deadline deadline(kLookMs);
  for (const session::Endpoint& endpoint : *endpoints) {
    if (deadline.passed()) return Status(Code::kTimeout, "others do not answer: " + against);
    double round_trip_us = 0;
    Result<wire::MeetReply> met = session::meet(endpoint, *options, &round_trip_us);
    if (!met.ok()) note(endpoint, met.status(), &against);
    if (!met.ok() || met->server_id != server_id) continue;
    const Result<bool> ruled = rules_sealed(endpoint);
    if (!ruled.ok()) return ruled.status();
    learn(server_id, endpoint);
    wire::ReachReply reply;
    reply.server = endpoint.text.substr(0, wire::kNewsTextBytesMax);
    reply.sealed = ruled.value() || met->seals;
    reply.round_trip_us = static_cast<uint32_t>(round_trip_us);
    return reply;
  }
  return found_nowhere(*endpoints, against);
}

// An interface may get its addresses late, or others.
Result<session::ConnectOptions> Peers::options() const {
  session::ConnectOptions options;
  options.timeout_ms = kReachMs;
  if (interfaces_.empty()) return options;
  options.from = transport::local_addresses(interfaces_);
  if (!options.from.empty()) return options;
  return Status(Code::kUnavailable,
                "none of the interfaces that --data-interface names has an "
                "address now; 'ip address' lists them");
}

Result<bool> Peers::rules_sealed(const session::Endpoint& endpoint) const {
  session::Peer there;
  there.text = there.address = endpoint.host;
  there.local = endpoint.host == "localhost" || endpoint.host.rfind("127.", 0) == 0;
  return rule_(there);
}

Result<Peers::Passage> Peers::ask(const session::Endpoint& endpoint,
                                  const wire::PassageToken& token, bool sealed) const {
  const Result<bool> ruled = rules_sealed(endpoint);
  if (!ruled.ok()) return ruled.status();
  Passage passage;
  passage.sealed = sealed || ruled.value();
  wire::JoinRequest request;
  request.session_id = token.session_id;
  request.channel = static_cast<uint16_t>(wire::kPassageChannels | token.number |
                                          (passage.sealed ? wire::kSealedPassage : 0));
  request.proof = session::prove_join(passage_key(token), wire::Request::kJoin, request);
  Result<session::ConnectOptions> options = this->options();
  if (!options.ok()) return options.status();
  Result<session::Connection> connection = session::take_passage(endpoint, *options, request);
  if (!connection.ok()) return connection.status();
  passage.connection = connection.take();
  passage.connection.keep_alive();
  passage.connection.set_keys(passage_key(token));
  return passage;
}

}  // namespace tendril::daemon
