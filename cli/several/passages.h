// SPDX-License-Identifier: Apache-2.0
// Which servers can copy to each other without the client, for `doctor` and `bench`. Asks the
// servers, and waits for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/control/attach.h"
#include "view/json.h"

namespace tendril::cli {

// A server that has answered.
struct Answering {
  std::string server;  // as the user wrote it
  std::string server_id;
  session::Control* control = nullptr;
};

// One for each pair, in order. One direction is enough: whoever is named by the other is reached.
std::vector<view::PassageReport> passages_between(const std::vector<Answering>& servers);

}  // namespace tendril::cli
