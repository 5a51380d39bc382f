// SPDX-License-Identifier: Apache-2.0
// See call_names.h.
#include "base/call_names.h"

#include "base/text.h"

namespace tendril::base {

namespace {
constexpr size_t kNameMax = 40;
}

bool is_call_name(const std::string& text) {
  return !text.empty() && text.size() <= kNameMax &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
}

bool read_call_names(const std::string& text, std::vector<std::string>* names, std::string* wrong) {
  std::string word;
  bool comment = false;
  for (size_t at = 0; at <= text.size(); ++at) {
    const char letter = at < text.size() ? text[at] : '\n';
    if (letter == '#') comment = true;
    const bool blank = letter == ' ' || letter == '\t' || letter == '\r' || letter == '\n';
    if (!comment && !blank) {
      word += letter;
      continue;
    }
    if (!word.empty()) {
      if (!is_call_name(word)) {
        *wrong = "'" + printable(word, 64) + "' is no name of a system call";
        return false;
      }
      if (names->size() == kCallNamesMax) {
        *wrong = "there are more than 1,024 names";
        return false;
      }
      names->push_back(std::move(word));
    }
    word.clear();
    if (letter == '\n') comment = false;
  }
  return true;
}

}  // namespace tendril::base
