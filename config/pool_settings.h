// SPDX-License-Identifier: Apache-2.0
// What is asked of a pool beside slices: which GPUs, in whose name, for how long, how long to wait.
// The command line and the client libraries read it here. A server that is no pool ignores it. Any
// thread; opens no connection.
//
//   TENDRIL_FILTER    which GPUs will do (docs/pool.md): 'model ~ "H200" and memory >= 40G'
//   TENDRIL_CLASS     one of the user's classes; default: the first that the policy gives
//   TENDRIL_ACCOUNT   one of the user's accounts; default: as the policy assigns
//   TENDRIL_LAYOUT    any (default), one-server, pack or spread
//   TENDRIL_MAX       the lease ends after that time: 90s, 30m, 8h, 3d
//   TENDRIL_WAIT      how long to wait in the queue; 0: not at all; default: for ever
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "config/configuration.h"
#include "wire/control.h"

namespace tendril::config {

// The texts, each with the name under which the user knows it. Empty: not said.
struct PoolTexts {
  Named filter, user_class, account, layout, longest, wait;
};
PoolTexts pool_variables();

// kInvalid: the message names the text and says what is expected. The filter's words are for the
// pool to judge.
base::Result<PoolSettings> read_pool_settings(const PoolTexts& texts);

const char* layout_name(wire::Layout layout);  // "one-server"

}  // namespace tendril::config
