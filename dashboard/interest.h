// SPDX-License-Identifier: Apache-2.0
// What one viewer looks at, as the query of its stream says it, and what it must hear after a
// picture: the rows that it looks at and that are younger than what it has, as one JSON object.
// Queries come from whoever can connect. Pure; the page's thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "dashboard/model.h"

namespace tendril::dashboard {

inline constexpr size_t kQueueShown = 200;  // rows of the queue in a stream
inline constexpr size_t kWindowMax = 200;   // servers in full at once
inline constexpr size_t kRangesMax = 64;

// name=value pairs of a query, %XX decoded. kInvalid: it is malformed.
base::Result<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view query);

struct Interest {
  bool servers = false, queue = false, accounts = false, events = false;
  // Numbers of servers that are shown in full, with their leases: from and to.
  std::vector<std::pair<uint32_t, uint32_t>> window;
  uint64_t lease = 0;  // 0: none
  // What the viewer has, of this model; 0: nothing.
  uint64_t since = 0;

  bool in_window(uint32_t server) const;
};
// "servers=1&queue=1&window=1-20,31&lease=7&epoch=ab12&since=19". Another epoch: `since` is 0.
base::Result<Interest> parse_interest(std::string_view query, std::string_view epoch);

struct Viewer {
  std::string id;  // of the principal
  bool sees_all = false;
};

// What has changed after `since` as members of a JSON object, without its braces; empty: nothing.
// `in_full`: what the viewer looks at closely (window, lease) is written whole.
std::string changes_json(const Model& model, const Interest& interest, const Viewer& viewer,
                         uint64_t since, bool in_full);

}  // namespace tendril::dashboard
