// SPDX-License-Identifier: Apache-2.0
// See visible_devices.h.
#include "client/common/visible_devices.h"

#include <algorithm>

namespace tendril::client {
namespace {

// The ordinal at the start of an entry. Text behind the digits is ignored, as in CUDA ("1x" is 1).
// -1: there is none.
int64_t leading_ordinal(const std::string& entry) {
  size_t at = entry.find_first_not_of(" \t");
  if (at == std::string::npos) return -1;
  if (entry[at] == '+') ++at;
  int64_t value = -1;
  for (; at < entry.size() && entry[at] >= '0' && entry[at] <= '9'; ++at) {
    value = (value < 0 ? 0 : value) * 10 + (entry[at] - '0');
    if (value > INT32_MAX) return -1;
  }
  return value;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

bool same_letter(char a, char b) { return lower(a) == lower(b); }

// The one device whose UUID starts with `prefix`. -1: there is none, or more than one.
int64_t device_of_prefix(const std::string& prefix, const std::vector<std::string>& uuids) {
  int64_t match = -1;
  for (size_t i = 0; i < uuids.size(); ++i) {
    std::string text = uuid_text(uuids[i]);
    if (prefix.size() > text.size()) continue;
    if (!std::equal(prefix.begin(), prefix.end(), text.begin(), same_letter)) continue;
    if (match >= 0) return -1;
    match = static_cast<int64_t>(i);
  }
  return match;
}

}  // namespace

std::string uuid_text(const std::string& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (size_t i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    uint8_t byte = i < uuid.size() ? static_cast<uint8_t>(uuid[i]) : 0;
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::vector<uint32_t> visible_devices(const char* value, const std::vector<std::string>& uuids) {
  std::vector<uint32_t> seen;
  if (value == nullptr) {
    for (uint32_t i = 0; i < uuids.size(); ++i) seen.push_back(i);
    return seen;
  }
  const std::string list = value;
  for (size_t at = 0; at <= list.size();) {
    size_t end = std::min(list.find(',', at), list.size());
    std::string entry = list.substr(at, end - at);
    size_t first = entry.find_first_not_of(" \t");
    entry = first == std::string::npos
                ? ""
                : entry.substr(first, entry.find_last_not_of(" \t") - first + 1);
    bool prefix =
        entry.size() >= 4 && std::equal(entry.begin(), entry.begin() + 4, "GPU-", same_letter);
    int64_t device = prefix ? device_of_prefix(entry, uuids) : leading_ordinal(entry);
    if (device < 0 || device >= static_cast<int64_t>(uuids.size())) break;
    if (std::find(seen.begin(), seen.end(), static_cast<uint32_t>(device)) != seen.end()) return {};
    seen.push_back(static_cast<uint32_t>(device));
    at = end + 1;
  }
  return seen;
}

}  // namespace tendril::client
