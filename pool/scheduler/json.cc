// SPDX-License-Identifier: Apache-2.0
// Writing JSON: commas, quotes and brackets. Bytes that are no UTF-8 become '?'.
#include "pool/scheduler/json.h"

#include <cstdio>

#include "base/text.h"

namespace tendril::pool {

void Json::open(char bracket) {
  text_ += bracket;
  closing_ += bracket == '{' ? '}' : ']';
  first_ = true;
}

void Json::key(const char* name) {
  if (!first_) text_ += ',';
  first_ = false;
  if (name != nullptr) {
    quote(name);
    text_ += ':';
  }
}

void Json::quote(const std::string& value) {
  text_ += '"';
  for (size_t at = 0; at < value.size();) {
    const unsigned char c = static_cast<unsigned char>(value[at]);
    const size_t bytes = base::character_bytes(value, at);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += char(c);
    } else if (c == '\n') {
      text_ += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      text_ += base::format("\\u%04x", c);
    } else if (bytes == 0) {
      text_ += '?';
    } else {
      text_.append(value, at, bytes);
      at += bytes - 1;
    }
    ++at;
  }
  text_ += '"';
}

Json& Json::object(const char* name) {
  key(name);
  open('{');
  return *this;
}

Json& Json::list(const char* name) {
  key(name);
  open('[');
  return *this;
}

Json& Json::end() {
  text_ += closing_.back();
  closing_.pop_back();
  first_ = false;
  return *this;
}

Json& Json::text(const char* name, const std::string& value) {
  key(name);
  quote(value);
  return *this;
}

Json& Json::number(const char* name, double value) {
  key(name);
  std::string digits = base::format("%.6f", value);
  while (digits.back() == '0') digits.pop_back();
  if (digits.back() == '.') digits.pop_back();
  text_ += digits;
  return *this;
}

Json& Json::whole(const char* name, int64_t value) {
  key(name);
  text_ += std::to_string(value);
  return *this;
}

Json& Json::truth(const char* name, bool value) {
  key(name);
  text_ += value ? "true" : "false";
  return *this;
}

Json& Json::null(const char* name) {
  key(name);
  text_ += "null";
  return *this;
}

std::string Json::take() {
  while (!closing_.empty()) end();
  return std::move(text_);
}

}  // namespace tendril::pool
