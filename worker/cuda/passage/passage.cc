// SPDX-License-Identifier: Apache-2.0
// See passage.h.
#include "worker/cuda/passage/passage.h"

#include <sys/mman.h>

#include <algorithm>

namespace tendril::worker::cuda {
namespace {

// What a program gets for a device that is lost.
constexpr CUresult kPassageLost = CUDA_ERROR_DEVICE_UNAVAILABLE;

}  // namespace

Passage::Passage(gpu::Driver* driver, std::function<void(CUcontext, const PassageHold&)> released)
    : driver_(driver), released_(std::move(released)) {
  void* memory = mmap(nullptr, kPassageMemoryBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;  // connect() sees it
  memory_ = static_cast<uint8_t*>(memory);
  for (uint8_t* at = memory_; Line & line : lines_) {
    line.passage = this;
    line.received = at;
    line.sent = at + kPassagePieceBytes;
    at += 2 * kPassagePieceBytes;
  }
}

Passage::~Passage() {
  {
    const Hold hold(mutex_);
    ended_ = true;
    shut_down();
    changed_.notify_all();
    pieces_.notify_all();
  }
  for (Line& line : lines_) {
    line.receiver.join();
    line.sender.join();
  }
  lose();
  if (memory_ != nullptr) munmap(memory_, kPassageMemoryBytes);
}

void Passage::connect(uint32_t number, std::unique_ptr<transport::Channel> channel) {
  if (number == 0 && (channel == nullptr || memory_ == nullptr)) return lose();
  const Hold hold(mutex_);
  if (channel == nullptr || lost_ || number >= wire::kPassageLinesMax) return;
  Line& line = lines_[number];
  const bool comes_too_early = number != 0 && lines_[0].channel == nullptr;
  if (line.channel != nullptr || comes_too_early) return;
  line.channel = std::move(channel);
  const bool runs = line.receiver.start("passage-in", receive_main, &line) &&
                    line.sender.start("passage-out", send_main, &line);
  if (!runs) shut_down();
}

// Under the lock.
void Passage::shut_down() {
  for (const Line& line : lines_)
    if (line.channel != nullptr) line.channel->shutdown();
}

bool Passage::is_lost() {
  const Hold hold(mutex_);
  return lost_;
}

void Passage::pin(CUcontext context) {
  {
    const Hold hold(mutex_);
    if (pinned_in_ != nullptr || memory_ == nullptr) return;
  }
  const CUresult result =
      driver_->cuMemHostRegister_v2(memory_, kPassageMemoryBytes, CU_MEMHOSTREGISTER_PORTABLE);
  const Hold hold(mutex_);
  if (result == CUDA_SUCCESS) pinned_in_ = context;  // else copies are slower
}

// ---- halves ----

void Passage::take(const PassageLedger::Steps& steps) {
  using Kind = PassageLedger::Step::Kind;
  for (const PassageLedger::Step& step : steps) {
    if (step.kind == Kind::kSay) frames_.push_back(step.frame);
    if (step.kind == Kind::kBreak) shut_down();
    if (step.kind == Kind::kMove) {
      sends_.push_back(step.operation);
      const PassageHalf* half = ledger_.find(step.operation);
      const bool is_long = half != nullptr && half->bytes > kPassagePieceBytes;
      if (is_long || sends_.size() > 1) pieces_.notify_all();
    }
    if (step.kind != Kind::kEnd) continue;
    const auto found = works_.find(step.operation);
    if (found == works_.end()) continue;
    found->second.over = true;
    found->second.result = step.result;
    if (found->second.copying == 0) finish(found);
  }
  if (!steps.empty()) changed_.notify_all();
}

void Passage::finish(std::map<uint64_t, PassageWork>::iterator at) {
  const PassageWork work = at->second;
  works_.erase(at);
  // The error comes before whoever waits for the stream can look.
  int none = 0;
  if (work.result != CUDA_SUCCESS && work.owner != nullptr)
    work.owner->deferred.compare_exchange_strong(none, work.result);
  if (work.hold.word == nullptr) return;
  __atomic_store_n(work.hold.word, work.hold.value, __ATOMIC_RELEASE);
  released_(work.context, work.hold);
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

bool Passage::anybody_copies(CUcontext context) const {
  return std::any_of(std::begin(lines_), std::end(lines_), [context](const Line& line) {
    if (context == nullptr) return line.receiver_in != nullptr || line.sender_in != nullptr;
    return line.receiver_in == context || line.sender_in == context;
  });
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
  changed_.wait(hold, [&] { return !anybody_copies(context); });
  if (pinned_in_ != context) return;
  // The next copy pins it again. Other contexts may copy through it now.
  unpins_ = true;
  changed_.wait(hold, [&] { return !anybody_copies(nullptr); });
  hold.unlock();
  driver_->cuMemHostUnregister(memory_);
  hold.lock();
  pinned_in_ = nullptr;
  unpins_ = false;
  changed_.notify_all();
  pieces_.notify_all();
}

// Waits end, and every later operation is refused: nobody knows what the other end has written.
void Passage::lose() {
  const Hold hold(mutex_);
  shut_down();
  lost_ = true;
  PassageLedger::Steps steps;
  ledger_.lose(kPassageLost, &steps);
  take(steps);
  frames_.clear();
  sends_.clear();
  changed_.notify_all();
  pieces_.notify_all();
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

CUresult Passage::copy_unlocked(uint64_t operation, uint64_t at, uint64_t bytes, uint8_t* memory,
                                CUcontext* user, Hold* hold) {
  const auto found = works_.find(operation);
  if (found == works_.end()) return CUDA_ERROR_UNKNOWN;
  ++found->second.copying;
  const PassageWork work = found->second;
  *user = work.context;
  hold->unlock();
  const CUresult result = copy(work, at, bytes, memory);
  hold->lock();
  *user = nullptr;
  PassageWork& after = found->second;  // it stays as long as somebody copies
  if (--after.copying == 0 && after.over) finish(found);
  changed_.notify_all();
  return result;
}

void Passage::receive_main(void* self) {
  auto* line = static_cast<Line*>(self);
  while (line->passage->receive_one(line)) continue;
  line->passage->lose();
}

bool Passage::receive_one(Line* line) {
  PassageFrame frame;
  transport::Channel& channel = *line->channel;
  if (!channel.receive(&frame, sizeof frame, sizeof frame, {}).ok() || !is_sound(frame))
    return false;
  if (frame.bytes != 0 && !channel.receive(line->received, frame.bytes, frame.bytes, {}).ok())
    return false;
  Hold hold(mutex_);
  if (frame.says == PassageSays::kData) {
    write_piece(line, frame, &hold);
  } else {
    PassageLedger::Steps steps;
    ledger_.heard(frame, &steps);
    take(steps);
  }
  return true;
}

void Passage::write_piece(Line* line, const PassageFrame& frame, Hold* hold) {
  changed_.wait(*hold, [this] { return !unpins_; });
  PassageLedger::Steps steps;
  ledger_.heard(frame, &steps);
  const bool good = steps.size() == 1 && steps[0].kind == PassageLedger::Step::Kind::kMove;
  if (!good) return take(steps);
  const CUresult result = copy_unlocked(frame.operation, frame.value, frame.bytes, line->received,
                                        &line->receiver_in, hold);
  steps.clear();
  if (result == CUDA_SUCCESS)
    ledger_.moved(frame.operation, frame.bytes, &steps);
  else
    ledger_.fail(frame.operation, result, &steps);
  take(steps);
}

void Passage::send_main(void* self) {
  auto* line = static_cast<Line*>(self);
  line->passage->send_all(line);
}

void Passage::send_all(Line* line) {
  Hold hold(mutex_);
  bool alive = true;
  while (alive && !ended_ && !lost_) {
    Piece piece;
    if (is_first(line) && !frames_.empty())
      alive = send_frames(line, &hold);
    else if (!unpins_ && next_piece(&piece))
      alive = send_piece(line, piece, &hold);
    else
      (is_first(line) ? changed_ : pieces_).wait(hold);
  }
  hold.unlock();
  if (!alive) lose();
}

bool Passage::send_frames(Line* line, Hold* hold) {
  std::vector<PassageFrame> all(frames_.begin(), frames_.end());
  frames_.clear();
  hold->unlock();
  const iovec part = {all.data(), all.size() * sizeof all[0]};
  const bool sent = line->channel->send(&part, 1).ok();
  hold->lock();
  return sent;
}

bool Passage::next_piece(Piece* piece) {
  for (; !sends_.empty(); sends_.pop_front()) {
    piece->operation = sends_.front();
    if (ledger_.next_piece(piece->operation, kPassagePieceBytes, &piece->at, &piece->bytes))
      return true;
  }
  return false;
}

bool Passage::send_piece(Line* line, const Piece& piece, Hold* hold) {
  const CUresult result =
      copy_unlocked(piece.operation, piece.at, piece.bytes, line->sent, &line->sender_in, hold);
  PassageLedger::Steps steps;
  if (result == CUDA_SUCCESS)
    ledger_.moved(piece.operation, piece.bytes, &steps);  // the answer may come before `send` ends
  else
    ledger_.fail(piece.operation, result, &steps);
  take(steps);
  if (ledger_.find(piece.operation) == nullptr) return true;  // it has failed meanwhile
  PassageFrame head = {PassageSays::kData, static_cast<uint32_t>(piece.bytes), piece.operation,
                       piece.at};
  const iovec parts[] = {{&head, sizeof head}, {line->sent, piece.bytes}};
  hold->unlock();
  const bool sent = line->channel->send(parts, 2).ok();
  hold->lock();
  return sent;
}

}  // namespace tendril::worker::cuda
