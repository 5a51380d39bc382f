// SPDX-License-Identifier: Apache-2.0
// The loop of connections with real sockets: requests that are answered later, news, notices,
// clients that leave while they wait, strangers and their bounds, and guessed secrets.
#include "reception/reception.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "identity/tls.h"
#include "reception/front.h"
#include "reception/visitor.h"
#include "session/control/attach.h"
#include "session/control/control_io.h"
#include "wire/control.h"

namespace tendril::reception {
namespace {

using base::Code;
using base::Status;

// What all handlers of one test put together: requests that wait, and how many clients left.
struct Desk {
  struct Waiting {
    wire::LeaseRequest request;
    session::Later later;
  };

  Waiting next() {
    std::unique_lock<std::mutex> hold(mutex);
    changed.wait(hold, [this] { return !waiting.empty(); });
    Waiting first = std::move(waiting.front());
    waiting.pop_front();
    return first;
  }
  void await_gone(int count) {
    std::unique_lock<std::mutex> hold(mutex);
    changed.wait(hold, [&] { return gone >= count; });
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Waiting> waiting;                        // guarded by mutex
  std::vector<std::shared_ptr<session::Caller>> met;  // guarded by mutex
  std::string server = "desk";                        // what lists say; before the loop runs
  int gone = 0;                                       // guarded by mutex
};

class Handler : public session::ControlHandler {
 public:
  explicit Handler(Desk* desk) : desk_(desk) {}
  void meet(std::shared_ptr<session::Caller> caller) override {
    std::lock_guard<std::mutex> hold(desk_->mutex);
    desk_->met.push_back(std::move(caller));
  }
  wire::Hello hello() override { return {}; }
  std::vector<wire::ApiRecord> apis() override { return {}; }
  session::Admission admit(const wire::Hello& hello, const session::Peer&) override {
    session::Admission admission;
    admission.standing =
        hello.token == "boss" ? session::Standing::kAdministrator : session::Standing::kMember;
    return admission;
  }
  bool defers(uint16_t kind) override { return wire::Request(kind) == wire::Request::kLease; }
  void begin(session::Message request, std::shared_ptr<const session::Facts>,
             session::Later later) override {
    Desk::Waiting waiting;
    if (!request.read(&waiting.request)) return later.refuse(Status(Code::kInvalid, "malformed"));
    waiting.later = std::move(later);
    std::lock_guard<std::mutex> hold(desk_->mutex);
    desk_->waiting.push_back(std::move(waiting));
    desk_->changed.notify_all();
  }
  void gone(bool) override {
    std::lock_guard<std::mutex> hold(desk_->mutex);
    ++desk_->gone;
    desk_->changed.notify_all();
  }
  base::Result<wire::ListReply> list(const wire::ListRequest&) override {
    wire::ListReply reply;
    reply.server = desk_->server;
    return reply;
  }
  base::Result<wire::LeaseReply> lease(const wire::LeaseRequest&) override {
    return Status(Code::kInternal, "this request is never performed");
  }
  Status release(uint64_t) override { return Status(); }
  Status change(const wire::ChangeRequest&) override { return Status(); }
  void lease_connection_closed(uint64_t) override {}
  base::Result<wire::AttachReply> attach(const wire::AttachRequest&,
                                         const wire::ConnectionRecord&) override {
    return Status(Code::kInternal, "nobody attaches here");
  }
  void attached(uint64_t, session::Connection) override {}
  Status join(const wire::JoinRequest&) override { return Status(); }
  void joined(const wire::JoinRequest&, session::Connection) override {}

 private:
  Desk* const desk_;
};

class ReceptionTest : public testing::Test {
 protected:
  void SetUp() override { begin(ReceptionOptions()); }
  void begin(ReceptionOptions options) {
    end();
    listeners_ = transport::listen_tcp("127.0.0.1:0", 0).take();
    options.host = "here";
    options.handler = [this](const session::Peer&) { return std::make_shared<Handler>(&desk_); };
    options.repeats = &repeats_;
    reception_ = Reception::create(&listeners_, std::move(options)).take();
    stop_.reset(eventfd(0, EFD_CLOEXEC));
    loop_ = std::thread([this] { reception_->run(stop_.get()); });
  }
  void TearDown() override { end(); }
  void end() {
    if (!loop_.joinable()) return;
    eventfd_write(stop_.get(), 1);
    loop_.join();
    EXPECT_TRUE(reception_->stop(5000));
    reception_.reset();
  }
  base::Result<std::unique_ptr<session::Control>> try_connect(const std::string& token = "") {
    session::ConnectOptions options;
    options.token = token;
    return session::Control::connect(session::parse_endpoint(listeners_[0].text).take(), options);
  }
  std::unique_ptr<session::Control> connect() {
    auto control = try_connect();
    EXPECT_TRUE(control.ok()) << control.status().message();
    return control.take();
  }
  // A connection from 127.0.0.`host` that has said nothing.
  base::Fd stranger(unsigned host) {
    base::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in here = {};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&here), sizeof here), 0);
    sockaddr_in there = {};
    there.sin_family = AF_INET;
    there.sin_port = htons(listeners_[0].port);
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&there), sizeof there), 0);
    return fd;
  }
  static void say(const base::Fd& fd, const std::vector<uint8_t>& bytes) {
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // The server has ended the connection within this time.
  static bool is_over(const base::Fd& fd, int timeout_ms) {
    pollfd wait = {fd.get(), POLLIN, 0};
    char byte = 0;
    while (poll(&wait, 1, timeout_ms) > 0) {
      if (recv(fd.get(), &byte, 1, 0) <= 0) return true;
    }
    return false;
  }

  Desk desk_;
  Repeats repeats_;
  std::vector<transport::Listener> listeners_;
  std::unique_ptr<Reception> reception_;
  base::Fd stop_;
  std::thread loop_;
};

std::vector<uint8_t> granted(uint64_t lease_id) {
  wire::LeaseReply reply;
  reply.lease_id = lease_id;
  reply.slices.resize(1);
  return wire::encode(reply);
}

TEST_F(ReceptionTest, ARequestIsAnsweredLaterAndHearsWhyItWaits) {
  std::thread server([this] {
    Desk::Waiting waiting = desk_.next();
    wire::News news;
    news.place = news.of = 3;
    news.text = "three others come first";
    waiting.later.tell(news);
    news.place = 1;
    waiting.later.tell(news);
    waiting.later.answer(granted(waiting.request.count));
    waiting.later.answer(granted(99));  // nobody hears a second answer
    waiting.later.tell(news);
  });
  auto control = connect();
  std::vector<uint32_t> places;
  session::LeaseWait wait;
  wait.news = [&](const wire::News& news) {
    places.push_back(news.place);
    return true;
  };
  wire::LeaseRequest request;
  request.count = 7;
  bool gave_up = true;
  auto reply = control->lease(request, wait, &gave_up);
  server.join();
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(reply->lease_id, 7u);
  EXPECT_FALSE(gave_up);
  EXPECT_EQ(places, (std::vector<uint32_t>{3, 1}));
  EXPECT_EQ(control->list()->server, "desk");  // the connection goes on
}

TEST_F(ReceptionTest, AHandlerRefusesLaterOrForgets) {
  std::thread server([this] {
    desk_.next().later.refuse(Status(Code::kUnavailable, "the budget is used up"));
    desk_.next();  // destroyed without an answer
  });
  auto control = connect();
  const auto refused = control->lease({});
  EXPECT_EQ(refused.status().code(), Code::kUnavailable);
  EXPECT_NE(refused.status().message().find("the budget is used up"), std::string::npos);
  EXPECT_EQ(control->lease({}).status().code(), Code::kUnavailable);
  server.join();
}

TEST_F(ReceptionTest, AClientThatLeavesIsMissedAtOnce) {
  auto control = connect();
  const base::Fd cancel(eventfd(0, EFD_CLOEXEC));
  Desk::Waiting waiting;
  std::thread user([&] {
    waiting = desk_.next();
    eventfd_write(cancel.get(), 1);  // Ctrl-C
  });
  session::LeaseWait wait;
  wait.cancel_fd = cancel.get();
  bool gave_up = false;
  const auto reply = control->lease({}, wait, &gave_up);
  EXPECT_FALSE(reply.ok());
  EXPECT_TRUE(gave_up);
  desk_.await_gone(1);
  user.join();
  waiting.later.tell({});  // too late, and harmless
  waiting.later.answer(granted(1));
}

TEST_F(ReceptionTest, AWaitHasALimit) {
  auto control = connect();
  session::LeaseWait wait;
  wait.limit_ms = 50;
  std::thread server([this] {
    Desk::Waiting waiting = desk_.next();
    wire::News news;
    news.text = "all GPUs are taken";
    waiting.later.tell(news);
    desk_.await_gone(1);
  });
  bool gave_up = false;
  const auto reply = control->lease({}, wait, &gave_up);
  EXPECT_EQ(reply.status().code(), Code::kTimeout);
  EXPECT_NE(reply.status().message().find("all GPUs are taken"), std::string::npos);
  EXPECT_TRUE(gave_up);
  server.join();
}

TEST_F(ReceptionTest, NewsMayEndTheWait) {
  auto control = connect();
  std::thread server([this] {
    Desk::Waiting waiting = desk_.next();
    waiting.later.tell({});
    desk_.await_gone(1);
  });
  session::LeaseWait wait;
  wait.news = [](const wire::News&) { return false; };
  bool gave_up = false;
  EXPECT_FALSE(control->lease({}, wait, &gave_up).ok());
  EXPECT_TRUE(gave_up);
  server.join();
}

wire::Notice notice(const char* text) {
  wire::Notice notice;
  notice.lease_id = 5;
  notice.text = text;
  return notice;
}

TEST_F(ReceptionTest, NoticesReachAConnectionAtAnyTime) {
  auto control = connect();
  EXPECT_EQ(control->notice(0).status().code(), Code::kTimeout);
  std::shared_ptr<session::Caller> caller;
  {
    std::lock_guard<std::mutex> hold(desk_.mutex);
    caller = desk_.met.at(0);
  }
  caller->notice(notice("first"));
  caller->notice(notice("second"));
  EXPECT_EQ(control->list()->server, "desk");  // they are kept while an answer is due
  EXPECT_EQ(control->notice(5000)->text, "first");
  EXPECT_EQ(control->notice(5000)->text, "second");
  EXPECT_EQ(control->notice(0).status().code(), Code::kTimeout);
  EXPECT_FALSE(control->has_ended());
  end();
  EXPECT_EQ(control->notice(5000).status().code(), Code::kClosed);
  caller->notice(notice("third"));  // nobody is there
}

TEST_F(ReceptionTest, AStrangeAnswerToNothingIsDropped) {
  auto control = connect();
  std::shared_ptr<session::Caller> caller;
  {
    std::lock_guard<std::mutex> hold(desk_.mutex);
    caller = desk_.met.at(0);
  }
  caller->answer(0, session::answered(2));
  caller->answer(1, session::answered(2));
  EXPECT_EQ(control->list()->server, "desk");
}

// ---- strangers ----

std::vector<uint8_t> hello_of(size_t bytes) {
  wire::Hello hello;
  hello.product_version = std::string(bytes, 'v');
  const std::vector<uint8_t> body = wire::encode(hello);
  return session::pack(wire::kHelloKind, Code::kOk, body.data(), body.size());
}

TEST_F(ReceptionTest, AnAddressHasItsPlacesAndTheOldestGoes) {
  ReceptionOptions options;
  options.strangers_max = 100;
  options.strangers_of_address = 4;
  begin(std::move(options));
  const base::Fd other = stranger(2);
  std::vector<base::Fd> crowd;
  for (int i = 0; i < 4; ++i) crowd.push_back(stranger(1));
  EXPECT_FALSE(is_over(crowd[0], 100)) << "four have places";
  crowd.push_back(stranger(1));
  EXPECT_TRUE(is_over(crowd[0], 10'000));
  crowd.push_back(stranger(1));
  EXPECT_TRUE(is_over(crowd[1], 10'000));
  for (size_t i = 2; i < crowd.size(); ++i) EXPECT_FALSE(is_over(crowd[i], 20)) << i;
  EXPECT_FALSE(is_over(other, 20)) << "another address pays for nobody";
  EXPECT_EQ(connect()->list()->server, "desk")
      << "who speaks at once gets in from the same address";
}

TEST_F(ReceptionTest, OfAllAddressesTheOneWithMostPays) {
  ReceptionOptions options;
  options.strangers_max = 5;
  begin(std::move(options));
  const base::Fd first = stranger(2);
  std::vector<base::Fd> crowd;
  for (int i = 0; i < 4; ++i) crowd.push_back(stranger(3));
  const base::Fd late = stranger(4);
  EXPECT_TRUE(is_over(crowd[0], 10'000));
  EXPECT_FALSE(is_over(first, 20));
  EXPECT_FALSE(is_over(late, 20));
  EXPECT_EQ(connect()->list()->server, "desk");
}

TEST_F(ReceptionTest, AHelloHasFourKiBAtMost) {
  const base::Fd fits = stranger(1);
  say(fits, hello_of(3000));
  EXPECT_FALSE(is_over(fits, 100));
  // The header alone is enough to see it.
  const base::Fd large = stranger(1);
  std::vector<uint8_t> words = hello_of(4096);
  words.resize(sizeof(wire::ControlHeader));
  say(large, words);
  EXPECT_TRUE(is_over(large, 10'000));
  const base::Fd foreign = stranger(1);
  say(foreign, {'G', 'E', 'T', ' ', '/'});
  EXPECT_TRUE(is_over(foreign, 10'000));
}

TEST_F(ReceptionTest, WhoSpeaksSlowlyHasFiveSeconds) {
  const std::vector<uint8_t> words = hello_of(2000);
  const base::Fd slow = stranger(1);
  const base::Deadline most(30'000);
  size_t said = 0;
  const uint64_t begun_ns = base::now_ns();
  while (!is_over(slow, 300) && !most.passed()) say(slow, {words[said++]});
  EXPECT_FALSE(most.passed());
  EXPECT_GE(base::now_ns() - begun_ns, 4'500'000'000u) << "its bytes came within the time";
  EXPECT_LT(said, words.size());
}

TEST_F(ReceptionTest, AdministratorsHavePlacesOfTheirOwn) {
  ReceptionOptions options;
  options.connections_max = 2;
  options.administrators_kept = 1;
  begin(std::move(options));
  const auto one = connect(), two = connect();
  const auto refused = try_connect();
  EXPECT_EQ(refused.status().code(), Code::kUnavailable);
  EXPECT_NE(refused.status().message().find("maximum of 2"), std::string::npos);
  auto boss = try_connect("boss");
  ASSERT_TRUE(boss.ok()) << boss.status().message();
  EXPECT_EQ((*boss)->list()->server, "desk");
  EXPECT_FALSE(try_connect("boss").ok()) << "there is one such place";
  boss->reset();
  desk_.await_gone(2);  // who was refused, and the administrator
  EXPECT_TRUE(try_connect("boss").ok());
}

TEST_F(ReceptionTest, WhoDoesNotReadKeepsNobodyWaiting) {
  desk_.server = std::string(900'000, 's');  // more than sockets hold
  begin(ReceptionOptions());
  std::vector<base::Fd> deaf;
  for (int i = 0; i < 8; ++i) {
    deaf.push_back(stranger(1));
    say(deaf.back(), hello_of(5));
    for (int request = 0; request < 20; ++request)
      say(deaf.back(), session::pack(uint16_t(wire::Request::kList), Code::kOk, nullptr, 0));
  }
  const auto control = connect();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(control->list()->server.size(), 900'000u);
}

// ---- guessed secrets ----

class VisitorHandler final : public Handler {
 public:
  VisitorHandler(Desk* desk, Front* front, const session::Peer& peer)
      : Handler(desk), visitor_(front, peer) {}
  session::Admission admit(const wire::Hello& hello, const session::Peer& peer) override {
    return visitor_.admit(hello, peer);
  }

 private:
  Visitor visitor_;
};

TEST(Guessing, WrongSecretsMakeAnAddressWait) {
  char path[] = "/tmp/tendril-token-XXXXXX";
  const base::Fd file(mkstemp(path));
  ASSERT_EQ(write(file.get(), "sixteen letters!", 16), 16);
  FrontOptions wanted;
  wanted.token_file = path;
  wanted.audit_file = wanted.sockets = "off";
  auto opened = Front::open(wanted);
  unlink(path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const std::unique_ptr<Front> front = opened.take();
  Desk desk;
  ReceptionOptions options = front->reception_options();
  options.handler = [&](const session::Peer& peer) {
    return std::make_shared<VisitorHandler>(&desk, front.get(), peer);
  };
  auto reception = Reception::create(&front->listeners(), std::move(options)).take();
  const base::Fd stop(eventfd(0, EFD_CLOEXEC));
  std::thread loop([&] { reception->run(stop.get()); });
  const auto knock = [&](const char* secret) {
    session::ConnectOptions connect;
    connect.securer = identity::TlsClient::with_secret(secret).take();
    auto control = session::Control::connect(
        session::parse_endpoint(front->listeners()[0].text).take(), connect);
    return control.ok() ? Status((*control)->list().status()) : control.status();
  };
  const auto has = [](const Status& status, const char* part) {
    return status.message().find(part) != std::string::npos;
  };
  EXPECT_TRUE(knock("sixteen letters!").ok());
  unsigned looked_at = 0;
  Status last;
  for (int i = 0; i < 40 && !has(last, "too many"); ++i) {
    last = knock("another sixteen!");
    EXPECT_FALSE(last.ok());
    looked_at += has(last, "token is wrong") ? 1u : 0u;
  }
  EXPECT_PRED2(has, last, "too many wrong tokens");
  EXPECT_GE(looked_at, 5u);
  EXPECT_LE(looked_at, 8u);
  // Not even the right one is looked at, until the time is over.
  EXPECT_PRED2(has, knock("sixteen letters!"), "too many wrong tokens");
  const base::Deadline most(60'000);
  while (!knock("sixteen letters!").ok() && !most.passed()) usleep(100'000);
  EXPECT_FALSE(most.passed());
  eventfd_write(stop.get(), 1);
  loop.join();
  EXPECT_TRUE(reception->stop(5000));
}

}  // namespace
}  // namespace tendril::reception
