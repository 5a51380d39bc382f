// SPDX-License-Identifier: Apache-2.0
// Which library others in this process get when they open CUDA's driver. The worker's executable
// has a dlopen of its own (worker/process/driver_open.cc), which looks here. Any thread.
#pragma once

#include <atomic>
#include <string>

namespace tendril::gpu {

// The executable's own dlopen. Null: this executable has none, so nothing is substituted.
inline constinit std::atomic<void*> own_dlopen{nullptr};
// The file that is opened in the driver's place. Null: the driver itself. The text lives for ever.
inline constinit std::atomic<const char*> driver_instead{nullptr};

// Where that file lies beside this executable: ../lib/libtendril-nccl-driver.so.
std::string nccl_driver_path();

}  // namespace tendril::gpu
