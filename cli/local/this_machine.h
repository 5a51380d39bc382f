// SPDX-License-Identifier: Apache-2.0
// What GPUs of this machine programs here may have (`tendril run --local`), and which servers of
// this machine they have them from. For list and doctor. Asks servers, and waits for them.
#pragma once

#include <vector>

#include "session/control/attach.h"
#include "view/json.h"
#include "view/server.h"

namespace tendril::cli {

// Whether `run --local` has a server here, or can start one.
view::LocalReport local_report(const session::ConnectOptions& connect);

// Appends the servers of this machine from which its programs have leases, with those leases.
// Servers that `views` has, and those that do not answer this user, are left out.
void add_local_leases(const session::ConnectOptions& connect, std::vector<view::ServerView>* views);

}  // namespace tendril::cli
