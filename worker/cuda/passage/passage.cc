// SPDX-License-Identifier: Apache-2.0
// See passage.h.
#include "worker/cuda/passage/passage.h"

#include <sys/mman.h>

#include <algorithm>

namespace tendril::worker::cuda {
namespace {

// What a program gets for a device that is lost.
constexpr CUresult kPassageLost = CUDA_ERROR_DEVICE_UNAVAILABLE;

base::Status nonsense() {
  return base::Status(base::Code::kInvalid, "the other worker breaks the rules");
}

}  // namespace

Passage::Passage(gpu::Driver* driver, std::function<void(CUcontext, const PassageHold&)> released)
    : driver_(driver), released_(std::move(released)) {
  // Memory of a fabric that is never tried is never touched.
  void* memory = mmap(nullptr, kPassageMemoryBytes + kFabricMemoryBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;  // connect() sees it
  memory_[0] = {static_cast<uint8_t*>(memory), kPassageMemoryBytes};
  memory_[1] = {memory_[0].at + kPassageMemoryBytes, kFabricMemoryBytes};
  for (uint8_t* at = memory_[0].at; Line & line : lines_) {
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
  for (Line& line : lines_) line.channel.reset();  // no card touches the memory any more
  known_->remove(memory_[1].at);
  if (memory_[0].at != nullptr) munmap(memory_[0].at, kPassageMemoryBytes + kFabricMemoryBytes);
}

void Passage::connect(uint32_t number, std::unique_ptr<transport::Channel> channel) {
  if (number == 0 && (channel == nullptr || memory_[0].at == nullptr)) return lose();
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
  for (Memory& memory : memory_) {
    {
      const Hold hold(mutex_);
      const bool wanted = &memory == &memory_[0] || fabric_wanted_;
      if (!wanted || memory.pinned_in != nullptr || memory.at == nullptr) continue;
    }
    const CUresult result =
        driver_->cuMemHostRegister_v2(memory.at, memory.bytes, CU_MEMHOSTREGISTER_PORTABLE);
    const Hold hold(mutex_);
    if (result == CUDA_SUCCESS) memory.pinned_in = context;  // else copies are slower
  }
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
  std::vector<Memory*> pinned;
  for (Memory& memory : memory_)
    if (memory.pinned_in == context) pinned.push_back(&memory);
  unpins_ = !pinned.empty();
  if (unpins_) land_all(nullptr, &hold);
  hold.unlock();
  for (CUevent event : events) driver_->cuEventDestroy_v2(event);
  if (pinned.empty()) return;
  for (const Memory* memory : pinned) driver_->cuMemHostUnregister(memory->at);
  hold.lock();
  for (Memory* memory : pinned) memory->pinned_in = nullptr;
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
  again_.clear();
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
  Passage* const passage = line->passage;
  Stage* last = nullptr;
  base::Status over;
  while (over.ok()) over = passage->receive_one(line, &last);
  if (last != nullptr) {
    Hold hold(passage->mutex_);
    passage->land(last, &hold);
  }
  const bool spoiled = over.code() == base::Code::kInvalid;  // by the other end
  if (line->carrier != nullptr && !spoiled && !line->carrier->peer_closed())
    passage->leave_fabric(line, over.message());
  else
    passage->lose();
}

// `last`: the piece that the GPU may still copy. kInvalid: what came makes no sense.
base::Status Passage::receive_one(Line* line, Stage** last) {
  PassageFrame frame;
  transport::Channel& channel = *line->channel;
  auto* head = reinterpret_cast<uint8_t*>(&frame);
  size_t got = 0;
  if (*last != nullptr) {
    base::Result<size_t> some = channel.receive(head, 0, sizeof frame, {});
    if (!some.ok()) return some.status();
    got = *some;
    if (got == 0) {  // this thread may sleep now
      Hold hold(mutex_);
      land(*last, &hold);
      *last = nullptr;
    }
  }
  const size_t rest = sizeof frame - got;
  if (rest != 0) {
    const base::Result<size_t> came = channel.receive(head + got, rest, rest, {});
    if (!came.ok()) return came.status();
  }
  const bool data = frame.says == PassageSays::kData;
  if (!is_sound(frame) || (line->carrier != nullptr && !data)) return nonsense();
  Stage* stage = *last == &line->in[0] ? &line->in[1] : &line->in[0];
  if (data) {
    const base::Result<size_t> came = channel.receive(stage->memory, frame.bytes, frame.bytes, {});
    if (!came.ok()) return came.status();
  }
  Hold hold(mutex_);
  if (line->carrier != nullptr) ++line->got;
  if (frame.says == PassageSays::kLeft) return hear_left(frame) ? base::Status() : nonsense();
  if (!data) {
    PassageLedger::Steps steps;
    ledger_.heard(frame, &steps);
    take(steps);
  } else if (write_piece(frame, stage, &hold)) {
    if (*last != nullptr) land(*last, &hold);
    *last = stage;
  }
  return base::Status();
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
    } else if (takes_pieces(line) && !unpins_ && next_piece(&piece)) {
      next = &line->out[0];
      begin(next, piece, &hold);
    } else if (line->carrier != nullptr && fabric_ == Fabric::kFailed) {
      break;
    } else {
      const bool idle = takes_pieces(line);
      idle_senders_ += idle ? 1 : 0;
      (is_first(line) || line == &fabric_line(0) ? changed_ : pieces_).wait(hold);
      idle_senders_ -= idle ? 1 : 0;
    }
  }
  if (next != nullptr) land(next, &hold);
  hold.unlock();
  if (!alive) lose();
}

bool Passage::next_piece(Piece* piece) {
  for (; !again_.empty();) {
    *piece = again_.front();
    again_.pop_front();
    if (ledger_.find(piece->operation) != nullptr) return true;
  }
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
  if (idle_senders_ == 0 && takes_pieces(line) && !unpins_ && next_piece(&piece)) {
    *next = stage == &line->out[0] ? &line->out[1] : &line->out[0];
    begin(*next, piece, hold);
  }
  land(stage, hold);  // says so in the ledger: the answer may come before `send` ends
  const Piece sent = stage->piece;
  if (stage->result != CUDA_SUCCESS || ledger_.find(sent.operation) == nullptr) return true;
  const bool fabric = line->carrier != nullptr;
  if (fabric && fabric_ == Fabric::kFailed) {
    send_again(sent);
    return true;
  }
  if (fabric) note_sent(line, sent);
  line->sending = true;
  PassageFrame head = {PassageSays::kData, static_cast<uint32_t>(sent.bytes), sent.operation,
                       sent.at};
  const iovec parts[] = {{&head, sizeof head}, {stage->memory, sent.bytes}};
  hold->unlock();
  const base::Status status = line->channel->send(parts, 2);
  hold->lock();
  line->sending = false;
  if (!fabric) return status.ok();
  changed_.notify_all();
  // The other end's goodbye ends the passage, and the receiver sees it.
  if (!status.ok() && !line->carrier->peer_closed()) fail_fabric(status.message());
  return true;
}

// ---- the fabric ----

std::shared_ptr<session::LatePinned> Passage::open_fabric(
    std::function<void(const std::string& why)> left) {
  {
    const Hold hold(mutex_);
    left_ = std::move(left);
  }
  (void)known_->add(memory_[1].at, memory_[1].bytes);
  return known_;
}

base::Status Passage::take_carriers(std::vector<std::unique_ptr<transport::Carrier>> carriers) {
  const Hold hold(mutex_);
  const base::Status late(base::Code::kUnavailable, "the passage has ended");
  if (lost_ || ended_ || fabric_ != Fabric::kNone || lines_[0].channel == nullptr) return late;
  fabric_ = Fabric::kTaken;
  fabric_wanted_ = true;  // the next copy pins its memory
  for (size_t i = 1; i < carriers.size() && i <= kFabricLinesMax; ++i) {
    if (carriers[i] == nullptr) continue;
    Line& line = fabric_line(i - 1);
    line.carrier = carriers[i].get();
    line.channel = std::move(carriers[i]);
    if (line.receiver.start("passage-in", receive_main, &line) &&
        line.sender.start("passage-out", send_main, &line))
      continue;
    fail_fabric("there is no thread for it");
    return base::Status(base::Code::kExhausted, fabric_why_);
  }
  return base::Status();
}

void Passage::use_carriers() {
  const Hold hold(mutex_);
  if (fabric_ != Fabric::kTaken) return;
  fabric_ = Fabric::kUsed;
  changed_.notify_all();
  pieces_.notify_all();
}

// Under the lock, as hear_left, note_sent and send_again.
void Passage::fail_fabric(const std::string& why) {
  if (fabric_ == Fabric::kFailed) return;
  fabric_ = Fabric::kFailed;
  fabric_why_ = why;
  for (size_t i = 0; i < kFabricLinesMax; ++i)
    if (fabric_line(i).carrier != nullptr) fabric_line(i).carrier->interrupt();
  changed_.notify_all();
  pieces_.notify_all();
}

// The line's receiver, at its end. Tells the other end what it got over it.
void Passage::leave_fabric(Line* line, const std::string& why) {
  Hold hold(mutex_);
  if (lost_ || ended_) return;
  fail_fabric(why);
  changed_.wait(hold, [line] { return !line->sending; });
  uint8_t nothing[1];
  (void)line->carrier->leave(nothing, sizeof nothing, line->carrier->sent(), 0);
  const auto number = static_cast<uint64_t>(line - &fabric_line(0));
  frames_.push_back({PassageSays::kLeft, 0, number, line->got});
  changed_.notify_all();
}

// The other end takes nothing more from that line. What it has not got goes once more. False: it
// speaks of what was not.
bool Passage::hear_left(const PassageFrame& frame) {
  if (frame.operation >= kFabricLinesMax) return false;
  Line& line = fabric_line(frame.operation);
  if (line.peer_left || frame.value > line.heard + line.sent.size()) return false;
  line.peer_left = true;
  fail_fabric("the other server has left it");
  for (const Piece& piece : line.sent)
    if (line.heard++ >= frame.value) send_again(piece);
  line.sent.clear();
  if (!left_told_ && left_ != nullptr) left_(fabric_why_);
  left_told_ = true;
  return true;
}

void Passage::note_sent(Line* line, const Piece& piece) {
  for (; !line->sent.empty() && ledger_.find(line->sent.front().operation) == nullptr;
       ++line->heard)
    line->sent.pop_front();
  line->sent.push_back(piece);
}

void Passage::send_again(const Piece& piece) {
  ledger_.again(piece.operation, piece.bytes);
  again_.push_back(piece);
  changed_.notify_all();
  pieces_.notify_all();
}

}  // namespace tendril::worker::cuda
