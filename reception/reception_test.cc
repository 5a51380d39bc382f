// SPDX-License-Identifier: Apache-2.0
// The loop of connections with real sockets: requests that are answered later, news, notices, and
// clients that leave while they wait.
#include "reception/reception.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "session/control/attach.h"
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
  session::Admission admit(const wire::Hello&, const session::Peer&) override {
    session::Admission admission;
    admission.standing = session::Standing::kMember;
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
    reply.server = "desk";
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
  void SetUp() override {
    listeners_ = transport::listen_tcp("127.0.0.1:0", 0).take();
    ReceptionOptions options;
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
  std::unique_ptr<session::Control> connect() {
    auto control = session::Control::connect(session::parse_endpoint(listeners_[0].text).take(),
                                             session::ConnectOptions());
    EXPECT_TRUE(control.ok()) << control.status().message();
    return control.take();
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

}  // namespace
}  // namespace tendril::reception
