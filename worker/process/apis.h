// SPDX-License-Identifier: Apache-2.0
// The APIs that the program tendril-worker serves. A new API gets its line in apis.cc. A worker for
// a test gives process_main another table.
#pragma once

#include <vector>

#include "worker/core/api.h"

namespace tendril::worker {

std::vector<Api> served_apis();

}  // namespace tendril::worker
