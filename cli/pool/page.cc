// SPDX-License-Identifier: Apache-2.0
// `tendril page`: asks a pool, or a lone server, for an address that signs this user in at its page
// once, and prints it.
#include <stdio.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/servers.h"
#include "wire/page.h"
#include "wire/pool.h"

namespace tendril::cli {

using base::Code;
using base::Status;

int show_page(const CommonOptions& options) {
  auto reached = reach_to_administer(options);
  if (!reached.ok()) return complain(kFailed, reached.status());
  auto control = connect_to_one(*reached);
  if (!control.ok()) return complain(kFailed, control.status());
  auto body = (*control)->other(wire::kPagePassKind, {}, options.timeout_ms);
  if (!body.ok()) return complain(kFailed, body.status());
  wire::PoolAnswer answer;
  const bool read = wire::decode(body->data(), body->size(), &answer);
  const auto json = nlohmann::json::parse(read ? answer.json : "", nullptr, false);
  const auto url = json.is_object() ? json.find("url") : json.end();
  if (!read || !json.is_object() || url == json.end() || !url->is_string())
    return complain(kFailed, Status(Code::kMismatch, "the answer names no address of a page"));
  if (options.json)
    printf("%s\n", answer.json.c_str());
  else
    printf("%s\n", url->get<std::string>().c_str());
  return 0;
}

}  // namespace tendril::cli
