// SPDX-License-Identifier: Apache-2.0
// See passages.h.
#include "worker/cuda/passage/passages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "worker/cuda/memory/mirror.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint32_t kWords = 16'384;  // holds of one context at a time
constexpr std::chrono::milliseconds kPatience{1000};
constexpr uint64_t kWordBytes = kWords * sizeof(uint32_t);

// Each takes two processors of both servers while it is busy.
uint32_t passage_lines() {
  const char* wanted = getenv("TENDRIL_WORKER_PASSAGE_LINES");
  const uint64_t lines =
      wanted != nullptr ? strtoull(wanted, nullptr, 10) : std::thread::hardware_concurrency() / 4;
  return static_cast<uint32_t>(std::clamp<uint64_t>(lines, 1, wire::kPassageLinesMax));
}

// "rdma": if it works; "tcp": nothing else; otherwise what is measured to be better.
std::string wanted_way() {
  const char* const wanted = getenv("TENDRIL_WORKER_PASSAGE_WAY");
  return wanted != nullptr ? wanted : "";
}

void reply_open(session::Service* service, uint32_t reply_id, bool open, const std::string& why) {
  wire::cuda::passage_open_reply reply;
  reply.open = open ? 1 : 0;
  reply.why = {reinterpret_cast<const uint8_t*>(why.data()), why.size()};
  std::vector<uint8_t> body(wire::message_bytes(reply));
  wire::write_message(reply, body.data());
  service->reply(reply_id, CUDA_SUCCESS, body.data(), static_cast<uint32_t>(body.size()));
}

}  // namespace

Passages::Passages(Executor* executor, Exports* exports) : executor_(*executor), exports_(exports) {
  if (exports_ != nullptr) exports_->take_passages(this);
}

Passages::~Passages() {
  if (exports_ != nullptr) exports_->take_passages(nullptr);
  std::map<uint32_t, std::unique_ptr<Passage>> ending;
  std::map<uint32_t, std::unique_ptr<FabricTrial>> trials;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    ending.swap(passages_);
    trials.swap(trials_);
  }
  trials.clear();
  ending.clear();
  for (auto& [context, parts] : parts_) munmap(parts->words, kWordBytes);
}

// ---- passages ----

bool Passages::any() {
  std::lock_guard<std::mutex> hold(mutex_);
  return !passages_.empty();
}

Passage* Passages::find(uint32_t number) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = passages_.find(number);
  return found != passages_.end() ? found->second.get() : nullptr;
}

// A number serves once. A passage that was lost is never made again.
Passage* Passages::make(uint32_t number) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (number >= wire::kPassageLine || passages_.size() >= wire::kPassagesMax) return nullptr;
  if (passages_.count(number) != 0) return nullptr;
  if (!executor_.host().take(kPassageMemoryBytes)) return nullptr;
  auto passage = std::make_unique<Passage>(
      &executor_.driver(),
      [this](CUcontext context, const PassageHold& hold) { give_back(context, hold); });
  Passage* made = passage.get();
  passages_[number] = std::move(passage);
  return made;
}

CUresult Passages::offer(uint32_t number, wire::PassageToken* token) {
  if (exports_ == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (make(number) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return exports_->offer_passage(number, token) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult Passages::open(uint32_t number, const wire::PassageToken& token, uint32_t reply_id) {
  if (exports_ == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (make(number) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    opening_[number] = {reply_id, token};
  }
  if (exports_->dial_passage(number, token)) return CUDA_SUCCESS;
  std::lock_guard<std::mutex> hold(mutex_);
  opening_.erase(number);
  return CUDA_ERROR_NOT_SUPPORTED;
}

// The thread that listens to tendrild.
void Passages::passage_came(uint32_t number, std::unique_ptr<transport::Channel> channel,
                            const std::string& why) {
  Passage* passage = find(number % wire::kPassageLine);
  if (passage == nullptr) return;
  const bool open = channel != nullptr;
  const bool sealed = open && strcmp(channel->kind(), "tcp") != 0;
  passage->connect(number / wire::kPassageLine, std::move(channel));
  Opening opening;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    const auto asked = opening_.find(number);
    if (asked == opening_.end()) return;
    opening = asked->second;
    opening_.erase(asked);
  }
  if (open) dial_more(number, opening.token);
  if (open) try_fabric(number, opening.token, sealed);
  reply_open(&executor_.service(), opening.reply_id, open, why);
}

// One line carries what one processor copies into a socket and another out of it. Nobody waits for
// the other lines: pieces go over those that are there.
void Passages::dial_more(uint32_t number, const wire::PassageToken& token) {
  const uint32_t lines = passage_lines();
  for (uint32_t line = 1; line < lines; ++line) {
    wire::PassageToken wanted = token;
    wanted.number += line * wire::kPassageLine;
    (void)exports_->dial_passage(number + line * wire::kPassageLine, wanted);
  }
}

// Copies go over the connections meanwhile. This end has made these, so it asks and chooses.
void Passages::try_fabric(uint32_t number, const wire::PassageToken& token, bool sealed) {
  const char* const lent = getenv("TENDRIL_RDMA_DEVICE");
  if (lent == nullptr || strcmp(lent, "none") == 0) return;  // nobody expects it
  if (wanted_way() == "tcp") return;
  std::string refusal = fabric_refusal(lent, executor_.assignment().forbids_rdma != 0);
  if (sealed)
    refusal = "they are sealed, and RDMA travels in clear (--trusted-network, where that is right)";
  if (refusal.empty() && make_trial(number, true) == nullptr)
    refusal = "the session's part of the host's memory is used up";
  if (!refusal.empty()) {
    PassageWay way;
    way.brief = "tcp";
    way.text = "no RDMA: " + refusal;
    return exports_->say_passage_way(number, way);
  }
  for (uint32_t i = 0; i < wire::kTrialLinesMax; ++i) {
    const uint32_t line = (wire::kPassageLinesMax + i) * wire::kPassageLine;
    wire::PassageToken wanted = token;
    wanted.number += line;
    (void)exports_->dial_passage(number + line, wanted);
  }
}

FabricTrial* Passages::make_trial(uint32_t number, bool chooses) {
  Passage* const passage = find(number);
  if (passage == nullptr || !executor_.host().take(kFabricMemoryBytes)) return nullptr;
  FabricTrial::Task task;
  task.passage = passage;
  task.chooses = chooses;
  task.forced = wanted_way() == "rdma";
  task.refusal =
      fabric_refusal(getenv("TENDRIL_RDMA_DEVICE"), executor_.assignment().forbids_rdma != 0);
  task.tell = [this, number](const PassageWay& way) {
    if (!way.carried && !way.failed) executor_.host().give_back(kFabricMemoryBytes);
    exports_->say_passage_way(number, way);
  };
  auto trial = std::make_unique<FabricTrial>(std::move(task));
  FabricTrial* const made = trial.get();
  std::lock_guard<std::mutex> hold(mutex_);
  trials_[number] = std::move(trial);
  return made;
}

// The thread that listens to tendrild, as above.
void Passages::trial_came(uint32_t number, uint32_t index, base::Fd connection,
                          const std::string& known) {
  FabricTrial* trial = nullptr;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    const auto found = trials_.find(number);
    if (found != trials_.end()) trial = found->second.get();
  }
  // The other end has asked for it.
  if (trial == nullptr && connection.valid()) trial = make_trial(number, false);
  if (trial != nullptr) trial->take(index, std::move(connection), known);
}

// ---- what contexts have ----

CUresult Passages::parts_of(CUcontext context, Parts** parts) {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    const auto found = parts_.find(context);
    if (found != parts_.end()) {
      *parts = found->second.get();
      return CUDA_SUCCESS;
    }
  }
  auto made = std::make_unique<Parts>();
  const CUresult result = make_parts(made.get());
  *parts = made.get();
  std::lock_guard<std::mutex> hold(mutex_);
  if (result == CUDA_SUCCESS) parts_[context] = std::move(made);
  return result;
}

CUresult Passages::make_parts(Parts* parts) {
  gpu::Driver& driver = executor_.driver();
  if (!executor_.host().take(kWordBytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* words =
      mmap(nullptr, kWordBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CUresult result = words == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS)
    result = driver.cuMemHostRegister_v2(words, kWordBytes, CU_MEMHOSTREGISTER_DEVICEMAP);
  if (result == CUDA_SUCCESS)
    result = driver.cuMemHostGetDevicePointer_v2(&parts->words_at, words, 0);
  if (result == CUDA_SUCCESS) result = driver.cuStreamCreate(&parts->in, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS) result = driver.cuStreamCreate(&parts->out, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) {
    if (words != MAP_FAILED) {
      driver.cuMemHostUnregister(words);
      munmap(words, kWordBytes);
    }
    executor_.host().give_back(kWordBytes);
    return result;
  }
  parts->words = static_cast<uint32_t*>(words);
  parts->values.resize(kWords);
  for (uint32_t word = 0; word < kWords; ++word) parts->free.push_back(word);
  return CUDA_SUCCESS;
}

// The next value is larger. So a stream that has not looked yet goes on, although the word is used
// again.
bool Passages::take_word(Parts* parts, PassageHold* hold) {
  std::lock_guard<std::mutex> locked(mutex_);
  if (parts->free.empty()) return false;
  hold->index = parts->free.back();
  parts->free.pop_back();
  hold->word = parts->words + hold->index;
  hold->value = ++parts->values[hold->index];
  return true;
}

// Any thread.
void Passages::give_back(CUcontext context, const PassageHold& hold) {
  std::lock_guard<std::mutex> locked(mutex_);
  const auto parts = parts_.find(context);
  if (parts != parts_.end()) parts->second->free.push_back(hold.index);
}

std::vector<Passage*> Passages::used_by(CUcontext context) {
  std::vector<Passage*> all;
  std::lock_guard<std::mutex> hold(mutex_);
  if (parts_.count(context) == 0) return all;
  for (const auto& [number, passage] : passages_) all.push_back(passage.get());
  return all;
}

void Passages::before_code_is_loaded() {
  const WorkerContext* owner = executor_.context();
  if (owner == nullptr) return;
  for (Passage* passage : used_by(owner->context)) passage->settle(owner->context, kPatience);
}

void Passages::end_context(CUcontext context) {
  for (Passage* passage : used_by(context)) passage->end_context(context);
}

void Passages::forget_context(CUcontext context) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = parts_.find(context);
  if (found == parts_.end()) return;
  munmap(found->second->words, kWordBytes);
  executor_.host().give_back(kWordBytes);
  parts_.erase(found);
}

// ---- operations ----

CUresult Passages::refuse(Passage* passage, uint64_t operation, CUresult result) {
  passage->fail(operation, result);
  return result;
}

CUresult Passages::hold_stream(const Parts& parts, const PassageHold& hold, CUstream stream) {
  return executor_.driver().cuStreamWaitValue32_v2(
      stream, parts.words_at + hold.index * sizeof(uint32_t), hold.value, CU_STREAM_WAIT_VALUE_GEQ);
}

// On the driver's thread.
void Passages::arrived(void* data) {
  auto* arrival = static_cast<Arrival*>(data);
  Passages* all = arrival->all;
  Passage* passage = arrival->passage;
  const uint64_t operation = arrival->operation;
  {
    std::lock_guard<std::mutex> hold(all->mutex_);
    const auto parts = all->parts_.find(arrival->context);
    if (arrival->waiter != nullptr && parts != all->parts_.end())
      parts->second->idle.push_back(arrival->waiter);
    all->spare_.push_back(arrival);
  }
  passage->arrived(operation);
}

CUresult Passages::arrive(Passage* passage, uint64_t operation, CUstream stream, bool waiter) {
  Arrival* arrival = nullptr;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    if (spare_.empty()) {
      arrival = &arrivals_.emplace_back();
    } else {
      arrival = spare_.back();
      spare_.pop_back();
    }
    *arrival = {this, passage, operation, executor_.context()->context, waiter ? stream : nullptr};
  }
  const CUresult result = executor_.driver().cuLaunchHostFunc(stream, &Passages::arrived, arrival);
  if (result == CUDA_SUCCESS) return result;
  std::lock_guard<std::mutex> hold(mutex_);
  spare_.push_back(arrival);
  return result;
}

// A stream of its own for each event: otherwise the events would wait for one another.
CUresult Passages::arrive_after(Passage* passage, uint64_t operation, Parts* parts, CUevent event) {
  gpu::Driver& driver = executor_.driver();
  CUstream waiter = nullptr;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    if (!parts->idle.empty()) {
      waiter = parts->idle.back();
      parts->idle.pop_back();
    }
  }
  CUresult result = CUDA_SUCCESS;
  if (waiter == nullptr) result = driver.cuStreamCreate(&waiter, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS) result = driver.cuStreamWaitEvent(waiter, event, 0);
  return result == CUDA_SUCCESS ? arrive(passage, operation, waiter, true) : result;
}

CUresult Passages::copy(uint32_t number, uint64_t operation, PassageRole role,
                        const PassageShape& shape, CUstream stream, bool ordered) {
  Passage* passage = find(number);
  WorkerContext* owner = executor_.context();
  if (passage == nullptr || owner == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  PassageWork work;
  uint64_t bytes = 0, span = 0;
  Parts* parts = nullptr;
  CUresult result = parts_of(owner->context, &parts);
  if (result != CUDA_SUCCESS) return result;
  passage->pin(owner->context);
  work.role = role;
  work.owner = owner;
  work.context = owner->context;
  work.mover = role == PassageRole::kSend ? parts->out : parts->in;
  work.shape = shape;
  const bool sound = measure(shape, &bytes, &span);
  if (!sound || is_workers_own(executor_, shape.address, span) ||
      (ordered && executor_.streams().captures(stream))) {
    // The other half must not wait for this one.
    result = CUDA_ERROR_INVALID_VALUE;
  } else if (ordered && !take_word(parts, &work.hold)) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!passage->add(operation, work, bytes)) {
    if (work.hold.word != nullptr) give_back(work.context, work.hold);
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  if (result != CUDA_SUCCESS) return refuse(passage, operation, result);
  if (ordered) {
    executor_.gate().pass_host_function(owner, stream);
    result = arrive(passage, operation, stream, false);
    if (result == CUDA_SUCCESS) result = hold_stream(*parts, work.hold, stream);
  } else if (owner->copied != nullptr) {
    // The program has seen those copies end.
    result = arrive_after(passage, operation, parts, owner->copied);
  } else {
    passage->arrived(operation);
  }
  return result == CUDA_SUCCESS ? result : refuse(passage, operation, result);
}

CUresult Passages::tell(uint32_t number, uint64_t operation, CUevent event) {
  Passage* passage = find(number);
  WorkerContext* owner = executor_.context();
  if (passage == nullptr || owner == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Parts* parts = nullptr;
  CUresult result = parts_of(owner->context, &parts);
  if (result != CUDA_SUCCESS) return result;
  PassageWork work;
  work.role = PassageRole::kTell;
  work.owner = owner;
  work.context = owner->context;
  if (!passage->add(operation, work, 0)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  result = arrive_after(passage, operation, parts, event);
  return result == CUDA_SUCCESS ? result : refuse(passage, operation, result);
}

CUresult Passages::await(uint32_t number, uint64_t operation, CUstream stream) {
  Passage* passage = find(number);
  WorkerContext* owner = executor_.context();
  if (passage == nullptr || owner == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Parts* parts = nullptr;
  CUresult result = parts_of(owner->context, &parts);
  if (result != CUDA_SUCCESS) return result;
  PassageWork work;
  work.role = PassageRole::kAwait;
  work.owner = owner;
  work.context = owner->context;
  if (executor_.streams().captures(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!take_word(parts, &work.hold)) return CUDA_ERROR_OUT_OF_MEMORY;
  result = hold_stream(*parts, work.hold, stream);
  if (passage->add(operation, work, 0)) {
    return result == CUDA_SUCCESS ? result : refuse(passage, operation, result);
  }
  __atomic_store_n(work.hold.word, work.hold.value, __ATOMIC_RELEASE);
  give_back(work.context, work.hold);
  return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

}  // namespace tendril::worker::cuda
