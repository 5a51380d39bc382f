// SPDX-License-Identifier: Apache-2.0
// One piece of work while a device does it: what the knobs make of it (a lost device, a memory
// error, slowness, delays), and its time, measured or computed. Made by the `run` of kernels,
// copies and memsets, on a pool thread.
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

  // What the state of the device answers instead of doing the work; CUDA_SUCCESS lets it be done.
  CUresult refusal() const { return refusal_; }
  // Whether it is to be done at all, or only takes its time.
  bool executes() const;
  // What the work took on a device of the configured speed.
  void took_kernel(const std::string& name, Dim3 grid, const LaunchResult& result);
  void took_bytes(uint64_t bytes);
  // The knob 'hang': returns when the context goes, or at once on a clock that is not the host's,
  // with what ended it.
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
// Which engine copies in this direction.
Engine copy_engine(bool from_host, bool to_host);

}  // namespace tendril::softgpu
