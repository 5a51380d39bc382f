// SPDX-License-Identifier: Apache-2.0
// See parking.h.
#include "worker/cuda/parking/parking.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/cuda_messages.gen.h"
#include "worker/core/output.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/memory/mirror.h"
#include "worker/cuda/passage/passages.h"

namespace tendril::worker::cuda {
namespace {

constexpr int kWakeLookMs = 10;      // while tendrild has no room: is the session over?
constexpr long kRestNs = 5'000'000;  // while others still hold memory that was promised to us

void rest() {
  const timespec nap{0, kRestNs};
  nanosleep(&nap, nullptr);
}

}  // namespace

Parking::Parking(Executor* executor, ParkLine* line, wire::AccountingPage* accounting)
    : executor_(*executor),
      line_(line),
      accounting_(accounting),
      store_(&executor->driver(), &executor->waiters().staging()) {}

// Tells what has left, as it leaves and returns.
void Parking::account(uint32_t slot, int64_t bytes) {
  if (accounting_ != nullptr)
    accounting_->parked_bytes[slot][executor_.assignment().tally] += static_cast<uint64_t>(bytes);
}

// On any thread that copies: tendrild looks whether it goes on.
void Parking::moved(uint64_t bytes) {
  if (accounting_ != nullptr)
    accounting_->moved_bytes[executor_.assignment().tally].fetch_add(bytes,
                                                                     std::memory_order_relaxed);
}

// All that was submitted is done, so waits are over at once.
bool Parking::works_while_away(uint16_t opcode) {
  using wire::cuda::Op;
  const auto op = static_cast<Op>(opcode);
  return op == Op::memory_info || op == Op::stream_synchronize || op == Op::context_synchronize;
}

bool Parking::reads(const session::Call& call) {
  using wire::cuda::Op;
  const auto op = static_cast<Op>(call.opcode);
  return op == Op::copy_from_device || op == Op::copy_device;
}

// Into memory that the client shares with this process.
bool Parking::read_to_shared(const session::Call& call) {
  wire::cuda::copy_device_request request;
  if (!wire::read_message(request, call.body, call.bytes)) return false;
  const uint64_t first = request.destination, bytes = request.bytes, last = first + bytes - 1;
  Scope scope(executor_);
  scope.stream(request.stream);
  if (!scope.ok() || bytes == 0 || last < first || !store_.has(request.source, bytes)) return false;
  Mirrors& mirrors = executor_.mirrors();
  const Mirrors::Mirror* const mirror = mirrors.find(first);
  if (mirror == nullptr || mirror->shadow != nullptr || mirrors.find(last) != mirror) return false;
  auto* const place = reinterpret_cast<uint8_t*>(mirrors.place_of(first));
  store_.read(request.source, bytes, [place](uint64_t at, const uint8_t* data, uint64_t size) {
    memcpy(place + at, data, size);
  });
  executor_.finish(call, CUDA_SUCCESS);
  return true;
}

// What is wrong with a call is said where it runs. The answer's form is that of Waiters::complete.
bool Parking::read(const session::Call& call) {
  if (call.opcode == static_cast<uint16_t>(wire::cuda::Op::copy_device))
    return read_to_shared(call);
  wire::cuda::copy_from_device_request request;
  WorkerContext* const context = executor_.context();
  if (context == nullptr || !wire::read_message(request, call.body, call.bytes)) return false;
  if (request.transfer == 0 && request.bytes > wire::kReplyInlineMax) return false;
  Scope scope(executor_);
  scope.stream(request.stream);
  if (!scope.ok() || context->deferred.load() != CUDA_SUCCESS ||
      !store_.has(request.source, request.bytes))
    return false;
  session::Service& service = executor_.service();
  if (request.transfer != 0) {
    store_.read(request.source, request.bytes,
                [&](uint64_t at, const uint8_t* data, uint64_t size) {
                  service.send_bulk(request.transfer, at, data, size);
                });
    service.transfer_sent(request.transfer);
    service.reply(call.reply_id, CUDA_SUCCESS, nullptr, 0);
    return true;
  }
  const uint64_t count = request.bytes;
  std::vector<uint8_t> padded(wire::padded(count));
  store_.read(request.source, count, [&](uint64_t at, const uint8_t* data, uint64_t size) {
    memcpy(padded.data() + at, data, size);
  });
  service.reply2(call.reply_id, CUDA_SUCCESS, &count, sizeof count, padded.data(),
                 static_cast<uint32_t>(padded.size()));
  return true;
}

// What a copy or a fill writes. A wrong message reaches no handler, so it writes nothing.
bool Parking::note_range(const session::Call& call) {
  using wire::cuda::Op;
  uint64_t address = 0, bytes = 0;
  if (static_cast<Op>(call.opcode) == Op::copy_to_device) {
    wire::cuda::copy_to_device_request request;
    if (!wire::read_message(request, call.body, call.bytes)) return true;
    address = request.destination;
    bytes = request.bytes;
  } else if (static_cast<Op>(call.opcode) == Op::copy_device) {
    wire::cuda::copy_device_request request;
    if (!wire::read_message(request, call.body, call.bytes)) return true;
    address = request.destination;
    bytes = request.bytes;
  } else {
    wire::cuda::memory_set_request request;
    if (static_cast<Op>(call.opcode) != Op::memory_set) return false;
    if (!wire::read_message(request, call.body, call.bytes)) return true;
    if (request.height != 1 || request.width > UINT64_MAX / 8 || request.element > 8) return false;
    address = request.destination;
    bytes = request.width * request.element;
  }
  // What a graph captures now is written when the graph runs.
  if (executor_.streams().capturing()) return false;
  store_.wrote(address, bytes);
  return true;
}

// What the GPU may write while it does this. A kernel may write anything: nobody can tell which
// pointers lie in its memory.
void Parking::note_writes(const session::Call& call) {
  using wire::cuda::Op;
  switch (static_cast<Op>(call.opcode)) {
    case Op::memory_info:
    case Op::stream_synchronize:
    case Op::context_synchronize:
    case Op::stream_query:
    case Op::event_query:
    case Op::event_synchronize:
    case Op::event_elapsed:
    case Op::copy_from_device:
    case Op::deferred_error:
    case Op::mirror_fetch:
      return;
    default:
      break;
  }
  if (note_range(call)) return;
  store_.wrote();
  attends_ = false;
  if (!copies_ahead_) return;
  copies_ahead_ = false;
  line_->end_chore(ParkChore::kCopy);
}

bool Parking::attend(const session::Call& call, bool* answered) {
  *answered = false;
  if (away_ != 0 && !works_while_away(call.opcode)) {
    *answered =
        reads(call) && executor_.contexts().enter(call.context) == CUDA_SUCCESS && read(call);
    if (*answered) return true;
    if (!wake()) return false;
  }
  if (away_ == 0) note_writes(call);
  return true;
}

void Parking::obey() {
  const uint32_t wanted = line_->wanted();
  if (wanted == done_)
    do_chore();
  else
    obey_order(wanted);
}

void Parking::obey_order(uint32_t wanted) {
  if (away_ != 0) return return_all(wanted);
  if (wanted == 0)
    done_ = 0;
  else
    park(wanted);
}

// The call that waits needs the GPU, so the lease's slices are asked for at once. It was told to
// `attend` before it came here, and writes only now.
bool Parking::obey_at_gate() {
  if (line_ == nullptr || line_->wanted() == done_) return true;
  obey_order(line_->wanted());
  if (away() && !wake()) return false;
  store_.wrote();
  attends_ = false;
  return true;
}

// The host functions of a program and its waits go on meanwhile, so this is tried until it can be
// done, or until tendrild loses patience.
void Parking::park(uint32_t number) {
  const KeepsContext keeps(&executor_.contexts());
  std::string never;
  if (!settled(&never)) {
    if (never.empty()) return;
    done_ = number;
    line_->stays(number, never);
    return;
  }
  base::Fd file = line_->take_file();
  if (file.valid()) {
    std::unique_ptr<ParkFile> sealed = ParkFile::open(std::move(file));
    if (sealed == nullptr) {
      done_ = number;
      return line_->stays(number, "the kernel gives no random bytes");
    }
    store_.use_file(std::move(sealed));
  }
  uint64_t bytes = 0;
  const CUresult result = leave(number, &bytes);
  if (result == CUDA_ERROR_NOT_READY) return;  // the order was taken back
  done_ = number;
  if (result == CUDA_SUCCESS) {
    away_ = number;
    line_->parked(number, bytes, store_.take_copied_bytes());
  } else {
    const bool full = result == CUDA_ERROR_OUT_OF_MEMORY;
    line_->stays(number, full ? "the server's host memory is full"
                         : result == CUDA_ERROR_OPERATING_SYSTEM
                             ? "the server's disk does not take it"
                             : "the driver failed to copy (" + std::to_string(result) + ")");
  }
}

// True: nothing runs, waits or is under way. `never`: it will not be so for as long as the session
// has something.
bool Parking::settled(std::string* never) {
  if (executor_.passages().any()) {
    *never = "its programs have passages to GPUs of other servers";
    return false;
  }
  if (executor_.has_collectives()) {
    *never = "its programs use NCCL";
    return false;
  }
  Waiters& waiters = executor_.waiters();
  if (waiters.polling()) return false;
  waiters.synchronise_owed();
  if (anything_runs(executor_)) return false;
  if (wait_for_all(executor_) != CUDA_SUCCESS) {
    *never = "a program's context has failed";
    return false;
  }
  waiters.deliver_all();
  waiters.reclaim(0);
  return true;
}

// What others have open stays: releasing it would free nothing, and they may use it.
bool Parking::may_leave(const DeviceBlocks::Block& block) {
  return !block.exported && block.token.empty() && block.physical != 0;
}

template <typename Which>
Parking::Lots Parking::lots_of(Which&& which) const {
  Lots lots;
  uint64_t bytes = kLotBytes;
  executor_.blocks().for_each([&](DeviceBlocks::Block* block) {
    if (!which(*block)) return;
    if (bytes >= kLotBytes) {
      lots.blocks.emplace_back();
      lots.ranges.emplace_back();
      bytes = 0;
    }
    bytes += block->bytes;
    lots.blocks.back().push_back(block);
    for (uint64_t at = 0; at < block->bytes; at += HostStore::kRangeBytesMax) {
      lots.ranges.back().push_back({block->address + at,
                                    std::min(HostStore::kRangeBytesMax, block->bytes - at),
                                    block->context->context});
    }
  });
  return lots;
}

CUresult Parking::leave(uint32_t number, uint64_t* bytes) {
  const Lots leaving = lots_of(may_leave);
  // tendrild takes the order back when it sees no progress.
  store_.watch([this, number](uint64_t copied) {
    moved(copied);
    return line_->wanted() == number;
  });
  CUresult result = store_.save(leaving.ranges, nullptr, [&](size_t lot) -> CUresult {
    if (line_->wanted() != number) return CUDA_ERROR_NOT_READY;
    return release(leaving.blocks[lot], bytes);
  });
  store_.watch(nullptr);
  executor_.contexts().forget_current();
  attends_ = true;
  if (result == CUDA_SUCCESS) return result;
  // It was there a moment ago, and nobody else was given its room.
  for (CUresult back = bring_back(); back != CUDA_SUCCESS; back = bring_back())
    if (!stays_back(back)) return CUDA_ERROR_NOT_READY;
  // Who could not park needs no copies, and tendrild counts none.
  store_.drop();
  attends_ = false;
  return result;
}

CUresult Parking::release(const Blocks& lot, uint64_t* bytes) {
  for (DeviceBlocks::Block* block : lot) {
    const CUresult result = executor_.blocks().release_memory(block);
    if (result != CUDA_SUCCESS) return result;
    account(block->slot, static_cast<int64_t>(block->bytes));
    *bytes += block->bytes;
  }
  return CUDA_SUCCESS;
}

// The copies stay. As long as nothing is written, nothing need be copied again.
CUresult Parking::bring_back() {
  const Lots returning =
      lots_of([](const DeviceBlocks::Block& block) { return block.physical == 0; });
  size_t loaded = 0, made = 0;
  store_.watch([this](uint64_t copied) {
    moved(copied);
    return true;
  });
  const CUresult result = store_.load(
      returning.ranges,
      [&](size_t lot) {
        const CUresult restored = restore(returning.blocks[lot]);
        made += restored == CUDA_SUCCESS;
        return restored;
      },
      [&](size_t lot) {
        ++loaded;
        for (const DeviceBlocks::Block* block : returning.blocks[lot])
          account(block->slot, -static_cast<int64_t>(block->bytes));
        return CUDA_SUCCESS;
      });
  for (; loaded < made; ++loaded) {  // their bytes are not there
    for (DeviceBlocks::Block* block : returning.blocks[loaded])
      executor_.blocks().release_memory(block);
  }
  store_.watch(nullptr);
  executor_.contexts().forget_current();
  return result;
}

// What to do when not all came back. True: try again. False: the session is over.
bool Parking::stays_back(CUresult result) {
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    rest();
    return executor_.service().attend();
  }
  dprintf(executor_.output().log_descriptor(),
          "parked memory does not come back: driver or disk answer %d\n", result);
  executor_.service().end(
      "the server could not copy this program's parked GPU memory back; start it again");
  return false;
}

// All of the lot or nothing.
CUresult Parking::restore(const Blocks& lot) {
  CUresult result = CUDA_SUCCESS;
  size_t made = 0;
  for (; made < lot.size() && result == CUDA_SUCCESS; ++made)
    result = executor_.blocks().restore_memory(lot[made]);
  if (result == CUDA_SUCCESS) return result;
  while (made-- > 0) executor_.blocks().release_memory(lot[made]);
  return result;
}

// While nothing else is to be done. Each time a little, because a call may come.
void Parking::do_chore() {
  const KeepsContext keeps(&executor_.contexts());
  const ParkChore chore = line_->chore();
  if (chore == ParkChore::kForget) {
    forget_copies();
    line_->end_chore(chore);
  } else if (chore == ParkChore::kCopy) {
    copies_ahead_ = away_ == 0 && !copy_ahead();
    if (!copies_ahead_) line_->end_chore(chore);
  }
}

void Parking::forget_copies() {
  if (away_ != 0) return;
  store_.drop();
  attends_ = false;
}

// True: it need not be called again.
bool Parking::copy_ahead() {
  std::string never;
  if (!settled(&never)) return true;  // it works again, or cannot be parked anyway
  const Lots leaving = lots_of(may_leave);
  std::vector<HostStore::Lot> lots;
  for (const HostStore::Lot& lot : leaving.ranges)
    for (const HostStore::Range& range : lot) lots.push_back({range});
  bool began = false;
  const CUresult result = store_.save(
      lots,
      [&](size_t lot) {
        if (store_.has(lots[lot])) return CUDA_SUCCESS;
        if (began) return CUDA_ERROR_NOT_READY;
        began = true;
        return CUDA_SUCCESS;
      },
      nullptr);
  executor_.contexts().forget_current();
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) store_.drop();
  attends_ = store_.any_current();
  return result != CUDA_ERROR_NOT_READY;
}

// The slices are the lease's again, but a process that ends may still hold some of the memory.
void Parking::return_all(uint32_t wanted) {
  const KeepsContext keeps(&executor_.contexts());
  const CUresult result = bring_back();
  if (result != CUDA_SUCCESS) {
    stays_back(result);
    return;
  }
  if (store_.in_file()) store_.drop();  // tendrild gives the disk back
  line_->returned(away_);
  away_ = 0;
  attends_ = store_.any_current();
  done_ = wanted == 0 ? 0 : done_;
}

bool Parking::wake() {
  const uint32_t number = away_;
  if (line_->wanted() == number) {
    static constexpr char kText[] =
        "\2tendril: this program was idle and its GPU memory was parked on the server; waiting for "
        "the GPU\n";
    executor_.service().push(wire::FrameKind::kOutput, 0, kText, sizeof kText - 1);
    executor_.service().flush();
    line_->wants_wake(number);
  }
  while (away_ != 0) {
    if (line_->wanted() == number)
      line_->wait(number, kWakeLookMs);
    else
      return_all(line_->wanted());
    if (!executor_.service().attend()) return false;
  }
  return true;
}

}  // namespace tendril::worker::cuda
