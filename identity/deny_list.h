// SPDX-License-Identifier: Apache-2.0
// The serial numbers of certificates that were taken back before their end. An authority keeps the
// list; all servers of its pool have a copy. As text it has one "serial end-in-seconds" a line. A
// server takes it from the network, so reading is bounded and strict. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"

namespace tendril::identity {

// Certificates can be taken back until so long after their end, because connections may outlive
// them (tls.h).
inline constexpr int64_t kGraceMaxS = 86'400;

class DenyList {
 public:
  static constexpr size_t kEntriesMax = 16'384;

  static base::Result<DenyList> read(const std::string& text);
  std::string text() const;

  bool has(const std::string& serial) const { return ends_s_.count(serial) != 0; }
  void add(const std::string& serial, int64_t ends_s) { ends_s_[serial] = ends_s; }
  // Leaves out what has expired anyway. Clocks differ, so some time after.
  void prune(int64_t now_s);
  size_t size() const { return ends_s_.size(); }
  bool operator==(const DenyList&) const = default;

 private:
  std::map<std::string, int64_t> ends_s_;
};

bool is_serial(const std::string& text);
// A decimal number of seconds since 1970.
bool read_seconds(const std::string& text, int64_t* seconds);

}  // namespace tendril::identity
