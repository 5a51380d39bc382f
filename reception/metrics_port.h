// SPDX-License-Identifier: Apache-2.0
// The port at which a process that serves shows its metrics over HTTP. tendrild and a pool's
// scheduler have one, under the same rules: off by default; in clear or inside TLS, as policy and
// doors say; beyond loopback for those who prove something only. Where there are identities, who
// has a certificate of a role that sees all names may read; who says the token may read everywhere.
// Called by the process' main thread at the start.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "http/server.h"
#include "reception/front.h"

namespace tendril::reception {

// `text` is called on the port's thread for each reader. `token_file` may be empty. `front` must
// outlive the server.
base::Result<std::unique_ptr<http::Server>> serve_metrics(const std::string& address,
                                                          const std::string& token_file,
                                                          std::function<std::string()> text,
                                                          Front* front);

}  // namespace tendril::reception
