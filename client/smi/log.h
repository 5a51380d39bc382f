// SPDX-License-Identifier: Apache-2.0
// `nvidia-smi -q`: everything about each GPU, as text for people and as XML for programs. Both are
// one table of rows. What no server reports is "N/A".
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "client/smi/fields.h"

namespace tendril::client::smi {

// What stands in place of a field's name.
inline constexpr char kGroup[] = "(group)";          // the rows that follow, one level deeper
inline constexpr char kProcesses[] = "(processes)";  // the processes that use the GPU
inline constexpr char kNone[] = "(none)";            // nothing of the kind

struct Row {
  int depth;            // 1: directly below the GPU
  const char* label;    // null: only in XML
  const char* element;  // null: only in text
  const char* field;    // of kFields or of log.cc. "": no server reports it
  const char* suffix;   // the unit, where the field has none
  const char* display;  // the word of -d that shows it, with what is below; "": only without -d
};
extern const Row kRows[];
extern const size_t kRowCount;

// Whether `word` can stand behind -d.
bool is_display(const std::string& word);

// `displays`: the words of -d; empty: everything. `all`: how many GPUs there are.
std::string log_text(const std::vector<Gpu>& gpus, unsigned all,
                     const std::vector<std::string>& displays);
std::string log_xml(const std::vector<Gpu>& gpus, unsigned all);

}  // namespace tendril::client::smi
