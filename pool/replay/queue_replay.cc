// SPDX-License-Identifier: Apache-2.0
// Arrivals in order of time, leases that end when they do, and a plan after each.
#include "pool/replay/queue_replay.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "pool/engine/engine.h"
#include "pool/engine/usage.h"

namespace tendril::pool {

namespace {

constexpr uint32_t kGpusPerServer = 8;
constexpr uint64_t kMemory = uint64_t{80} << 30;
constexpr int64_t kHour_s = 3600;

struct Job {
  uint64_t id = 0;
  uint32_t account = 0;
  uint32_t gpus = 1;
  int64_t arrival_s = 0, lasts_s = 0, most_s = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The jobs of all traces in order of arrival, with arrivals moved together until the load is met.
std::vector<Job> jobs_of(const std::vector<std::vector<QueueJob>>& traces,
                         const QueueReplayOptions& options) {
  constexpr double kMedian_s = 1800;
  constexpr double kMost_s = 48 * 3600;
  std::map<std::string, std::vector<double>> steps;
  for (const auto& trace : traces)
    for (const QueueJob& job : trace) steps[job.kind].push_back(job.steps);
  std::map<std::string, double> medians;
  for (auto& [kind, all] : steps) medians[kind] = std::max(1.0, median(all));
  std::mt19937_64 dice(options.seed);
  std::vector<Job> jobs;
  double gpu_seconds = 0;
  const uint32_t capacity = options.servers * kGpusPerServer;
  for (uint32_t account = 0; account < traces.size(); ++account) {
    const double last_s =
        std::max<double>(1, static_cast<double>(traces[account].back().arrival_s));
    for (const QueueJob& each : traces[account]) {
      Job job;
      job.account = account;
      job.gpus = std::min(each.gpus, capacity);
      const double lasts_s = std::clamp(each.steps / medians[each.kind] * kMedian_s, 60.0, kMost_s);
      job.lasts_s = static_cast<int64_t>(lasts_s);
      job.most_s = static_cast<int64_t>(lasts_s * (1 + static_cast<double>(dice() % 401) / 100));
      gpu_seconds += lasts_s * job.gpus;
      job.arrival_s = static_cast<int64_t>(static_cast<double>(each.arrival_s) / last_s * 1e6);
      jobs.push_back(job);
    }
  }
  const double span_s = gpu_seconds / capacity / options.load;
  for (Job& job : jobs)
    job.arrival_s = static_cast<int64_t>(static_cast<double>(job.arrival_s) / 1e6 * span_s);
  std::stable_sort(jobs.begin(), jobs.end(), [](const Job& left, const Job& right) {
    return left.arrival_s < right.arrival_s;
  });
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].id = i + 1;
  return jobs;
}

// The usual comparison: in order of arrival; the first that does not fit has a time, and others
// start before it if they end by then or leave it enough.
double fifo_mean_wait_s(const std::vector<Job>& jobs, uint32_t capacity) {
  std::multimap<int64_t, const Job*> ends, must_end;
  std::vector<std::pair<const Job*, int64_t>> waiting;
  std::map<const Job*, int64_t> must;
  uint32_t unused = capacity;
  double waited_s = 0;
  size_t next = 0;
  while (next < jobs.size() || !ends.empty()) {
    int64_t now_s = next < jobs.size() ? jobs[next].arrival_s : kNever;
    if (!ends.empty()) now_s = std::min(now_s, ends.begin()->first);
    for (; !ends.empty() && ends.begin()->first <= now_s; ends.erase(ends.begin())) {
      unused += ends.begin()->second->gpus;
      must.erase(ends.begin()->second);
    }
    for (; next < jobs.size() && jobs[next].arrival_s <= now_s; ++next)
      waiting.emplace_back(&jobs[next], now_s);
    int64_t head_s = kNever;
    uint32_t beside = 0;
    bool head = false;
    std::vector<std::pair<const Job*, int64_t>> still;
    for (const auto& [job, since_s] : waiting) {
      const bool ends_in_time = now_s + job->most_s <= head_s;
      if (job->gpus <= unused && (!head || ends_in_time || job->gpus <= beside)) {
        unused -= job->gpus;
        if (head && !ends_in_time) beside -= job->gpus;
        waited_s += static_cast<double>(now_s - job->arrival_s);
        ends.emplace(now_s + job->lasts_s, job);
        must[job] = now_s + job->most_s;
        continue;
      }
      still.emplace_back(job, since_s);
      if (head) continue;
      head = true;
      must_end.clear();
      for (const auto& [other, at_s] : must) must_end.emplace(at_s, other);
      uint32_t sum = unused;
      for (auto each = must_end.begin(); each != must_end.end() && sum < job->gpus; ++each) {
        sum += each->second->gpus;
        head_s = each->first;
      }
      beside = sum >= job->gpus ? sum - job->gpus : 0;
    }
    waiting = std::move(still);
  }
  return waited_s / static_cast<double>(jobs.size());
}

PoolPolicy policy_for(const std::vector<Job>& jobs, uint32_t accounts) {
  PoolPolicy policy = default_policy();
  std::vector<double> asked(accounts);
  double all = 0;
  for (const Job& job : jobs) {
    asked[job.account] += static_cast<double>(job.gpus) * static_cast<double>(job.lasts_s);
    all += static_cast<double>(job.gpus) * static_cast<double>(job.lasts_s);
  }
  const Account plain = policy.accounts[0];
  policy.accounts.clear();
  for (uint32_t i = 0; i < accounts; ++i) {
    Account account = plain;
    account.name = "account" + std::to_string(i);
    account.over_quota_weight = asked[i] / all;
    policy.accounts.push_back(account);
  }
  policy.longest_wait_s = 30 * 86'400;
  policy.fair_share_half_life_s = 86'400;
  return policy;
}

double jain(const std::vector<double>& values) {
  double sum = 0;
  double squares = 0;
  for (double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares == 0 ? 1 : sum * sum / (static_cast<double>(values.size()) * squares);
}

class QueueRun {
 public:
  QueueRun(const std::vector<Job>& jobs, const PoolPolicy& policy, uint32_t servers)
      : jobs_(jobs),
        policy_(policy),
        gpus_(servers * kGpusPerServer),
        asked_gpus_(policy.accounts.size()),
        due_(policy.accounts.size()) {
    engine_.set_policy(policy, 0, 0);
    for (uint32_t i = 0; i < servers; ++i) {
      EngineServer server;
      server.name = "server" + std::to_string(i);
      server.gpus.assign(kGpusPerServer, EngineGpu{"V100", 0, kMemory, 0});
      (void)engine_.add_server(server);
    }
  }

  QueueReplayResult run() {
    size_t next = 0;
    double waited_s = 0;
    while (next < jobs_.size() || !ends_.empty()) {
      int64_t now_s = next < jobs_.size() ? jobs_[next].arrival_s : kNever;
      if (!ends_.empty()) now_s = std::min(now_s, ends_.begin()->first);
      count_due(now_s);
      for (; !ends_.empty() && ends_.begin()->first <= now_s; ends_.erase(ends_.begin())) {
        const Job& job = jobs_[ends_.begin()->second - 1];
        engine_.ended(job.id, now_s);
        asked_gpus_[job.account] -= job.gpus;
      }
      const size_t first = next;
      for (; next < jobs_.size() && jobs_[next].arrival_s <= now_s; ++next) submit(jobs_[next]);
      for (const EngineStart& start : engine_.plan(now_s).starts) {
        const Job& job = jobs_[start.id - 1];
        waited_s += static_cast<double>(now_s - job.arrival_s);
        ends_.emplace(now_s + job.lasts_s, job.id);
        waiting_[job.account] -= 1;
        check_told(job.id, now_s);
      }
      if (next != first || now_s >= looked_s_ + kHour_s)
        look(now_s, next != first, next < jobs_.size());
    }
    result_.jobs = jobs_.size();
    result_.mean_wait_s = waited_s / static_cast<double>(jobs_.size());
    const auto mean = [](double sum, size_t hours) {
      return hours == 0 ? 1 : sum / static_cast<double>(hours);
    };
    result_.jain = mean(jains_, result_.hours);
    result_.jain_waiting = mean(jains_waiting_, result_.hours_waiting);
    return result_;
  }

 private:
  struct Told {
    int64_t from_s = 0, to_s = 0, head_s = kNever;
    bool head = false;
  };

  void submit(const Job& job) {
    Ask ask;
    ask.id = job.id;
    ask.user = "user";
    ask.account = job.account;
    ask.gpu_classes = {0};
    ask.slices = job.gpus;
    ask.most_s = job.most_s;
    ask.submitted_s = job.arrival_s;
    if (!engine_.submit(ask, job.arrival_s)) return;
    waiting_[job.account] += 1;
    asked_gpus_[job.account] += job.gpus;
  }

  // Adds what each account was due since the last call.
  void count_due(int64_t now_s) {
    std::vector<double> due(due_.size());
    std::vector<bool> content(due_.size());
    double rest = gpus_;
    for (bool changed = true; changed;) {
      changed = false;
      double weights = 0;
      for (size_t i = 0; i < due.size(); ++i)
        if (!content[i]) weights += policy_.accounts[i].over_quota_weight;
      const double all = rest;
      for (size_t i = 0; i < due.size(); ++i) {
        if (content[i]) continue;
        due[i] = all * policy_.accounts[i].over_quota_weight / weights;
        if (asked_gpus_[i] > due[i]) continue;
        due[i] = asked_gpus_[i];
        content[i] = changed = true;
        rest -= due[i];
      }
    }
    for (size_t i = 0; i < due.size(); ++i)
      due_[i].advance(now_s, due[i], policy_.fair_share_half_life_s);
  }

  void check_told(uint64_t id, int64_t now_s) {
    const auto told = told_.find(id);
    if (told == told_.end()) return;
    if (told->second.head) {
      ++result_.promised;
      if (now_s > told->second.head_s) ++result_.late;
    }
    ++result_.told;
    if (now_s >= told->second.from_s && now_s <= told->second.to_s) ++result_.inside;
    told_.erase(told);
  }

  void look(int64_t now_s, bool arrived, bool more) {
    if (arrived || now_s >= looked_s_ + kHour_s)
      for (const EngineWaiting& each : engine_.waiting(now_s)) {
        Told& told = told_.emplace(each.id, Told{each.start_from_s, each.start_to_s, kNever, false})
                         .first->second;
        if (each.start_why.empty() || told.head) continue;
        told.head = true;
        told.head_s = each.start_to_s;
      }
    if (now_s < looked_s_ + kHour_s) return;
    looked_s_ = now_s;
    std::vector<double> parts, parts_of_due;
    for (uint32_t i = 0; i < policy_.accounts.size(); ++i) {
      if (waiting_[i] <= 0) somebody_idle_s_ = now_s;
      const double used = engine_.decayed_gpu_seconds(i);
      parts.push_back(used / policy_.accounts[i].over_quota_weight);
      if (due_[i].gpu_seconds() > 0) parts_of_due.push_back(used / due_[i].gpu_seconds());
    }
    if (more) {
      jains_ += jain(parts_of_due);
      ++result_.hours;
    }
    // Who asked for nothing during a half-life has used little, and nobody kept it from more.
    if (now_s - somebody_idle_s_ < static_cast<int64_t>(policy_.fair_share_half_life_s)) return;
    jains_waiting_ += jain(parts);
    ++result_.hours_waiting;
  }

  const std::vector<Job>& jobs_;
  const PoolPolicy& policy_;
  const double gpus_;
  std::vector<double> asked_gpus_;  // by account, of those that wait or run
  std::vector<DecayedUsage> due_;
  Engine engine_;
  QueueReplayResult result_;
  std::multimap<int64_t, uint64_t> ends_;
  std::map<uint32_t, int> waiting_;
  std::map<uint64_t, Told> told_;
  int64_t looked_s_ = 0;
  int64_t somebody_idle_s_ = 0;
  double jains_ = 0, jains_waiting_ = 0;
};

}  // namespace

base::Result<std::vector<QueueJob>> read_jobs(const std::string& text) {
  std::vector<QueueJob> jobs;
  size_t line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::vector<std::string> columns(1);
    for (size_t i = at; i < end; ++i)
      if (text[i] == '\t')
        columns.emplace_back();
      else
        columns.back() += text[i];
    at = end + 1;
    ++line;
    if (columns.size() == 1 && columns[0].empty()) continue;
    QueueJob job;
    if (columns.size() == 7) {
      job.kind = columns[0];
      job.steps = std::strtod(columns[4].c_str(), nullptr);
      job.arrival_s = static_cast<int64_t>(std::strtod(columns[5].c_str(), nullptr));
      job.gpus = static_cast<uint32_t>(std::strtoul(columns[6].c_str(), nullptr, 10));
    }
    if (columns.size() != 7 || job.gpus == 0 || job.gpus > kMostSlices || !(job.steps > 0))
      return base::Status(base::Code::kInvalid,
                          "line " + std::to_string(line) +
                              " of the trace: expected seven columns, with steps above 0 and 1 to "
                              "64 GPUs");
    jobs.push_back(std::move(job));
  }
  if (jobs.empty()) return base::Status(base::Code::kInvalid, "the trace has no jobs");
  return jobs;
}

QueueReplayResult replay_queue(const std::vector<std::vector<QueueJob>>& traces,
                               const QueueReplayOptions& options) {
  const std::vector<Job> jobs = jobs_of(traces, options);
  const uint32_t capacity = options.servers * kGpusPerServer;
  const PoolPolicy policy = policy_for(jobs, static_cast<uint32_t>(traces.size()));
  QueueReplayResult result = QueueRun(jobs, policy, options.servers).run();
  result.fifo_mean_wait_s = fifo_mean_wait_s(jobs, capacity);
  return result;
}

base::Result<std::vector<uint64_t>> engine_decisions(const Trace& trace, size_t leases,
                                                     size_t rounds,
                                                     const std::function<uint64_t()>& now_ns) {
  Engine engine;
  engine.set_policy(default_policy(), 0, 0);
  for (const ServerSpec& spec : trace.servers) {
    EngineServer server;
    server.name = spec.name;
    server.gpus.assign(spec.gpus, EngineGpu{spec.model, 0, kMemory, 0});
    if (base::Result<uint32_t> added = engine.add_server(server); !added) return added.status();
  }
  std::mt19937_64 dice(1);
  std::vector<uint64_t> running, times;
  uint64_t id = 0;
  int64_t now_s = 0;
  const auto start = [&](bool timed) -> base::Status {
    Ask ask;
    ask.id = ++id;
    ask.user = "user" + std::to_string(dice() % 500);
    ask.gpu_classes = {0};
    const Request& request = trace.requests[dice() % trace.requests.size()].request;
    ask.slices = std::max(request.slices, 1U);
    ask.share_millionths = std::max(request.share_millionths / 3, 1000U);
    ask.most_s = 60 + static_cast<int64_t>(dice() % 86'400);
    ask.submitted_s = now_s;
    const uint64_t begin_ns = now_ns();
    if (base::Status status = engine.submit(ask, now_s); !status) return status;
    const EnginePlan plan = engine.plan(now_s);
    if (timed) times.push_back(now_ns() - begin_ns);
    for (const EngineStart& each : plan.starts) running.push_back(each.id);
    return {};
  };
  for (size_t tries = 0; running.size() < leases && tries < 2 * leases; ++tries)
    if (base::Status status = start(false); !status) return status;
  for (size_t round = 0; round < rounds; ++round) {
    now_s += 1;
    std::swap(running[dice() % running.size()], running.back());
    engine.ended(running.back(), now_s);
    running.pop_back();
    if (base::Status status = start(true); !status) return status;
  }
  std::sort(times.begin(), times.end());
  return times;
}

}  // namespace tendril::pool
