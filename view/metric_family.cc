// SPDX-License-Identifier: Apache-2.0
// See metric_family.h.
#include "view/metric_family.h"

#include "base/text.h"

namespace tendril::view {

std::string label(const char* name, const std::string& value) {
  std::string text = std::string(name) + "=\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\\' || c == '"') text += '\\';
    text += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  return text + "\"";
}

Family::Family(std::string* out, const char* name, const char* type, const char* help)
    : out_(out), name_(name) {
  head_ = base::format("# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void Family::add(const std::string& labels, double value, const char* suffix) {
  *out_ += head_;
  head_.clear();
  *out_ += name_;
  *out_ += suffix;
  if (!labels.empty()) *out_ += "{" + labels + "}";
  *out_ += base::format(" %.15g\n", value);
}

}  // namespace tendril::view
