// SPDX-License-Identifier: Apache-2.0
// What the sessions of a server make of connections that end, in an order that a test chooses: the
// supervisor's thread stands still at a gate meanwhile. The worker is this program
// (worker_pool_test.cc), and reads nothing.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

#include "daemon/sessions.h"
#include "transport/lasting/lasting.h"

namespace tendril::daemon {
namespace {

using base::Fd;
using transport::TcpEnd;

constexpr uint32_t kOutageOfTestMs = 100;
// A cut that nobody mends ends a session so much later (sessions_outage.cc: kMarginMs).
constexpr int kCutIsOverMs = int(kOutageOfTestMs) + 6'000;
constexpr size_t kConnections = 3;  // what attached, one bulk channel, acknowledgements

// The two ends of a TCP connection.
struct Wire {
  Fd client, server;
};
Wire connect_wire() {
  const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof at;
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  EXPECT_EQ(bind(listener.get(), address, bytes), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), address, &bytes), 0);
  Wire wire;
  wire.client = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(wire.client.get(), address, bytes), 0);
  wire.server = Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return wire;
}

// Where the supervisor's thread waits. It notices what became ready meanwhile only later.
class Gate {
 public:
  void stand() {
    here_.set_value();
    open_.get_future().wait();
  }
  void await() { here_.get_future().wait(); }
  void open() { open_.set_value(); }

 private:
  std::promise<void> here_, open_;
};

class SessionsOutageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    alarm(50);
    loop_ = EventLoop::create().take();
    loop_->start();
    WorkerOptions options;
    options.executable = "/proc/self/exe";
    options.apis = {"cuda"};
    pool_ = std::make_unique<WorkerPool>(loop_.get(), options, 1);
    pool_->start();
    packed_ = std::make_unique<PackedServers>(loop_.get(), PackedOptions());
    arbiter_ = Arbiter::start({}).take();
    guard_ = access::Guard::create({}).take();
    lease::GpuCapacity gpu;
    gpu.memory_usable_bytes = uint64_t{1} << 30;
    sessions_ =
        std::make_unique<Sessions>(loop_.get(), pool_.get(), packed_.get(), arbiter_.get(),
                                   guard_.get(), lease::LeaseBook("here", {gpu}), 16, ServerId());
    sessions_->outlast(kOutageOfTestMs);
    begin();
  }
  void TearDown() override {
    pool_->stop();
    loop_->stop();
    alarm(0);
  }

  // The client's end of each connection, in the order of JoinRequest::channel after a cut: the one
  // that attached is the last.
  void begin() {
    wire::AttachRequest request;
    request.api = "cuda";
    request.bulk_channels = 1;
    request.outage_ms = kOutageOfTestMs;
    access::Decision limits;
    Wire first = connect_wire();
    session::Connection connection(std::move(first.server));
    auto reply = sessions_->attach({}, request, connection.record(), "", &limits);
    ASSERT_TRUE(reply.ok()) << reply.status().message();
    session_ = reply->session_id;
    secret_ = reply->session_secret;
    watched_[2] = connection.descriptor();
    sessions_->attached(session_, std::move(connection));
    join_all(0, 2);
    ends_[2] = std::move(first.client);
  }
  // Connections of that attempt; 0: the first ones.
  void join_all(uint32_t attempt, uint16_t count) {
    for (uint16_t channel = 0; channel < count; ++channel) {
      wire::JoinRequest request;
      request.session_id = session_;
      request.session_secret = secret_;
      request.channel = channel;
      request.attempt = attempt;
      const base::Status joined = sessions_->join(request);
      ASSERT_TRUE(joined.ok()) << joined.message();
      Wire wire = connect_wire();
      ends_[channel] = std::move(wire.client);
      watched_[channel] = wire.server.get();
      sessions_->joined(request, session::Connection(std::move(wire.server)));
    }
  }
  // The supervisor's thread finds in one look that the old connections have ended `how`, and hears
  // of it when the client is back already.
  void comes_back_before_its_end_is_heard(TcpEnd how) {
    Gate first, second;
    const Fd bell(eventfd(0, EFD_CLOEXEC));
    loop_->post([&] {
      EXPECT_TRUE(loop_
                      ->watch(bell.get(), EPOLLIN,
                              [&](uint32_t) {
                                loop_->unwatch(bell.get());
                                second.stand();
                              })
                      .ok());
      first.stand();
    });
    first.await();
    ASSERT_EQ(eventfd_write(bell.get(), 1), 0);  // ready before the connections are
    const linger at_once = {1, 0};
    for (Fd& end : ends_) {
      if (how == TcpEnd::kCut)
        setsockopt(end.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      end.reset();
    }
    for (const int fd : {watched_[1], watched_[2]}) {
      for (int i = 0; i < 1'000 && transport::tcp_end(fd) != how; ++i) usleep(1'000);
      ASSERT_EQ(transport::tcp_end(fd), how);
    }
    first.open();
    second.await();
    join_all(1, kConnections);
    second.open();
  }
  void ends_within(int milliseconds) {
    for (int i = 0; i < milliseconds / 10 && sessions_->session_count() != 0; ++i) usleep(10'000);
    EXPECT_EQ(sessions_->session_count(), 0u);
  }

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<PackedServers> packed_;
  std::unique_ptr<Arbiter> arbiter_;
  std::unique_ptr<access::Guard> guard_;
  std::unique_ptr<Sessions> sessions_;
  uint64_t session_ = 0;
  std::string secret_;
  Fd ends_[kConnections];
  int watched_[kConnections] = {};  // the server's, which it owns; of a bulk channel it keeps none
};

TEST_F(SessionsOutageTest, AnOldCutThatIsHeardLateIsNone) {
  comes_back_before_its_end_is_heard(TcpEnd::kCut);
  usleep((kCutIsOverMs + 500) * 1'000);
  EXPECT_EQ(sessions_->session_count(), 1u) << "the client is back";
}

TEST_F(SessionsOutageTest, AnOldEndThatIsHeardLateIsNone) {
  comes_back_before_its_end_is_heard(TcpEnd::kByPeer);
  usleep((kGraceMs + 500) * 1'000);
  EXPECT_EQ(sessions_->session_count(), 1u) << "the client is back";
}

// The new connections are watched: a client that ends is gone, and one that is cut for good, too.
TEST_F(SessionsOutageTest, ItsNextEndIsOne) {
  comes_back_before_its_end_is_heard(TcpEnd::kCut);
  loop_->post([] {});
  for (Fd& end : ends_) end.reset();
  ends_within(5'000);
}

TEST_F(SessionsOutageTest, ACutThatNobodyMendsEndsIt) {
  const linger at_once = {1, 0};
  for (Fd& end : ends_) {
    setsockopt(end.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    end.reset();
  }
  ends_within(kCutIsOverMs + 5'000);
}

}  // namespace
}  // namespace tendril::daemon
