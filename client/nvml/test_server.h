// SPDX-License-Identifier: Apache-2.0
// For the tests of client/nvml: a server in this process that answers "list" with what a test says,
// over real connections.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "session/control/attach.h"
#include "session/control/serve.h"
#include "transport/tcp/listener.h"

namespace tendril::client::nvml {

class FakeServer : public session::ControlHandler {
 public:
  explicit FakeServer(const std::string& address = "127.0.0.1:0") {
    auto listening = transport::listen_tcp(address, 0);
    EXPECT_TRUE(listening.ok()) << listening.status().message();
    listening_ = std::move(listening.take()[0]);
    acceptor_ = std::thread([this] { accept_loop(); });
  }
  ~FakeServer() override {
    stop_ = true;
    acceptor_.join();
    hang_up();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string address() const { return listening_.text; }
  void say(wire::ListReply reply) {
    std::lock_guard<std::mutex> hold(mutex_);
    reply_ = std::move(reply);
  }
  void hang_up() {
    std::lock_guard<std::mutex> hold(mutex_);
    for (int fd : fds_) shutdown(fd, SHUT_RDWR);
  }
  int lists() const { return lists_; }
  int connections() const { return connections_; }
  std::string token;

  wire::Hello hello() override { return {}; }
  std::vector<wire::ApiRecord> apis() override { return {}; }
  session::Admission admit(const wire::Hello& hello, const session::Peer&) override {
    return session::admit_by_token(token, hello.token);
  }
  base::Result<wire::ListReply> list(const wire::ListRequest&) override {
    std::lock_guard<std::mutex> hold(mutex_);
    ++lists_;
    return reply_;
  }
  base::Result<wire::LeaseReply> lease(const wire::LeaseRequest&) override { return no(); }
  base::Status release(uint64_t) override { return no(); }
  base::Status change(const wire::ChangeRequest&) override { return no(); }
  void lease_connection_closed(uint64_t) override {}
  base::Result<wire::AttachReply> attach(const wire::AttachRequest&,
                                         const wire::ConnectionRecord&) override {
    return no();
  }
  void attached(uint64_t, session::Connection) override {}
  base::Status join(const wire::JoinRequest&) override { return no(); }
  void joined(const wire::JoinRequest&, session::Connection) override {}

 private:
  static base::Status no() { return base::Status(base::Code::kUnsupported, "not here"); }
  void accept_loop() {
    while (!stop_) {
      bool local = false;
      auto fd = transport::accept_on(listening_, 20, &local);
      if (!fd.ok()) continue;
      ++connections_;
      int raw = fd->release();
      std::lock_guard<std::mutex> hold(mutex_);
      fds_.push_back(raw);
      threads_.emplace_back([this, raw] {
        int copy = dup(raw);  // so that hang_up never meets a number that was given away again
        session::serve_connection(session::Connection(base::Fd(copy)), this);
        shutdown(raw, SHUT_RDWR);
      });
    }
  }

  transport::Listener listening_;
  std::thread acceptor_;
  std::vector<std::thread> threads_;
  std::vector<int> fds_;  // left open until the process ends
  std::mutex mutex_;
  wire::ListReply reply_;
  std::atomic<bool> stop_{false};
  std::atomic<int> lists_{0}, connections_{0};
};

}  // namespace tendril::client::nvml
