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
    for (Stage* stage : {&line.in[0], &line.in[1], &line.out[0], &line.out[1]}) {
      stage->memory = at;
      at += kPassagePieceBytes;
    }
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

template <typename Use>
void Passage::each_stage(const Use& use) {
  for (Line& line : lines_)
    for (Stage* stage : {&line.in[0], &line.in[1], &line.out[0], &line.out[1]}) use(stage);
}

// A thread may be busy with its connection for long while the GPU copies its other piece. So
// whoever needs the copy to be over waits for the GPU here, not for the thread.
void Passage::land_all(CUcontext context, Hold* hold) {
  each_stage([&](Stage* stage) {
    if (context == nullptr || stage->context == context) land(stage, hold);
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
  land_all(context, &hold);
  std::vector<CUevent> events;
  each_stage([&](Stage* stage) {
    const auto made = stage->events.find(context);
    if (made == stage->events.end()) return;
    events.push_back(made->second);
    stage->events.erase(made);
  });
  // The next copy pins it again. Other contexts may copy through it now.
  const bool unpins = pinned_in_ == context;
  unpins_ = unpins;
  if (unpins) land_all(nullptr, &hold);
  hold.unlock();
  for (CUevent event : events) driver_->cuEventDestroy_v2(event);
  if (!unpins) return;
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

// In the thread's current context.
CUresult Passage::enqueue(const PassageWork& work, const Piece& piece, Stage* stage,
                          CUevent* event) const {
  const bool out = work.role == PassageRole::kSend;
  CUresult result = driver_->cuCtxSetCurrent(work.context);
  if (result == CUDA_SUCCESS && *event == nullptr)
    result = driver_->cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
  for (uint64_t done = 0; done < piece.bytes && result == CUDA_SUCCESS;) {
    const PassagePart part = part_at(work.shape, piece.at + done, piece.bytes - done);
    uint8_t* here = stage->memory + done;
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
  if (result == CUDA_SUCCESS) result = driver_->cuEventRecord(*event, work.mover);
  if (result != CUDA_SUCCESS) driver_->cuStreamSynchronize(work.mover);  // some of it was begun
  return result;
}

void Passage::begin(Stage* stage, const Piece& piece, Hold* hold) {
  stage->piece = piece;
  stage->result = CUDA_ERROR_UNKNOWN;
  const auto found = works_.find(piece.operation);
  if (found == works_.end()) return;
  ++found->second.copying;
  const PassageWork work = found->second;
  const auto made = stage->events.find(work.context);
  CUevent event = made != stage->events.end() ? made->second : nullptr;
  stage->context = work.context;
  stage->busy = true;
  hold->unlock();
  const CUresult result = enqueue(work, piece, stage, &event);
  hold->lock();
  stage->busy = false;
  stage->result = result;
  stage->event = event;
  if (event != nullptr) stage->events[work.context] = event;
  changed_.notify_all();
}

void Passage::land(Stage* stage, Hold* hold) {
  changed_.wait(*hold, [stage] { return !stage->busy; });
  if (stage->context == nullptr) return;
  if (stage->result == CUDA_SUCCESS) {
    stage->busy = true;
    hold->unlock();
    const CUresult result = driver_->cuEventSynchronize(stage->event);
    hold->lock();
    stage->busy = false;
    stage->result = result;
  }
  stage->context = nullptr;
  const Piece& piece = stage->piece;
  const auto found = works_.find(piece.operation);  // it stays as long as somebody copies
  if (--found->second.copying == 0 && found->second.over) finish(found);
  PassageLedger::Steps steps;
  if (stage->result == CUDA_SUCCESS)
    ledger_.moved(piece.operation, piece.bytes, &steps);
  else
    ledger_.fail(piece.operation, stage->result, &steps);
  take(steps);
  changed_.notify_all();
}

void Passage::receive_main(void* self) {
  auto* line = static_cast<Line*>(self);
  Stage* last = nullptr;
  while (line->passage->receive_one(line, &last)) continue;
  if (last != nullptr) {
    Hold hold(line->passage->mutex_);
    line->passage->land(last, &hold);
  }
  line->passage->lose();
}

// `last`: the piece that the GPU may still copy.
bool Passage::receive_one(Line* line, Stage** last) {
  PassageFrame frame;
  transport::Channel& channel = *line->channel;
  auto* head = reinterpret_cast<uint8_t*>(&frame);
  size_t got = 0;
  if (*last != nullptr) {
    base::Result<size_t> some = channel.receive(head, 0, sizeof frame, {});
    if (!some.ok()) return false;
    got = *some;
    if (got == 0) {  // this thread may sleep now
      Hold hold(mutex_);
      land(*last, &hold);
      *last = nullptr;
    }
  }
  const size_t rest = sizeof frame - got;
  if (rest != 0 && !channel.receive(head + got, rest, rest, {}).ok()) return false;
  if (!is_sound(frame)) return false;
  Stage* stage = *last == &line->in[0] ? &line->in[1] : &line->in[0];
  if (frame.bytes != 0 && !channel.receive(stage->memory, frame.bytes, frame.bytes, {}).ok())
    return false;
  Hold hold(mutex_);
  if (frame.says != PassageSays::kData) {
    PassageLedger::Steps steps;
    ledger_.heard(frame, &steps);
    take(steps);
  } else if (write_piece(frame, stage, &hold)) {
    if (*last != nullptr) land(*last, &hold);
    *last = stage;
  }
  return true;
}

// False: nobody wants it any more.
bool Passage::write_piece(const PassageFrame& frame, Stage* stage, Hold* hold) {
  changed_.wait(*hold, [this] { return !unpins_; });
  PassageLedger::Steps steps;
  ledger_.heard(frame, &steps);
  if (steps.size() == 1 && steps[0].kind == PassageLedger::Step::Kind::kMove) {
    begin(stage, {frame.operation, frame.value, frame.bytes}, hold);
    return true;
  }
  take(steps);
  return false;
}

void Passage::send_main(void* self) {
  auto* line = static_cast<Line*>(self);
  line->passage->send_all(line);
}

void Passage::send_all(Line* line) {
  Hold hold(mutex_);
  bool alive = true;
  Stage* next = nullptr;  // the piece that the GPU copies, or has copied
  while (alive && !ended_ && !lost_) {
    Piece piece;
    if (is_first(line) && !frames_.empty()) {
      alive = send_frames(line, &hold);
    } else if (next != nullptr) {
      alive = send_piece(line, &next, &hold);
    } else if (!unpins_ && next_piece(&piece)) {
      next = &line->out[0];
      begin(next, piece, &hold);
    } else {
      ++idle_senders_;
      (is_first(line) ? changed_ : pieces_).wait(hold);
      --idle_senders_;
    }
  }
  if (next != nullptr) land(next, &hold);
  hold.unlock();
  if (!alive) lose();
}

bool Passage::next_piece(Piece* piece) {
  for (; !sends_.empty(); sends_.pop_front()) {
    piece->operation = sends_.front();
    if (ledger_.next_piece(piece->operation, kPassagePieceBytes, &piece->at, &piece->bytes))
      return true;
  }
  return false;
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

// Has the GPU copy the line's next piece while this one is sent, unless another line is free for
// it.
bool Passage::send_piece(Line* line, Stage** next, Hold* hold) {
  Stage* stage = *next;
  *next = nullptr;
  Piece piece;
  if (idle_senders_ == 0 && !unpins_ && next_piece(&piece)) {
    *next = stage == &line->out[0] ? &line->out[1] : &line->out[0];
    begin(*next, piece, hold);
  }
  land(stage, hold);  // says so in the ledger: the answer may come before `send` ends
  const Piece& sent = stage->piece;
  if (stage->result != CUDA_SUCCESS || ledger_.find(sent.operation) == nullptr) return true;
  PassageFrame head = {PassageSays::kData, static_cast<uint32_t>(sent.bytes), sent.operation,
                       sent.at};
  const iovec parts[] = {{&head, sizeof head}, {stage->memory, sent.bytes}};
  hold->unlock();
  const bool alive = line->channel->send(parts, 2).ok();
  hold->lock();
  return alive;
}

}  // namespace tendril::worker::cuda
