// SPDX-License-Identifier: Apache-2.0
// For tests: a small server in this process that answers offers like a worker, and a session that
// echoes and transfers.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "session/choice/trial_connections.h"
#include "session/choice/trial_entry.h"
#include "session/control/attach.h"
#include "session/control/offers.h"
#include "session/control/rejoin.h"
#include "session/control/secure_attach.h"
#include "session/control/serve.h"
#include "session/lane/lane.h"
#include "session/lane/service.h"
#include "session/lane/test_pair.h"
#include "transport/tcp/listener.h"

namespace tendril::session {

inline transport::Listener listen_here() {
  return std::move(transport::listen_tcp("127.0.0.1:0", 0).take()[0]);
}

// One session at a time; its worker is a thread that echoes.
class SmallServer : public ControlHandler {
 public:
  explicit SmallServer(const std::string& token = "", uint16_t oldest = 2, uint16_t newest = 2,
                       bool broken = false)
      : token_(token), break_sharing_(broken) {
    hello_.protocol_oldest = oldest;
    hello_.protocol_newest = newest;
    hello_.product_version = "9.9";
    listening_ = listen_here();
    unsigned char salt[8];
    base::random_bytes(salt, sizeof salt);
    share_name_ = "@tendril-test-" + base::hex(salt, sizeof salt);
    sharing_ = transport::listen_unix(share_name_).take();
    acceptors_[0] = std::thread([this] { accept_loop(listening_); });
    acceptors_[1] = std::thread([this] { accept_loop(sharing_); });
  }
  ~SmallServer() override {
    stop_ = true;
    for (std::thread& thread : acceptors_) thread.join();
    for (std::thread& thread : threads_) thread.join();
    trial_.give_up();
    for (std::thread* thread : {&worker_, &trial_thread_})
      if (thread->joinable()) thread->join();
  }
  std::string address() const { return listening_.text; }

  wire::Hello hello() override {
    wire::Hello hello = hello_;
    hello.nonce.resize(token_.empty() ? 0 : wire::kNonceBytes);
    base::random_bytes(hello.nonce.data(), hello.nonce.size());
    return hello;
  }
  base::Result<std::string> attach_secret(wire::AttachKey key, uint64_t lease_id) override {
    if (key == wire::AttachKey::kToken) return token_;
    if (lease_id == 77) return std::string("the lease's secret");
    return base::Status(base::Code::kRefused, "no such lease");
  }
  std::vector<wire::ApiRecord> apis() override { return {{"echo", 11}, {"other", 12}}; }
  Admission admit(const wire::Hello& hello, const Peer&) override {
    return admit_by_token(token_, hello.token);
  }
  base::Result<wire::ListReply> list(const wire::ListRequest&) override {
    wire::ListReply reply;
    reply.server = "small";
    return reply;
  }
  base::Result<wire::LeaseReply> lease(const wire::LeaseRequest& request) override {
    if (request.count > 4) return base::Status(base::Code::kUnavailable, "only 4 GPUs are here");
    wire::LeaseReply reply;
    reply.lease_id = 77;
    reply.slices.resize(request.count);
    return reply;
  }
  base::Status release(uint64_t lease_id) override {
    return lease_id == 77 ? base::Status() : base::Status(base::Code::kNotFound, "no such lease");
  }
  base::Status change(const wire::ChangeRequest& request) override {
    if (request.lease_id != 77) return base::Status(base::Code::kNotFound, "no such lease");
    const bool whole = request.sets_priority && request.terms.priority == -3;
    return whole ? base::Status() : base::Status(base::Code::kInternal, "something was lost");
  }
  void lease_connection_closed(uint64_t lease_id) override { closed_lease = lease_id; }
  base::Result<wire::AttachReply> attach(const wire::AttachRequest& request,
                                         const wire::ConnectionRecord& record) override {
    wire::AttachReply reply;
    reply.session_id = 5;
    reply.session_secret = "hush";
    granted_ = reply.bulk_channels = std::min<uint16_t>(request.bulk_channels, 3);
    reply.outage_ms = outlasts ? request.outage_ms : 0;
    wanted_ = granted_ + (reply.outage_ms != 0 ? 1 : 0);
    key_ = Connection(base::Fd(), record).keys();
    reply.sealed = seals && !key_.empty();
    base::Result<Choice> choice = choose(request.transports, {granted_, reply.sealed});
    if (!choice.ok()) return choice.status();
    choice_ = choice.take();
    if (leaves_trials) trial_.give_up();
    {
      std::lock_guard<std::mutex> guard(mutex_);
      entry_.open(choice_.answers, granted_, reply.outage_ms != 0);
    }
    reply.transports = choice_.answers;
    if (choice_.descriptor.valid()) reply.descriptor_socket = share_name_;
    return reply;
  }
  void attached(uint64_t, Connection connection) override {
    std::lock_guard<std::mutex> guard(mutex_);
    // As in tendrild: a worker gets a descriptor and a record.
    const wire::ConnectionRecord record = connection.record();
    command_ = Connection(connection.take_descriptor(), record);
    start_if_whole();
  }
  base::Status join(const wire::JoinRequest& request) override {
    const base::Status known = check(wire::Request::kJoin, request);
    if (!known.ok() || request.channel < wire::kTrialChannels) return known;
    std::lock_guard<std::mutex> guard(mutex_);
    return entry_.join(uint16_t(request.channel - wire::kTrialChannels), base::now_ns());
  }
  base::Status check(wire::Request kind, const wire::JoinRequest& request) {
    return is_member({5, "hush", key_}, kind, request)
               ? base::Status()
               : base::Status(base::Code::kRefused, "no such session");
  }
  void joined(const wire::JoinRequest& request, Connection connection) override {
    std::lock_guard<std::mutex> guard(mutex_);
    if (request.channel >= wire::kTrialChannels)
      return trial_.take(request.channel - wire::kTrialChannels, connection.take_descriptor());
    streams_.bulk.resize(std::max<size_t>(streams_.bulk.size(), request.channel + 1u));
    streams_.bulk[request.channel] = connection.take_descriptor();
    ++joined_;
    start_if_whole();
  }
  base::Result<base::Fd> fetch(const wire::JoinRequest& request) override {
    if (!check(wire::Request::kFetch, request).ok() || break_sharing_)
      return base::Status(base::Code::kRefused, "sharing is broken today");
    return std::move(choice_.descriptor);
  }
  base::Status use(const wire::JoinRequest& request) override {
    if (!check(wire::Request::kUse, request).ok())
      return base::Status(base::Code::kRefused, "no such session");
    std::lock_guard<std::mutex> guard(mutex_);
    start_on_ = wire::StartOn::kFirst;
    entry_.close();
    if (request.channel != wire::kUseWithConnections) joined_ = wanted_;
    start_if_whole();
    return base::Status();
  }

  std::atomic<uint64_t> closed_lease{0};
  std::atomic<bool> seals{true};
  std::atomic<bool> outlasts{false};  // cuts; nobody can connect again, though
  std::string peer_seen;              // by the worker
  std::atomic<bool> leaves_trials{false};
  std::atomic<int> trials_over{0};

 private:
  void accept_loop(const transport::Listener& listening) {
    while (!stop_) {
      bool local = false;
      base::Result<base::Fd> fd = transport::accept_on(listening, 50, &local);
      if (!fd.ok()) continue;
      std::lock_guard<std::mutex> guard(threads_mutex_);
      threads_.emplace_back(
          [this, raw = fd->release()] { serve_connection(Connection(base::Fd(raw)), this); });
    }
  }
  void start_if_whole() {
    if (!command_.valid() || joined_ != wanted_) return;
    if (wanted_ != granted_) {
      streams_.acknowledgements = std::move(streams_.bulk.back());
      streams_.bulk.pop_back();
    }
    peer_seen = command_.peer().text;
    streams_.key = command_.keys();
    streams_.command = command_.take_descriptor();
    transport::Channels channels =
        open_choice(std::move(choice_), start_on_, std::move(streams_), &candidate_).take();
    entry_.begin(base::now_ns());
    if (candidate_.half != nullptr) {
      trial_.expect(granted_);
      trial_thread_ = std::thread([this] { await_trial(); });
    }
    worker_ = std::thread([adopted = std::move(channels)]() mutable {
      auto service = Service::open(std::move(adopted.command), adopted.bulk.data(),
                                   adopted.bulk.size(), SlotPool());
      for (;;) {
        base::Result<Call> call = service->next({0, -1});
        if (!call.ok()) return;
        if (call->opcode == kEcho) service->reply(call->reply_id, 7, call->body, call->bytes);
        if (call->opcode == kTake) {
          uint64_t ask[2], got = 0;
          memcpy(ask, call->body, sizeof ask);
          Piece piece;
          while (got < ask[1] && service->take(ask[0], &piece)) {
            got += piece.bytes;
            service->release(piece);
          }
          service->reply(call->reply_id, 0, nullptr, 0);
        }
      }
    });
  }

  void await_trial() {
    std::vector<base::Fd> connections = trial_.wait(kTrialComesMs);
    if (!connections.empty())
      (void)answer_trial(std::move(candidate_), std::move(connections));
    else
      candidate_.half.reset();
    ++trials_over;
  }

  wire::Hello hello_;
  const std::string token_;
  const bool break_sharing_;
  transport::Listener listening_, sharing_;
  std::string share_name_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_, threads_mutex_;
  std::thread acceptors_[2];
  std::vector<std::thread> threads_;
  Connection command_;
  Choice choice_;
  wire::StartOn start_on_ = wire::StartOn::kConnections;
  transport::Streams streams_;
  uint16_t granted_ = 0, wanted_ = 0, joined_ = 0;
  std::string key_;
  std::thread worker_, trial_thread_;
  Candidate candidate_;
  TrialEntry entry_;
  TrialConnections trial_;
};

inline Endpoint at(const std::string& text) { return parse_endpoint(text).take(); }
inline ConnectOptions quick() {
  ConnectOptions options;
  options.timeout_ms = 2000;
  return options;
}
inline wire::AttachRequest for_echo() {
  wire::AttachRequest request;
  request.api = "echo";
  request.api_digest = 11;
  return request;
}

// *kind: of the transport that the lane sends over in the end.
inline void use_session(Attached& attached, std::string* kind = nullptr) {
  TestEvents events;
  auto lane =
      Lane::open(std::move(attached.command), attached.bulk.data(), attached.bulk.size(), &events);
  auto post = [&](uint16_t opcode, const void* body, uint32_t bytes) {
    uint32_t id = lane->new_reply_id();
    uint8_t* at = lane->begin(opcode, 0, bytes, id);
    if (at != nullptr) memcpy(at, body, bytes), lane->commit();
    return id;
  };
  Reply reply = lane->wait(post(kEcho, "hello", 5));
  ASSERT_FALSE(reply.lost);
  EXPECT_EQ(reply.bytes, 5u);
  std::vector<uint8_t> data(9u << 20);
  uint64_t ask[2] = {lane->new_transfer_id(), data.size()};
  uint32_t id = post(kTake, ask, sizeof ask);
  EXPECT_TRUE(lane->send_bulk(ask[0], data.data(), data.size()));
  EXPECT_FALSE(lane->wait(id).lost);
  if (kind != nullptr) *kind = lane->transport_kind();
  lane->close(2000);
}

}  // namespace tendril::session
