// SPDX-License-Identifier: Apache-2.0
// Where workers keep images of device code by their content (worker/cuda/code/module_store.h), so
// that no client sends what this server has. The daemon chooses and makes the folder, and hands it
// to workers in their environment. It never looks into it.
#pragma once

#include <string>

namespace tendril::daemon {

// `wanted`: a folder, "off", or empty for the default: what TENDRIL_MODULE_STORE says, else a
// folder of this user's cache. `users_differ`: workers run as users of their own, who must all be
// able to write there; what lies there is verified at each use. Call before workers start. Never
// fails: without a folder each worker keeps what its own client sent, and the log says why.
void choose_image_store(const std::string& wanted, bool users_differ);

}  // namespace tendril::daemon
