// SPDX-License-Identifier: Apache-2.0
// See peers.h.
#include "daemon/passages/peers.h"

#include <cstring>
#include <utility>

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
constexpr size_t kPeersMax = 1024;

Status nobody_named() {
  return Status(Code::kNotFound, "its operator has named no other servers (tendril serve --peers)");
}

std::string server_id_of(const wire::PassageToken& token) {
  return {reinterpret_cast<const char*>(token.server_id), sizeof token.server_id};
}

std::string passage_key(const wire::PassageToken& token) {
  return {reinterpret_cast<const char*>(token.key), sizeof token.key};
}

}  // namespace

Result<std::unique_ptr<Peers>> Peers::open(const std::string& file, Rule rule) {
  std::unique_ptr<Peers> peers(new Peers(file, std::move(rule)));
  const auto read = peers->read();
  if (!read.ok()) return read.status();
  for (unsigned i = 0; i < kThreads && !file.empty(); ++i)
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

// The server's id says which one is meant, and is not known before one has answered. So each is
// asked in turn. Only the right one knows the passage.
Result<Peers::Passage> Peers::find(const wire::PassageToken& token, bool sealed) {
  auto endpoints = read();
  if (!endpoints.ok()) return endpoints.status();
  const std::string id = server_id_of(token);
  {
    std::lock_guard<std::mutex> hold(mutex_);
    const auto known = known_.find(id);
    for (size_t i = 0; known != known_.end() && i < endpoints->size(); ++i)
      if ((*endpoints)[i].text == known->second) std::swap((*endpoints)[0], (*endpoints)[i]);
  }
  std::string against;
  for (const session::Endpoint& endpoint : *endpoints) {
    Result<Passage> passage = ask(endpoint, token, sealed);
    // It wants the bytes sealed, which this end did not propose.
    if (!passage.ok() && passage.status().code() == Code::kUnsupported && !sealed)
      passage = ask(endpoint, token, true);
    if (passage.ok()) {
      std::lock_guard<std::mutex> hold(mutex_);
      if (known_.size() >= kPeersMax) known_.clear();
      known_[id] = endpoint.text;
      return passage;
    }
    if (passage.status().code() == Code::kNotFound) continue;
    against += (against.empty() ? "" : "; ") + endpoint.text + ": " + passage.status().message();
  }
  if (!against.empty()) return Status(Code::kUnavailable, against);
  if (endpoints->empty()) return nobody_named();
  return Status(Code::kNotFound,
                "its operator has not named the other server (tendril serve --peers)");
}

Result<Peers::Passage> Peers::ask(const session::Endpoint& endpoint,
                                  const wire::PassageToken& token, bool sealed) const {
  session::Peer there;
  there.text = there.address = endpoint.host;
  there.local = endpoint.host == "localhost" || endpoint.host.rfind("127.", 0) == 0;
  Result<bool> ruled = rule_(there);
  if (!ruled.ok()) return ruled.status();
  Passage passage;
  passage.sealed = sealed || *ruled;
  wire::JoinRequest request;
  request.session_id = token.session_id;
  request.channel = static_cast<uint16_t>(wire::kPassageChannels | token.number |
                                          (passage.sealed ? wire::kSealedPassage : 0));
  request.proof = session::prove_join(passage_key(token), wire::Request::kJoin, request);
  session::ConnectOptions options;
  options.timeout_ms = kReachMs;
  Result<session::Connection> connection = session::take_passage(endpoint, options, request);
  if (!connection.ok()) return connection.status();
  passage.connection = connection.take();
  passage.connection.keep_alive();
  passage.connection.set_keys(passage_key(token));
  return passage;
}

}  // namespace tendril::daemon
