// SPDX-License-Identifier: Apache-2.0
// `tendril known leases|servers`, which completion scripts call while somebody types: a line for
// each, its word first. It is silent about servers that do not answer.
#include <stdio.h>

#include "cli/commands.h"
#include "cli/servers.h"
#include "view/text.h"

namespace tendril::cli {
namespace {

constexpr int kPatienceMs = 1000;  // somebody has pressed a key and waits

}  // namespace

int print_known(const CommonOptions& given, const std::string& what) {
  CommonOptions options = given;
  options.timeout_ms = kPatienceMs;
  auto asked = reach_to_administer(options);
  if (!asked.ok()) return kFailed;
  if (what == "servers") {
    for (const session::Endpoint& endpoint : asked->servers.endpoints)
      printf("%s\n", view::safe(endpoint.text).c_str());
    return 0;
  }
  for (const ServerView& view : ask_servers(asked->servers.endpoints, asked->connect)) {
    for (const wire::LeaseRecord& lease : view.list.leases) {
      printf("%llu\t%s %s\n", static_cast<unsigned long long>(lease.lease_id),
             view::who_text(lease.client).c_str(), view::safe(lease.client.program).c_str());
    }
  }
  return 0;
}

}  // namespace tendril::cli
