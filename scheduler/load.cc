// SPDX-License-Identifier: Apache-2.0
// Plays many servers towards a scheduler, with real sockets: each reports GPUs and leases in full,
// then one changed lease in each report. Prints what the scheduler's process took meanwhile. By
// hand: tendril_pool_load PORT PID [SERVERS] [LEASES] [SECONDS] [KIND]. The scheduler must be open.
// KIND "varied" is for tests of the page: servers and leases differ, every lease changes in each
// report, and requests wait. In "hostile" names are what an attacker would choose.
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "scheduler/hostile_names.h"
#include "session/control/control_io.h"
#include "wire/pool.h"

namespace tendril::scheduler {
namespace {

constexpr int kAnswerMs = 20'000;
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr size_t kWaiters = 7;

struct Server {
  session::Connection connection;
  wire::ServerFacts facts;
  std::vector<wire::BookEntry> book;
  uint64_t number = 0;
  uint64_t worked_ns = 0;  // when its leases last worked
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

enum class Kind { kPlain, kVaried, kHostile };

// As different as servers and their leases are.
void vary(size_t index, Kind kind, Server* server) {
  static const char* const kModels[] = {"NVIDIA H200", "NVIDIA L40S", "NVIDIA L4"};
  static const uint64_t kMemory[] = {141ull << 30, 48ull << 30, 24ull << 30};
  const size_t model = index % 5 < 3 ? 0 : index % 5 - 2;
  server->facts.driver = "libcuda.so.1 (580.65)";
  server->facts.transports = {"tcp", "shm"};
  if (model == 2) server->facts.gpus.resize(4);
  if (kind == Kind::kHostile) {
    server->facts.name = std::to_string(index) + hostile_name(index);
    if (server->facts.name.size() > wire::kPoolNameBytesMax)
      server->facts.name.resize(wire::kPoolNameBytesMax);
  }
  for (wire::GpuRecord& gpu : server->facts.gpus) {
    gpu.name = kind == Kind::kHostile ? hostile_name(index + 1) : kModels[model];
    gpu.memory_total_bytes = gpu.memory_usable_bytes = kMemory[model];
  }
  static const uint32_t kShares[] = {500'000, 250'000, 250'000, 1'000'000, 100'000};
  const auto gpus = uint32_t(server->facts.gpus.size());
  for (size_t i = 0; i < server->book.size(); ++i) {
    wire::BookEntry& entry = server->book[i];
    wire::SliceGrant& slice = entry.slices[0];
    slice.gpu_index = uint32_t((i * 3) % gpus);
    slice.share_millionths = i >= gpus ? 200'000 : kShares[(index + i) % std::size(kShares)];
    slice.memory_bytes = kMemory[model] * slice.share_millionths / 1'000'000;
    entry.owner_id = entry.owner_name = "user" + std::to_string((index * 7 + i * 3) % 23);
    entry.age_ns = (index * 131 + i * 977 + 60) * kSecondNs;
    entry.idle_ns = (index + i) % 9 == 4 ? 400 * kSecondNs : 0;
    if (kind == Kind::kHostile) {
      entry.owner_id = entry.owner_name =
          hostile_name(index + i).substr(0, wire::kPoolTextBytesMax);
      entry.client.program = hostile_name(index + i + 3);
      entry.client.host = hostile_name(index + i + 5);
      entry.account = hostile_name(i).substr(0, wire::kPoolTextBytesMax);
    }
  }
}

// All leases work on, each at its own pace.
void work_on(Server* server) {
  const uint64_t now_ns = base::now_ns();
  const uint64_t time_ns = server->worked_ns == 0 ? 0 : now_ns - server->worked_ns;
  server->worked_ns = now_ns;
  for (size_t i = 0; i < server->book.size(); ++i) {
    wire::BookEntry& entry = server->book[i];
    entry.age_ns += time_ns;
    if (entry.idle_ns != 0) {
      entry.idle_ns += time_ns;
      entry.idle_total_ns += time_ns;
      continue;
    }
    const uint64_t pace = 20 + (i * 37 + server->number * 7 + server->facts.boot) % 70;
    entry.used_ns += time_ns / 1'000'000 * entry.slices[0].share_millionths * pace / 100;
    entry.waited_ns += time_ns * (pace % 10) / 20;
    entry.memory_used_bytes = entry.slices[0].memory_bytes * pace / 100;
  }
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

bool report(Server* server, bool full, Kind kind) {
  wire::PoolReport report;
  report.boot = server->facts.boot;
  report.number = ++server->number;
  report.full = full;
  if (full) {
    report.facts = {server->facts};
    report.entries = server->book;
  } else if (kind != Kind::kPlain) {
    work_on(server);
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

bool say_hello(const session::Endpoint& endpoint, session::Connection* out) {
  auto connection = session::connect_to(endpoint, base::Deadline(kAnswerMs));
  if (!connection.ok()) return false;
  *out = connection.take();
  wire::Hello hello;
  hello.product_version = wire::product_version();
  const base::Deadline deadline(kAnswerMs);
  if (!session::send_message(out, wire::kHelloKind, base::Code::kOk, wire::encode(hello), deadline)
           .ok())
    return false;
  const auto answer = session::receive_message(out, deadline, kAnswerMs);
  return answer.ok() && answer.value().code == base::Code::kOk;
}

bool enter(Server* server, const session::Endpoint& endpoint, Kind kind) {
  return say_hello(endpoint, &server->connection) && report(server, true, kind);
}

// Somebody who asks for more than is free, and waits. Its news is not read.
bool wait_for(size_t index, const session::Endpoint& endpoint, Kind kind,
              session::Connection* connection) {
  if (!say_hello(endpoint, connection)) return false;
  wire::LeaseRequest request;
  request.count = 4;
  request.client.user =
      kind == Kind::kHostile ? hostile_name(index) : "user" + std::to_string(index % 23);
  request.client.program = kind == Kind::kHostile ? hostile_name(index + 1) : "train.py";
  request.client.host = "host" + std::to_string(index);
  return session::send_message(connection, uint16_t(wire::Request::kLease), base::Code::kOk,
                               wire::encode(request), base::Deadline(kAnswerMs))
      .ok();
}

int run(const std::string& port, const std::string& process, size_t servers, size_t leases,
        uint64_t seconds, Kind kind) {
  const auto endpoint = session::parse_endpoint("127.0.0.1:" + port);
  if (!endpoint.ok()) return 2;
  rlimit descriptors = {};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  setrlimit(RLIMIT_NOFILE, &descriptors);
  std::vector<Server> all;
  for (size_t i = 0; i < servers; ++i) {
    all.push_back(make_server(i, leases));
    if (kind != Kind::kPlain) vary(i, kind, &all.back());
    if (enter(&all.back(), endpoint.value(), kind)) continue;
    fprintf(stderr, "server %zu is not let in\n", i);
    return 1;
  }
  std::vector<session::Connection> waiters(kind == Kind::kPlain ? 0 : kWaiters);
  std::vector<pollfd> waits(servers);
  uint64_t begun_ns = base::now_ns(), settled_ns = 0, reports = 0;
  Took before;
  // The first seconds are full reports.
  for (;;) {
    const uint64_t now_ns = base::now_ns();
    if (settled_ns == 0 && now_ns - begun_ns > 5 * kSecondNs) {
      settled_ns = now_ns;
      for (size_t i = 0; i < waiters.size(); ++i) {
        if (wait_for(i, endpoint.value(), kind, &waiters[i])) continue;
        fprintf(stderr, "request %zu is not taken\n", i);
        return 1;
      }
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
      if (report(&all[i], orders.wants_full, kind)) continue;
      fprintf(stderr, "the report of server %zu is not taken\n", i);
      return 1;
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
    fprintf(stderr, "usage: tendril_pool_load PORT PID [SERVERS] [LEASES] [SECONDS] [KIND]\n");
    return 2;
  }
  using tendril::scheduler::Kind;
  const std::string kind = argc > 6 ? argv[6] : "plain";
  return tendril::scheduler::run(argv[1], argv[2], number(3, 1000), number(4, 10), number(5, 20),
                                 kind == "hostile"  ? Kind::kHostile
                                 : kind == "varied" ? Kind::kVaried
                                                    : Kind::kPlain);
}
