// SPDX-License-Identifier: Apache-2.0
// The state machine of a control connection, byte by byte and on invented time. No sockets.
#include "session/control/conversation.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "session/control/patience.h"

namespace tendril::session {
namespace {

using base::Code;
using base::Status;

constexpr uint64_t kSecond = 1'000'000'000;

class Handler : public ControlHandler {
 public:
  wire::Hello hello() override {
    wire::Hello hello;
    hello.product_version = "9.9";
    return hello;
  }
  std::vector<wire::ApiRecord> apis() override { return {{"echo", 11}}; }
  Admission admit(const wire::Hello& hello, const Peer& peer) override {
    seen = peer;
    Admission admission = admit_by_token(token, hello.token);
    admission.standing = standing;
    return admission;
  }
  base::Result<wire::ListReply> list(const wire::ListRequest& request) override {
    wire::ListReply reply;
    for (uint64_t id = request.leases_after + 1; id <= lease_count; ++id) {
      if (request.limit != 0 && reply.leases.size() == request.limit) break;
      wire::LeaseRecord lease;
      lease.lease_id = id;
      lease.slices.resize(slices);
      reply.leases.push_back(lease);
    }
    reply.more_leases = !reply.leases.empty() && reply.leases.back().lease_id < lease_count;
    return reply;
  }
  base::Result<wire::LeaseReply> lease(const wire::LeaseRequest&) override {
    wire::LeaseReply reply;
    reply.lease_id = 7;
    return reply;
  }
  Status release(uint64_t) override { return Status(Code::kNotFound, "no such lease"); }
  Status change(const wire::ChangeRequest&) override { return Status(); }
  void lease_connection_closed(uint64_t) override {}
  base::Result<wire::AttachReply> attach(const wire::AttachRequest&,
                                         const wire::ConnectionRecord&) override {
    wire::AttachReply reply;
    reply.session_id = 5;
    return reply;
  }
  void attached(uint64_t, Connection) override {}
  Status join(const wire::JoinRequest&) override { return Status(); }
  void joined(const wire::JoinRequest&, Connection) override {}

  std::string token;
  Standing standing = Standing::kMember;
  uint64_t lease_count = 0;
  size_t slices = 1;
  Peer seen;
};

// A seal that adds 1 to each byte, and is open once the peer's first byte, kTlsFirstByte, came.
class PlusOne : public Seal {
 public:
  Status start(std::vector<uint8_t>* network) override {
    network->push_back(kTlsFirstByte);
    return Status();
  }
  Status receive(const void* data, size_t bytes, std::vector<uint8_t>* plain,
                 std::vector<uint8_t>* network) override {
    const auto* at = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < bytes; ++i) {
      if (!open_) {
        open_ = true;
        network->push_back(kTlsFirstByte);
      } else if (at[i] == 0) {
        return Status(Code::kInvalid, "a byte is broken");
      } else {
        plain->push_back(uint8_t(at[i] - 1));
      }
    }
    return Status();
  }
  Status send(const void* data, size_t bytes, std::vector<uint8_t>* network) override {
    const auto* at = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < bytes; ++i) network->push_back(uint8_t(at[i] + 1));
    return Status();
  }
  void finish(std::vector<uint8_t>*) override {}
  bool is_open() const override { return open_; }
  bool has_ended() const override { return false; }
  std::string identity() const override { return "spiffe://test/user/ada"; }
  std::string proof() const override { return "certificate"; }

 private:
  bool open_ = false;
};

template <typename Body>
std::vector<uint8_t> packed(uint16_t kind, const Body& body) {
  const std::vector<uint8_t> bytes = wire::encode(body);
  return pack(kind, Code::kOk, bytes.data(), bytes.size());
}
std::vector<uint8_t> hello(const std::string& token = "", bool hears_news = false) {
  wire::Hello mine;
  mine.product_version = "1.2";
  mine.token = token;
  mine.hears_news = hears_news;
  return packed(wire::kHelloKind, mine);
}
std::vector<uint8_t> ping() { return packed(uint16_t(wire::Request::kPing), wire::PingBody{3}); }

struct Talk {
  explicit Talk(bool sealed = false, std::function<Status(Standing)> enter = {})
      : conversation(&handler,
                     {Peer(),
                      sealed ? [] { return std::unique_ptr<Seal>(new PlusOne); }
                             : std::function<std::unique_ptr<Seal>()>(),
                      std::move(enter)},
                     now) {}
  void say(const std::vector<uint8_t>& bytes) {
    conversation.receive(bytes.data(), bytes.size(), now);
  }
  // Performs what is asked, as a server does.
  void serve() {
    Message request;
    while (conversation.next(&request, now)) {
      conversation.complete(perform(request, *conversation.facts(), &handler), now);
      ++performed;
    }
  }
  // Takes everything that the conversation wants to send, and returns its first message.
  Message answer() {
    std::vector<uint8_t> all;
    while (conversation.has_output()) {
      size_t bytes = 0;
      int riding = -1;
      const uint8_t* data = conversation.output(&bytes, &riding);
      all.insert(all.end(), data, data + bytes);
      conversation.sent(bytes, now);
    }
    Message message;
    wire::ControlHeader header;
    if (all.size() < sizeof header) return message;
    std::memcpy(&header, all.data(), sizeof header);
    message.kind = header.kind;
    message.code = Code(header.code);
    message.body.assign(all.begin() + sizeof header, all.begin() + sizeof header + header.bytes);
    return message;
  }
  void greet() {
    say(hello());
    EXPECT_EQ(answer().code, Code::kOk);
  }

  uint64_t now = 100 * kSecond;
  Handler handler;
  Conversation conversation;
  int performed = 0;
};

TEST(Conversation, ByteByByteIsTheSameAsAtOnce) {
  std::vector<uint8_t> all = hello();
  for (int i = 0; i < 3; ++i) {
    const std::vector<uint8_t> more = ping();
    all.insert(all.end(), more.begin(), more.end());
  }
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Talk talk;
    for (size_t at = 0; at < all.size();) {
      const size_t step = std::min(all.size() - at, round == 0 ? 1 : 1 + random() % 40);
      talk.say({all.begin() + ptrdiff_t(at), all.begin() + ptrdiff_t(at + step)});
      talk.serve();
      at += step;
    }
    EXPECT_EQ(talk.performed, 3);
    EXPECT_FALSE(talk.conversation.is_over());
  }
}

TEST(Conversation, AStrangersProtocolGetsNoAnswer) {
  for (const char* text : {"GET / HTTP/1.1\r\n", "S", "\x16\x03\x01"}) {
    Talk talk;
    talk.say({text, text + strlen(text)});
    EXPECT_TRUE(talk.conversation.is_over()) << text;
  }
}

TEST(Conversation, AHelloIsShort) {
  Talk talk;
  wire::ControlHeader header;
  header.bytes = kHelloBytesMax + 1;
  const auto* raw = reinterpret_cast<const uint8_t*>(&header);
  talk.say({raw, raw + sizeof header});
  EXPECT_TRUE(talk.conversation.is_over());
}

TEST(Conversation, OneRequestAtATime) {
  Talk talk;
  talk.greet();
  talk.say(ping());
  talk.say(ping());
  Message request;
  ASSERT_TRUE(talk.conversation.next(&request, talk.now));
  EXPECT_TRUE(talk.conversation.is_busy());
  EXPECT_FALSE(talk.conversation.wants_input());
  EXPECT_FALSE(talk.conversation.next(&request, talk.now));
  talk.conversation.complete(perform(request, *talk.conversation.facts(), &talk.handler), talk.now);
  EXPECT_TRUE(talk.conversation.next(&request, talk.now));
}

TEST(Conversation, DeadlinesDependOnWhatIsDue) {
  Talk talk;
  EXPECT_EQ(talk.conversation.deadline_ns(), talk.now + 5 * kSecond);
  const uint64_t born = talk.now;
  std::vector<uint8_t> bytes = hello();
  for (const uint8_t byte : bytes) {  // a byte a second does not put it off
    EXPECT_EQ(talk.conversation.deadline_ns(), born + 5 * kSecond);
    talk.say({byte});
    talk.now += kSecond;
  }
  talk.answer();
  EXPECT_EQ(talk.conversation.deadline_ns(), talk.now - kSecond + 600 * kSecond);
  bytes = ping();
  talk.say({bytes[0]});
  talk.serve();
  EXPECT_EQ(talk.conversation.deadline_ns(), talk.now + 5 * kSecond);
  talk.say({bytes.begin() + 1, bytes.end()});
  Message request;
  ASSERT_TRUE(talk.conversation.next(&request, talk.now));
  EXPECT_EQ(talk.conversation.deadline_ns(), UINT64_MAX);  // it is the server's turn
  Outcome outcome = perform(request, *talk.conversation.facts(), &talk.handler);
  outcome.lease_id = 7;
  talk.conversation.complete(std::move(outcome), talk.now);
  EXPECT_EQ(talk.conversation.deadline_ns(), talk.now + 5 * kSecond);  // it must read the answer
  talk.answer();
  EXPECT_EQ(talk.conversation.deadline_ns(), UINT64_MAX);  // a lease lives while this does
}

TEST(Conversation, AStrangerMayAskLittleAndSoon) {
  Talk talk;
  talk.handler.standing = Standing::kStranger;
  talk.greet();
  EXPECT_EQ(talk.conversation.deadline_ns(), talk.now + 10 * kSecond);
  talk.now += kSecond;
  talk.say(ping());
  talk.serve();
  EXPECT_EQ(talk.answer().code, Code::kRefused);
  EXPECT_TRUE(talk.conversation.is_over());

  Talk large;
  large.handler.standing = Standing::kStranger;
  large.greet();
  wire::ControlHeader header;
  header.kind = 3;
  header.bytes = kStrangerBytesMax + 1;
  const auto* raw = reinterpret_cast<const uint8_t*>(&header);
  large.say({raw, raw + sizeof header});
  large.serve();
  EXPECT_EQ(large.answer().code, Code::kInvalid);
  EXPECT_TRUE(large.conversation.is_over());
}

TEST(Conversation, RefusalsEndIt) {
  Talk talk;
  talk.handler.token = "right";
  talk.say(hello("wrong"));
  const Message refusal = talk.answer();
  EXPECT_EQ(refusal.code, Code::kRefused);
  EXPECT_NE(refusal.text().find("token is wrong"), std::string::npos);
  EXPECT_TRUE(talk.conversation.is_over());
  EXPECT_FALSE(talk.conversation.is_admitted());

  Talk full(false, [](Standing) { return Status(Code::kUnavailable, "no place"); });
  full.say(hello());
  EXPECT_EQ(full.answer().text(), "no place");
  EXPECT_TRUE(full.conversation.is_over());
}

TEST(Conversation, NewsGoesToThoseWhoHearIt) {
  for (const bool hears : {false, true}) {
    Talk talk;
    talk.say(hello("", hears));
    talk.answer();
    talk.say(ping());
    Message request;
    ASSERT_TRUE(talk.conversation.next(&request, talk.now));
    talk.conversation.tell({"others attach first", 3, 7}, talk.now);
    EXPECT_EQ(talk.conversation.has_output(), hears);
    if (!hears) continue;
    const Message message = talk.answer();
    EXPECT_EQ(message.kind, wire::kNewsKind);
    wire::News news;
    ASSERT_TRUE(message.read(&news));
    EXPECT_EQ(news.place, 3u);
    EXPECT_EQ(news.of, 7u);
    talk.conversation.complete(perform(request, *talk.conversation.facts(), &talk.handler),
                               talk.now);
    EXPECT_EQ(talk.answer().kind, uint16_t(wire::Request::kPing));
  }
}

TEST(Conversation, AnAttachedConnectionIsHandedOverAfterItsAnswer) {
  wire::AttachRequest request;
  request.api = "echo";
  request.api_digest = 11;
  Talk talk;
  talk.greet();
  talk.say(packed(uint16_t(wire::Request::kAttach), request));
  talk.serve();
  EXPECT_FALSE(talk.conversation.hands_over());
  EXPECT_EQ(talk.answer().code, Code::kOk);
  ASSERT_TRUE(talk.conversation.hands_over());
  EXPECT_FALSE(talk.conversation.wants_input());
  EXPECT_EQ(talk.conversation.take_outcome().session_id, 5u);

  Talk early;  // bytes of the session would be lost
  early.greet();
  early.say(packed(uint16_t(wire::Request::kAttach), request));
  early.say(ping());
  early.serve();
  EXPECT_EQ(early.answer().code, Code::kInvalid);
  EXPECT_FALSE(early.conversation.hands_over());
  EXPECT_TRUE(early.conversation.is_over());
}

TEST(Conversation, TheFirstByteTellsASealedPeer) {
  Talk talk(true);
  talk.say({kTlsFirstByte});
  size_t bytes = 0;
  int riding = -1;
  ASSERT_EQ(*talk.conversation.output(&bytes, &riding), kTlsFirstByte);
  talk.conversation.sent(bytes, talk.now);
  std::vector<uint8_t> sealed;
  PlusOne seal;
  const std::vector<uint8_t> plain = hello();
  EXPECT_TRUE(seal.send(plain.data(), plain.size(), &sealed).ok());
  talk.say(sealed);
  EXPECT_EQ(*talk.conversation.output(&bytes, &riding), 'T' + 1);
  EXPECT_EQ(talk.handler.seen.identity, "spiffe://test/user/ada");
  EXPECT_TRUE(talk.conversation.facts()->sealed);
  talk.say({0});
  EXPECT_EQ(talk.conversation.failure().message(), "a byte is broken");
  EXPECT_FALSE(talk.conversation.wants_input());

  Talk plainly(true);  // the same server still speaks the plain protocol
  plainly.greet();
  EXPECT_FALSE(plainly.conversation.facts()->sealed);
}

TEST(Conversation, AListIsAsLongAsFits) {
  Talk talk;
  talk.handler.lease_count = 20'000;
  talk.handler.slices = 64;
  talk.greet();
  wire::ListRequest request;
  request.limit = wire::kListPageMax;
  size_t listed = 0, parts = 0;
  for (bool more = true; more; ++parts) {
    talk.say(packed(uint16_t(wire::Request::kList), request));
    talk.serve();
    const Message answer = talk.answer();
    ASSERT_EQ(answer.code, Code::kOk);
    wire::ListReply reply;
    ASSERT_TRUE(answer.read(&reply));
    ASSERT_FALSE(reply.leases.empty());
    listed += reply.leases.size();
    request.leases_after = reply.leases.back().lease_id;
    more = reply.more_leases;
  }
  EXPECT_EQ(listed, 20'000u);
  EXPECT_GT(parts, 39u);
  // A client that knows no parts is refused, not told that there is nothing.
  talk.say(pack(uint16_t(wire::Request::kList), Code::kOk, nullptr, 0));
  talk.serve();
  EXPECT_EQ(talk.answer().code, Code::kExhausted);
}

TEST(Patience, SaysNothingForTwoSecondsAndThenOnlyChanges) {
  Patience patience("gpu1", 0);
  EXPECT_EQ(patience.heard({"others attach first", 9, 9}, kSecond), "");
  EXPECT_EQ(patience.heard({"others attach first", 3, 7}, 2 * kSecond),
            "waiting for gpu1: position 3 of 7: others attach first");
  EXPECT_EQ(patience.heard({"others attach first", 3, 7}, 3 * kSecond), "");
  EXPECT_EQ(patience.heard({"its worker starts\x1b[2J", 0, 0}, 4 * kSecond),
            "waiting for gpu1: its worker starts?[2J");
}

}  // namespace
}  // namespace tendril::session
