// SPDX-License-Identifier: Apache-2.0
// The knobs of the software GPU. Settings say what a machine of test devices looks like and are
// fixed once it exists. Faults say what goes wrong and may change while programs run. One grammar
// serves the environment, a file and the running board: `key = value`, with `device.N.` in front of
// a knob for one device. The driver, the NVML look-alike and the tool use it. It knows no CUDA
// types. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tendril::softgpu {

inline constexpr unsigned kMaxDevices = 64;  // the device base addresses leave room for this many

enum class TimeMode : uint8_t {
  kReal,     // as fast as the host; times are the host's
  kPaced,    // work ends when a device of the given speed would have ended it
  kVirtual,  // the clock is simulated: nothing sleeps, the same calls give the same times
  kNoExec,   // as kVirtual; kernels and copies take their time without being executed
};
const char* name_of(TimeMode mode);

// How fast a device claims to be. The defaults are of the order of an H200. Slices and the cost of
// changing between contexts are as measured there.
struct DeviceSettings {
  char name[96] = "";
  uint64_t memory_bytes = 1024ull << 20;
  double rate = 4;          // warp instructions per ns and processor
  double bandwidth = 4000;  // bytes of device memory per ns, which is GB/s
  double link = 25;         // bytes per ns between host and device
  int64_t launch_ns = 4000, copy_ns = 8000;
  int64_t slice_ns = 2'048'000, switch_ns = 200'000;
  uint64_t context_bytes = 0;  // what a context takes
};

// Trivially copyable: it lies in memory shared between processes.
// What the driver makes of stale handles: an error, or an end of the process. kReused also gives
// the handles of ended objects to new ones.
enum class HandleMode : uint32_t { kFree, kChecked, kReused };

struct Settings {
  uint32_t devices = 1;
  int32_t major = 9, minor = 0;
  uint32_t sm_count = 4;
  TimeMode mode = TimeMode::kReal;
  uint32_t quorum = 1;  // processes that must have joined before a simulated clock moves
  // a process that is silent for longer does not hold a simulated clock
  int64_t patience_ms = 1000;
  bool check_exact = false;  // kernels may touch allocations only, not whole pages
  bool card_costs = false;   // memory is taken as a card's driver takes it
  HandleMode handles = HandleMode::kFree;
  bool process_addresses = false;  // of device memory: such as a process could have for itself
  DeviceSettings device[kMaxDevices];
};

struct CallRule {
  std::string name;
  uint64_t nth = 1;
  bool for_ever = false;  // from the n-th on
  int code = 0;
};

struct KernelTime {
  std::string name;  // "*": every other
  int64_t ns = 0;
  bool per_block = false;
};

struct DeviceFaults {
  uint64_t oom_after_bytes = UINT64_MAX;
  bool lost = false;
  bool ecc = false;
  double slow = 1;
  int64_t delay_ns = 0;  // completions are late by a seeded random time up to this
  std::string hang;      // kernels of this name never end; "*": none does
};

struct Faults {
  std::vector<CallRule> fail, abort_at;
  std::vector<KernelTime> kernel_times;
  uint64_t seed = 1;
  uint64_t flip_copy = 0;     // the n-th copy has one bit flipped; 0: none
  int64_t context_ns = 0;     // what creating a context takes
  int driver_version = 0;     // 0: as built
  uint64_t shuffle_seed = 0;  // decides the order of blocks, warps and lanes; 0: none does
  uint64_t step_budget = 0;   // warp instructions per launch; 0: no limit
  bool trace = false;
  std::vector<std::pair<int, int>> attributes;
  DeviceFaults device[kMaxDevices];
};

// Applies the statements of `text`, separated by newlines or semicolons; `#` begins a comment. What
// does not parse is skipped and described in *complaints, one line each. `live` statements may
// change faults only.
void apply_knobs(const std::string& text, bool live, Settings* settings, Faults* faults,
                 std::string* complaints);

// The knobs that the environment sets, as text: TENDRIL_SOFTGPU_FILE's content, then
// TENDRIL_SOFTGPU_<KEY> of every knob.
std::string knobs_of_environment(std::string* complaints);

// Every knob with a line about it. For the tool and for the test that compares docs/softgpu.md.
struct KnobHelp {
  const char* key;
  bool live, per_device;
  const char* meaning;
};
std::vector<KnobHelp> knob_list();

}  // namespace tendril::softgpu
