// SPDX-License-Identifier: Apache-2.0
// What `tendril top` shows, from two listings of a server: what each session did in between.
// Arithmetic and text only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "view/server.h"

namespace tendril::view {

struct SessionRates {
  wire::SessionRecord session;
  std::vector<wire::SliceGrant> slices;  // of its lease
  double calls_per_s = 0, launches_per_s = 0, round_trips_per_s = 0;
  double bytes_in_per_s = 0, bytes_out_per_s = 0;  // to the server, from the server
  double waiting = 0;     // part of the time in which the program waited for an answer
  double processors = 0;  // of the server, by its worker: 1 is one of them all the time
  // GPUs' time, all slices together: 1 is a whole GPU; unknown without turns.
  std::optional<double> delivered;
};

struct ServerRates {
  ServerView view;        // the later one
  double interval_s = 0;  // 0: the server tells no time, and nothing about sessions
  std::vector<SessionRates> sessions;
};

// A session that is not in `before` began in between. A worker may write any numbers: what would be
// negative is 0.
ServerRates rates_between(const ServerView& before, const ServerView& after);

// For people: a line for the server, one for each of its GPUs, and a table of its sessions.
// `width` as of view/table.h.
std::string top_text(const ServerRates& rates, size_t width = 0);

// By a column of top_text, as "calls" or "to-gpu"; the greatest first. kInvalid: there is no such
// column, and the message lists them. Empty: as the server lists them.
base::Status sort_sessions(std::vector<SessionRates>* sessions, const std::string& column);

}  // namespace tendril::view
