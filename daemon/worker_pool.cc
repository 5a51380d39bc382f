// SPDX-License-Identifier: Apache-2.0
// See worker_pool.h.
#include "daemon/worker_pool.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "daemon/log.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

constexpr int kBackOffMaxMs = 30'000;
// Opening a driver and creating a context takes a third of a second. After a minute the worker
// hangs.
constexpr int kStartMaxMs = 60'000;
// The refill waits: a client's first calls should not compete with another process' start for this
// machine's processors. If several clients have just come, more may be coming, and each new context
// would delay theirs.
constexpr int kRefillAfterMs = 50, kCrowdedRefillAfterMs = 300;
constexpr size_t kCrowd = 3;
constexpr uint64_t kCrowdedNs = 1'000'000'000;
// Drivers make contexts one after another, and take turns between processes that began together. So
// with too many starts the first context would be ready with the last.
constexpr size_t kStartsAtOnce = 4;

// Of a worker that may use NCCL.
std::vector<std::string> network_arguments(const WorkerOptions& options) {
  std::vector<std::string> arguments = {"--networked"};
  for (const gpu::NcclFile& file : options.nccl) {
    arguments.push_back("--nccl-file");
    arguments.push_back(std::to_string(file.version) + "=" + file.path);
  }
  return arguments;
}

}  // namespace

std::vector<std::string> worker_arguments(const WorkerOptions& options, uint32_t slot) {
  std::vector<std::string> arguments = {"--parent", std::to_string(getpid())};
  if (!options.driver.empty()) {
    arguments.push_back("--driver");
    arguments.push_back(options.driver);
  }
  if (options.isolation.kind == Isolation::Kind::kUsers) {
    arguments.push_back("--user");
    arguments.push_back(std::to_string(options.isolation.first_user + slot));
  } else if (options.isolation.kind == Isolation::Kind::kNamespaces) {
    arguments.push_back("--own-namespace");
  }
  if (!options.calls.empty()) {
    arguments.push_back("--calls");
    arguments.push_back(options.calls);
  }
  if (options.learned) arguments.push_back("--learn");
  return arguments;
}

std::vector<uint32_t> nccl_versions(const std::vector<gpu::NcclFile>& files) {
  std::vector<uint32_t> versions;
  for (const gpu::NcclFile& file : files) versions.push_back(file.version);
  return versions;
}

WorkerPool::WorkerPool(EventLoop* loop, WorkerOptions options, uint32_t gpu_count)
    : loop_(loop),
      options_(std::move(options)),
      gpu_count_(gpu_count),
      slots_(packed_slot(options_) + 1),
      expected_(gpu_count),
      spare_(gpu_count),
      warm_api_(gpu_count, options_.apis.empty() ? "" : options_.apis.front()) {}

uint32_t WorkerPool::warm_target(uint32_t gpu) const {
  uint32_t left = options_.warm_total_max;
  for (uint32_t before = 0; before < gpu; ++before) left -= std::min(left, options_.warm_per_gpu);
  return std::min(left, options_.warm_per_gpu);
}

size_t WorkerPool::wanted(uint32_t gpu) const {
  return std::max(warm_target(gpu) + spare_[gpu], expected_[gpu]);
}

size_t WorkerPool::warm(uint32_t gpu) const {
  size_t count = 0;
  for (const auto& [pid, entry] : entries_) {
    const bool free = entry.state == State::kStarting || entry.state == State::kIdle;
    count += free && entry.order == 0 && entry.worker->gpu() == gpu;
  }
  return count;
}

size_t WorkerPool::warm_at(const WorkerProcess::Post& post) const {
  size_t count = 0;
  for (const auto& [pid, entry] : entries_) {
    const bool free = entry.state == State::kStarting || entry.state == State::kIdle;
    count += free && entry.order == 0 && entry.worker->post() == post;
  }
  return count;
}

size_t WorkerPool::waiters_at(const WorkerProcess::Post& post) const {
  return static_cast<size_t>(std::count_if(
      waiters_.begin(), waiters_.end(),
      [&post](const auto& waiter) { return waiter->post == post && waiter->order == 0; }));
}

size_t WorkerPool::starting(uint32_t gpu) const {
  return static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.end(), [gpu](const auto& entry) {
        return entry.second.state == State::kStarting && entry.second.worker->gpu() == gpu;
      }));
}

void WorkerPool::trim(uint32_t gpu) {
  size_t need = wanted(gpu), have = warm(gpu);
  for (const auto& waiter : waiters_) need += waiter->post.gpu == gpu && waiter->order == 0;
  // First those of other APIs than the last one, and those that are not ready.
  for (const bool others : {true, false}) {
    for (const State state : {State::kStarting, State::kIdle}) {
      for (auto& [pid, entry] : entries_) {
        if (have <= need) return;
        const WorkerProcess::Post& post = entry.worker->post();
        if (entry.state != state || entry.order != 0 || post.gpu != gpu) continue;
        if (others && (post.api == warm_api_[gpu] || waiters_at(post) != 0)) continue;
        entry.state = State::kUnwanted;
        entry.worker->kill();
        --have;
      }
    }
  }
}

void WorkerPool::renew() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    for (auto& [pid, entry] : entries_) {
      const bool warm = entry.state == State::kIdle || entry.state == State::kStarting;
      if (!warm || entry.order != 0) continue;
      entry.state = State::kUnwanted;
      entry.worker->kill();
    }
    plan_refill(0);
  }
  loop_->post([this] { start_wanted(); });
}

void WorkerPool::expect(uint32_t gpu) {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    ++expected_[gpu];
  }
  loop_->post([this] { start_wanted(); });
}

void WorkerPool::expect_no_more(uint32_t gpu) {
  std::lock_guard<std::mutex> hold(mutex_);
  --expected_[gpu];
  trim(gpu);
}

void WorkerPool::set_room(uint32_t gpu, uint64_t contexts) {
  const auto spare = static_cast<uint32_t>(std::min<uint64_t>(contexts, options_.warm_spare));
  std::lock_guard<std::mutex> hold(mutex_);
  if (spare > spare_[gpu]) plan_refill(kRefillAfterMs);
  spare_[gpu] = spare;
  trim(gpu);
}

bool WorkerPool::is_trimming(uint32_t gpu) {
  std::lock_guard<std::mutex> hold(mutex_);
  return std::any_of(entries_.begin(), entries_.end(), [gpu](const auto& entry) {
    return entry.second.state == State::kUnwanted && entry.second.worker->gpu() == gpu;
  });
}

uint32_t WorkerPool::user_of(const WorkerProcess& worker) const {
  return separates_users() ? worker.slot() : 0;
}

uint32_t WorkerPool::packed_user() const {
  return separates_users() ? options_.isolation.first_user + packed_slot(options_) : 0;
}

size_t WorkerPool::process_count() {
  std::lock_guard<std::mutex> hold(mutex_);
  return entries_.size();
}

void WorkerPool::start() {
  loop_->post([this] { refill(); });
}

void WorkerPool::stop() {
  std::unique_lock<std::mutex> hold(mutex_);
  stopping_ = true;
  for (auto& [pid, entry] : entries_) entry.worker->kill();
  for (const auto& waiter : waiters_) {
    waiter->done = true;
    waiter->failure = Status(Code::kUnavailable, "the server is shutting down");
  }
  waiters_.clear();
  changed_.notify_all();
  changed_.wait_for(hold, std::chrono::seconds(5), [this] { return entries_.empty(); });
}

base::Result<std::shared_ptr<WorkerProcess>> WorkerPool::take(const Wish& wish, Uses uses,
                                                              int timeout_ms) {
  std::unique_lock<std::mutex> hold(mutex_);
  if (stopping_) return Status(Code::kUnavailable, "the server is shutting down");
  Order order;
  order.networked = wish.networked;
  if (wish.networked) order.arguments = network_arguments(options_);
  if (!wish.packed_folder.empty()) {
    order.slot = packed_slot(options_);
    order.arguments.insert(order.arguments.end(),
                           {"--packed-folder", wish.packed_folder, "--packed-percent",
                            std::to_string(wish.packed_percent)});
  } else if (wish.like != nullptr && separates_users()) {
    order.slot = wish.like->slot();
  }
  const uint32_t gpu = wish.post.gpu;
  warm_api_[gpu] = wish.post.api;
  const bool by_order = order.slot != kAnySlot || wish.networked;
  if (wish.expected) --expected_[gpu];
  taken_ns_.push_back(base::now_ns());
  if (taken_ns_.size() > kCrowd) taken_ns_.erase(taken_ns_.begin());
  plan_refill(kRefillAfterMs);
  for (auto& [pid, entry] : entries_) {
    if (by_order || entry.state != State::kIdle || !(entry.worker->post() == wish.post)) continue;
    entry.state = State::kTaken;
    entry.uses = std::move(uses);
    return entry.worker;
  }
  const auto waiter = std::make_shared<Waiter>();
  waiter->post = wish.post;
  waiter->uses = std::move(uses);
  waiters_.push_back(waiter);
  if (by_order) {
    waiter->order = order.number = next_order_++;
    loop_->post([this, post = wish.post, order = std::move(order)] { start_one(post, order); });
  } else {
    loop_->post([this] { start_wanted(); });
  }
  const bool done =
      changed_.wait_for(hold, std::chrono::milliseconds(timeout_ms), [&] { return waiter->done; });
  if (!done) {
    waiters_.erase(std::find(waiters_.begin(), waiters_.end(), waiter));
    return Status(Code::kTimeout, "no worker for GPU " + std::to_string(gpu) +
                                      " became ready within " + std::to_string(timeout_ms / 1000) +
                                      " s; the server's log says more");
  }
  if (!waiter->failure.ok()) return waiter->failure;
  return waiter->worker;
}

uint32_t WorkerPool::free_slot() {
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot] == 0 && slot != packed_slot(options_)) return slot;
  }
  return kAnySlot;
}

bool WorkerPool::is_crowded() const {
  return taken_ns_.size() == kCrowd && base::now_ns() - taken_ns_.front() < kCrowdedNs;
}

std::vector<WorkerProcess::Post> WorkerPool::missing(uint32_t gpu, bool at_leisure) const {
  std::vector<WorkerProcess::Post> posts;
  const auto want = [&](const std::string& api, size_t count) {
    posts.insert(posts.end(), count, WorkerProcess::Post{gpu, api});
  };
  // Waiting clients come first.
  size_t unclaimed = 0;  // idle or soon idle; no client waits for them
  for (const std::string& api : options_.apis) {
    const size_t need = waiters_at({gpu, api}), have = warm_at({gpu, api});
    want(api, need - std::min(need, have));
    unclaimed += have - std::min(need, have);
  }
  // While starts fail, no worker is kept warm until the pause is over.
  size_t soon = backing_off_ ? 0 : expected_[gpu];
  if (at_leisure && !backing_off_) soon = std::max<size_t>(soon, warm_target(gpu));
  const size_t now = starting(gpu);
  want(warm_api_[gpu], soon - std::min(soon, unclaimed));
  if (!posts.empty()) {
    posts.resize(std::min(posts.size(), kStartsAtOnce - std::min(kStartsAtOnce, now)));
  } else if (at_leisure && !backing_off_ && warm(gpu) < wanted(gpu) && now == 0) {
    want(warm_api_[gpu], 1);
  }
  return posts;
}

void WorkerPool::start_wanted() {
  for (uint32_t gpu = 0; gpu < gpu_count_; ++gpu) {
    std::vector<WorkerProcess::Post> posts;
    {
      std::lock_guard<std::mutex> hold(mutex_);
      if (!stopping_) posts = missing(gpu, false);
    }
    for (const WorkerProcess::Post& post : posts) start_one(post, {});
  }
}

void WorkerPool::plan_refill(int after_ms) {
  if (refill_planned_) return;
  refill_planned_ = true;
  loop_->after(after_ms, [this] { refill(); });
}

void WorkerPool::refill() {
  for (uint32_t gpu = 0; gpu < gpu_count_; ++gpu) {
    std::vector<WorkerProcess::Post> posts;
    {
      std::lock_guard<std::mutex> hold(mutex_);
      refill_planned_ = false;
      if (stopping_) return;
      if (is_crowded()) return plan_refill(kCrowdedRefillAfterMs);
      posts = missing(gpu, true);
    }
    for (const WorkerProcess::Post& post : posts) start_one(post, {});
  }
}

void WorkerPool::start_one(const WorkerProcess::Post& post, Order order) {
  uint32_t slot = order.slot;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    if (stopping_) return;
    if (entries_.size() >= options_.workers_max)
      slot = kAnySlot;
    else if (slot == kAnySlot)
      slot = free_slot();
    if (slot != kAnySlot) ++slots_[slot];
  }
  if (slot == kAnySlot) {
    fail_waiters(post, Status(Code::kExhausted, "the server runs its maximum of " +
                                                    std::to_string(options_.workers_max) +
                                                    " worker processes; try again later"));
    return;
  }
  std::vector<std::string> arguments = worker_arguments(options_, slot);
  arguments.push_back("--gpu");
  arguments.push_back(std::to_string(post.gpu));
  arguments.push_back("--api");
  arguments.push_back(post.api);
  arguments.insert(arguments.end(), order.arguments.begin(), order.arguments.end());
  WorkerProcess::Events events;
  events.ready = [this](WorkerProcess* worker) { ready(worker); };
  events.asked = [this](WorkerProcess* worker, const wire::WorkerRequest& request, base::Fd fd,
                        const std::string& tail) {
    const Uses uses = uses_of(*worker);
    if (uses.asked) uses.asked(request, std::move(fd), tail);
  };
  events.answered = [this](WorkerProcess* worker, const wire::TransportAnswers& answers,
                           base::Fd fd) {
    const Uses uses = uses_of(*worker);
    if (uses.answered) uses.answered(answers, std::move(fd));
  };
  events.learned = options_.learned;
  events.gone = [this](WorkerProcess* worker, const std::string& how) { gone(worker, how); };
  base::Result<std::shared_ptr<WorkerProcess>> started(Status(Code::kInternal, ""));
  const auto start = [&] {
    started =
        WorkerProcess::start(loop_, options_.executable, arguments, post, slot, std::move(events));
  };
  if (order.networked && options_.networks != nullptr)
    options_.networks->in_machines(start);
  else
    start();
  std::lock_guard<std::mutex> hold(mutex_);
  if (!started.ok()) {
    --slots_[slot];
    log(Level::kError, "%s", started.status().message().c_str());
    loop_->post([this, post, why = started.status()] { fail_waiters(post, why); });
    return;
  }
  log(Level::kDebug, "worker %d starts for %s on GPU %u", (*started)->pid(), post.api.c_str(),
      post.gpu);
  if (stopping_) (*started)->kill();
  loop_->after(kStartMaxMs, [this, late = std::weak_ptr<WorkerProcess>(*started)] {
    const std::shared_ptr<WorkerProcess> worker = late.lock();
    std::lock_guard<std::mutex> hold(mutex_);
    const auto found = worker == nullptr ? entries_.end() : entries_.find(worker->pid());
    if (found == entries_.end() || found->second.worker != worker) return;
    if (found->second.state == State::kStarting) worker->kill();
  });
  Entry entry;
  entry.worker = *started;
  entry.order = order.number;
  entries_[entry.worker->pid()] = std::move(entry);
}

void WorkerPool::ready(WorkerProcess* worker) {
  failures_ = 0;
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = entries_.find(worker->pid());
  if (found == entries_.end() || found->second.state != State::kStarting) return;
  Entry& entry = found->second;
  entry.state = State::kIdle;
  loop_->post([this] { start_wanted(); });
  if (warm(worker->gpu()) < wanted(worker->gpu())) plan_refill(0);
  for (auto at = waiters_.begin(); at != waiters_.end(); ++at) {
    Waiter& waiter = **at;
    if (!(waiter.post == worker->post()) || waiter.order != entry.order) continue;
    entry.state = State::kTaken;
    entry.uses = std::move(waiter.uses);
    waiter.worker = entry.worker;
    waiter.done = true;
    waiters_.erase(at);
    changed_.notify_all();
    return;
  }
  if (entry.order != 0) entry.worker->kill();  // the caller that asked for it gave up
}

WorkerPool::Uses WorkerPool::uses_of(const WorkerProcess& worker) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = entries_.find(worker.pid());
  const bool taken = found != entries_.end() && found->second.state == State::kTaken;
  return taken ? found->second.uses : Uses();
}

void WorkerPool::gone(WorkerProcess* worker, const std::string& how) {
  Entry entry;
  bool stopping;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    const auto found = entries_.find(worker->pid());
    if (found == entries_.end()) return;
    entry = std::move(found->second);
    entries_.erase(found);
    --slots_[worker->slot()];
    stopping = stopping_;
    changed_.notify_all();
  }
  if (entry.uses.gone) entry.uses.gone(how);
  if (entry.state == State::kUnwanted) {
    start_wanted();
    if (trimmed_) trimmed_();
  }
  if (stopping || entry.state == State::kTaken || entry.state == State::kUnwanted) return;
  if (entry.state == State::kStarting) {
    ++failures_;
    const std::string why = "a worker for " + worker->post().api + " on GPU " +
                            std::to_string(worker->gpu()) + " " + how + " while starting" +
                            (worker->last_line().empty() ? "" : ": " + worker->last_line());
    log(Level::kError, "%s", why.c_str());
    fail_waiters(worker->post(), Status(Code::kUnavailable, why));
    if (!backing_off_) {
      backing_off_ = true;
      const int pause_ms = std::min(kBackOffMaxMs, 250 << std::min(failures_, 7u));
      loop_->after(pause_ms, [this] {
        backing_off_ = false;
        refill();
        start_wanted();
      });
    }
    return;
  }
  log(Level::kWarning, "idle worker %d %s; another one takes its place", worker->pid(),
      how.c_str());
  std::lock_guard<std::mutex> hold(mutex_);
  plan_refill(250);
}

void WorkerPool::fail_waiters(const WorkerProcess::Post& post, const Status& why) {
  std::lock_guard<std::mutex> hold(mutex_);
  for (auto at = waiters_.begin(); at != waiters_.end();) {
    if (!((*at)->post == post)) {
      ++at;
      continue;
    }
    (*at)->done = true;
    (*at)->failure = why;
    at = waiters_.erase(at);
  }
  changed_.notify_all();
}

}  // namespace tendril::daemon
