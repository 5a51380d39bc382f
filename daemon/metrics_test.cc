// SPDX-License-Identifier: Apache-2.0
// Metrics: what the text says, and the server that gives it, to scrapers and to hostile peers.
#include "daemon/metrics.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "base/clock.h"
#include "daemon/metrics_server.h"

namespace tendril::daemon {
namespace {

wire::ListReply sample() {
  wire::ListReply list;
  list.server = "rack7";
  wire::GpuRecord gpu;
  gpu.index = 0;
  gpu.name = "H200";
  gpu.uuid = std::string(16, '\x11');
  gpu.memory_total_bytes = 1000;
  gpu.share_used_millionths = 750'000;
  gpu.temperature_c = 41;
  list.gpus = {gpu};
  wire::LeaseRecord lease;
  lease.lease_id = 9;
  lease.client = {"box", "ada", "a \"quoted\\\n\xff program", 1};
  lease.slices.resize(2);
  lease.slices[0].share_millionths = 250'000;
  lease.memory_used_bytes = {5, 6};
  lease.uses = {{true, 240'000, 1'500'000'000, 250'000'000, 6'000'000'000}, {}};
  lease.processes = 2;
  list.leases = {lease};
  wire::SessionRecord session;
  session.session_id = 12;
  session.lease_id = 9;
  session.client = {"box", "ada", "train", 77};
  session.calls = 50;
  session.launches = 40;
  session.bytes_in = 3000;
  session.awaited_ns = 1'500'000'000;
  session.processor_ns = 250'000'000;
  list.sessions = {session};
  return list;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(Metrics, WhatIsKnownIsThere) {
  Counters counters;
  counters.leases_refused = 3;
  counters.gpus = {{900, 250, 2'000'000'000, 12}};
  const std::string text = metrics_text(sample(), counters);
  const std::string gpu =
      R"({gpu="0",uuid="GPU-11111111-1111-1111-1111-111111111111",model="H200"} )";
  EXPECT_TRUE(has_line(text, "tendril_gpu_memory_total_bytes" + gpu + "1000")) << text;
  EXPECT_TRUE(has_line(text, "tendril_gpu_share_lent_ratio" + gpu + "0.75"));
  EXPECT_TRUE(has_line(text, "tendril_gpu_turn_seconds_total" + gpu + "2"));
  EXPECT_TRUE(has_line(text, "tendril_gpu_temperature_celsius" + gpu + "41"));
  EXPECT_EQ(text.find("tendril_gpu_power_watts"), std::string::npos) << "not known, not said";
  EXPECT_TRUE(has_line(text, "tendril_lease_refusals_total 3"));
  EXPECT_TRUE(has_line(text, "# TYPE tendril_lease_refusals_total counter"));
  EXPECT_TRUE(has_line(text, "tendril_sessions 2"));
  const std::string lease =
      R"({lease="9",gpu="0",user="ada",client="box",program="a \"quoted\\?? program"} )";
  EXPECT_TRUE(has_line(text, "tendril_lease_gpu_seconds_total" + lease + "1.5")) << text;
  EXPECT_TRUE(has_line(text, "tendril_lease_queued_seconds_total" + lease + "0.25"));
  EXPECT_TRUE(has_line(text, "tendril_lease_share_delivered_ratio" + lease + "0.24"));
  EXPECT_TRUE(has_line(text, "tendril_lease_memory_used_bytes" + lease + "6"));
  const std::string session =
      R"({session="12",lease="9",user="ada",client="box",program="train",pid="77"} )";
  EXPECT_TRUE(has_line(text, "tendril_session_calls_total" + session + "50")) << text;
  EXPECT_TRUE(has_line(text, "tendril_session_launches_total" + session + "40"));
  EXPECT_TRUE(has_line(text, "tendril_session_received_bytes_total" + session + "3000"));
  EXPECT_TRUE(has_line(text, "tendril_session_awaited_seconds_total" + session + "1.5"));
  EXPECT_TRUE(has_line(text, "tendril_session_processor_seconds_total" + session + "0.25"));
}

TEST(Metrics, EachFamilyIsDescribedOnce) {
  const std::string text = metrics_text(sample(), Counters());
  size_t types = 0;
  std::vector<std::string> names;
  for (size_t at = text.find("# TYPE "); at != std::string::npos;
       at = text.find("# TYPE ", at + 1)) {
    const std::string name = text.substr(at + 7, text.find(' ', at + 7) - at - 7);
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 0) << name;
    names.push_back(name);
    ++types;
  }
  EXPECT_GT(types, 15u);
}

TEST(Metrics, OnlyOneRequestIsUnderstood) {
  const auto text = [] { return std::string("the text"); };
  const auto status = [&](const char* request) { return http_answer(request, text).substr(9, 3); };
  EXPECT_EQ(status("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), "200");
  EXPECT_EQ(status("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), "200");
  EXPECT_EQ(status("GET / HTTP/1.0\r\n\r\n"), "404");
  EXPECT_EQ(status("GET /metricsandmore HTTP/1.0\r\n\r\n"), "404");
  EXPECT_EQ(status("GET /../metrics HTTP/1.0\r\n\r\n"), "404");
  EXPECT_EQ(status("POST /metrics HTTP/1.0\r\n\r\n"), "405");
  EXPECT_EQ(status("GET /metrics\r\n\r\n"), "400");
  EXPECT_EQ(status("\r\n\r\n"), "400");
  EXPECT_EQ(status(""), "400");
  const std::string whole = http_answer("GET /metrics HTTP/1.0\r\n\r\n", text);
  EXPECT_NE(whole.find("Content-Length: 8\r\n"), std::string::npos);
  EXPECT_EQ(whole.substr(whole.size() - 12), "\r\n\r\nthe text");
}

class MetricsServerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto started = MetricsServer::start("127.0.0.1:0", [this] { return text_; });
    ASSERT_TRUE(started.ok()) << started.status().message();
    server_ = started.take();
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
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, AnswersAScraper) {
  const base::Fd fd = connected();
  say(fd, "GET /met");
  usleep(20'000);
  say(fd, "rics HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string answer = hear(fd);
  EXPECT_EQ(answer.substr(0, 15), "HTTP/1.0 200 OK");
  EXPECT_EQ(answer.substr(answer.size() - text_.size()), text_);
}

TEST_F(MetricsServerTest, ALongAnswerArrivesWhole) {
  text_.assign(8u << 20, 'x');
  const base::Fd fd = connected();
  say(fd, "GET /metrics HTTP/1.0\r\n\r\n");
  usleep(50'000);
  EXPECT_GT(hear(fd).size(), text_.size());
}

// More connections that say nothing than there are places, and others that talk nonsense.
TEST_F(MetricsServerTest, HostilePeersEndAloneAndInTime) {
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

TEST_F(MetricsServerTest, ARequestWithoutEndIsRefused) {
  const base::Fd fd = connected();
  say(fd, "GET /metrics HTTP/1.0\r\n" + std::string(5000, 'a'));
  EXPECT_NE(hear(fd).find(" 431 "), std::string::npos);
}

TEST(Metrics, AnAddressNeedsAPort) {
  EXPECT_EQ(MetricsServer::start("127.0.0.1", [] { return ""; }).status().code(),
            base::Code::kInvalid);
}

}  // namespace
}  // namespace tendril::daemon
