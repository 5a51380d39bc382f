// SPDX-License-Identifier: Apache-2.0
// What link.cc tells the executor. Executor thread.
#pragma once

namespace tendril::worker::cuda {

// A linker has ended, by itself or with its context. `link` is what its id named.
void forget_link(void* link);

}  // namespace tendril::worker::cuda
