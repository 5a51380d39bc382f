// SPDX-License-Identifier: Apache-2.0
// Stands in for functions of pool/policy until they are there; they replace these when they are
// linked. To be removed with the last of them.
#include "base/text.h"
#include "pool/policy/assign.h"
#include "pool/policy/policy.h"
#include "pool/policy/policy_file.h"

namespace tendril::pool {

#define TENDRIL_WEAK __attribute__((weak))

TENDRIL_WEAK base::Result<Assigned> assign(const PoolPolicy&, const UserFacts&, const std::string&,
                                           const std::string&) {
  return Assigned{};
}
TENDRIL_WEAK std::optional<uint32_t> class_of(const PoolPolicy& policy, const GpuFacts& gpu) {
  for (uint32_t i = 0; i < policy.gpu_classes.size(); ++i) {
    if (policy.gpu_classes[i].match.matches(gpu)) return i;
  }
  return {};
}
TENDRIL_WEAK std::vector<PolicyChange> difference(const PoolPolicy&, const PoolPolicy&) {
  return {};
}
TENDRIL_WEAK std::string text_of(const PolicyChange& change) { return change.key; }
TENDRIL_WEAK base::Result<PoolPolicy> parse_pool_policy(const std::string&, const std::string&,
                                                        const ZoneReader&) {
  return base::Status(base::Code::kUnsupported, "this build reads no policy files yet");
}
TENDRIL_WEAK base::Result<std::string> with_move(const std::string&, const Move&,
                                                 const ZoneReader&) {
  return base::Status(base::Code::kUnsupported, "this build moves nothing yet");
}
TENDRIL_WEAK PoolPolicy effective(const PoolPolicy& policy, int64_t) { return policy; }
TENDRIL_WEAK int64_t next_change(const PoolPolicy&, int64_t) { return kNever; }

}  // namespace tendril::pool
