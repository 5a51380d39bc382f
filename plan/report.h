// SPDX-License-Identifier: Apache-2.0
// What `tendril plan` found out, as text for people and as JSON. Names come from records: they are
// cleaned or escaped wherever they are shown. Pure.
#pragma once

#include <string>
#include <vector>

#include "plan/ladder.h"
#include "plan/use.h"

namespace tendril::plan {

struct Report {
  std::vector<std::string> files;
  size_t rows = 0, holders = 0;
  bool measured = false, accounted = false;  // as of Records
  int64_t from_s = 0, to_s = 0, step_s = 0;
  Use use;
  LadderOptions options;
  std::vector<Rung> ladder;
};

Report report_on(const Records& records, const LadderOptions& options,
                 std::vector<std::string> files);

// Tables and sentences that the text and the page share. Cells are as in the records, not cleaned.
using Cells = std::vector<std::vector<std::string>>;  // the first line has the headings
std::string time_text(double seconds);
std::vector<std::string> summary_sentences(const Report& report);
Cells ladder_cells(const Report& report);
Cells user_cells(const Report& report);  // the first kMostUsers
std::vector<std::string> ladder_notes(const Report& report);
inline constexpr size_t kMostUsers = 20;

std::string report_text(const Report& report);
std::string report_json(const Report& report);  // fields are added, never renamed

}  // namespace tendril::plan
