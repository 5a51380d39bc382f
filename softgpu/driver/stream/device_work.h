// SPDX-License-Identifier: Apache-2.0
// One piece of work while a device does it: what the knobs make of it (a lost device, a memory
// error, slowness, delays), and its time, measured or computed. `run` of kernels, copies and
// memsets makes one, on a pool thread.
#pragma once

#include <cstdint>
#include <string>

#include "api/cuda_abi.gen.h"
#include "softgpu/board/board_data.h"
#include "softgpu/engine.h"

namespace tendril::softgpu {

class Context;

class DeviceWork {
 public:
  DeviceWork(Context& context, Engine engine);
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;

  // The error that the device's state answers in the place of the work. CUDA_SUCCESS: do the work.
  CUresult refusal() const { return refusal_; }
  // Whether to execute the work, or only to spend its time.
  bool executes() const;
  // What the work took on a device of the configured speed.
  void took_kernel(const std::string& name, Dim3 grid, const LaunchResult& result);
  void took_bytes(uint64_t bytes);
  // The knob 'hang'. Returns when the context goes, with the error that ended it; at once on a
  // clock that is not the host's.
  bool hangs(const std::string& kernel) const;
  CUresult hang();

 private:
  Context& context_;
  Engine engine_;
  CUresult refusal_;
  int64_t begun_ns_;
  int64_t cost_ns_ = 0;
};

// The key of a context on the board.
uint64_t board_key(const Context& context);
// The engine that copies in this direction.
Engine copy_engine(bool from_host, bool to_host);

}  // namespace tendril::softgpu
