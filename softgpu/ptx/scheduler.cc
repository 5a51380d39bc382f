// SPDX-License-Identifier: Apache-2.0
// Runs grids: blocks over engine threads, warps within a block, splits within a warp. Among a
// warp's splits the deepest call and lowest address runs first, so that the others catch up. Splits
// that meet merge. When a split has used its slice while others wait, the one that waited longest
// runs for a slice. So a spinning lane cannot starve the lane it waits for. Warps (a budget per
// turn) and blocks (round robin after a quantum) take turns in the same way.
#include <algorithm>
#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <numeric>
#include <thread>

#include "softgpu/ptx/decode/decoder.h"
#include "softgpu/ptx/memory.h"
#include "softgpu/ptx/program.h"

namespace tendril::softgpu {

bool release_stuck_barrier(Block& b);

namespace {

constexpr uint32_t kSplitSlice = 4096;  // warp instructions
constexpr uint64_t kWarpTurn = 20000;
constexpr uint32_t kShuffledTurn = 200;  // at most; short, so that warps really interleave
constexpr uint64_t kReportSteps = 5000;
constexpr uint64_t kBlockQuantum = 1u << 20, kCooperativeQuantum = 20000;
constexpr size_t kResidentBytes = 256u
                                  << 20;  // per engine thread, for blocks that are only waiting
constexpr uint64_t kWorthThreads =
    20000;  // warp instructions below which starting threads costs more than it saves

enum class Status { kDone, kBlocked, kYield, kFault };

bool before(const Split& a, const Split& b) {
  if (a.frame->depth != b.frame->depth) return a.frame->depth > b.frame->depth;
  return a.pc != b.pc ? std::less<const Op*>()(a.pc, b.pc) : a.frame < b.frame;
}

int lowest(const Warp& w, SplitState state) {
  int best = -1;
  for (uint32_t i = 0; i < w.count; ++i)
    if (w.splits[i].state == state && (best < 0 || before(w.splits[i], w.splits[best])))
      best = static_cast<int>(i);
  return best;
}

// Any split that can run, for a fraction of a slice.
int choose_any(Warp& w, Dice& dice) {
  uint32_t runnable[32], n = 0;
  for (uint32_t i = 0; i < w.count; ++i)
    if (w.splits[i].state == SplitState::kRun) runnable[n++] = i;
  if (!n) return -1;
  w.slice = 1 + dice.below(kSplitSlice / 64);
  w.rotated = true;
  return static_cast<int>(runnable[dice.below(n)]);
}

// The split to run when slices matter. In rotation stay with the chosen one, else take the lowest.
int choose(Warp& w) {
  if (w.block->dice.on())
    if (int any = choose_any(w, w.block->dice); any >= 0) return any;
  if (w.rotated && w.slice) {
    int best = -1;
    for (uint32_t i = 0; i < w.count; ++i)
      if (w.splits[i].state == SplitState::kRun && w.splits[i].turn == w.turn &&
          (best < 0 || before(w.splits[i], w.splits[best])))
        best = static_cast<int>(i);
    if (best >= 0) return best;
  }
  int best = lowest(w, SplitState::kRun);
  if (best < 0) {
    best = lowest(w, SplitState::kSync);
    if (best < 0) return -1;
    w.splits[best].state =
        SplitState::kRun;  // no other lane can come: go on without the missing ones
    w.splits[best].forced = true;
  }
  if (!w.slice) {
    w.slice = kSplitSlice;
    w.rotated = !w.rotated;
    if (w.rotated) {
      for (uint32_t i = 0; i < w.count; ++i)
        if (w.splits[i].state == SplitState::kRun && w.splits[i].turn < w.splits[best].turn)
          best = static_cast<int>(i);
      w.splits[best].turn = ++w.turn;
    }
  } else {
    w.rotated = false;
  }
  return best;
}

// Chooses a split, merges what stands at the same place, and finds where the split must stop to
// merge with another.
bool select(Warp& w, const Op** stop) {
  *stop = nullptr;
  if (w.count == 1 && w.splits[0].state != SplitState::kSync) {
    w.current = 0;
    return w.splits[0].state == SplitState::kRun;  // otherwise all of it waits at a barrier
  }
  int best = choose(w);
  if (best < 0) return false;
  Split merged = w.splits[best];
  const Op* next = nullptr;
  for (uint32_t i = 0; i < w.count;) {
    Split& s = w.splits[i];
    if (static_cast<int>(i) == best || s.frame != merged.frame || s.state == SplitState::kBarrier) {
      ++i;
    } else if (s.pc == merged.pc) {
      merged.mask |= s.mask;
      --s.frame->refs;  // the other split still refers to it
      remove_split(w, i);
      if (best == static_cast<int>(w.count)) best = static_cast<int>(i);
    } else {
      if (s.pc > merged.pc && (!next || s.pc < next)) next = s.pc;
      ++i;
    }
  }
  w.splits[best] = merged;
  w.current = static_cast<uint32_t>(best);
  *stop = next;
  return true;
}

// Nearly always all lanes. Counting bits is a call on the oldest processors that this runs on.
uint64_t count_lanes(uint32_t mask) {
  return mask == kAllLanes ? 32 : static_cast<uint64_t>(__builtin_popcount(mask));
}

struct Counter {
  Block& b;
  Warp& w;
  uint64_t left;
  // n instructions were issued with the current mask.
  void spend(uint64_t n) {
    b.warp_instructions += n;
    b.thread_instructions += n * count_lanes(w.mask);
    left -= std::min(left, n);
    w.slice -= static_cast<uint32_t>(std::min<uint64_t>(w.slice, n));
  }
};

void describe_fault(Warp& w, const Op& op, uint32_t m) {
  Block& b = *w.block;
  LaunchState& l = *b.launch;
  std::lock_guard<std::mutex> lock(l.mutex);
  if (l.result.fault != Fault::kNone) return;
  const Function& f = *w.frame->function->source;
  uint32_t line = op.source < f.code.size() ? f.code[op.source].line : f.line;
  const uint32_t lane = static_cast<uint32_t>(b.fault_lane >= 0 ? b.fault_lane : __builtin_ctz(m));
  std::string near =
      b.fault == Fault::kIllegalAddress ? explain_address(*l.request->memory, b.fault_address) : "";
  char text[512];
  std::snprintf(text, sizeof text,
                "%s (0x%llx%s) in '%.*s', line %u '%.*s', block (%u,%u,%u), thread (%u,%u,%u)",
                b.fault_text, static_cast<unsigned long long>(b.fault_address), near.c_str(),
                static_cast<int>(std::min<size_t>(f.name.size(), 160)), f.name.data(), line,
                op.source < f.code.size() ? static_cast<int>(f.code[op.source].opcode.size()) : 0,
                op.source < f.code.size() ? f.code[op.source].opcode.data() : "", b.ctaid[0],
                b.ctaid[1], b.ctaid[2], w.tid[0][lane], w.tid[1][lane], w.tid[2][lane]);
  l.result.fault = b.fault;
  l.result.fault_address = b.fault_address;
  l.result.message = text;
  l.stop = true;
}

Status run_warp(Warp& w, uint64_t budget) {
  Counter counter{*w.block, w, budget};
  const Op* stop;
  while (select(w, &stop)) {
    Split& s = w.splits[w.current];
    w.frame = s.frame, w.regs = s.frame->regs, w.mask = s.mask;
    const Op *op = s.pc, *start = op;
    const bool alone = w.count == 1;
    while (true) {
      uint32_t m = w.mask;
      if (op->pred) m &= *reinterpret_cast<const uint32_t*>(w.regs + op->pred) ^ op->pred_xor;
      Event e = m ? op->fn(*op, w, m) : Event::kNext;
      if (__builtin_expect(e == Event::kNext, 1)) {
        if (++op != stop) continue;
        counter.spend(static_cast<uint64_t>(op - start));
        s.pc = op;
        break;
      }
      counter.spend(static_cast<uint64_t>(op - start) + 1);
      if (e == Event::kFault) {
        describe_fault(w, *op, m);
        return Status::kFault;
      }
      if (e == Event::kSplits) break;
      const bool back = w.pc <= op;
      op = start = w.pc;
      if (back && (!counter.left || (!alone && !w.slice))) {
        s.pc = op;
        break;
      }
      if (alone || (stop && op < stop && !w.rotated)) continue;
      s.pc = op;
      break;
    }
    if (w.yield) {
      w.yield = 0;
      counter.spend(200);
      return Status::kYield;
    }
    if (!counter.left) return Status::kYield;
  }
  return w.count ? Status::kBlocked : Status::kDone;
}

void start_warp(Block& b, Warp& w, uint32_t index) {
  const LaunchState& l = *b.launch;
  const Dim3 d = l.request->block;
  if (w.block != &b) {  // thread numbers are the same for every block
    w.block = &b, w.index = index, w.existing = 0;
    for (uint32_t i = 0; i < 32; ++i) {
      uint32_t t = index * 32 + i;
      if (t < l.threads) w.existing |= 1u << i;
      w.tid[0][i] = t % d.x, w.tid[1][i] = t / d.x % d.y, w.tid[2][i] = t / d.x / d.y;
    }
    w.local_stride = l.local_bytes;
    w.local.assign(static_cast<size_t>(w.local_stride) * 32, 0);
  }
  w.dead = ~w.existing;
  w.count = 1, w.current = 0, w.carry = 0, w.yield = 0, w.turn = 0, w.slice = kSplitSlice,
  w.rotated = false;
  Frame* f = b.pool->take(*l.kernel->entry);
  f->refs = 1;
  w.splits[0] = Split();
  w.splits[0].pc = l.kernel->entry->ops.data();
  w.splits[0].frame = f;
  w.splits[0].mask = w.existing;
}

void start_block(Block& b, uint64_t linear) {
  LaunchState& l = *b.launch;
  const Dim3 g = l.request->grid;
  b.linear = linear;
  b.ctaid[0] = static_cast<uint32_t>(linear % g.x),
  b.ctaid[1] = static_cast<uint32_t>(linear / g.x % g.y);
  b.ctaid[2] = static_cast<uint32_t>(linear / g.x / g.y);
  b.smid = static_cast<uint32_t>(linear % std::max(1u, l.request->sm_count));
  b.live_threads = l.threads;
  if (b.shared_bytes) std::memset(b.shared, 0, b.shared_bytes);
  for (uint32_t left = b.barriers_in_use; left; left &= left - 1)
    b.barriers[__builtin_ctz(left)] = BarrierState();
  b.barriers_in_use = 0;
  for (uint32_t i = 0; i < l.warps; ++i) start_warp(b, b.warps[i], i);
  if (!l.shuffle_seed) return;
  b.dice = Dice((l.shuffle_seed ^ linear) * 0x9E3779B97F4A7C15ull | 1);
  b.order.resize(l.warps);
  for (uint32_t i = 0; i < l.warps; ++i) b.order[i] = i;
}

void shuffle_warps(Block& b) {
  for (uint32_t i = static_cast<uint32_t>(b.order.size()); i > 1; --i)
    std::swap(b.order[i - 1], b.order[b.dice.below(i)]);
}

// The n-th block to run. A step that has no divisor in common with the number of blocks visits each
// block once.
uint64_t block_at(const LaunchState& l, uint64_t n) {
  if (!l.shuffle_seed || n >= l.blocks) return n;
  uint64_t step = l.shuffle_seed % l.blocks | 1;
  while (std::gcd(step, l.blocks) != 1) ++step;
  const unsigned __int128 place =
      static_cast<unsigned __int128>(n) * step + l.shuffle_seed % l.blocks;
  return static_cast<uint64_t>(place % l.blocks);
}

bool over_budget(LaunchState& l, Block& b, uint64_t steps) {
  // All threads count in one place, so they do it rarely.
  b.unreported += steps;
  if (b.unreported < kReportSteps) return l.stop.load(std::memory_order_relaxed);
  steps = b.unreported;
  b.unreported = 0;
  uint64_t total = l.steps.fetch_add(steps, std::memory_order_relaxed) + steps;
  const LaunchRequest& r = *l.request;
  const bool cancelled = r.cancel && r.cancel->load(std::memory_order_relaxed);
  const bool spent = r.step_budget && total > r.step_budget;
  if (!cancelled && !spent) return l.stop.load(std::memory_order_relaxed);
  std::lock_guard<std::mutex> lock(l.mutex);
  if (l.result.fault == Fault::kNone) {
    l.result.fault = b.fault = cancelled ? Fault::kCancelled : Fault::kTimeout;
    l.result.message = cancelled ? "cancelled" : "the step budget of the launch is spent";
  }
  l.stop = true;
  return true;
}

void deadlock(LaunchState& l, Block& b) {
  std::lock_guard<std::mutex> lock(l.mutex);
  if (l.result.fault == Fault::kNone) {
    l.result.fault = b.fault = Fault::kTimeout;
    l.result.message = "block (" + std::to_string(b.ctaid[0]) + "," + std::to_string(b.ctaid[1]) +
                       "," + std::to_string(b.ctaid[2]) +
                       ") waits at a barrier that can never be complete";
  }
  l.stop = true;
}

// kDone: finished; kYield: quantum used; kFault: the launch is over.
Status run_block(Block& b, uint64_t quantum) {
  LaunchState& l = *b.launch;
  uint64_t used = 0;
  while (true) {
    bool alive = false, progress = false;
    if (b.dice.on()) shuffle_warps(b);
    for (uint32_t i = 0; i < l.warps; ++i) {
      Warp& w = b.warps[b.dice.on() ? b.order[i] : i];
      if (!w.count) continue;
      uint64_t before_run = b.warp_instructions;
      Status s = run_warp(w, b.dice.on() ? 1 + b.dice.below(kShuffledTurn) : kWarpTurn);
      uint64_t steps = b.warp_instructions - before_run;
      used += steps;
      progress |= steps > 0;
      alive |= s != Status::kDone;
      if (s == Status::kFault) return Status::kFault;
      if (steps && over_budget(l, b, steps)) return Status::kFault;
    }
    if (!alive) return Status::kDone;
    if (!progress && !release_stuck_barrier(b)) {
      deadlock(l, b);
      return Status::kFault;
    }
    if (used > quantum) return Status::kYield;
  }
}

class Worker {
 public:
  explicit Worker(LaunchState& l) : l_(l), pool_(l) {}
  void run();
  void collect(LaunchResult& r) const {
    for (const auto& b : blocks_) {
      r.warp_instructions += b->warp_instructions, r.thread_instructions += b->thread_instructions;
      r.bytes_read += b->bytes_read, r.bytes_written += b->bytes_written;
    }
  }

 private:
  Block* fresh_block();

  LaunchState& l_;
  FramePool pool_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> idle_;
};

Block* Worker::fresh_block() {
  uint64_t next = l_.next_block.fetch_add(1, std::memory_order_relaxed);
  if (next >= l_.blocks) return nullptr;
  if (idle_.empty()) {
    auto b = std::make_unique<Block>();
    b->launch = &l_, b->pool = &pool_;
    b->shared_bytes = l_.shared_bytes;
    b->shared_store.resize(l_.shared_bytes + 128);
    uintptr_t at = reinterpret_cast<uintptr_t>(b->shared_store.data());
    b->shared = b->shared_store.data() + ((128 - at % 128) % 128);
    b->warps = std::vector<Warp>(l_.warps);
    idle_.push_back(b.get());
    blocks_.push_back(std::move(b));
  }
  Block* b = idle_.back();
  idle_.pop_back();
  start_block(*b, block_at(l_, next));
  return b;
}

void Worker::run() {
  fenv_t environment;
  std::fegetenv(&environment);
  std::fesetenv(FE_DFL_ENV);  // the caller may flush denormals or round elsewhere
  const bool cooperative = l_.request->cooperative;
  const size_t block_bytes =
      static_cast<size_t>(l_.warps) *
          (l_.kernel->entry->frame_bytes + sizeof(Warp) + 32ull * l_.local_bytes) +
      l_.shared_bytes + 1024;
  const size_t limit = cooperative ? ~size_t{0} : std::max<size_t>(4, kResidentBytes / block_bytes);
  std::deque<Block*> waiting;
  bool more = true, turn = false;
  while (!l_.stop.load(std::memory_order_relaxed)) {
    Block* b = nullptr;
    turn = !turn;
    if (more && waiting.size() < limit && (turn || waiting.empty())) {
      b = fresh_block();
      more = b != nullptr;
    }
    if (!b && !waiting.empty()) {
      b = waiting.front();
      waiting.pop_front();
    }
    if (!b) {
      if (more) continue;
      break;
    }
    Status s = run_block(*b, cooperative ? kCooperativeQuantum : kBlockQuantum);
    if (s == Status::kFault) break;
    if (s == Status::kDone)
      idle_.push_back(b);
    else
      waiting.push_back(b);
  }
  std::fesetenv(&environment);
}

std::atomic<unsigned> g_threads{0};

unsigned thread_count() {
  if (unsigned n = g_threads.load()) return n;
  if (const char* e = std::getenv("TENDRIL_SOFTGPU_THREADS"))
    if (long n = std::strtol(e, nullptr, 10); n > 0)
      return static_cast<unsigned>(std::min(n, 256l));
  // The C library opens a file for this each time, which took longer than a small launch.
  static const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
  return processors;
}

void broadcast(uint8_t* p, uint64_t v, uint32_t bytes) {
  for (int i = 0; i < 32; ++i) std::memcpy(p + i * bytes, &v, bytes);
}

// Constants of every function with the addresses and parameters of this launch filled in.
void fill_images(LaunchState& l) {
  const LaunchRequest& r = *l.request;
  l.images.resize(l.kernel->functions.size());
  for (const auto& f : l.kernel->functions) {
    if (!f) continue;
    std::vector<uint8_t>& image = l.images[f->index] = f->constants;
    for (const DecodedFunction::Fix& x : f->fixes) {
      uint64_t v = 0;
      if (x.global_index != DecodedFunction::kParamFix) {
        v = (r.global_addresses ? r.global_addresses[x.global_index] : 0) +
            static_cast<uint64_t>(x.addend);
      } else if (static_cast<uint64_t>(x.addend) + x.param_bytes <= l.params.size()) {
        std::memcpy(&v, &l.params[static_cast<size_t>(x.addend)], x.param_bytes);
        const unsigned spare = 64 - 8 * x.param_bytes;
        if (x.param_signed) v = static_cast<uint64_t>(static_cast<int64_t>(v << spare) >> spare);
      }
      broadcast(image.data() + (x.offset - f->constant_base), v, x.bytes);
    }
  }
}

LaunchResult refuse(Fault f, std::string why) {
  LaunchResult r;
  r.fault = f, r.message = std::move(why);
  return r;
}

}  // namespace

FramePool::FramePool(const LaunchState& launch)
    : launch_(launch), free_(launch.kernel->functions.size()) {}

FramePool::~FramePool() = default;

Frame* FramePool::take(const DecodedFunction& d) {
  std::vector<Frame*>& free = free_[d.index];
  if (!free.empty()) {
    Frame* f = free.back();
    free.pop_back();
    f->parent = nullptr, f->call = nullptr, f->depth = 0, f->local_base = 0;
    return f;
  }
  all_.push_back(std::make_unique<Frame>());
  Frame* f = all_.back().get();
  f->function = &d;
  f->store.resize(d.frame_bytes + 127);
  f->regs = f->store.data() + (0 - reinterpret_cast<uintptr_t>(f->store.data())) % 128;
  const std::vector<uint8_t>& image = launch_.images[d.index];
  if (!image.empty()) std::memcpy(f->regs + d.constant_base, image.data(), image.size());
  return f;
}

void set_engine_threads(unsigned threads) { g_threads = threads; }

LaunchResult run_grid(const LaunchRequest& request) {
  const auto* program = static_cast<const ProgramImpl*>(request.program);
  if (!program || !request.memory || request.kernel_index >= program->kernels().size())
    return refuse(Fault::kUnsupported, "no such kernel");
  const KernelInfo& info = program->kernels()[request.kernel_index];
  const DecodedKernel& kernel = program->decoded(request.kernel_index);
  if (!kernel.error.empty()) return refuse(Fault::kUnsupported, kernel.error);
  const Dim3 g = request.grid, b = request.block;
  const uint64_t threads = static_cast<uint64_t>(b.x) * b.y * b.z;
  const unsigned __int128 blocks = static_cast<unsigned __int128>(g.x) * g.y * g.z;
  if (!threads || threads > 1024 || !blocks || blocks >> 62)
    return refuse(Fault::kUnsupported, "bad grid or block size");
  LaunchState l;
  l.request = &request, l.kernel = &kernel;
  l.shuffle_seed = request.shuffle_seed;
  l.threads = static_cast<uint32_t>(threads), l.warps = (l.threads + 31) / 32,
  l.blocks = static_cast<uint64_t>(blocks);
  l.dynamic_offset = (kernel.static_shared + 15) & ~15u;
  l.shared_bytes = request.dynamic_shared_bytes ? l.dynamic_offset + request.dynamic_shared_bytes
                                                : kernel.static_shared;
  l.local_bytes = (kernel.entry->source->local_bytes + 15) & ~15u;
  if (request.params)
    l.params.assign(request.params, request.params + info.param_bytes);
  else
    l.params.assign(info.param_bytes, 0);
  fill_images(l);
  uint64_t wanted = std::min<uint64_t>(thread_count(), l.blocks);
  if (!request.cooperative && l.blocks * l.warps * kernel.entry->ops.size() < kWorthThreads &&
      l.blocks < 8)
    wanted = 1;
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint64_t i = 0; i < wanted; ++i) workers.push_back(std::make_unique<Worker>(l));
  std::vector<std::thread> helpers;
  for (uint64_t i = 1; i < wanted; ++i) helpers.emplace_back([&, i] { workers[i]->run(); });
  workers[0]->run();
  for (std::thread& t : helpers) t.join();
  for (const auto& w : workers) w->collect(l.result);
  return std::move(l.result);
}

}  // namespace tendril::softgpu
