// SPDX-License-Identifier: Apache-2.0
// See deny_list.h.
#include "identity/deny_list.h"

#include "config/text.h"
#include "identity/files.h"

namespace tendril::identity {
namespace {

constexpr int64_t kKeptS = 7 * 86'400;
constexpr size_t kSerialDigitsMin = 16, kSerialDigitsMax = 40;

}  // namespace

bool is_serial(const std::string& text) {
  return text.size() >= kSerialDigitsMin && text.size() <= kSerialDigitsMax &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool read_seconds(const std::string& text, int64_t* seconds) {
  uint64_t value = 0;
  if (!config::read_number(text, &value) || value > uint64_t{1} << 40) return false;
  *seconds = int64_t(value);
  return true;
}

base::Result<DenyList> DenyList::read(const std::string& text) {
  DenyList list;
  for (const auto& words : words_of_lines(text)) {
    int64_t ends_s = 0;
    if (words.size() != 2 || !is_serial(words[0]) || !read_seconds(words[1], &ends_s) ||
        list.size() >= kEntriesMax) {
      return base::Status(base::Code::kInvalid,
                          "the list of certificates that were taken back is malformed");
    }
    list.add(words[0], ends_s);
  }
  return list;
}

std::string DenyList::text() const {
  std::string out;
  for (const auto& [serial, ends_s] : ends_s_) out += serial + " " + std::to_string(ends_s) + "\n";
  return out;
}

void DenyList::prune(int64_t now_s) {
  for (auto at = ends_s_.begin(); at != ends_s_.end();) {
    at = at->second + kKeptS < now_s ? ends_s_.erase(at) : std::next(at);
  }
}

}  // namespace tendril::identity
