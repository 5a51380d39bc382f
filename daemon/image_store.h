// SPDX-License-Identifier: Apache-2.0
// Where workers keep images of device code by their content (worker/cuda/code/module_store.h). So
// no client sends what this server has. The daemon chooses and makes the folder and names it in the
// workers' environment. It never looks into it.
#pragma once

#include <string>

namespace tendril::daemon {

// `wanted`: a folder, "off", or empty for the default: the value of TENDRIL_MODULE_STORE, else a
// folder in this user's cache. `users_differ`: workers run as separate users, who must all be able
// to write there. The content is verified at each use. Call before workers start. Never fails:
// without a folder each worker keeps what its own client sent, and the log says why.
void choose_image_store(const std::string& wanted, bool users_differ);

}  // namespace tendril::daemon
