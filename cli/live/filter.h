// SPDX-License-Identifier: Apache-2.0
// --filter of ls and top: which leases and sessions are shown. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "view/server.h"

namespace tendril::cli {

// Each of `filters` is KEY=TEXT with a key of user, host, program, server or lease. Takes from the
// views what has another value there: the text must be in it, and of `lease` be equal. All must
// hold. Servers and GPUs stay. kInvalid: a filter is none; the message says what there is.
base::Status keep_filtered(const std::vector<std::string>& filters,
                           std::vector<view::ServerView>* views);

}  // namespace tendril::cli
