// SPDX-License-Identifier: Apache-2.0
// See parking.h.
#include "worker/cuda/parking/parking.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/cuda_messages.gen.h"
#include "worker/cuda/executor/output.h"
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

// Leaves the context current that was.
class KeepsContext {
 public:
  explicit KeepsContext(Contexts* contexts)
      : contexts_(contexts), before_(contexts->current_in_driver()) {}
  ~KeepsContext() {
    if (before_ != nullptr) contexts_->use(before_);
  }
  KeepsContext(const KeepsContext&) = delete;
  KeepsContext& operator=(const KeepsContext&) = delete;

 private:
  Contexts* const contexts_;
  const CUcontext before_;
};

}  // namespace

Parking::Parking(Executor* executor, ParkLine* line, wire::AccountingPage* accounting)
    : executor_(*executor),
      line_(line),
      accounting_(accounting),
      store_(&executor->driver(), &executor->waiters().staging()) {}

// Tells what has left, as it leaves and returns: tendrild looks whether it goes on.
void Parking::account(uint32_t slot, int64_t bytes) {
  if (accounting_ != nullptr)
    accounting_->parked_bytes[slot][executor_.assignment().tally] += static_cast<uint64_t>(bytes);
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
  const uint8_t* const data = store_.find(request.source, bytes);
  if (!scope.ok() || data == nullptr || bytes == 0 || last < first) return false;
  Mirrors& mirrors = executor_.mirrors();
  const Mirrors::Mirror* const mirror = mirrors.find(first);
  if (mirror == nullptr || mirror->shadow != nullptr || mirrors.find(last) != mirror) return false;
  memcpy(reinterpret_cast<void*>(mirrors.place_of(first)), data, bytes);
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
  const uint8_t* const data = store_.find(request.source, request.bytes);
  if (!scope.ok() || data == nullptr || context->deferred.load() != CUDA_SUCCESS) return false;
  session::Service& service = executor_.service();
  if (request.transfer != 0) {
    service.send_bulk(request.transfer, 0, data, request.bytes);
    service.transfer_sent(request.transfer);
    service.reply(call.reply_id, CUDA_SUCCESS, nullptr, 0);
    return true;
  }
  const uint64_t count = request.bytes;
  std::vector<uint8_t> padded(wire::padded(count));
  memcpy(padded.data(), data, count);
  service.reply2(call.reply_id, CUDA_SUCCESS, &count, sizeof count, padded.data(),
                 static_cast<uint32_t>(padded.size()));
  return true;
}

void Parking::obey() {
  const uint32_t wanted = line_->wanted();
  if (wanted == done_) return;
  if (away_ != 0) return return_all(wanted);
  if (wanted == 0)
    done_ = 0;
  else
    park(wanted);
}

// The call that waits needs the GPU, so the lease's slices are asked for at once.
bool Parking::obey_at_gate() {
  if (ordered()) obey();
  return !away() || wake();
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
  uint64_t bytes = 0;
  const CUresult result = leave(number, &bytes);
  if (result == CUDA_ERROR_NOT_READY) return;  // the order was taken back
  done_ = number;
  if (result == CUDA_SUCCESS) {
    away_ = number;
    line_->parked(number, bytes);
  } else {
    line_->stays(number, result == CUDA_ERROR_OUT_OF_MEMORY
                             ? "the server's host memory is full"
                             : "the driver failed to copy (" + std::to_string(result) + ")");
  }
}

bool Parking::anything_runs(WorkerContext* context) {
  gpu::Driver& driver = executor_.driver();
  if (context->waits.load() != 0) return true;
  if (executor_.contexts().use(context->context) != CUDA_SUCCESS) return false;
  if (driver.cuStreamQuery(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY) return true;
  for (CUstream stream : context->touched) {
    if (driver.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) return true;
  }
  return false;
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
  if (executor_.streams().capturing() || waiters.polling()) return false;
  waiters.synchronise_owed();
  bool runs = false;
  executor_.contexts().for_each([&](WorkerContext& context) {
    runs = runs || (context.context != nullptr && anything_runs(&context));
  });
  if (runs) return false;
  if (wait_for_all(executor_) != CUDA_SUCCESS) {
    *never = "a program's context has failed";
    return false;
  }
  waiters.deliver_all();
  waiters.reclaim(0);
  return true;
}

// What others have open stays: releasing it would free nothing, and they may use it.
CUresult Parking::leave(uint32_t number, uint64_t* bytes) {
  std::vector<DeviceBlocks::Block*> leaving;
  executor_.blocks().for_each([&](DeviceBlocks::Block* block) {
    if (!block->exported && block->token.empty() && block->physical != 0) leaving.push_back(block);
  });
  CUresult result = CUDA_SUCCESS;
  for (size_t at = 0; at < leaving.size() && result == CUDA_SUCCESS;) {
    const Lot lot = lot_of(leaving, at);
    at += lot.blocks.size();
    // tendrild, which sees no progress, takes the order back.
    result = line_->wanted() == number ? store_.save(lot.ranges) : CUDA_ERROR_NOT_READY;
    executor_.contexts().forget_current();
    for (size_t i = 0; i < lot.blocks.size() && result == CUDA_SUCCESS; ++i) {
      result = executor_.blocks().release_memory(lot.blocks[i]);
      if (result != CUDA_SUCCESS) continue;
      account(lot.blocks[i]->slot, static_cast<int64_t>(lot.blocks[i]->bytes));
      *bytes += lot.blocks[i]->bytes;
    }
  }
  if (result == CUDA_SUCCESS) return result;
  while (bring_back() != CUDA_SUCCESS) rest();  // it was there a moment ago
  return result;
}

// Some of the blocks, from `at` on.
Parking::Lot Parking::lot_of(const std::vector<DeviceBlocks::Block*>& blocks, size_t at) {
  Lot lot;
  uint64_t bytes = 0;
  for (; at < blocks.size() && bytes < kLotBytes; ++at) {
    DeviceBlocks::Block* const block = blocks[at];
    bytes += block->bytes;
    lot.blocks.push_back(block);
    lot.ranges.push_back({block->address, block->bytes, block->context->context});
  }
  return lot;
}

CUresult Parking::bring_back() {
  std::vector<DeviceBlocks::Block*> returning;
  executor_.blocks().for_each([&](DeviceBlocks::Block* block) {
    if (block->physical == 0) returning.push_back(block);
  });
  for (size_t at = 0; at < returning.size();) {
    const Lot lot = lot_of(returning, at);
    at += lot.blocks.size();
    const CUresult result = bring_back(lot);
    if (result != CUDA_SUCCESS) return result;
  }
  store_.drop();
  return CUDA_SUCCESS;
}

// All of the lot or nothing.
CUresult Parking::bring_back(const Lot& lot) {
  CUresult result = CUDA_SUCCESS;
  size_t made = 0;
  for (; made < lot.blocks.size() && result == CUDA_SUCCESS; ++made)
    result = executor_.blocks().restore_memory(lot.blocks[made]);
  if (result == CUDA_SUCCESS) result = store_.load(lot.ranges);
  executor_.contexts().forget_current();
  if (result != CUDA_SUCCESS) {  // their bytes are not there
    for (size_t i = 0; i < made; ++i) executor_.blocks().release_memory(lot.blocks[i]);
    return result;
  }
  store_.drop(lot.ranges);
  for (const DeviceBlocks::Block* block : lot.blocks)
    account(block->slot, -static_cast<int64_t>(block->bytes));
  return CUDA_SUCCESS;
}

// The slices are the lease's again, but a process that ends may still hold some of the memory.
void Parking::return_all(uint32_t wanted) {
  const KeepsContext keeps(&executor_.contexts());
  const CUresult result = bring_back();
  if (result != CUDA_SUCCESS) {
    if (result != CUDA_ERROR_OUT_OF_MEMORY) {
      dprintf(executor_.output().log_descriptor(),
              "parked memory does not come back: the driver answers %d\n", result);
      executor_.service().end(
          "the server could not copy this program's parked GPU memory back; start it again");
    }
    return rest();
  }
  line_->returned(away_);
  away_ = 0;
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
