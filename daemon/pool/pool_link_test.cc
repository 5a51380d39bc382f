// SPDX-License-Identifier: Apache-2.0
// A server's links to schedulers, over real connections to small schedulers in this process: full
// books and changes, orders and their results, terms, standbys, lost connections.
#include "daemon/pool/pool_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <condition_variable>
#include <deque>

#include "base/clock.h"
#include "session/control/serve.h"
#include "transport/tcp/listener.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

// Answers each report with the next orders of `script`, and keeps what came.
class SmallScheduler : public session::ControlHandler {
 public:
  SmallScheduler() {
    listener_ = std::move(transport::listen_tcp("127.0.0.1:0", 0).take()[0]);
    orders_.pool = hello_.pool = "lab";
    orders_.schedules = hello_.schedules = true;
    orders_.term = hello_.term = 1;
    hello_.product_version = "9.9";
    thread_ = std::thread([this] { serve(); });
  }
  ~SmallScheduler() override { end(); }
  void end() {
    stop_ = true;
    drop();
    if (thread_.joinable()) thread_.join();
  }
  // Ends the connection that it has.
  void drop() {
    std::lock_guard<std::mutex> hold(mutex_);
    if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
  }
  std::string address() const { return listener_.text; }

  wire::Hello hello() override { return hello_; }
  std::vector<wire::ApiRecord> apis() override { return {}; }
  session::Admission admit(const wire::Hello&, const session::Peer&) override {
    session::Admission admission;
    admission.standing = session::Standing::kMember;
    return admission;
  }
  base::Result<std::vector<uint8_t>> other(const session::Message& request,
                                           const session::Facts&) override {
    std::unique_lock<std::mutex> hold(mutex_);
    wire::PoolReport report;
    if (request.kind != uint16_t(wire::Request::kPoolReport) || !request.read(&report))
      return Status(Code::kInvalid, "no report");
    reports_.push_back(report);
    changed_.notify_all();
    changed_.wait_for(hold, std::chrono::milliseconds(20), [this] { return !script_.empty(); });
    wire::PoolOrders answer = orders_;
    if (!script_.empty()) {
      answer = script_.front();
      script_.pop_front();
    }
    return wire::encode(answer);
  }
  base::Result<wire::ListReply> list(const wire::ListRequest&) override { return none(); }
  base::Result<wire::LeaseReply> lease(const wire::LeaseRequest&) override { return none(); }
  Status release(uint64_t) override { return none(); }
  Status change(const wire::ChangeRequest&) override { return none(); }
  void lease_connection_closed(uint64_t) override {}
  base::Result<wire::AttachReply> attach(const wire::AttachRequest&,
                                         const wire::ConnectionRecord&) override {
    return none();
  }
  void attached(uint64_t, session::Connection) override {}
  Status join(const wire::JoinRequest&) override { return none(); }
  void joined(const wire::JoinRequest&, session::Connection) override {}

  wire::PoolOrders usual() {
    std::lock_guard<std::mutex> hold(mutex_);
    return orders_;
  }
  void always(const wire::PoolOrders& orders) {
    std::lock_guard<std::mutex> hold(mutex_);
    orders_ = orders;
  }
  void once(const wire::PoolOrders& orders) {
    std::lock_guard<std::mutex> hold(mutex_);
    script_.push_back(orders);
    changed_.notify_all();
  }
  // The first report that is like that, and all before it, are forgotten.
  bool hears(const std::function<bool(const wire::PoolReport&)>& like) {
    std::unique_lock<std::mutex> hold(mutex_);
    const base::Deadline deadline(5000);
    for (;;) {
      while (!reports_.empty()) {
        const wire::PoolReport report = reports_.front();
        reports_.pop_front();
        if (like(report)) return true;
      }
      if (deadline.passed()) return false;
      changed_.wait_for(hold, std::chrono::milliseconds(50));
    }
  }

 private:
  static Status none() { return Status(Code::kUnsupported, "this is a scheduler"); }
  void serve() {
    while (!stop_) {
      bool local = false;
      auto connection = transport::accept_on(listener_, 50, &local);
      if (!connection.ok()) continue;
      {
        std::lock_guard<std::mutex> hold(mutex_);
        fd_ = connection->get();
      }
      session::serve_connection(session::Connection(connection.take()), this);
      std::lock_guard<std::mutex> hold(mutex_);
      fd_ = -1;
    }
  }

  transport::Listener listener_;
  wire::Hello hello_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  wire::PoolOrders orders_;
  std::deque<wire::PoolOrders> script_;
  std::deque<wire::PoolReport> reports_;
  int fd_ = -1;
  std::thread thread_;
};

// What the links see of the server.
struct Box {
  std::mutex mutex;
  std::vector<wire::BookEntry> book;
  std::vector<std::pair<uint64_t, wire::Order>> obeyed;
  uint64_t term = 0, stored = 0;
  std::vector<std::string> named;
  bool draining = false, drains_when_it_obeys = false;

  PoolHost host() {
    PoolHost host;
    host.facts = [this] {
      std::lock_guard<std::mutex> hold(mutex);
      wire::ServerFacts facts;
      facts.name = "box";
      facts.draining = draining;
      return facts;
    };
    host.book = [this] {
      std::lock_guard<std::mutex> hold(mutex);
      return book;
    };
    host.hear = [this](uint64_t of) {
      std::lock_guard<std::mutex> hold(mutex);
      if (of < term) return Status(Code::kRefused, "a lower term");
      term = of;
      return Status();
    };
    host.newest_term = [this] {
      std::lock_guard<std::mutex> hold(mutex);
      return term;
    };
    host.obey = [this](uint64_t of, const wire::Order& order) {
      std::lock_guard<std::mutex> hold(mutex);
      obeyed.emplace_back(of, order);
      draining = draining || drains_when_it_obeys;
      wire::OrderResult result;
      result.order_id = order.order_id;
      result.lease_id = 70 + order.order_id;
      return result;
    };
    host.stored = [this](uint64_t number) {
      std::lock_guard<std::mutex> hold(mutex);
      stored = number;
    };
    host.named = [this](bool begin, const std::vector<wire::PoolPeer>& peers) {
      std::lock_guard<std::mutex> hold(mutex);
      if (begin) named.clear();
      for (const wire::PoolPeer& peer : peers) named.push_back(peer.name);
    };
    return host;
  }
  void add(uint64_t lease_id) {
    std::lock_guard<std::mutex> hold(mutex);
    wire::BookEntry entry;
    entry.lease_id = lease_id;
    entry.phase = wire::LeasePhase::kClaimed;
    book.push_back(entry);
  }
  size_t count() {
    std::lock_guard<std::mutex> hold(mutex);
    return obeyed.size();
  }
};

std::unique_ptr<PoolLinks> start(Box* box, const std::vector<std::string>& addresses) {
  PoolLinkOptions options;
  options.addresses = addresses;
  options.boot = 5;
  options.retry_ms = 20;
  return PoolLinks::start(std::move(options), box->host()).take();
}

wire::Order hold_order(uint64_t id) {
  wire::Order order;
  order.order_id = id;
  order.kind = wire::OrderKind::kHold;
  order.pool_lease_id = id;
  order.gpus = {0};
  return order;
}

TEST(PoolLinks, TheBookComesOnceAndThenItsChanges) {
  SmallScheduler scheduler;
  Box box;
  for (uint64_t id = 1; id <= wire::kBookEntriesMax + 3; ++id) box.add(id);
  const auto links = start(&box, {scheduler.address()});
  EXPECT_TRUE(scheduler.hears([](const wire::PoolReport& report) {
    return report.number == 1 && report.full && report.more && report.boot == 5 &&
           report.facts.size() == 1 && report.facts[0].name == "box" &&
           report.entries.size() == wire::kBookEntriesMax;
  }));
  EXPECT_TRUE(scheduler.hears([](const wire::PoolReport& report) {
    return report.number == 2 && report.full && !report.more && report.entries.size() == 3;
  }));
  EXPECT_TRUE(scheduler.hears([](const wire::PoolReport& report) {
    return report.number == 3 && !report.full && report.entries.empty() && report.facts.empty();
  }));
  box.add(9000);
  EXPECT_TRUE(scheduler.hears([](const wire::PoolReport& report) {
    return !report.full && report.entries.size() == 1 && report.entries[0].lease_id == 9000;
  }));
  wire::PoolOrders again = scheduler.usual();
  again.wants_full = true;
  scheduler.once(again);
  EXPECT_TRUE(scheduler.hears([](const wire::PoolReport& report) { return report.full; }));
  EXPECT_FALSE(links->may_lease().ok());
}

TEST(PoolLinks, OrdersAreCarriedOutAndTheirResultsToldOnce) {
  SmallScheduler scheduler;
  Box box;
  const auto links = start(&box, {scheduler.address()});
  wire::PoolOrders orders = scheduler.usual();
  orders.orders = {hold_order(1), hold_order(2)};
  orders.ended_stored = 17;
  scheduler.once(orders);
  EXPECT_TRUE(scheduler.hears([](const wire::PoolReport& report) {
    return report.results.size() == 2 && report.results[1].lease_id == 72;
  }));
  EXPECT_TRUE(
      scheduler.hears([](const wire::PoolReport& report) { return report.results.empty(); }));
  EXPECT_EQ(box.stored, 17u);
  EXPECT_EQ(box.obeyed[0].first, 1u);
}

TEST(PoolLinks, ResultsDoNotWaitForFacts) {
  SmallScheduler scheduler;
  Box box;
  box.drains_when_it_obeys = true;
  const auto links = start(&box, {scheduler.address()});
  wire::PoolOrders orders = scheduler.usual();
  orders.orders = {hold_order(1)};
  scheduler.once(orders);
  bool came_first = false;
  EXPECT_TRUE(scheduler.hears([&](const wire::PoolReport& report) {
    if (!report.results.empty()) came_first = report.facts.empty();
    return !report.facts.empty() && report.facts[0].draining;
  }));
  EXPECT_TRUE(came_first);
}

TEST(PoolLinks, ItHearsOfTheOtherServers) {
  SmallScheduler scheduler;
  Box box;
  box.term = 3;
  const auto links = start(&box, {scheduler.address()});
  wire::PoolOrders orders = scheduler.usual();
  orders.term = 2;
  orders.peers_begin = true;
  orders.peers = {{"of a scheduler that is none any more", "gpu9:7433", ""}};
  scheduler.once(orders);
  orders.term = 3;
  orders.peers = {{"gpu1", "gpu1:7433", ""}};
  scheduler.once(orders);
  orders.peers_begin = false;
  orders.peers = {{"gpu2", "gpu2:7433", ""}};
  scheduler.once(orders);
  EXPECT_TRUE(scheduler.hears([](const wire::PoolReport& report) { return report.number == 5; }));
  std::lock_guard<std::mutex> hold(box.mutex);
  EXPECT_EQ(box.named, (std::vector<std::string>{"gpu1", "gpu2"}));
}

TEST(PoolLinks, ALowerTermAndAStandbyGiveNoOrders) {
  SmallScheduler scheduler;
  Box box;
  box.term = 3;
  const auto links = start(&box, {scheduler.address()});
  wire::PoolOrders orders = scheduler.usual();
  orders.orders = {hold_order(1)};
  orders.ended_stored = 17;
  scheduler.once(orders);
  orders.term = 3;
  orders.schedules = false;
  scheduler.once(orders);
  EXPECT_TRUE(scheduler.hears([](const wire::PoolReport& report) {
    return report.number == 3 && report.newest_term == 3 && report.entries.empty();
  }));
  EXPECT_EQ(box.count(), 0u);
  EXPECT_EQ(box.stored, 0u);
  orders.schedules = true;
  scheduler.always(orders);
  EXPECT_TRUE(
      scheduler.hears([](const wire::PoolReport& report) { return !report.results.empty(); }));
}

TEST(PoolLinks, ALostConnectionIsMadeAgainWithTheWholeBook) {
  SmallScheduler scheduler;
  Box box;
  box.add(1);
  const auto links = start(&box, {scheduler.address()});
  const auto whole = [](const wire::PoolReport& report) {
    return report.number == 1 && report.full && report.entries.size() == 1;
  };
  EXPECT_TRUE(scheduler.hears(whole));
  scheduler.drop();
  EXPECT_TRUE(scheduler.hears(whole));
}

TEST(PoolLinks, WhatIsUrgentIsToldAtOnce) {
  SmallScheduler scheduler;
  Box box;
  const auto links = start(&box, {scheduler.address()});
  EXPECT_TRUE(scheduler.hears([](const wire::PoolReport& report) { return report.number == 2; }));
  {
    std::lock_guard<std::mutex> hold(box.mutex);
    box.draining = true;
  }
  links->hurry();
  EXPECT_TRUE(scheduler.hears([](const wire::PoolReport& report) {
    return report.number == 1 && report.facts.size() == 1 && report.facts[0].draining;
  }));
}

TEST(PoolLinks, TheOneThatSchedulesIsFoundAmongSeveral) {
  SmallScheduler one, two;
  wire::PoolOrders standby = one.usual();
  standby.schedules = false;
  one.always(standby);
  Box box;
  const auto links = start(&box, {one.address(), two.address()});
  wire::PoolOrders orders = two.usual();
  orders.orders = {hold_order(1)};
  two.once(orders);
  EXPECT_TRUE(two.hears([](const wire::PoolReport& report) { return !report.results.empty(); }));
  two.end();
  orders.term = 2;
  orders.orders = {hold_order(2)};
  one.always(orders);
  EXPECT_TRUE(one.hears([](const wire::PoolReport& report) { return !report.results.empty(); }));
  std::lock_guard<std::mutex> hold(box.mutex);
  EXPECT_EQ(box.term, 2u);
}

TEST(PoolLinks, AnAddressThatIsNoneIsRefused) {
  Box box;
  PoolLinkOptions options;
  options.addresses = {"pool:99999"};
  EXPECT_EQ(PoolLinks::start(std::move(options), box.host()).status().code(), Code::kInvalid);
}

}  // namespace
}  // namespace tendril::daemon
