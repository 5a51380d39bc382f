// SPDX-License-Identifier: Apache-2.0
// The client's half of a control connection. Private to session/. session/control/attach.h is its
// public part.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "session/control/control_io.h"
#include "session/control/secure_attach.h"

namespace tendril::session {

class ControlClient final : public Control {
 public:
  ControlClient(Connection connection, const Endpoint& endpoint, const ConnectOptions& options)
      : connection_(std::move(connection)), endpoint_(endpoint), options_(options) {}
  // Connects and sends hello, directly followed by `more` (an encoded request).
  static base::Result<std::unique_ptr<ControlClient>> start(const Endpoint& endpoint,
                                                            const ConnectOptions& options,
                                                            const std::vector<uint8_t>& more);
  // The same without token and seal: a later request proves what must be proven.
  static base::Result<std::unique_ptr<ControlClient>> start_unproven(
      const Endpoint& endpoint, const ConnectOptions& options, const std::vector<uint8_t>& more);
  base::Status read_hello();
  base::Result<Message> read_reply(wire::Request request, int timeout_ms);
  base::Result<Message> ask(wire::Request request, const std::vector<uint8_t>& body,
                            int timeout_ms);

  const wire::Hello& server_hello() const override { return hello_; }
  base::Result<double> ping_us() override;
  base::Result<wire::ListReply> list() override;
  base::Result<wire::LeaseReply> lease(const wire::LeaseRequest& request) override;
  base::Result<wire::LeaseReply> lease(const wire::LeaseRequest& request, const LeaseWait& wait,
                                       bool* gave_up) override;
  base::Result<wire::Notice> notice(int timeout_ms) override;
  base::Status release(uint64_t lease_id) override;
  base::Status change(const wire::ChangeRequest& request) override;
  base::Result<std::vector<uint8_t>> other(uint16_t kind, const std::vector<uint8_t>& body,
                                           int timeout_ms) override;
  bool sealed() const override { return connection_.seal() != nullptr; }
  std::string proven_server() const override {
    return sealed() ? connection_.peer().identity : std::string();
  }
  int fd() const override { return connection_.descriptor(); }
  bool has_ended() override { return connection_.has_ended(); }
  // The descriptor that belongs to a session's answer; `body` is a JoinRequest.
  base::Status fetch(const std::vector<uint8_t>& body, base::Fd* descriptor);
  // The two bodies of hello. Valid after read_hello.
  const Hellos& hellos() const { return hellos_; }
  // Whether the server is on this host, by its address.
  bool is_local() const;
  Connection take_connection() { return std::move(connection_); }

 private:
  base::Status strange(const char* what) const;
  base::Status say_hello(wire::Hello hello, const std::vector<uint8_t>& more,
                         const base::Deadline& deadline);
  // Reads the next message that is not news.
  base::Result<Message> read_answer(int timeout_ms);
  // Keeps a notice. False: it is malformed.
  bool keep_notice(const Message& message);
  base::Result<Message> await_answer(const LeaseWait& wait, bool* gave_up);
  base::Status with_server(const base::Status& status) const;
  base::Result<Message> checked(base::Result<Message> message, wire::Request request) const;
  base::Result<wire::ListReply> list_part(const wire::ListRequest& request);
  static bool add_part(wire::ListRequest* request, wire::ListReply* part, wire::ListReply* whole);
  int answer_ms() const {
    return options_.answer_ms > 0 ? options_.answer_ms : options_.timeout_ms;
  }

  Connection connection_;
  Endpoint endpoint_;
  ConnectOptions options_;
  wire::Hello hello_;
  Hellos hellos_;
  std::deque<wire::Notice> notices_;  // came before an answer
};

}  // namespace tendril::session
