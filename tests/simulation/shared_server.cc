// SPDX-License-Identifier: Apache-2.0
// See shared_server.h.
#include "tests/simulation/shared_server.h"

#include <unistd.h>

#include <algorithm>

namespace tendril::simulation {
namespace {

constexpr int kFirstBell = 1'000'000;
constexpr uint64_t kLegacyStream = 1;  // as in CUDA
SharedServer* the_server = nullptr;

StreamHandle stream_of(uint64_t number) { return reinterpret_cast<StreamHandle>(number); }

}  // namespace

uint64_t SimulatedGpu::mark(size_t tenant, uint64_t stream) {
  const uint64_t event = ++events_;
  pending_.insert(event);
  add(tenant, stream, {Item::kMarker, 0, order_++, event, nullptr});
  return event;
}

void SimulatedGpu::add(size_t tenant, uint64_t stream, const Item& item) {
  streams_[{tenant, stream}].items.push_back(item);
  go_on();
}

void SimulatedGpu::begin_what_is_no_kernel() {
  for (auto& [key, stream] : streams_) {
    while (!stream.runs && !stream.items.empty() && stream.items.front().kind != Item::kKernel) {
      const Item& item = stream.items.front();
      if (item.kind == Item::kHost) {
        stream.runs = true;
        time_.at(time_.now_ns() + item.ns, [this, k = key] { ends(k); });
        break;
      }
      pending_.erase(item.event);
      stream.items.pop_front();
    }
  }
}

uint64_t SimulatedGpu::slice_ends_ns() const {
  constexpr uint64_t kDriversNs = 2'048'000;
  const auto found = slices_ns_.find(last_);
  return last_since_ns_ +
         (found == slices_ns_.end() || found->second == 0 ? kDriversNs : found->second);
}

// While its slice lasts: the tenant that has the GPU. Otherwise the one that has waited longest.
const SimulatedGpu::Key* SimulatedGpu::next_kernel() {
  const bool stays = time_.now_ns() < slice_ends_ns();
  const Key* first = nullptr;
  std::pair<uint64_t, uint64_t> first_rank;
  for (auto& [key, stream] : streams_) {
    if (stream.items.empty() || stream.items.front().kind != Item::kKernel) continue;
    const uint64_t had_at = stays && key.first == last_ ? 0 : 1 + had_at_[key.first];
    const std::pair<uint64_t, uint64_t> rank{had_at, stream.items.front().order};
    if (first == nullptr || rank < first_rank) {
      first = &key;
      first_rank = rank;
    }
  }
  return first;
}

void SimulatedGpu::run(const Key& key) {
  const uint64_t now_ns = time_.now_ns();
  const bool same = key.first == last_;
  busy_ = true;
  running_ = key;
  begun_ns_ = now_ns + (same ? 0 : kSwitchNs);
  if (!same) last_since_ns_ = begun_ns_;
  had_at_[key.first] = ++turns_;
  last_ = key.first;
  streams_[key].runs = true;
  end_in(key, begun_ns_ + streams_[key].items.front().ns);
  meet(key);
}

void SimulatedGpu::end_in(const Key& key, uint64_t at_ns) {
  time_.at(at_ns, [this, key, number = ++runs_] {
    if (number == runs_ && busy_) ends(key);
  });
}

// The kernel of a collective has begun here. It may have begun before, and been interrupted.
void SimulatedGpu::meet(const Key& key) {
  const std::shared_ptr<Meeting> meeting = std::exchange(streams_[key].items.front().meeting, {});
  if (meeting == nullptr) return;
  meeting->complete.push_back([this, key, ns = meeting->ns] { complete(key, ns); });
  if (++meeting->here < meeting->wanted) return;
  time_.at(begun_ns_, [meeting] {
    for (const auto& each : meeting->complete) each();
  });
}

void SimulatedGpu::complete(const Key& key, uint64_t ns) {
  Item& item = streams_[key].items.front();
  item.ns = ns;
  if (!busy_ || running_ != key) return;
  const uint64_t now_ns = time_.now_ns();
  item.ns += now_ns - std::min(now_ns, begun_ns_);
  end_in(key, std::max(now_ns, begun_ns_) + ns);
}

// Interrupts what runs.
void SimulatedGpu::stop(uint64_t now_ns) {
  Stream& stream = streams_[running_];
  const uint64_t ran_ns = now_ns - std::min(now_ns, begun_ns_);
  stream.items.front().ns -= ran_ns;
  stream.runs = busy_ = false;
  had_ns_[running_.first] += ran_ns;
  ++runs_;
}

void SimulatedGpu::go_on() {
  begin_what_is_no_kernel();
  const Key* const next = next_kernel();
  if (next == nullptr) return;
  if (!busy_) return run(*next);
  if (next->first == running_.first) {
    // Others may wait for the end of its slice.
    const auto waits = [this](const auto& entry) {
      return entry.first.first != last_ && !entry.second.items.empty() &&
             entry.second.items.front().kind == Item::kKernel;
    };
    if (watched_ == runs_ || std::none_of(streams_.begin(), streams_.end(), waits)) return;
    watched_ = runs_;
    time_.at(slice_ends_ns(), [this, number = runs_] {
      if (number == runs_ && busy_) go_on();
    });
    return;
  }
  stop(time_.now_ns());
  run(Key(*next));
}

void SimulatedGpu::ends(const Key& key) {
  Stream& stream = streams_[key];
  const Item item = stream.items.front();
  stream.items.pop_front();
  stream.runs = false;
  if (item.kind == Item::kKernel) {
    busy_ = false;
    had_ns_[key.first] += item.ns;
  }
  go_on();
}

SimulatedWorker::SimulatedWorker(SharedServer* server, size_t number, std::vector<uint32_t> gpus)
    : server_(*server),
      number_(number),
      gpus_(std::move(gpus)),
      gate_(this, {page_.get(), kFirstBell + static_cast<int>(number)},
            static_cast<uint32_t>(gpus_.size()), stream_of(kLegacyStream)) {}

SimulatedGpu& SimulatedWorker::gpu(uint32_t slice) { return server_.gpu(gpus_[slice]); }

void SimulatedWorker::launch(uint64_t usual_ns, uint64_t stream, uint32_t slice, uint64_t ns) {
  gate_.pass(slice, context(slice), stream_of(stream), worker::work_kind(usual_ns, 1));
  server_.time().spend(kCallNs);
  gpu(slice).kernel(number_, stream, ns);
  ++pieces_;
  gate_.look_between_calls();
}

void SimulatedWorker::collective(const std::shared_ptr<Meeting>& meeting, uint64_t stream,
                                 uint32_t slice) {
  constexpr uint64_t kCollectives = 1;  // no other kind takes one nanosecond
  gate_.pass(slice, context(slice), stream_of(stream), worker::work_kind(kCollectives, 1));
  server_.time().spend(kCallNs);
  gpu(slice).collective(number_, stream, meeting);
  ++pieces_;
  gate_.look_between_calls();
}

void SimulatedWorker::call_back(uint64_t ns, uint64_t stream, uint32_t slice) {
  gate_.host_function(slice, context(slice), stream_of(stream));
  server_.time().spend(kCallNs);
  gpu(slice).host_function(number_, stream, ns);
  gate_.look_between_calls();
}

// As Executor::run polls a wait.
void SimulatedWorker::wait(uint64_t stream, uint32_t slice) {
  server_.time().spend(kCallNs);
  const uint64_t event = gpu(slice).mark(number_, stream);
  while (!gpu(slice).reached(event)) {
    server_.time().spend(kLookNs);
    if (gate_.pace() != worker::Gate::Pace::kNever) gate_.look(false);
  }
}

// As the executor looks for the next call.
void SimulatedWorker::compute(uint64_t ns) {
  using Pace = worker::Gate::Pace;
  SimulatedTime& time = server_.time();
  const uint64_t until_ns = time.now_ns() + ns;
  while (time.now_ns() < until_ns) {
    const Pace pace = gate_.pace();
    if (pace == Pace::kAtOnce) {
      gate_.look(false);
      gate_.rest();
      continue;
    }
    const uint64_t left_ns = until_ns - time.now_ns();
    time.spend(pace == Pace::kNever ? left_ns : std::min(left_ns, kMs));
    if (pace != Pace::kNever && time.now_ns() < until_ns) gate_.look(true);
  }
}

EventHandle SimulatedWorker::mark(ContextHandle context, StreamHandle stream) {
  server_.time().spend(kMarkNs);
  const auto slice = static_cast<uint32_t>(reinterpret_cast<uint64_t>(context) - 1);
  return reinterpret_cast<EventHandle>(
      gpu(slice).mark(number_, reinterpret_cast<uint64_t>(stream)) * kFirstBell + slice);
}

bool SimulatedWorker::reached(EventHandle event) {
  server_.time().spend(kLookNs);
  const auto number = reinterpret_cast<uint64_t>(event);
  return gpu(static_cast<uint32_t>(number % kFirstBell)).reached(number / kFirstBell);
}

bool SimulatedWorker::serve() {
  server_.time().spend(kServeNs);
  return true;
}

SharedServer::SharedServer(size_t gpus, size_t servers) {
  the_server = this;
  const auto wake = [](wire::TurnPart* part) { the_server->time_.wake(&part->turn); };
  for (size_t i = 0; i < servers; ++i)
    arbiters_.push_back(std::make_unique<Arbiter>(Arbiter{lease::LeaseTurns({}, wake), {}}));
  for (size_t i = 0; i < gpus * servers; ++i)
    gpus_.push_back(std::make_unique<SimulatedGpu>(&time_));
}

SimulatedWorker& SharedServer::add(double share, const Program& program,
                                   const std::vector<uint32_t>& gpus, const wire::LeaseTerms& terms,
                                   uint64_t gang) {
  const size_t number = workers_.size();
  std::vector<wire::SliceGrant> slices(gpus.size());
  for (size_t slice = 0; slice < gpus.size(); ++slice) {
    slices[slice].gpu_index = gpus[slice];
    slices[slice].share_millionths = static_cast<uint32_t>(share * 1e6);
  }
  SimulatedWorker& worker =
      *workers_.emplace_back(std::make_unique<SimulatedWorker>(this, number, gpus));
  Arbiter* const arbiter = arbiters_[gpus[0] / (gpus_.size() / arbiters_.size())].get();
  arbiter_of_.push_back(arbiter);
  arbiter->turns.open(time_.now_ns(), number, slices, terms);
  arbiter->turns.set_gang(number, gang);
  arbiter->turns.join(number, number, worker.page());
  time_.start([&worker, program] {
    for (;;) program(worker);
  });
  return worker;
}

void SharedServer::ring(size_t number) {
  Arbiter* const arbiter = arbiter_of_[number];
  arbiter->rang.push_back(number);
  if (arbiter->rang.size() != 1) return;
  const bool listens = time_.now_ns() < arbiter->turns.listen_until_ns();
  time_.at(time_.now_ns() + (listens ? kBellHeardNs : kBellNs), [this, arbiter] { hear(arbiter); });
}

void SharedServer::hear(Arbiter* arbiter) {
  const std::vector<uint64_t> rang = std::move(arbiter->rang);
  arbiter->rang.clear();
  arbiter->turns.hear(time_.now_ns(), rang);
  const uint64_t at_ns = arbiter->turns.look_again_ns();
  if (at_ns == lease::TurnPolicy::kNever || at_ns >= arbiter->timer_ns) return;
  arbiter->timer_ns = at_ns;
  time_.at(at_ns, [this, arbiter, at_ns] {
    if (arbiter->timer_ns != at_ns) return;
    arbiter->timer_ns = UINT64_MAX;
    hear(arbiter);
  });
}

}  // namespace tendril::simulation

extern "C" {

ssize_t __real_write(int fd, const void* data, size_t bytes);

// A worker's bell, or a file.
ssize_t __wrap_write(int fd, const void* data, size_t bytes) {
  using namespace tendril::simulation;
  if (fd < kFirstBell) return __real_write(fd, data, bytes);
  the_server->ring(static_cast<size_t>(fd - kFirstBell));
  return static_cast<ssize_t>(bytes);
}

}  // extern "C"
