// SPDX-License-Identifier: Apache-2.0
// See host_share.h.
#include "lease/host_share.h"

#include <algorithm>

namespace tendril::lease {
namespace {

constexpr uint64_t kAll = 1'000'000;
// A process with an empty context of a driver takes 200 to 500 MB of the host (R580).
constexpr uint64_t kLeastBytes = uint64_t{2} << 30;
constexpr uint32_t kThreadsPerProcess = 128;

}  // namespace

HostShare host_share(uint64_t part_millionths, uint64_t host_memory_bytes, uint32_t processes_max) {
  const uint64_t part = std::min(part_millionths, kAll);
  // A quarter stays for the daemon, the system and its caches.
  const uint64_t lent = host_memory_bytes / 4 * 3;
  HostShare share;
  share.memory_bytes = std::max(kLeastBytes, lent / kAll * part);
  share.threads = processes_max * kThreadsPerProcess;
  share.weight = static_cast<uint32_t>(std::max<uint64_t>(1, part / 100));
  return share;
}

}  // namespace tendril::lease
