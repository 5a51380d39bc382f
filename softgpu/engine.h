// SPDX-License-Identifier: Apache-2.0
// The contract between the two halves of the software GPU. `softgpu/ptx` parses PTX, executes grids
// and implements what is declared here. `softgpu/driver` (the CUDA driver look-alike) calls it. The
// engine knows no contexts, streams, handles or CUresult. It sees a program, a launch, and a view
// of memory. Everything is synchronous; asynchrony belongs to the driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tendril::softgpu {

// One .param of a kernel, in declaration order, laid out by natural alignment as PTX prescribes.
struct ParamInfo {
  uint32_t offset;
  uint32_t size;
  uint32_t align;
};

// What the driver must know of a kernel without executing it.
struct KernelInfo {
  std::string name;
  std::vector<ParamInfo> params;
  uint32_t param_bytes = 0;
  uint32_t static_shared_bytes = 0;
  uint32_t local_bytes = 0;            // per thread
  uint32_t registers = 0;              // a plausible count, at least 1
  uint32_t max_threads_per_block = 0;  // from .maxntid / .reqntid; 0 = no limit stated
  uint32_t line = 0;                   // of its .entry
  bool uses_heap = false;              // may call device malloc
  bool prints = false;                 // may call printf
  bool uses_images = false;            // reads or writes textures or surfaces
};

// One module-scope variable. `bytes` is its initial image. It may be shorter than `size` (empty
// without an initialiser); the rest is zero, so that a huge array costs nothing here. `relocations`
// are addresses of other symbols. They are added into the image once the driver has placed every
// variable.
struct GlobalInfo {
  enum class Space : uint8_t { kGlobal, kConst };
  struct Relocation {
    uint64_t offset;
    std::string symbol;
    int64_t addend;
  };
  std::string name;
  Space space = Space::kGlobal;
  bool managed = false;  // .attribute(.managed): host and device share it
  uint64_t size = 0;
  uint32_t align = 1;
  std::vector<uint8_t> bytes;
  std::vector<Relocation> relocations;
};

// One parsed PTX module. Immutable after `parse_program`, so launches may share it between threads.
// Bodies are decoded at first use: an unsupported instruction in a kernel that nobody launches is
// no error. Constant variables are placed in device memory like globals.
class Program {
 public:
  virtual ~Program() = default;
  virtual const std::vector<KernelInfo>& kernels() const = 0;
  virtual const std::vector<GlobalInfo>& globals() const = 0;
  virtual uint32_t ptx_version() const = 0;  // 10 * major + minor
  virtual uint32_t target_sm() const = 0;    // 10 * major + minor of compute capability, e.g. 70
  // Decodes one kernel now. An empty result: it can run. Otherwise a text with opcode and line
  // ("line 41: unsupported instruction 'tex.2d.v4.f32.s32' in kernel 'k'").
  virtual std::string decode(size_t kernel_index) const = 0;
};

// Parses `text` (a NUL at the end is not needed). On a syntax error returns null and sets *log to a
// message with the line number. Hostile text must not crash, hang or allocate out of proportion to
// its size.
std::unique_ptr<Program> parse_program(std::string_view text, std::string* log);

// How the engine reaches device memory. An address is valid when some region contains it. Device
// addresses are not host addresses: host = region.host + (address - region.base). `valid_pages`, if
// not null, has one byte per 2 MiB page of the region, non-zero when something lives there. The
// check is as coarse as that, as on hardware. The driver keeps the view stable during a launch.
struct MemoryRegion {
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint8_t* host = nullptr;
  const uint8_t* valid_pages = nullptr;
};
inline constexpr uint64_t kPageBytes = 2u << 20;

// Pages come and go while kernels run. The byte of a page is written and read whole.
inline void set_page_valid(uint8_t* page, bool valid) {
  __atomic_store_n(page, static_cast<uint8_t>(valid), __ATOMIC_RELAXED);
}
inline bool page_valid(const uint8_t* page) { return __atomic_load_n(page, __ATOMIC_RELAXED) != 0; }

// What the program was given, for exact checking and for the text of a fault.
struct MemoryBlock {
  uint64_t base = 0, bytes = 0;
};

struct MemoryView {
  std::vector<MemoryRegion>
      regions;  // [0] is the device's own big arena; the engine checks it first
  // With `exact` an address is valid only inside a block, and no access may cross its end. `blocks`
  // is sorted by base. `freed` holds the blocks that were given back last, newest last, so that a
  // fault can name them.
  bool exact = false;
  std::vector<MemoryBlock> blocks, freed;
};

// Device memory for malloc and free inside kernels. It lives as long as its context. Kernels of
// several streams may use it at once.
class DeviceHeap {
 public:
  DeviceHeap(uint64_t base, uint64_t bytes);
  uint64_t allocate(uint64_t bytes);  // 16-byte aligned; 0 when nothing fits
  bool release(uint64_t address);     // false: no allocation begins there

 private:
  std::mutex lock_;
  std::map<uint64_t, uint64_t> free_, used_;  // base to bytes
};

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

enum class Fault : uint8_t {
  kNone = 0,
  kIllegalAddress,      // 700
  kMisaligned,          // 716
  kIllegalInstruction,  // 715
  kTrap,                // 719 (trap and brkpt, as measured on an H200)
  kAssert,              // 710
  kTimeout,             // 702: the step budget of the launch is spent
  kUnsupported,         // an instruction the engine lacks; `message` names opcode and line
  kCancelled,           // `cancel` became true
};

// One texture or surface object as kernels use it: what the driver knows of its array or memory,
// and how to sample it.
struct Image {
  enum class Texel : uint8_t { kU8, kU16, kU32, kS8, kS16, kS32, kF16, kF32 };
  enum class Edge : uint8_t { kWrap, kClamp, kMirror, kBorder };  // numbered like CUaddress_mode
  struct Level {
    uint8_t* bytes = nullptr;
    uint64_t pitch = 0, slice = 0;  // bytes from row to row, and from slice (or layer) to the next
    uint32_t width = 1, height = 1, depth = 1;  // in texels; depth counts slices, layers or faces
  };
  std::vector<Level> levels;  // at least one; more of mipmaps
  Texel texel = Texel::kF32;
  uint32_t channels = 1;
  bool surface = false, layered = false;
  bool linear_memory = false;  // fetches beyond its end give zero
  Edge edge[3] = {Edge::kClamp, Edge::kClamp, Edge::kClamp};
  bool filtered = false, normalized = false;  // linear filter; coordinates from 0 to 1
  bool raw = false;                           // integers stay integers
  bool srgb = false;
  float border[4] = {};
  bool between_levels = false;  // linear filter between mipmap levels
  float bias = 0, lowest_level = 0, highest_level = 0;
};
using ImageTable = std::unordered_map<uint64_t, Image>;  // by the object's handle

struct LaunchRequest {
  const Program* program = nullptr;
  size_t kernel_index = 0;
  Dim3 grid, block;
  uint32_t dynamic_shared_bytes = 0;
  const uint8_t* params = nullptr;  // KernelInfo::param_bytes bytes, packed by ParamInfo offsets
  // Device addresses of Program::globals(), same order.
  const uint64_t* global_addresses = nullptr;
  const MemoryView* memory = nullptr;
  const ImageTable* images = nullptr;  // null: there are none
  DeviceHeap* heap = nullptr;          // null: device malloc answers null
  bool cooperative = false;            // grid-wide barriers may be used
  // Not 0: a seed for the order in which blocks, warps and diverged lanes run. It finds programs
  // that rely on an order.
  uint64_t shuffle_seed = 0;
  uint32_t sm_count = 1;     // value of %nsmid; blocks are spread over this many virtual SMs
  uint64_t step_budget = 0;  // warp instructions before kTimeout; 0 = unlimited
  const std::atomic<bool>* cancel = nullptr;
  // What %clock and %globaltimer read when the grid starts. From there they count a nanosecond per
  // warp instruction of their block. 0: they read the host's clock.
  uint64_t clock_ns = 0;
  // Device printf output, already formatted; called from engine threads, serialised by the engine.
  std::function<void(std::string_view)> print;
  // The kernel set the value of a graph's condition. Called from engine threads.
  void (*set_condition)(uint64_t handle, uint32_t value) = nullptr;
  // The kernel launched a graph into a stream of the device runtime. Returns the runtime's error
  // code, or less than 0 if there is no such graph. Null: not allowed here. Called from engine
  // threads.
  std::function<int(uint64_t exec, uint64_t stream)> launch_graph;
};

struct LaunchResult {
  Fault fault = Fault::kNone;
  std::string message;  // for people: kernel, line, thread, address
  uint64_t fault_address = 0;
  uint64_t warp_instructions = 0;
  uint64_t thread_instructions = 0;
  uint64_t bytes_read = 0, bytes_written = 0;  // global space
};

// Runs a grid to its end or first fault. Thread-safe; several launches may run at once. Uses up to
// as many threads as set_engine_threads says.
LaunchResult run_grid(const LaunchRequest& request);

// Threads per launch (default: processors, or TENDRIL_SOFTGPU_THREADS). 1 is deterministic: blocks
// and warps run in order.
void set_engine_threads(unsigned threads);

}  // namespace tendril::softgpu
