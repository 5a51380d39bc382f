// SPDX-License-Identifier: Apache-2.0
// See passage.h.
#include "worker/cuda/passage/passage.h"

#include <algorithm>

namespace tendril::worker::cuda {
namespace {

// What a program gets for a device that is lost.
constexpr CUresult kPassageLost = CUDA_ERROR_DEVICE_UNAVAILABLE;

}  // namespace

Passage::Passage(gpu::Driver* driver, std::function<void(CUcontext, const PassageHold&)> released)
    : driver_(driver), released_(std::move(released)) {}

Passage::~Passage() {
  {
    const Hold hold(mutex_);
    ended_ = true;
    if (channel_ != nullptr) channel_->shutdown();
    changed_.notify_all();
  }
  receiver_.join();
  sender_.join();
  lose();
}

void Passage::connect(std::unique_ptr<transport::Channel> channel) {
  if (channel == nullptr) return lose();
  const Hold hold(mutex_);
  if (channel_ != nullptr || lost_) return;
  channel_ = std::move(channel);
  received_.resize(kPassagePieceBytes);
  sent_.resize(kPassagePieceBytes);
  const bool runs = receiver_.start("passage-in", receive_main, this) &&
                    sender_.start("passage-out", send_main, this);
  if (!runs) channel_->shutdown();
}

bool Passage::is_lost() {
  const Hold hold(mutex_);
  return lost_;
}

// ---- halves ----

void Passage::take(const PassageLedger::Steps& steps) {
  using Kind = PassageLedger::Step::Kind;
  for (const PassageLedger::Step& step : steps) {
    if (step.kind == Kind::kSay) frames_.push_back(step.frame);
    if (step.kind == Kind::kMove) sends_.push_back(step.operation);
    if (step.kind == Kind::kBreak && channel_ != nullptr) channel_->shutdown();
    if (step.kind != Kind::kEnd) continue;
    const auto found = works_.find(step.operation);
    if (found == works_.end()) continue;
    const PassageWork work = found->second;
    works_.erase(found);
    // The error comes before whoever waits for the stream can look.
    int none = 0;
    if (step.result != CUDA_SUCCESS && work.owner != nullptr)
      work.owner->deferred.compare_exchange_strong(none, step.result);
    if (work.hold.word == nullptr) continue;
    __atomic_store_n(work.hold.word, work.hold.value, __ATOMIC_RELEASE);
    released_(work.context, work.hold);
  }
  if (!steps.empty()) changed_.notify_all();
}

bool Passage::add(uint64_t operation, const PassageWork& work, uint64_t bytes) {
  const Hold hold(mutex_);
  PassageLedger::Steps steps;
  if (lost_ || !ledger_.add(operation, work.role, bytes, &steps)) return false;
  works_[operation] = work;
  take(steps);
  return true;
}

void Passage::arrived(uint64_t operation) {
  const Hold hold(mutex_);
  PassageLedger::Steps steps;
  ledger_.arrived(operation, &steps);
  take(steps);
}

void Passage::fail(uint64_t operation, CUresult result) {
  const Hold hold(mutex_);
  PassageLedger::Steps steps;
  ledger_.fail(operation, result, &steps);
  take(steps);
}

void Passage::settle(CUcontext context, std::chrono::milliseconds patience) {
  Hold hold(mutex_);
  std::pair<size_t, uint64_t> before = {};
  auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    std::pair<size_t, uint64_t> now = {};  // copies, bytes of them that have moved
    uint64_t last = given_up_;
    for (const auto& [operation, work] : works_) {
      const PassageHalf* half = ledger_.find(operation);
      const bool copies = work.role == PassageRole::kSend || work.role == PassageRole::kReceive;
      if (!copies || half == nullptr || work.context != context || operation <= given_up_) continue;
      last = operation;
      now = {now.first + 1, now.second + half->moved};
    }
    if (now.first == 0 || lost_) return;
    if (now != before) until = std::chrono::steady_clock::now() + patience;
    before = now;
    if (changed_.wait_until(hold, until) == std::cv_status::no_timeout) continue;
    given_up_ = last;
    return;
  }
}

void Passage::end_context(CUcontext context) {
  Hold hold(mutex_);
  std::vector<uint64_t> its;
  for (const auto& [operation, work] : works_)
    if (work.context == context) its.push_back(operation);
  for (const uint64_t operation : its) {
    PassageLedger::Steps steps;
    ledger_.fail(operation, CUDA_ERROR_CONTEXT_IS_DESTROYED, &steps);
    take(steps);
  }
  changed_.wait(hold, [&] { return receiver_in_ != context && sender_in_ != context; });
}

// Waits end, and every later operation is refused: nobody knows what the other end has written.
void Passage::lose() {
  const Hold hold(mutex_);
  if (channel_ != nullptr) channel_->shutdown();
  lost_ = true;
  PassageLedger::Steps steps;
  ledger_.lose(kPassageLost, &steps);
  take(steps);
  frames_.clear();
  sends_.clear();
  changed_.notify_all();
}

// ---- the bytes ----

// To or from `memory`, in the thread's current context. Returns when the bytes are there.
CUresult Passage::copy(const PassageWork& work, uint64_t at, uint64_t bytes,
                       uint8_t* memory) const {
  const bool out = work.role == PassageRole::kSend;
  CUresult result = driver_->cuCtxSetCurrent(work.context);
  for (uint64_t done = 0; done < bytes && result == CUDA_SUCCESS;) {
    const PassagePart part = part_at(work.shape, at + done, bytes - done);
    uint8_t* here = memory + done;
    done += part.bytes();
    if (part.rows == 1) {
      result = out ? driver_->cuMemcpyDtoHAsync_v2(here, part.address, part.width, work.mover)
                   : driver_->cuMemcpyHtoDAsync_v2(part.address, here, part.width, work.mover);
      continue;
    }
    CUDA_MEMCPY2D rows = {};
    rows.srcMemoryType = out ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    rows.dstMemoryType = out ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = rows.dstDevice = part.address;
    rows.srcHost = rows.dstHost = here;
    rows.srcPitch = out ? work.shape.pitch : part.width;
    rows.dstPitch = out ? part.width : work.shape.pitch;
    rows.WidthInBytes = part.width;
    rows.Height = part.rows;
    result = driver_->cuMemcpy2DAsync_v2(&rows, work.mover);
  }
  const CUresult over = driver_->cuStreamSynchronize(work.mover);
  return result != CUDA_SUCCESS ? result : over;
}

void Passage::receive_main(void* self) { static_cast<Passage*>(self)->receive_all(); }

void Passage::receive_all() {
  while (receive_one()) continue;
  lose();
}

bool Passage::receive_one() {
  PassageFrame frame;
  if (!channel_->receive(&frame, sizeof frame, sizeof frame, {}).ok() || !is_sound(frame))
    return false;
  if (frame.bytes != 0 && !channel_->receive(received_.data(), frame.bytes, frame.bytes, {}).ok())
    return false;
  Hold hold(mutex_);
  if (frame.says == PassageSays::kData) {
    write_piece(frame, &hold);
  } else {
    PassageLedger::Steps steps;
    ledger_.heard(frame, &steps);
    take(steps);
  }
  return true;
}

void Passage::write_piece(const PassageFrame& frame, Hold* hold) {
  PassageLedger::Steps steps;
  ledger_.heard(frame, &steps);
  const auto found = works_.find(frame.operation);
  const bool good = steps.size() == 1 && steps[0].kind == PassageLedger::Step::Kind::kMove &&
                    found != works_.end();
  if (!good) return take(steps);
  const PassageWork work = found->second;
  receiver_in_ = work.context;
  hold->unlock();
  const CUresult result = copy(work, frame.value, frame.bytes, received_.data());
  hold->lock();
  receiver_in_ = nullptr;
  changed_.notify_all();
  steps.clear();
  if (result == CUDA_SUCCESS)
    ledger_.moved(frame.operation, frame.bytes, &steps);
  else
    ledger_.fail(frame.operation, result, &steps);
  take(steps);
}

void Passage::send_main(void* self) { static_cast<Passage*>(self)->send_all(); }

void Passage::send_all() {
  Hold hold(mutex_);
  bool alive = true;
  while (alive && !ended_ && !lost_) {
    if (!frames_.empty()) {
      alive = send_frames(&hold);
    } else if (!sends_.empty()) {
      const uint64_t operation = sends_.front();
      sends_.pop_front();
      alive = send_work(operation, &hold);
    } else {
      changed_.wait(hold);
    }
  }
  hold.unlock();
  if (!alive) lose();
}

bool Passage::send_frames(Hold* hold) {
  std::vector<PassageFrame> all(frames_.begin(), frames_.end());
  frames_.clear();
  hold->unlock();
  const iovec part = {all.data(), all.size() * sizeof all[0]};
  const bool sent = channel_->send(&part, 1).ok();
  hold->lock();
  return sent;
}

bool Passage::send_work(uint64_t operation, Hold* hold) {
  for (;;) {
    const PassageHalf* half = ledger_.find(operation);
    const auto found = works_.find(operation);
    if (half == nullptr || found == works_.end() || lost_) return true;  // it has failed meanwhile
    const uint64_t at = half->moved, bytes = std::min<uint64_t>(half->bytes - at, sent_.size());
    if (bytes == 0) return true;
    const PassageWork work = found->second;
    sender_in_ = work.context;
    hold->unlock();
    const CUresult result = copy(work, at, bytes, sent_.data());
    hold->lock();
    sender_in_ = nullptr;
    changed_.notify_all();
    PassageLedger::Steps steps;
    if (result == CUDA_SUCCESS)
      ledger_.moved(operation, bytes, &steps);  // the answer may come before `send` returns
    else
      ledger_.fail(operation, result, &steps);
    take(steps);
    if (result != CUDA_SUCCESS) return true;
    if (!frames_.empty() && !send_frames(hold)) return false;
    PassageFrame head = {PassageSays::kData, static_cast<uint32_t>(bytes), operation, at};
    const iovec parts[] = {{&head, sizeof head}, {sent_.data(), bytes}};
    hold->unlock();
    const bool sent = channel_->send(parts, 2).ok();
    hold->lock();
    if (!sent) return false;
  }
}

}  // namespace tendril::worker::cuda
