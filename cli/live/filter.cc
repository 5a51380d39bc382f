// SPDX-License-Identifier: Apache-2.0
// See filter.h.
#include "cli/live/filter.h"

#include <algorithm>

#include "view/text.h"

namespace tendril::cli {
namespace {

struct Filter {
  std::string key, text;
};

base::Result<std::vector<Filter>> parse(const std::vector<std::string>& texts) {
  std::vector<Filter> filters;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    constexpr const char* kKeys[] = {"user", "host", "program", "server", "lease"};
    const bool known = std::any_of(std::begin(kKeys), std::end(kKeys),
                                   [&key](const char* each) { return key == each; });
    if (equals == std::string::npos || !known) {
      return base::Status(base::Code::kInvalid,
                          "'" + view::safe(text) +
                              "' is no filter; a filter is KEY=TEXT, and the keys are user, host, "
                              "program, server and lease");
    }
    filters.push_back({key, text.substr(equals + 1)});
  }
  return filters;
}

bool passes(const Filter& filter, const std::string& server, const wire::ClientInfo& client,
            uint64_t lease) {
  if (filter.key == "lease") return std::to_string(lease) == filter.text;
  const std::string value = filter.key == "user"      ? view::user_text(client)
                            : filter.key == "host"    ? client.host
                            : filter.key == "program" ? client.program
                                                      : server;
  if (value.find(filter.text) != std::string::npos) return true;
  // Of who proves nothing, the name that the table shows.
  return filter.key == "user" && client.user.find(filter.text) != std::string::npos;
}

}  // namespace

base::Status keep_filtered(const std::vector<std::string>& filters,
                           std::vector<view::ServerView>* views) {
  auto parsed = parse(filters);
  if (!parsed.ok()) return parsed.status();
  for (view::ServerView& view : *views) {
    const auto hidden = [&](const auto& record) {
      return !std::all_of(parsed->begin(), parsed->end(), [&](const Filter& filter) {
        return passes(filter, view.server, record.client, record.lease_id);
      });
    };
    std::erase_if(view.list.leases, hidden);
    std::erase_if(view.list.sessions, hidden);
  }
  return {};
}

}  // namespace tendril::cli
