// SPDX-License-Identifier: Apache-2.0
// A whole scheduler with real sockets: a server that this test plays, and clients.
#include "scheduler/service.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "session/control/attach.h"
#include "store/testing/faulty.h"
#include "store/testing/memory.h"
#include "wire/pool.h"

namespace tendril::scheduler {
namespace {

using base::Code;
using wire::Request;

// A scheduler that serves on a thread of its own.
class Process {
 public:
  Process(const std::shared_ptr<store::MemoryState>& state, const std::string& name,
          const std::string& policy = "")
      : Process(std::make_unique<store::MemoryStore>(state), name, policy) {}
  Process(std::unique_ptr<store::Store> store, const std::string& name,
          const std::string& policy = "") {
    ServiceOptions options;
    options.policy_file = policy;
    options.name = name;
    options.front.audit_file = "off";
    options.front.sockets = "off";
    options.product_version = "9.9";
    options.timing.ttl_ms = 2000;
    options.timing.campaign_every_ms = 20;
    options.metrics = "127.0.0.1:0";
    auto service = Service::start(std::move(options), std::move(store));
    EXPECT_TRUE(service.ok()) << service.status().message();
    service_ = service.take();
    thread_ = std::thread([this] { service_->serve(stop_.get()); });
  }
  ~Process() { end(); }
  void end() {
    if (!thread_.joinable()) return;
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  std::unique_ptr<session::Control> connect() const {
    auto control = session::Control::connect(
        session::parse_endpoint(service_->addresses()[0]).take(), session::ConnectOptions());
    EXPECT_TRUE(control.ok()) << control.status().message();
    return control.ok() ? control.take() : nullptr;
  }
  // What a reader of its metrics gets.
  std::string metrics() const {
    const base::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(service_->metrics_port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const std::string asked = "GET /metrics HTTP/1.0\r\n\r\n";
    EXPECT_EQ(write(fd.get(), asked.data(), asked.size()), ssize_t(asked.size()));
    std::string text;
    char piece[4096];
    for (ssize_t got; (got = read(fd.get(), piece, sizeof piece)) > 0;)
      text.append(piece, size_t(got));
    return text;
  }
  Service& service() { return *service_; }
  bool schedules() const { return connect()->server_hello().schedules; }

 private:
  base::Fd stop_{eventfd(0, EFD_CLOEXEC)};
  std::unique_ptr<Service> service_;
  std::thread thread_;
};

bool eventually(const std::function<bool()>& reached) {
  for (int i = 0; i < 500; ++i) {
    if (reached()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

// Reports to a scheduler and does what it orders: every hold and every commit succeeds.
class FakeServer {
 public:
  FakeServer(const Process& process, const std::string& name) : control_(process.connect()) {
    facts_.name = name;
    facts_.endpoint = name + ":7433";
    facts_.boot = 7;
    facts_.product_version = "9.9";
    facts_.apis = {{"cuda", 1}};
    wire::GpuRecord gpu;
    gpu.name = "H200";
    gpu.memory_total_bytes = gpu.memory_usable_bytes = 80ull << 30;
    facts_.gpus = {gpu};
    thread_ = std::thread([this] { run(); });
  }
  ~FakeServer() {
    stop_ = true;
    thread_.join();
  }

 private:
  void run() {
    wire::PoolReport report;
    report.boot = 7;
    bool full = true;
    while (!stop_) {
      ++report.number;
      report.full = full;
      report.facts.clear();
      if (full) report.facts = {facts_};
      report.entries = full ? all() : changed_;
      auto body = control_->other(uint16_t(Request::kPoolReport), wire::encode(report), 10'000);
      if (!body.ok()) return;
      wire::PoolOrders orders;
      ASSERT_TRUE(wire::decode(body->data(), body->size(), &orders));
      full = orders.wants_full;
      report.results.clear();
      changed_.clear();
      for (const wire::Order& order : orders.orders) report.results.push_back(perform(order));
    }
  }
  wire::OrderResult perform(const wire::Order& order) {
    wire::OrderResult result;
    result.order_id = order.order_id;
    result.lease_id = order.pool_lease_id;
    if (order.kind == wire::OrderKind::kHold) {
      wire::BookEntry entry;
      entry.lease_id = entry.pool_lease_id = order.pool_lease_id;
      entry.owner_id = order.owner_id;
      entry.owner_name = order.owner_name;
      entry.account = order.account;
      entry.user_class = order.user_class;
      for (const uint32_t gpu : order.gpus) {
        wire::SliceGrant grant;
        grant.gpu_index = gpu;
        grant.share_millionths = order.slice.share_millionths;
        entry.slices.push_back(grant);
      }
      book_.push_back(entry);
    }
    for (wire::BookEntry& entry : book_) {
      if (entry.pool_lease_id != order.pool_lease_id) continue;
      if (order.kind == wire::OrderKind::kCommit) {
        entry.phase = wire::LeasePhase::kCommitted;
        result.secret = "the lease's secret";
      }
      changed_.push_back(entry);
    }
    return result;
  }
  std::vector<wire::BookEntry> all() const { return book_; }

  std::unique_ptr<session::Control> control_;
  wire::ServerFacts facts_;
  std::vector<wire::BookEntry> book_, changed_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

base::Result<wire::PoolAnswer> command(session::Control* control, const std::string& verb,
                                       std::vector<std::string> arguments = {}) {
  wire::PoolCommand command;
  command.verb = verb;
  command.arguments = std::move(arguments);
  auto body = control->other(uint16_t(Request::kPoolCommand), wire::encode(command), 10'000);
  if (!body.ok()) return body.status();
  wire::PoolAnswer answer;
  EXPECT_TRUE(wire::decode((*body).data(), (*body).size(), &answer));
  return answer;
}

class ServiceTest : public testing::Test {
 protected:
  std::shared_ptr<store::MemoryState> state_ = std::make_shared<store::MemoryState>();
};

TEST_F(ServiceTest, AClientGetsALeaseOfAServerThatReports) {
  Process process(state_, "pool1");
  ASSERT_TRUE(eventually([&] { return process.schedules(); }));
  FakeServer server(process, "gpu1");
  auto client = process.connect();
  EXPECT_EQ(client->server_hello().pool, "pool");
  wire::LeaseRequest request;
  request.client.user = "ada";
  request.wish.request_key.assign(wire::kRequestKeyBytes, 'k');
  bool gave_up = false;
  const session::LeaseWait wait{20'000, {}, -1};
  auto lease = client->lease(request, wait, &gave_up);
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  ASSERT_EQ(lease->parts.size(), 1u);
  EXPECT_EQ(lease->parts[0].server, "gpu1");
  EXPECT_EQ(lease->parts[0].secret, "the lease's secret");
  const auto status = command(client.get(), "status");
  ASSERT_TRUE(status.ok()) << status.status().message();
  EXPECT_NE(status.value().json.find("\"gpu1\""), std::string::npos) << status.value().json;
  const std::string metrics = process.metrics();
  for (const char* const line :
       {"\ntendril_pool_scheduler_leads 1\n", "\ntendril_pool_servers{state=\"up\"} 1\n",
        "\ntendril_pool_grants_total 1\n", "\ntendril_pool_wait_seconds_count 1\n",
        "\ntendril_pool_leases{state=\"granted\"} 1\n"})
    EXPECT_NE(metrics.find(line), std::string::npos) << line << metrics;
}

TEST_F(ServiceTest, AStandbyNamesWhoSchedulesAndTakesOver) {
  auto first = std::make_unique<Process>(state_, "pool1");
  ASSERT_TRUE(eventually([&] { return first->schedules(); }));
  Process second(state_, "pool2");
  auto client = second.connect();
  EXPECT_FALSE(client->server_hello().schedules);
  base::Status refusal;
  EXPECT_TRUE(eventually([&] {
    refusal = client->lease({}).status();
    return refusal.message().find("pool1 schedules now") != std::string::npos;
  })) << refusal.message();
  EXPECT_EQ(refusal.code(), Code::kUnavailable);
  EXPECT_FALSE(command(client.get(), "status").ok());
  EXPECT_NE(second.metrics().find("\ntendril_pool_scheduler_leads 0\n"), std::string::npos);
  first.reset();
  EXPECT_TRUE(eventually([&] { return second.schedules(); }));
}

TEST_F(ServiceTest, WithoutItsStoreItDecidesNothingAndSaysSo) {
  auto opened =
      std::make_unique<store::FaultyStore>(std::make_unique<store::MemoryStore>(state_), 1);
  store::FaultyStore* const store = opened.get();
  Process process(std::move(opened), "pool1");
  ASSERT_TRUE(eventually([&] { return process.schedules(); }));
  const std::string said = "pool1 decides nothing until the pool's store answers it";
  auto waiting = process.connect();
  // No server has reported, so this one waits. It hears why it goes on waiting.
  bool gave_up = false;
  session::LeaseWait wait{20'000, {}, -1};
  wait.news = [&](const wire::News& news) {
    store->set({.away = true});
    return news.text.find(said) == std::string::npos;
  };
  EXPECT_FALSE(waiting->lease({}, wait, &gave_up).ok());
  EXPECT_TRUE(gave_up);
  auto client = process.connect();
  const base::Status refused = client->lease({}).status();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_NE(refused.message().find(said), std::string::npos) << refused.message();
  const base::Status unanswered = command(client.get(), "queue").status();
  EXPECT_NE(unanswered.message().find(said), std::string::npos) << unanswered.message();
  store->set({});
  EXPECT_TRUE(eventually([&] { return command(client.get(), "queue").ok(); }));
}

TEST(Service, StartsWithARightPolicyOnly) {
  char path[] = "/tmp/tendril-policy-XXXXXX";
  const base::Fd file(mkstemp(path));
  const std::string wrong = "[pool]\nlongest_wait = 5\n";
  ASSERT_EQ(write(file.get(), wrong.data(), wrong.size()), ssize_t(wrong.size()));
  ServiceOptions options;
  options.policy_file = path;
  const auto refused = Service::start(options, nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message().find(std::string(path) + ", line 2, column 16: "), 0u)
      << refused.status().message();
  // Without another store the policy's is opened.
  const std::string right = "[pool]\nstore = \"floppy:a\"\n";
  ASSERT_EQ(pwrite(file.get(), right.data(), right.size(), 0), ssize_t(right.size()));
  ASSERT_EQ(ftruncate(file.get(), ssize_t(right.size())), 0);
  const auto unknown = Service::start(options, nullptr);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("floppy:a"), std::string::npos)
      << unknown.status().message();
  unlink(path);
}

// A file with this text, which is gone at the end.
class PolicyFile {
 public:
  explicit PolicyFile(const std::string& text) : file_(mkstemp(path_)) { say(text); }
  ~PolicyFile() { unlink(path_); }
  void say(const std::string& text) {
    ASSERT_EQ(ftruncate(file_.get(), 0), 0);
    ASSERT_EQ(pwrite(file_.get(), text.data(), text.size(), 0), ssize_t(text.size()));
  }
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/tendril-policy-XXXXXX";
  base::Fd file_;
};

// What SIGHUP does.
TEST_F(ServiceTest, AWrongPolicyFileLeavesTheOldPolicy) {
  PolicyFile file("[pool]\nname = \"first\"\n");
  Process process(state_, "pool1", file.path());
  ASSERT_TRUE(eventually([&] { return process.schedules(); }));
  auto client = process.connect();
  const auto shown = [&](const std::string& part) {
    auto answer = command(client.get(), "show");
    return answer.ok() && answer->json.find(part) != std::string::npos;
  };
  ASSERT_TRUE(eventually([&] { return shown("first"); }));
  file.say("[pool]\nname = \"second\"\nlongest_wait = 5\n");
  const base::Status refused = process.service().reload();
  EXPECT_EQ(refused.message().find(file.path() + ", line 3, column 16: "), 0u) << refused.message();
  EXPECT_TRUE(shown("first"));
  EXPECT_TRUE(shown("\"policy_revision\":1"));
  file.say("[pool]\nname = \"third\"\n");
  EXPECT_TRUE(process.service().reload().ok());
  EXPECT_TRUE(eventually([&] { return shown("third") && shown("\"policy_revision\":2"); }));
}

// Nothing that was acknowledged is lost, and who waits is told, whatever the store does.
TEST_F(ServiceTest, AStoreThatFailsIsToldAndLosesNothing) {
  auto faulty =
      std::make_unique<store::FaultyStore>(std::make_unique<store::MemoryStore>(state_), 1);
  store::FaultyStore* const failing = faulty.get();
  Process process(std::move(faulty), "pool1");
  ASSERT_TRUE(eventually([&] { return process.schedules(); }));
  FakeServer server(process, "gpu1");
  auto client = process.connect();
  ASSERT_TRUE(eventually([&] { return command(client.get(), "drain", {"gpu1"}).ok(); }));
  store::Faults full;
  full.full = true;
  failing->set(full);
  auto waiting = process.connect();
  wire::LeaseRequest request;
  request.wish.request_key.assign(wire::kRequestKeyBytes, 'k');
  std::string told;
  session::LeaseWait wait{20'000, {}, -1};
  wait.news = [&](const wire::News& news) {
    told = news.text;
    return news.text.find("full") == std::string::npos;
  };
  bool gave_up = false;
  EXPECT_FALSE(waiting->lease(request, wait, &gave_up).ok());
  EXPECT_NE(told.find("full"), std::string::npos) << told;
  auto status = command(client.get(), "status");
  ASSERT_TRUE(status.ok()) << status.status().message();
  EXPECT_NE(status->json.find("\"store_trouble\":\"faulty"), std::string::npos) << status->json;
  EXPECT_EQ(process.metrics().find("tendril_pool_store_failures_total 0\n"), std::string::npos);
  store::Faults slow;
  slow.late = 100;
  slow.late_ms = 50;
  failing->set(slow);
  EXPECT_TRUE(command(client.get(), "label", {"gpu1", "room=cellar"}).ok());
  failing->set({});
  process.end();
  Process next(state_, "pool2");
  ASSERT_TRUE(eventually([&] { return next.schedules(); }));
  auto kept = command(next.connect().get(), "status");
  ASSERT_TRUE(kept.ok()) << kept.status().message();
  EXPECT_NE(kept->json.find("\"draining\":true"), std::string::npos) << kept->json;
  EXPECT_NE(kept->json.find("\"room\":\"cellar\""), std::string::npos) << kept->json;
}

// A damaged store is refused at the start; nothing is overwritten.
TEST(Service, RefusesADamagedStore) {
  PolicyFile file(
      "SQLite format 3, or so it says; and then 100 bytes of something else, as a disk "
      "that fails would leave behind it.");
  ServiceOptions options;
  options.store = "sqlite:" + file.path();
  const auto refused = Service::start(options, nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find(file.path()), std::string::npos)
      << refused.status().message();
}

TEST_F(ServiceTest, WhatIsNoPoolsBusinessIsRefused) {
  Process process(state_, "pool1");
  ASSERT_TRUE(eventually([&] { return process.schedules(); }));
  auto client = process.connect();
  EXPECT_EQ(client->change({}).code(), Code::kNotFound);
  EXPECT_FALSE(command(client.get(), "no such verb").ok());
  EXPECT_FALSE(client->other(uint16_t(Request::kPoolReport), {1, 2, 3}, 5000).ok());
  EXPECT_TRUE(client->ping_us().ok());
}

}  // namespace
}  // namespace tendril::scheduler
