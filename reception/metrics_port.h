// SPDX-License-Identifier: Apache-2.0
// The port at which a process that serves shows its metrics over HTTP. tendrild and a pool's
// scheduler have one, under the same rules: off by default, and beyond loopback for those with a
// token only.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "http/server.h"

namespace tendril::reception {

// `text` is called on the port's thread for each reader. `token_file` may be empty on loopback.
base::Result<std::unique_ptr<http::Server>> serve_metrics(const std::string& address,
                                                          const std::string& token_file,
                                                          std::function<std::string()> text);

}  // namespace tendril::reception
