// SPDX-License-Identifier: Apache-2.0
// Writes one JSON object, front to back, into a string. The scheduler's answers and accounting
// records are made with it, on the caller's thread. Text may hold anything.
#pragma once

#include <cstdint>
#include <string>

namespace tendril::pool {

class Json {
 public:
  Json() { open('{'); }

  // Inside an object each value has a key; inside a list give none.
  Json& object(const char* key = nullptr);
  Json& list(const char* key = nullptr);
  Json& end();  // of the innermost object or list
  Json& text(const char* key, const std::string& value);
  Json& text(const std::string& value) { return text(nullptr, value); }
  Json& number(const char* key, double value);  // up to six digits after the point
  Json& whole(const char* key, int64_t value);
  Json& whole(int64_t value) { return whole(nullptr, value); }
  Json& truth(const char* key, bool value);
  Json& null(const char* key);
  Json& gpus(const char* key, uint64_t millionths) { return number(key, double(millionths) / 1e6); }

  // The whole object; everything that is open is ended.
  std::string take();

 private:
  void open(char bracket);
  void key(const char* name);
  void quote(const std::string& value);

  std::string text_;
  std::string closing_;  // brackets that are still to come
  bool first_ = true;
};

}  // namespace tendril::pool
