// SPDX-License-Identifier: Apache-2.0
// Prometheus text (exposition format 0.0.4), family by family. Only files of view/ use it. Text
// from peers goes between quotes and stays inside them.
#pragma once

#include <string>

namespace tendril::view {

// name="value", with everything that is not plain ASCII replaced.
std::string label(const char* name, const std::string& value);

// A family of series: its help and type once, then a line for each. Without a line it leaves no
// trace.
class Family {
 public:
  Family(std::string* out, const char* name, const char* type, const char* help);
  // `suffix`: of a histogram's series ("_bucket").
  void add(const std::string& labels, double value, const char* suffix = "");

 private:
  std::string* const out_;
  const char* const name_;
  std::string head_;
};

}  // namespace tendril::view
