// SPDX-License-Identifier: Apache-2.0
// The APIs that the program tendril-worker serves. A new API of ours gets its line in apis.cc; a
// test's worker gives process_main a table of its own instead.
#pragma once

#include <vector>

#include "worker/core/api.h"

namespace tendril::worker {

std::vector<Api> served_apis();

}  // namespace tendril::worker
