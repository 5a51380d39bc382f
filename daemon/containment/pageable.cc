// SPDX-License-Identifier: Apache-2.0
// See pageable.h.
#include "daemon/containment/pageable.h"

#include <string>

#include "daemon/log.h"

namespace tendril::daemon {

base::Status check_pageable_access(const gpu::Inventory& inventory, bool strangers, bool allowed,
                                   bool of_cuda) {
  std::string which;
  for (const gpu::DeviceFacts& device : inventory.devices)
    if (device.pageable_access) which += (which.empty() ? "" : ", ") + std::to_string(device.index);
  if (which.empty()) return base::Status();
  if (!of_cuda) {
    const std::string why = "kernels on OpenCL device " + which +
                            " are code for this machine's processors, inside of the worker process";
    if (strangers && !allowed)
      return base::Status(base::Code::kRefused, "refusing to lend to others: " + why +
                                                    ". Serve this machine only, or accept it with "
                                                    "--allow-pageable-access");
    log(Level::kInfo, "%s", why.c_str());
    return base::Status();
  }
  const std::string what = "kernels on GPU " + which +
                           " can read and write all memory of their worker process (pageable "
                           "memory access: HMM or ATS)";
  if (strangers && !allowed) {
    return base::Status(
        base::Code::kRefused,
        "refusing to lend to others: " + what +
            ". Switch it off (load the module nvidia_uvm with uvm_disable_hmm=1), serve this "
            "machine only, or accept it with --allow-pageable-access");
  }
  log(Level::kWarning, "%s; load nvidia_uvm with uvm_disable_hmm=1 to switch it off", what.c_str());
  return base::Status();
}

}  // namespace tendril::daemon
