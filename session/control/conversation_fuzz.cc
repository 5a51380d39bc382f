// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes in arbitrary pieces as a peer's control connection, at any
// standing. The state machine must stay within its bounds, and come to an end at its deadline.
#include "session/control/conversation.h"

using namespace tendril;  // NOLINT: a program

namespace {
struct Handler : session::ControlHandler {
  wire::Hello hello() override { return {}; }
  std::vector<wire::ApiRecord> apis() override { return {{"", 0}}; }
  session::Admission admit(const wire::Hello&, const session::Peer&) override {
    return {standing, base::Status()};
  }
  base::Result<wire::ListReply> list(const wire::ListRequest&) override {
    return wire::ListReply();
  }
  base::Result<wire::LeaseReply> lease(const wire::LeaseRequest&) override {
    return wire::LeaseReply();
  }
  base::Status release(uint64_t) override { return base::Status(); }
  base::Status change(const wire::ChangeRequest&) override { return base::Status(); }
  void lease_connection_closed(uint64_t) override {}
  base::Result<wire::AttachReply> attach(const wire::AttachRequest&,
                                         const wire::ConnectionRecord&) override {
    return wire::AttachReply();
  }
  void attached(uint64_t, session::Connection) override {}
  base::Status join(const wire::JoinRequest&) override { return base::Status(); }
  void joined(const wire::JoinRequest&, session::Connection) override {}
  session::Standing standing = session::Standing::kMember;
};

void check(bool holds) {
  if (!holds) __builtin_trap();
}
}  // namespace

// Byte 0: bit 0 begins behind a good hello, bit 1 makes the peer a stranger, the rest is how large
// the pieces are.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < 2) return 0;
  Handler handler;
  if ((data[0] & 2) != 0) handler.standing = session::Standing::kStranger;
  const size_t piece = 1 + size_t(data[0] >> 2) * 17;
  uint64_t now_ns = 1;
  session::Conversation conversation(&handler, {}, now_ns);
  if ((data[0] & 1) != 0) {
    const std::vector<uint8_t> body = wire::encode(wire::Hello());
    const auto all = session::pack(wire::kHelloKind, base::Code::kOk, body.data(), body.size());
    conversation.receive(all.data(), all.size(), now_ns);
    check(conversation.is_admitted());
  }
  for (size_t at = 1; at < bytes; at += piece) {
    now_ns += 1000;
    if (conversation.wants_input())
      conversation.receive(data + at, std::min(piece, bytes - at), now_ns);
    session::Message request;
    while (conversation.next(&request, now_ns)) {
      check(conversation.is_busy() && !conversation.wants_input());
      conversation.tell({"wait", 1, 2}, now_ns);
      conversation.complete(perform(request, *conversation.facts(), &handler), now_ns);
    }
    check(conversation.is_over() || conversation.deadline_ns() > now_ns);
    while (conversation.has_output()) {
      size_t size = 0;
      int riding = -1;
      check(conversation.output(&size, &riding) != nullptr && size > 0);
      conversation.sent(1 + size / 2, now_ns);
    }
    if (conversation.is_over() || conversation.hands_over()) break;
  }
  return 0;
}
