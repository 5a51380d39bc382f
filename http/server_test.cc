// SPDX-License-Identifier: Apache-2.0
// The server over real sockets: scrapers get whole answers, hostile peers end alone and in time.
#include "http/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "base/clock.h"

namespace tendril::http {
namespace {

class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto started = Server::start("127.0.0.1:0", metrics());
    ASSERT_TRUE(started.ok()) << started.status().message();
    server_ = started.take();
  }
  Router metrics() {
    Router router;
    router.add("GET", "/metrics", [this](const Request&) {
      return Response{200, "text/plain; version=0.0.4", text_};
    });
    return router;
  }
  base::Fd connected() {
    base::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static void say(const base::Fd& fd, const std::string& words) {
    (void)!send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL);
  }
  static std::string hear(const base::Fd& fd) {
    std::string all;
    char piece[4096];
    for (ssize_t got; (got = recv(fd.get(), piece, sizeof piece, 0)) > 0;)
      all.append(piece, static_cast<size_t>(got));
    return all;
  }

  std::string text_ = "tendril_sessions 2\n";
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, AnswersAScraper) {
  const base::Fd fd = connected();
  say(fd, "GET /met");
  usleep(20'000);
  say(fd, "rics HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string answer = hear(fd);
  EXPECT_EQ(answer.substr(0, 15), "HTTP/1.0 200 OK");
  EXPECT_EQ(answer.substr(answer.size() - text_.size()), text_);
}

TEST_F(ServerTest, ALongAnswerArrivesWhole) {
  text_.assign(8u << 20, 'x');
  const base::Fd fd = connected();
  say(fd, "GET /metrics HTTP/1.0\r\n\r\n");
  usleep(50'000);
  EXPECT_GT(hear(fd).size(), text_.size());
}

// More connections that say nothing than there are places, and others that talk nonsense.
TEST_F(ServerTest, HostilePeersEndAloneAndInTime) {
  std::vector<base::Fd> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(connected());
  std::mt19937 random(9433);
  for (int i = 0; i < 20; ++i) {
    std::string noise(random() % 6000, 0);
    for (char& c : noise) c = static_cast<char>(random());
    silent.push_back(connected());
    say(silent.back(), noise);
  }
  const uint64_t begun_ns = base::now_ns();
  const base::Fd fd = connected();
  say(fd, "GET /metrics HTTP/1.0\r\n\r\n");
  EXPECT_NE(hear(fd).find("tendril_sessions 2"), std::string::npos);
  EXPECT_LT(base::now_ns() - begun_ns, 2'000'000'000u);
}

TEST_F(ServerTest, ARequestWithoutEndIsRefused) {
  const base::Fd fd = connected();
  say(fd, "GET /metrics HTTP/1.0\r\n" + std::string(5000, 'a'));
  EXPECT_NE(hear(fd).find(" 431 "), std::string::npos);
}

// Whoever sends a body that nobody wants goes on sending it. It must still read the refusal.
TEST_F(ServerTest, WhoSendsTooMuchReadsTheRefusal) {
  const base::Fd fd = connected();
  say(fd, "POST /metrics HTTP/1.1\r\nContent-Length: 600000\r\n\r\n");
  usleep(100'000);  // the answer is on its way, and the body begins
  const std::string piece(6000, 'x');
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(send(fd.get(), piece.data(), piece.size(), MSG_NOSIGNAL), ssize_t(piece.size())) << i;
    usleep(200);
  }
  EXPECT_NE(hear(fd).find(" 405 "), std::string::npos);
}

// The end may come in any moment of a connection.
TEST_F(ServerTest, EndsWhateverItIsDoing) {
  for (useconds_t i = 0; i < 2000; ++i) {
    server_ = Server::start("127.0.0.1:0", metrics()).take();
    // The server answers and is done with the connection about when it is to end.
    base::Fd fd = connected();
    say(fd, "GARBAGE\r\n\r\n");
    hear(fd);
    fd.reset();
    usleep(i % 40);
    server_.reset();
  }
}

TEST(Server, BeyondLoopbackItNeedsAToken) {
  const base::Status refused = Server::start("0.0.0.0:0", Router()).status();
  EXPECT_EQ(refused.code(), base::Code::kInvalid);
  EXPECT_NE(refused.message().find("give it a token"), std::string::npos) << refused.message();
  Router router;
  router.require_token("sixteen letters!");
  EXPECT_TRUE(Server::start("0.0.0.0:0", std::move(router)).ok());
  EXPECT_TRUE(Server::start("127.0.0.1:0", Router()).ok());
}

// A seal that turns each byte, so that what went around it is seen.
class TurningSeal final : public session::Seal {
 public:
  explicit TurningSeal(std::string identity) : identity_(std::move(identity)) {}
  base::Status start(std::vector<uint8_t>*) override { return base::Status(); }
  base::Status receive(const void* data, size_t bytes, std::vector<uint8_t>* plain,
                       std::vector<uint8_t>* network) override {
    const auto* at = static_cast<const uint8_t*>(data);
    if (identity_ == "refused") {
      network->push_back('!');
      return base::Status(base::Code::kRefused, "no");
    }
    for (size_t i = 0; i < bytes; ++i) plain->push_back(at[i] ^ 0x80);
    if (!open_) network->push_back('h');  // its half of a handshake
    open_ = true;
    return base::Status();
  }
  base::Status send(const void* data, size_t bytes, std::vector<uint8_t>* network) override {
    const auto* at = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < bytes; ++i) network->push_back(at[i] ^ 0x80);
    return base::Status();
  }
  void finish(std::vector<uint8_t>* network) override { network->push_back('.'); }
  bool is_open() const override { return open_; }
  bool has_ended() const override { return false; }
  std::string identity() const override { return identity_; }
  std::string proof() const override { return "certificate"; }

 private:
  const std::string identity_;
  bool open_ = false;
};

std::string turned(std::string text) {
  for (char& c : text) c = static_cast<char>(c ^ 0x80);
  return text;
}

class SealedServer : public ServerTest {
 protected:
  void SetUp() override { serve("reader"); }
  void serve(const std::string& identity, const std::string& token = std::string()) {
    Router router = metrics();
    if (!token.empty()) router.require_token(token);
    Protection protection;
    protection.seal = [identity] { return std::make_unique<TurningSeal>(identity); };
    protection.may_ask = [](const std::string& who) { return who == "reader"; };
    protection.on_loopback = true;
    auto started = Server::start("127.0.0.1:0", std::move(router), std::move(protection));
    ASSERT_TRUE(started.ok()) << started.status().message();
    server_ = started.take();
  }
  std::string asked(const std::string& more = std::string()) {
    const base::Fd fd = connected();
    say(fd, turned("GET /metrics HTTP/1.0\r\n"));
    usleep(20'000);
    say(fd, turned(more + "\r\n"));
    return hear(fd);
  }
};

TEST_F(SealedServer, AnswersThoseWhoHaveProvenWhoTheyAre) {
  const std::string answer = asked();
  ASSERT_GT(answer.size(), text_.size() + 2);
  EXPECT_EQ(answer.front(), 'h');
  EXPECT_EQ(answer.back(), '.');
  EXPECT_EQ(turned(answer.substr(1, 15)), "HTTP/1.0 200 OK");
  EXPECT_NE(turned(answer).find(text_), std::string::npos);
  EXPECT_EQ(server_->addresses()[0].substr(0, 8), "https://");
}

TEST_F(SealedServer, OthersNeedTheToken) {
  serve("somebody");
  EXPECT_NE(turned(asked()).find(" 401 "), std::string::npos);
  serve("somebody", "sixteen letters!");
  EXPECT_NE(turned(asked()).find(" 401 "), std::string::npos);
  EXPECT_NE(turned(asked("Authorization: Bearer sixteen letters!\r\n")).find(" 200 "),
            std::string::npos);
}

TEST_F(SealedServer, ARefusalArrivesAndEndsTheConnection) {
  serve("refused");
  EXPECT_EQ(asked(), "!");
}

TEST_F(SealedServer, OnLoopbackOnlyIfItIsAskedFor) {
  Protection protection;
  protection.seal = [] { return std::make_unique<TurningSeal>("reader"); };
  auto here = Server::start("127.0.0.1:0", metrics(), protection);
  EXPECT_EQ((*here)->addresses()[0].substr(0, 7), "http://");
  auto others = Server::start("0.0.0.0:0", metrics(), protection);
  EXPECT_EQ((*others)->addresses()[0].substr(0, 8), "https://");
}

TEST(Server, AnAddressNeedsAPort) {
  EXPECT_EQ(Server::start("127.0.0.1", Router()).status().code(), base::Code::kInvalid);
}

}  // namespace
}  // namespace tendril::http
