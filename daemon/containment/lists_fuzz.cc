// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: lists that a server reads from files: those that administrators give it, and
// what it kept of ended leases. The first byte says which.
#include <cstdint>

#include "base/call_names.h"
#include "daemon/containment/known_images.h"
#include "daemon/pool/ended_file.h"

using namespace tendril;  // NOLINT: a program

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  if (data[0] % 3 == 2) {
    for (const wire::BookEntry& entry : daemon::read_ended(rest))
      if (entry.phase != wire::LeasePhase::kEnded) __builtin_trap();
    return 0;
  }
  if (data[0] % 3 == 0) {
    auto known = daemon::parse_known_images(rest, "file");
    if (!known.ok()) return 0;
    for (const std::string& hash : *known) {
      if (hash.size() != 32) __builtin_trap();
    }
    return 0;
  }
  std::vector<std::string> names;
  std::string wrong;
  if (!base::read_call_names(rest, &names, &wrong) && wrong.empty()) __builtin_trap();
  if (names.size() > base::kCallNamesMax) __builtin_trap();
  for (const std::string& name : names) {
    if (!base::is_call_name(name)) __builtin_trap();
  }
  return 0;
}
