// SPDX-License-Identifier: Apache-2.0
// Execution state and the decoded instruction: decoder*.cc produce them, handlers*.cc execute them,
// scheduler.cc drives them. A warp's registers are lane arrays in its frame (32 x element, 64-byte
// aligned; a predicate is one 32-bit mask). Immediates are lane arrays too, at the start of the
// frame. Everything below LaunchState belongs to one engine thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "softgpu/engine.h"
#include "softgpu/ptx/text/ast.h"

namespace tendril::softgpu {

inline constexpr uint32_t kAllLanes = ~0u;

enum class Event : uint8_t {
  kNext,    // go on with the following instruction
  kJump,    // the whole split moved to Warp::pc
  kSplits,  // the list of splits changed: choose again
  kFault,   // Block::fault says what happened
};

struct Op;
struct Warp;
struct Block;
struct DecodedFunction;
using Handler = Event (*)(const Op& op, Warp& w, uint32_t m);

struct alignas(64) Op {
  Handler fn = nullptr;
  uint32_t d = 0, a = 0, b = 0, c = 0;  // frame offsets
  uint32_t pred = 0;                    // frame offset of the guard, 0 = none
  uint32_t pred_xor = 0;
  int64_t imm = 0;  // address offset, table, small operands
  union {
    const uint32_t* list = nullptr;  // vector operands and other variable parts
    const Op* target;
    const DecodedFunction* function;
  };
  uint32_t e = 0;       // one more frame offset
  uint32_t source = 0;  // index into Function::code
  uint8_t n = 0, size = 0;
  uint16_t aux = 0;
};

// How a value is passed to or from a function. Also the first word of a call's item in Op::list.
enum PassedAs : uint32_t { kInBlock, kInRegister, kInPredicate };
struct Formal {
  PassedAs kind;
  uint32_t offset;  // register: frame offset; otherwise offset in the frame's parameter block
  uint32_t bytes;
};

struct DecodedFunction {
  const Function* source = nullptr;
  std::vector<Op> ops;
  std::vector<uint8_t> constants;  // image of the frame's bytes from constant_base
  struct Fix {                     // a lane array whose value is known only at launch
    uint32_t offset, bytes;        // in the frame; of one lane
    uint32_t global_index;         // kParamFix: bytes of a kernel parameter, at `addend`
    uint32_t param_bytes;
    bool param_signed;
    int64_t addend;
  };
  static constexpr uint32_t kParamFix = ~0u;
  std::vector<Fix> fixes;
  uint32_t constant_base = 0;
  std::deque<std::vector<uint32_t>> lists;
  std::vector<Formal> params, returns;
  uint32_t frame_bytes = 0, param_base = 0, param_stride = 0, index = 0;
};

struct DecodedKernel {
  std::string error;
  std::vector<std::unique_ptr<DecodedFunction>>
      functions;  // by Function::index; null where not reachable
  const DecodedFunction* entry = nullptr;
  uint32_t static_shared = 0;
  bool has_calls = false;
};

struct Frame {
  std::vector<uint8_t> store;
  uint8_t* regs = nullptr;  // in store, 128-byte aligned
  const DecodedFunction* function = nullptr;
  Frame* parent = nullptr;
  const Op* call = nullptr;  // in the parent
  uint32_t refs = 0, depth = 0, local_base = 0;
};

struct LaunchState {
  const LaunchRequest* request = nullptr;
  const DecodedKernel* kernel = nullptr;
  std::vector<std::vector<uint8_t>> images;  // constants by function, addresses filled in
  std::vector<uint8_t> params;
  uint32_t threads = 0, warps = 0, shared_bytes = 0, dynamic_offset = 0, local_bytes = 0;
  uint64_t blocks = 0;
  uint64_t shuffle_seed = 0;
  std::atomic<uint64_t> next_block{0}, steps{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;  // result and print
  LaunchResult result;
};

class FramePool {
 public:
  explicit FramePool(const LaunchState& launch);
  ~FramePool();
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;
  Frame* take(const DecodedFunction& f);
  void give(Frame* f) { free_[f->function->index].push_back(f); }

 private:
  const LaunchState& launch_;
  std::vector<std::vector<Frame*>> free_;
  std::vector<std::unique_ptr<Frame>> all_;
};

enum class SplitState : uint8_t { kRun, kBarrier, kSync };

struct Split {
  const Op* pc = nullptr;
  Frame* frame = nullptr;
  uint32_t mask = 0;
  SplitState state = SplitState::kRun;
  bool forced = false;  // pass a warp-level meeting point without the missing lanes
  uint8_t barrier = 0;
  const Op* waiting = nullptr;
  uint64_t turn = 0;
};

struct Warp {
  uint8_t* regs = nullptr;
  uint32_t mask = 0;  // of the running split
  uint32_t dead = 0;  // lanes that never existed or have exited
  const Op* pc = nullptr;
  Block* block = nullptr;
  Frame* frame = nullptr;
  uint32_t current = 0, count = 0, index = 0, carry = 0, existing = 0;
  uint32_t yield = 0;  // the program asked for a pause
  uint64_t turn = 0;
  uint32_t slice = 0;  // steps left before another split gets its turn
  bool rotated = false;
  uint32_t local_stride = 0;
  std::vector<uint8_t> local;
  Split splits[32];
  alignas(64) uint32_t tid[3][32];
};

// Decides all orders when a seed asks for that. Small and repeatable; no more is needed.
class Dice {
 public:
  explicit Dice(uint64_t seed = 0) : state_(seed) {}
  bool on() const { return state_ != 0; }
  uint32_t below(uint32_t n) {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return static_cast<uint32_t>((state_ >> 32) * n >> 32);
  }

 private:
  uint64_t state_;
};

struct BarrierState {
  uint32_t arrived = 0, expected = 0;  // expected 0: every live thread
  uint32_t popc = 0;
  bool all = true, any = false;
};

struct Block {
  LaunchState* launch = nullptr;
  FramePool* pool = nullptr;
  uint64_t linear = 0;
  uint32_t ctaid[3] = {};
  uint32_t shared_bytes = 0, live_threads = 0, smid = 0;
  std::vector<uint8_t> shared_store;
  uint8_t* shared = nullptr;
  std::vector<Warp> warps;
  std::vector<uint32_t> order;  // of the warps, when their order is shuffled
  Dice dice;
  BarrierState barriers[16];
  uint32_t barriers_in_use = 0;  // a warp arrived at these
  uint64_t warp_instructions = 0, thread_instructions = 0, bytes_read = 0, bytes_written = 0;
  uint64_t unreported = 0;  // steps not yet added to the launch's
  Fault fault = Fault::kNone;
  uint64_t fault_address = 0;
  int fault_lane = -1;
  const char* fault_text = "";
};

// Handlers call this: records a fault and returns Event::kFault. `lane` is the one that caused it.
// Without it, the first running lane counts.
Event raise(Warp& w, Fault f, const char* text, uint64_t address = 0, int lane = -1);
// Scheduler services for control handlers.
void drop_frame(Warp& w, Frame* f);
void add_split(Warp& w, const Op* pc, Frame* frame, uint32_t mask);
void remove_split(Warp& w, uint32_t index);
// True if the instruction may run now. Otherwise the split was parked and the handler returns
// Event::kSplits.
bool meet(const Op& op, Warp& w, uint32_t m, const uint32_t* member_masks);
void arrive(const Op& op, Warp& w, uint32_t m, uint32_t id, uint32_t count, bool wait);
void check_barriers(Block& b);
void check_barrier(Block& b, uint32_t id);

// One handler table per instruction set; see handlers_isa.h.
struct IsaTable;
const IsaTable& isa_table();

}  // namespace tendril::softgpu
