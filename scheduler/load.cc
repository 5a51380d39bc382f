// SPDX-License-Identifier: Apache-2.0
// Plays many servers towards a scheduler, with real sockets: each reports GPUs and leases in full,
// then one changed lease in each report. Prints what the scheduler's process took meanwhile. By
// hand: tendril_pool_load PORT PID [SERVERS] [LEASES] [SECONDS]. The scheduler must be open.
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "session/control/control_io.h"
#include "wire/pool.h"

namespace tendril::scheduler {
namespace {

constexpr int kAnswerMs = 20'000;
constexpr uint64_t kSecondNs = 1'000'000'000;

struct Server {
  session::Connection connection;
  wire::ServerFacts facts;
  std::vector<wire::BookEntry> book;
  uint64_t number = 0;
};

// What /proc says of the process: processor time and resident memory.
struct Took {
  double processor_s = 0, resident_mb = 0;
};
Took took(const std::string& process) {
  Took out;
  char line[1024] = {};
  FILE* file = fopen(("/proc/" + process + "/stat").c_str(), "re");
  if (file != nullptr) {
    const size_t bytes = fread(line, 1, sizeof line - 1, file);
    line[bytes] = 0;
    fclose(file);
    const char* const after = strrchr(line, ')');
    unsigned long long user = 0, system = 0;
    long pages = 0;
    if (after != nullptr &&
        sscanf(after + 2,
               "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d "
               "%*d %*d %*u %*u %ld",
               &user, &system, &pages) == 3) {
      out.processor_s = double(user + system) / double(sysconf(_SC_CLK_TCK));
      out.resident_mb = double(pages) * double(sysconf(_SC_PAGESIZE)) / 1e6;
    }
  }
  return out;
}

Server make_server(size_t index, size_t leases) {
  Server server;
  server.facts.name = base::format("gpu%04zu", index);
  server.facts.endpoint = server.facts.name + ":7433";
  server.facts.boot = index + 1;
  server.facts.product_version = wire::product_version();
  server.facts.apis = {{"cuda", 1}};
  server.facts.labels = {"rack=r" + std::to_string(index / 16)};
  for (uint32_t gpu = 0; gpu < 8; ++gpu) {
    wire::GpuRecord record;
    record.index = gpu;
    record.name = "NVIDIA H200";
    record.memory_total_bytes = record.memory_usable_bytes = 141ull << 30;
    server.facts.gpus.push_back(record);
  }
  for (size_t lease = 0; lease < leases; ++lease) {
    wire::BookEntry entry;
    entry.lease_id = lease + 1;
    entry.phase = wire::LeasePhase::kClaimed;
    entry.owner_id = entry.owner_name = "user" + std::to_string((index * leases + lease) % 500);
    entry.client.program = "train.py";
    entry.client.host = "host" + std::to_string(index);
    wire::SliceGrant slice;
    slice.gpu_index = uint32_t(lease % 8);
    slice.share_millionths = 400'000;
    slice.memory_bytes = 40ull << 30;
    entry.slices = {slice};
    entry.was_attached = true;
    entry.processes = 1;
    server.book.push_back(entry);
  }
  return server;
}

bool report(Server* server, bool full) {
  wire::PoolReport report;
  report.boot = server->facts.boot;
  report.number = ++server->number;
  report.full = full;
  if (full) {
    report.facts = {server->facts};
    report.entries = server->book;
  } else if (!server->book.empty()) {
    wire::BookEntry& entry = server->book[report.number % server->book.size()];
    entry.age_ns += 2 * kSecondNs;
    entry.idle_ns = 0;
    entry.used_ns += kSecondNs;
    report.entries = {entry};
  }
  return session::send_message(&server->connection, uint16_t(wire::Request::kPoolReport),
                               base::Code::kOk, wire::encode(report), base::Deadline(kAnswerMs))
      .ok();
}

bool enter(Server* server, const session::Endpoint& endpoint) {
  auto connection = session::connect_to(endpoint, base::Deadline(kAnswerMs));
  if (!connection.ok()) return false;
  server->connection = connection.take();
  wire::Hello hello;
  hello.product_version = wire::product_version();
  const base::Deadline deadline(kAnswerMs);
  if (!session::send_message(&server->connection, wire::kHelloKind, base::Code::kOk,
                             wire::encode(hello), deadline)
           .ok())
    return false;
  const auto answer = session::receive_message(&server->connection, deadline, kAnswerMs);
  return answer.ok() && answer.value().code == base::Code::kOk && report(server, true);
}

int run(const std::string& port, const std::string& process, size_t servers, size_t leases,
        uint64_t seconds) {
  const auto endpoint = session::parse_endpoint("127.0.0.1:" + port);
  if (!endpoint.ok()) return 2;
  std::vector<Server> all;
  for (size_t i = 0; i < servers; ++i) {
    all.push_back(make_server(i, leases));
    if (enter(&all.back(), endpoint.value())) continue;
    fprintf(stderr, "server %zu is not let in\n", i);
    return 1;
  }
  std::vector<pollfd> waits(servers);
  uint64_t begun_ns = base::now_ns(), settled_ns = 0, reports = 0;
  Took before;
  // The first seconds are full reports.
  for (;;) {
    const uint64_t now_ns = base::now_ns();
    if (settled_ns == 0 && now_ns - begun_ns > 5 * kSecondNs) {
      settled_ns = now_ns;
      before = took(process);
      reports = 0;
    }
    if (settled_ns != 0 && now_ns - settled_ns > seconds * kSecondNs) break;
    for (size_t i = 0; i < servers; ++i) waits[i] = {all[i].connection.descriptor(), POLLIN, 0};
    if (poll(waits.data(), waits.size(), 100) <= 0) continue;
    for (size_t i = 0; i < servers; ++i) {
      if (waits[i].revents == 0) continue;
      const auto answer =
          session::receive_message(&all[i].connection, base::Deadline(kAnswerMs), kAnswerMs);
      if (!answer.ok() || answer.value().code != base::Code::kOk) {
        fprintf(stderr, "server %zu: %s\n", i,
                answer.ok() ? answer.value().text().c_str() : answer.status().message().c_str());
        return 1;
      }
      wire::PoolOrders orders;
      if (!answer.value().read(&orders)) return 1;
      ++reports;
      if (!report(&all[i], orders.wants_full)) return 1;
    }
  }
  const Took after = took(process);
  const double elapsed_s = double(base::now_ns() - settled_ns) / 1e9;
  printf("%zu servers, %zu leases: %.0f reports/s, %.1f %% of a processor, %.1f MB resident\n",
         servers, servers * leases, double(reports) / elapsed_s,
         100 * (after.processor_s - before.processor_s) / elapsed_s, after.resident_mb);
  return 0;
}

}  // namespace
}  // namespace tendril::scheduler

int main(int argc, char** argv) {
  const auto number = [&](int index, unsigned long otherwise) {
    return argc > index ? strtoul(argv[index], nullptr, 10) : otherwise;
  };
  if (argc < 3) {
    fprintf(stderr, "usage: tendril_pool_load PORT PID [SERVERS] [LEASES] [SECONDS]\n");
    return 2;
  }
  return tendril::scheduler::run(argv[1], argv[2], number(3, 1000), number(4, 10), number(5, 20));
}
