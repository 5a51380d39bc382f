// SPDX-License-Identifier: Apache-2.0
// A sealed channel against somebody in between who changes, drops, repeats, reorders and cuts.
// transport_test.cc has what it shares with all channels.
#include "transport/sealed/sealed.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "transport/testing/test_channels.h"

namespace tendril::transport {
namespace {

using base::Code;
using base::Result;
using base::Status;

Status send_text(Channel& channel, const std::string& text) {
  const iovec part{const_cast<char*>(text.data()), text.size()};
  return channel.send(&part, 1);
}

std::string receive_text(Channel& channel, size_t bytes) {
  std::string text(bytes, 0);
  Result<size_t> got = channel.receive(&text[0], bytes, bytes, {0, 5000});
  return got.ok() ? text : got.status().message();
}

// Sealed ends whose bytes this test carries by hand.
struct Wire {
  std::unique_ptr<Channel> sender, receiver;
  std::unique_ptr<Channel> from_sender, to_receiver;

  explicit Wire(uint16_t sends_as = 0, uint16_t receives_as = 0, uint64_t records_per_key = 100) {
    const std::string key(kSessionKeyBytes, 'k');
    sender =
        sealed(unix_pair(&from_sender).take(), key, sends_as, SealedEnd::kClient, records_per_key)
            .take();
    receiver = sealed(unix_pair(&to_receiver).take(), key, receives_as, SealedEnd::kWorker,
                      records_per_key)
                   .take();
  }
  // The record that carries the text.
  std::string record(const std::string& text) {
    EXPECT_TRUE(send_text(*sender, text).ok());
    return receive_text(*from_sender, text.size() + kRecordExtraBytes);
  }
  void deliver(const std::string& bytes) { EXPECT_TRUE(send_text(*to_receiver, bytes).ok()); }
  Status next() {
    char byte;
    return receiver->receive(&byte, 1, 1, {0, 5000}).status();
  }
};

void expect_spoiled(Wire& wire) {
  for (int i = 0; i < 2; ++i) {  // for ever
    const Status status = wire.next();
    EXPECT_EQ(status.code(), Code::kClosed);
    EXPECT_NE(status.message().find("does not fit its key"), std::string::npos) << status.message();
  }
  EXPECT_NE(send_text(*wire.receiver, "x").message().find("does not fit its key"),
            std::string::npos);
}

TEST(Sealed, ShowsNothingAndArrives) {
  Wire wire;
  const std::string record = wire.record("a secret");
  EXPECT_EQ(record.find("secret"), std::string::npos);
  EXPECT_EQ(record.substr(0, 3), "\x17\x03\x03");
  wire.deliver(record);
  EXPECT_EQ(receive_text(*wire.receiver, 8), "a secret");
  EXPECT_STREQ(wire.sender->kind(), "sealed(unix)");
}

TEST(Sealed, EveryChangedBitIsNoticed) {
  const size_t bytes = Wire().record("hello").size();
  for (size_t bit = 0; bit < bytes * 8; ++bit) {
    if (bit / 8 == 3 || bit / 8 == 4) continue;  // lengths: below
    Wire wire;
    std::string record = wire.record("hello");
    record[bit / 8] = char(record[bit / 8] ^ (1 << bit % 8));
    wire.deliver(record);
    const Status status = wire.next();
    EXPECT_NE(status.message().find("does not fit its key"), std::string::npos) << bit;
  }
}

TEST(Sealed, ChangedLengthsAreNoticed) {
  for (const int length : {0, 16, 21, 23, 0x3fff, 0x4012, 0xffff}) {
    Wire wire;
    std::string record = wire.record("hello");
    record[3] = char(length >> 8);
    record[4] = char(length);
    wire.deliver(record + std::string(20'000, 'x'));
    EXPECT_NE(wire.next().message().find("does not fit"), std::string::npos) << length;
  }
}

TEST(Sealed, RepeatedRecordsAreNoticed) {
  Wire wire;
  const std::string record = wire.record("x");
  wire.deliver(record + record);
  EXPECT_TRUE(wire.next().ok());
  expect_spoiled(wire);
}

TEST(Sealed, MissingRecordsAreNoticed) {
  Wire wire;
  (void)wire.record("x");
  wire.deliver(wire.record("y"));
  expect_spoiled(wire);
}

TEST(Sealed, ReorderedRecordsAreNoticed) {
  Wire wire;
  const std::string first = wire.record("x"), second = wire.record("y");
  wire.deliver(second + first);
  expect_spoiled(wire);
}

TEST(Sealed, RecordsOfAnotherChannelAreNoticed) {
  Wire wire(1, 2);
  wire.deliver(wire.record("x"));
  expect_spoiled(wire);
}

TEST(Sealed, ReflectedRecordsAreNoticed) {
  Wire wire;
  const std::string record = wire.record("x");
  EXPECT_TRUE(send_text(*wire.from_sender, record).ok());
  char byte;
  const Status status = wire.sender->receive(&byte, 1, 1, {0, 5000}).status();
  EXPECT_NE(status.message().find("does not fit its key"), std::string::npos);
}

TEST(Sealed, AStreamThatIsCutSaysSo) {
  Wire inside;
  inside.deliver(inside.record("hello").substr(0, 12));
  inside.to_receiver->shutdown();
  EXPECT_NE(inside.next().message().find("middle of a sealed record"), std::string::npos);
  Wire between;
  between.deliver(between.record("x"));
  between.to_receiver->shutdown();
  EXPECT_TRUE(between.next().ok());
  EXPECT_EQ(between.next().message(), "the peer closed the connection");
}

TEST(Sealed, KeysChangeAndOldOnesDoNotFit) {
  Wire wire(0, 0, 2);
  std::vector<std::string> records;
  for (int i = 0; i < 7; ++i) records.push_back(wire.record("same"));
  for (const std::string& record : records) {
    wire.deliver(record);
    EXPECT_EQ(receive_text(*wire.receiver, 4), "same");
  }
  wire.deliver(records[1]);  // the number that comes next, under an earlier key
  EXPECT_FALSE(wire.next().ok());
  Wire other(0, 0, 3);
  for (const std::string& record : records) other.deliver(record);
  EXPECT_EQ(receive_text(*other.receiver, 4), "same");
  EXPECT_EQ(receive_text(*other.receiver, 4), "same");
  EXPECT_FALSE(other.next().ok()) << "the third record has another key at the sender";
}

TEST(Sealed, NothingIsTheSameTwice) {
  Wire wire;
  EXPECT_NE(wire.record("same"), wire.record("same"));
}

TEST(Sealed, APartlyTakenSendGoesOn) {
  std::unique_ptr<Channel> there;
  std::unique_ptr<Channel> here = unix_pair(&there).take();
  here = sealed_pair(std::move(here), &there);
  std::vector<uint8_t> data(8u << 20), got(8u << 20);
  for (size_t i = 0; i < data.size(); ++i) data[i] = uint8_t(i * 7 + i / 251);
  size_t sent = 0, received = 0, stops = 0;
  while (sent < data.size()) {
    const iovec part{data.data() + sent, data.size() - sent};
    Result<size_t> taken = here->send_some(&part, 1, 0);
    ASSERT_TRUE(taken.ok());
    sent += *taken;
    if (*taken != 0) continue;
    ++stops;
    Result<size_t> more =
        there->receive(got.data() + received, 1, got.size() - received, {0, 5000});
    ASSERT_TRUE(more.ok());
    received += *more;
  }
  ASSERT_TRUE(
      there->receive(got.data() + received, got.size() - received, got.size() - received, {}).ok());
  EXPECT_GT(stops, 10u);
  EXPECT_EQ(data, got);
}

TEST(Sealed, RefusesAKeyOfAnotherSize) {
  std::unique_ptr<Channel> there;
  EXPECT_FALSE(sealed(unix_pair(&there).take(), "short", 0, SealedEnd::kClient).ok());
}

}  // namespace
}  // namespace tendril::transport
