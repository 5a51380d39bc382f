// SPDX-License-Identifier: Apache-2.0
// Both halves of TLS against each other, in memory.
#include "identity/tls.h"

#include <gtest/gtest.h>

#include "identity/test_pool.h"
#include "session/control/attach.h"
#include "wire/control.h"

namespace tendril::identity {
namespace {

using base::Code;
using base::Status;
using Bytes = std::vector<uint8_t>;

std::string text_of(const Bytes& bytes) { return std::string(bytes.begin(), bytes.end()); }

// A client and a server whose bytes go through this test.
struct Line {
  Line(TlsClient* client, TlsServer* server, const char* endpoint = "gpu1")
      : near(client->secure(session::parse_endpoint(endpoint).take()).take()),
        far(server->accept()) {}

  // Until nobody has anything to say.
  void run(size_t piece = 1 << 20) {
    near_status = near->start(&to_server);
    while (!to_server.empty() || !to_client.empty()) {
      Bytes now;
      now.swap(to_server);
      for (size_t at = 0; at < now.size() && far_status.ok(); at += piece) {
        far_status =
            far->receive(now.data() + at, std::min(piece, now.size() - at), &at_server, &to_client);
      }
      now.clear();
      now.swap(to_client);
      for (size_t at = 0; at < now.size() && near_status.ok(); at += piece) {
        near_status = near->receive(now.data() + at, std::min(piece, now.size() - at), &at_client,
                                    &to_server);
      }
      if (!near_status.ok() && !far_status.ok()) break;
      if (!near_status.ok()) to_client.clear();
      if (!far_status.ok()) to_server.clear();
    }
  }
  // The refusal that the client finds inside TLS.
  std::string refusal() const {
    const size_t header = sizeof(wire::ControlHeader);
    return at_client.size() > header ? text_of(at_client).substr(header) : "";
  }

  std::unique_ptr<session::Seal> near, far;
  Bytes to_server, to_client, at_server, at_client;
  Status near_status, far_status;
};

class TlsTest : public testing::Test {
 protected:
  void SetUp() override { test_time_s = kTestNowS; }
  std::shared_ptr<TlsServer> server(const OwnIdentity& own) {
    return TlsServer::with_identity(own, test_clock).take();
  }
  std::shared_ptr<TlsClient> client(const std::vector<OwnIdentity>& own) {
    return TlsClient::with_identities(own, test_clock).take();
  }
  const TestPool pool_{"lab"}, other_{"other"};
  const OwnIdentity gpu1_ = pool_.issue_to(Role::kServer, "gpu1", 10 * kDayS);
  const OwnIdentity alice_ = pool_.issue_to(Role::kUser, "alice");
};

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST_F(TlsTest, BothProveThemselvesAndTalk) {
  for (const size_t piece : {size_t{1}, size_t{100}, size_t{1} << 20}) {
    const auto far = server(gpu1_);
    const auto near = client({alice_});
    Line line(near.get(), far.get());
    line.run(piece);
    ASSERT_TRUE(line.near_status.ok()) << line.near_status.message();
    ASSERT_TRUE(line.far_status.ok()) << line.far_status.message();
    ASSERT_TRUE(line.near->is_open() && line.far->is_open());
    EXPECT_EQ(line.far->identity(), "spiffe://lab/user/alice");
    EXPECT_EQ(line.near->identity(), "spiffe://lab/server/gpu1");
    EXPECT_EQ(line.far->proof(), "certificate");
    const std::string words(100'000, 'w');
    ASSERT_TRUE(line.near->send(words.data(), words.size(), &line.to_server).ok());
    EXPECT_EQ(text_of(line.to_server).find("wwww"), std::string::npos);
    ASSERT_TRUE(line.far
                    ->receive(line.to_server.data(), line.to_server.size(), &line.at_server,
                              &line.to_client)
                    .ok());
    EXPECT_EQ(text_of(line.at_server), words);
    line.to_server.clear();
    line.near->finish(&line.to_server);
    ASSERT_TRUE(line.far
                    ->receive(line.to_server.data(), line.to_server.size(), &line.at_server,
                              &line.to_client)
                    .ok());
    EXPECT_TRUE(line.far->has_ended());
  }
}

TEST_F(TlsTest, AChangedByteEndsIt) {
  const auto far = server(gpu1_);
  const auto near = client({alice_});
  Line line(near.get(), far.get());
  line.run();
  ASSERT_TRUE(line.near->send("abc", 3, &line.to_server).ok());
  Bytes changed = line.to_server;
  changed.back() ^= 1;
  EXPECT_FALSE(
      line.far->receive(changed.data(), changed.size(), &line.at_server, &line.to_client).ok());
}

TEST_F(TlsTest, AReplayedRecordEndsIt) {
  const auto far = server(gpu1_);
  const auto near = client({alice_});
  Line line(near.get(), far.get());
  line.run();
  ASSERT_TRUE(line.near->send("abc", 3, &line.to_server).ok());
  const Bytes once = line.to_server;
  EXPECT_TRUE(line.far->receive(once.data(), once.size(), &line.at_server, &line.to_client).ok());
  EXPECT_FALSE(line.far->receive(once.data(), once.size(), &line.at_server, &line.to_client).ok());
  EXPECT_EQ(text_of(line.at_server), "abc");
}

// Everything that a client sent to one connection, sent again to another one.
TEST_F(TlsTest, AReplayedHandshakeIsRefused) {
  const auto far = server(gpu1_);
  const auto near = client({alice_});
  Line line(near.get(), far.get());
  Bytes sent, none;
  ASSERT_TRUE(line.near->start(&line.to_server).ok());
  sent = line.to_server;
  ASSERT_TRUE(line.far->receive(sent.data(), sent.size(), &none, &line.to_client).ok());
  line.to_server.clear();
  ASSERT_TRUE(
      line.near->receive(line.to_client.data(), line.to_client.size(), &none, &line.to_server)
          .ok());
  ASSERT_TRUE(line.near->send("hello", 5, &line.to_server).ok());
  sent.insert(sent.end(), line.to_server.begin(), line.to_server.end());
  const auto second = far->accept();
  Bytes plain, back;
  EXPECT_FALSE(second->receive(sent.data(), sent.size(), &plain, &back).ok());
  EXPECT_TRUE(plain.empty());
  EXPECT_EQ(second->identity(), "");
}

TEST_F(TlsTest, ClientsWithBadCertificatesHearWhy) {
  const auto far = server(gpu1_);
  struct Case {
    OwnIdentity own;
    int64_t now_s;
    const char* part;
  };
  OwnIdentity foreign = other_.issue_to(Role::kUser, "alice");
  foreign.authority = pool_.authority;  // it believes the server, and shows what is its own
  const Case cases[] = {{alice_, kTestNowS + 2 * kDayS, "expired"},
                        {pool_.issue_to(Role::kUser, "bob", kDayS, kTestNowS + 5 * kDayS),
                         kTestNowS, "set the clock"},
                        {foreign, kTestNowS, "foreign"}};
  for (const Case& one : cases) {
    test_time_s = one.now_s;
    const auto near = client({one.own});
    Line line(near.get(), far.get());
    line.run();
    EXPECT_EQ(line.far_status.code() == Code::kRefused || line.far_status.code() == Code::kMismatch,
              true);
    EXPECT_PRED2(has, line.far_status.message(), one.part);
    EXPECT_PRED2(has, line.refusal(), one.part);
    EXPECT_EQ(line.far->identity(), "");
    EXPECT_EQ(text_of(line.at_server), "");
  }
}

TEST_F(TlsTest, RevokingReachesOpenConnections) {
  const auto far = server(gpu1_);
  const auto near = client({alice_});
  Line line(near.get(), far.get());
  line.run();
  ASSERT_TRUE(line.far->is_open());
  DenyList list;
  list.add(alice_.facts.serial, alice_.facts.ends_s);
  far->deny(list);
  ASSERT_TRUE(line.near->send("abc", 3, &line.to_server).ok());
  const Status refused = line.far->receive(line.to_server.data(), line.to_server.size(),
                                           &line.at_server, &line.to_client);
  EXPECT_PRED2(has, refused.message(), "revoked");
  Line next(near.get(), far.get());
  next.run();
  EXPECT_PRED2(has, next.refusal(), "revoked");
  Line slow(near.get(), far.get());
  slow.run(50);
  EXPECT_PRED2(has, slow.refusal(), "revoked") << "also if its proof comes in pieces";
}

TEST_F(TlsTest, AConnectionOutlivesItsCertificateIfANewerOneIsShown) {
  const auto far = server(gpu1_);
  far->set_grace(60);
  const auto goes_on = [](Line& line) {
    return line.far->receive(nullptr, 0, &line.at_server, &line.to_client);
  };
  const auto connect = [&](Role role, const char* name, int64_t lifetime_s, int64_t now_s) {
    const OwnIdentity own = pool_.issue_to(role, name, lifetime_s, now_s);
    const auto near = client({own});
    auto line = std::make_unique<Line>(near.get(), far.get());
    line->run();
    EXPECT_TRUE(line->far->is_open()) << line->far_status.message();
    return std::make_pair(std::move(line), own.facts.serial);
  };
  const auto alices = connect(Role::kUser, "alice", 600, kTestNowS);
  const auto bobs = connect(Role::kUser, "bob", 600, kTestNowS);
  test_time_s = kTestNowS + 500;
  const auto renewed = connect(Role::kUser, "bob", 600, test_time_s);
  const auto other_role = connect(Role::kOperator, "alice", 600, test_time_s);
  test_time_s = kTestNowS + 659;
  EXPECT_TRUE(goes_on(*alices.first).ok());
  test_time_s = kTestNowS + 661;
  EXPECT_TRUE(has(goes_on(*alices.first).message(), "ended at"));
  EXPECT_TRUE(has(goes_on(*alices.first).message(), "shown no newer one"));
  EXPECT_TRUE(goes_on(*bobs.first).ok());
  // Revoking the newer one ends the old connection, too.
  DenyList list;
  list.add(renewed.second, kTestNowS + 1100);
  far->deny(list);
  EXPECT_TRUE(has(goes_on(*bobs.first).message(), "was revoked"));
  far->deny(DenyList());
  test_time_s = kTestNowS + 1161;
  EXPECT_TRUE(has(goes_on(*bobs.first).message(), "ended at"));
}

TEST_F(TlsTest, ClientsRefuseWhoStandsInForAServer) {
  const auto near = client({alice_});
  const std::pair<OwnIdentity, const char*> cases[] = {
      {pool_.issue_to(Role::kUser, "mallory"), "purpose"},
      {other_.issue_to(Role::kServer, "gpu1"), "foreign"},
      {pool_.issue_to(Role::kServer, "gpu1", 1), "expired"}};
  for (const auto& [own, part] : cases) {
    test_time_s = kTestNowS + 10;
    const auto far = server(own);
    Line line(near.get(), far.get());
    line.run();
    EXPECT_PRED2(has, line.near_status.message(), part);
    EXPECT_FALSE(line.near->is_open());
    EXPECT_EQ(text_of(line.at_server), "");
    EXPECT_EQ(line.far->identity(), "");
  }
  const auto stranger = client({});
  const auto far = server(gpu1_);
  Line line(stranger.get(), far.get());
  line.run();
  EXPECT_PRED2(has, line.near_status.message(), "tendril join");
}

TEST_F(TlsTest, AServerOfThePoolCannotStandInForAnother) {
  const auto near = client({alice_});
  const auto far = server(gpu1_);
  for (const char* meant : {"gpu1", "GPU1:99", "gpu1.lab.example", "10.0.0.1", "[fe80::1]:99",
                            "localhost:99", "gpu1=10.0.0.1", "gpu1=other:99"}) {
    Line line(near.get(), far.get(), meant);
    line.run();
    EXPECT_TRUE(line.near->is_open()) << meant << ": " << line.near_status.message();
  }
  for (const char* meant : {"gpu2", "gpu11", "gpu.lab.example", "gpu2=10.0.0.1", "gpu2=gpu1"}) {
    Line line(near.get(), far.get(), meant);
    line.run();
    EXPECT_PRED2(has, line.near_status.message(), "proven to be 'gpu1'");
    EXPECT_FALSE(line.near->is_open()) << meant;
    EXPECT_EQ(line.far->identity(), "") << "it learned who asks";
  }
  Line line(near.get(), far.get(), "gpu2=10.0.0.1:99");
  line.run();
  EXPECT_PRED2(has, line.near_status.message(), "write gpu1=10.0.0.1:99");
}

TEST_F(TlsTest, TheIdentityOfTheServersPoolIsShown) {
  const auto near = client({other_.issue_to(Role::kUser, "al"), alice_});
  const auto far = server(gpu1_);
  Line line(near.get(), far.get());
  line.run();
  EXPECT_EQ(line.far->identity(), "spiffe://lab/user/alice") << line.near_status.message();
}

TEST_F(TlsTest, APinProvesTheAuthority) {
  const auto far = server(gpu1_);
  const auto near = TlsClient::with_pin(pin_of(pool_.authority), test_clock).take();
  Line line(near.get(), far.get());
  line.run();
  ASSERT_TRUE(line.near->is_open()) << line.near_status.message();
  EXPECT_EQ(line.far->identity(), "");
  EXPECT_EQ(line.far->proof(), "");
  EXPECT_EQ(pin_of(near->authority()), pin_of(pool_.authority));
  const auto wrong = TlsClient::with_pin(pin_of(other_.authority), test_clock).take();
  Line stranger(wrong.get(), far.get());
  stranger.run();
  EXPECT_PRED2(has, stranger.near_status.message(), "token was not sent");
}

TEST_F(TlsTest, OneSecretProvesBothEnds) {
  const auto far = TlsServer::with_secret("sixteen characters").take();
  const auto near = TlsClient::with_secret("sixteen characters").take();
  Line line(near.get(), far.get());
  line.run();
  ASSERT_TRUE(line.near->is_open() && line.far->is_open()) << line.near_status.message();
  EXPECT_EQ(line.far->proof(), "token");
  EXPECT_EQ(line.far->identity(), "");
  const auto wrong = TlsClient::with_secret("sixteen charakters").take();
  Line guess(wrong.get(), far.get());
  guess.run();
  EXPECT_FALSE(guess.far->is_open());
  EXPECT_PRED2(has, guess.far_status.message(), "token is wrong");
  EXPECT_PRED2(has, guess.near_status.message(), "token is wrong");
}

TEST_F(TlsTest, SecretAndIdentityDoNotMix) {
  const auto secret_server = TlsServer::with_secret("sixteen characters").take();
  const auto identity_server = server(gpu1_);
  const auto secret_client = TlsClient::with_secret("sixteen characters").take();
  const auto identity_client = client({alice_});
  Line one(secret_client.get(), identity_server.get());
  one.run();
  EXPECT_PRED2(has, one.near_status.message(), "wants a certificate");
  EXPECT_EQ(text_of(one.at_server), "");
  Line other(identity_client.get(), secret_server.get());
  other.run();
  EXPECT_PRED2(has, other.near_status.message(), "wants a token");
  EXPECT_PRED2(has, other.far_status.message(), "a token is wanted");
}

TEST_F(TlsTest, AnOpenServerRefusesTlsInClear) {
  const auto near = client({alice_});
  const auto seal = near->secure(session::parse_endpoint("gpu1").take()).take();
  const auto open = TlsServer::refuse_tls();
  Bytes to_server, to_client, plain;
  ASSERT_TRUE(seal->start(&to_server).ok());
  EXPECT_EQ(to_server[0], session::kTlsFirstByte);
  EXPECT_FALSE(open->receive(to_server.data(), to_server.size(), &plain, &to_client).ok());
  Status answer;
  for (const uint8_t byte : to_client) {
    if (answer.ok()) answer = seal->receive(&byte, 1, &plain, &to_server);
  }
  EXPECT_EQ(answer.code(), Code::kUnsupported) << answer.message();
}

TEST_F(TlsTest, RubbishIsRefused) {
  const auto far = server(gpu1_);
  for (const char* words : {"GET / HTTP/1.0\r\n\r\n", "\x16\x03\x01", "\x16rubbish rubbish"}) {
    const auto seal = far->accept();
    Bytes plain, back;
    (void)seal->receive(words, strlen(words), &plain, &back);
    EXPECT_FALSE(seal->is_open());
    EXPECT_TRUE(plain.empty());
  }
}

TEST_F(TlsTest, ARenewedCertificateServesNewConnections) {
  const auto far = server(gpu1_);
  const auto near = client({alice_});
  ASSERT_TRUE(far->replace(pool_.issue_to(Role::kServer, "gpu1-new")).ok());
  Line line(near.get(), far.get(), "gpu1-new");
  line.run();
  EXPECT_EQ(line.near->identity(), "spiffe://lab/server/gpu1-new");
}

}  // namespace
}  // namespace tendril::identity
