// SPDX-License-Identifier: Apache-2.0
// tendril_pool_replay: replays a trace from two files and prints what each strategy gives away.
// tools/pool_replay.py calls it with the public traces unpacked. Not shipped.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "pool/replay/queue_replay.h"
#include "pool/replay/replay.h"

namespace {

using namespace tendril;

constexpr char kUsage[] =
    "usage: tendril_pool_replay SERVERS.csv REQUESTS.csv [--strategy random|bestfit|fgd|snug]\n"
    "         [--seeds 10] [--first-seed 42] [--host trace|worker] [--learn trace|arrivals]\n"
    "         [--arrivals 1.3] [--churn LEASES] [--engine LEASES]\n"
    "       tendril_pool_replay --queue LOAD SEED TRACE...\n";

struct Arguments {
  std::string servers, requests;
  pool::ReplayOptions options;
  uint64_t seeds = 10;
  size_t churn_leases = 0;   // 0: no churn
  size_t engine_leases = 0;  // 0: the engine is not measured
};

int fail(const std::string& message) {
  std::fprintf(stderr, "tendril_pool_replay: %s\n", message.c_str());
  return 1;
}

bool parse(int count, char** words, Arguments& arguments) {
  if (count < 3) return false;
  arguments.servers = words[1];
  arguments.requests = words[2];
  arguments.options.strategy = "snug";
  for (int i = 3; i < count; i += 2) {
    if (i + 1 == count) return false;
    const std::string name = words[i];
    const std::string value = words[i + 1];
    if (name == "--strategy")
      arguments.options.strategy = value;
    else if (name == "--seeds")
      arguments.seeds = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "--first-seed")
      arguments.options.seed = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "--arrivals")
      arguments.options.arrivals = std::strtod(value.c_str(), nullptr);
    else if (name == "--churn")
      arguments.churn_leases = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "--engine")
      arguments.engine_leases = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "--host" && (value == "trace" || value == "worker"))
      arguments.options.host = value == "trace" ? pool::HostSide::kTrace : pool::HostSide::kWorker;
    else if (name == "--learn" && (value == "trace" || value == "arrivals"))
      arguments.options.learning =
          value == "trace" ? pool::Learning::kTrace : pool::Learning::kArrivals;
    else
      return false;
  }
  return arguments.seeds > 0 && arguments.options.arrivals >= 0;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

uint64_t steady_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

double microseconds(const std::vector<uint64_t>& sorted_ns, double part) {
  if (sorted_ns.empty()) return 0;
  return static_cast<double>(sorted_ns[static_cast<size_t>(part * (sorted_ns.size() - 1))]) / 1e3;
}

int run_churn(const pool::Trace& trace, const Arguments& arguments) {
  constexpr size_t kRounds = 20'000;
  auto result = pool::churn(trace, arguments.options, arguments.churn_leases, kRounds);
  if (!result) return fail(result.status().message());
  std::printf("%s: %zu leases, decision p50 %.1f us, p99 %.1f us, max %.1f us\n",
              arguments.options.strategy.c_str(), result->leases,
              microseconds(result->decision_ns, 0.5), microseconds(result->decision_ns, 0.99),
              microseconds(result->decision_ns, 1));
  return 0;
}

int run(const pool::Trace& trace, const Arguments& arguments) {
  double sum = 0;
  double squares = 0;
  double p99 = 0;
  double p50 = 0;
  for (uint64_t i = 0; i < arguments.seeds; ++i) {
    pool::ReplayOptions options = arguments.options;
    options.seed += i;
    auto result = pool::replay(trace, options);
    if (!result) return fail(result.status().message());
    sum += result->allocation_percent();
    squares += result->allocation_percent() * result->allocation_percent();
    p50 = std::max(p50, microseconds(result->decision_ns, 0.5));
    p99 = std::max(p99, microseconds(result->decision_ns, 0.99));
  }
  const double seeds = static_cast<double>(arguments.seeds);
  const double mean = sum / seeds;
  std::printf("%s: %.2f %% of all GPUs, deviation %.2f, decision p50 %.1f us, p99 %.1f us\n",
              arguments.options.strategy.c_str(), mean,
              std::sqrt(std::max(0.0, squares / seeds - mean * mean)), p50, p99);
  return 0;
}

int run_engine(const pool::Trace& trace, const Arguments& arguments) {
  constexpr size_t kRounds = 20'000;
  auto times = pool::engine_decisions(trace, arguments.engine_leases, kRounds, steady_ns);
  if (!times) return fail(times.status().message());
  std::printf("engine: %zu leases, decision p50 %.1f us, p99 %.1f us, max %.1f us\n",
              arguments.engine_leases, microseconds(*times, 0.5), microseconds(*times, 0.99),
              microseconds(*times, 1));
  return 0;
}

int run_queue(int count, char** words) {
  pool::QueueReplayOptions options;
  options.load = std::strtod(words[2], nullptr);
  options.seed = std::strtoull(words[3], nullptr, 10);
  std::vector<std::vector<pool::QueueJob>> traces;
  for (int i = 4; i < count; ++i) {
    auto jobs = pool::read_jobs(text_of(words[i]));
    if (!jobs) return fail(std::string(words[i]) + ": " + jobs.status().message());
    traces.push_back(jobs.take());
  }
  const pool::QueueReplayResult result = pool::replay_queue(traces, options);
  std::printf(
      "queue: %zu jobs, mean wait %.0f s, FIFO with backfill %.0f s, Jain %.3f over %zu hours "
      "(%.3f over the %zu in which all wait), %zu heads, %zu late, %zu of %zu inside the told "
      "range\n",
      result.jobs, result.mean_wait_s, result.fifo_mean_wait_s, result.jain, result.hours,
      result.jain_waiting, result.hours_waiting, result.promised, result.late, result.inside,
      result.told);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count > 4 && std::string(words[1]) == "--queue" && std::strtod(words[2], nullptr) > 0)
    return run_queue(count, words);
  Arguments arguments;
  if (!parse(count, words, arguments)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  arguments.options.now_ns = steady_ns;
  auto servers = pool::read_servers(text_of(arguments.servers));
  if (!servers) return fail(arguments.servers + ": " + servers.status().message());
  auto requests = pool::read_requests(text_of(arguments.requests));
  if (!requests) return fail(arguments.requests + ": " + requests.status().message());
  if (servers->empty()) return fail(arguments.servers + ": no servers; is the path right?");
  if (requests->empty()) return fail(arguments.requests + ": no requests; is the path right?");
  const pool::Trace trace{servers.take(), requests.take()};
  if (arguments.engine_leases != 0) return run_engine(trace, arguments);
  return arguments.churn_leases != 0 ? run_churn(trace, arguments) : run(trace, arguments);
}
