// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: a policy from arbitrary bytes. What is read must give limits; an error must
// name a line.
#include "access/policy_file.h"
#include "wire/control.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace tendril::access;  // NOLINT
  const auto policy = parse_policy(std::string(reinterpret_cast<const char*>(data), bytes), "p");
  if (!policy.ok()) {
    if (policy.status().message().find("p, line ") != 0) __builtin_trap();
    return 0;
  }
  Principal who;
  who.role = Role::kUser;
  who.name = "alice";
  const Limits limits = policy.value().limits_of(who);
  if (limits.priority && *limits.priority > tendril::wire::kPriorityMax) __builtin_trap();
  contains(policy.value().trusted_networks, "10.0.0.1:1");
  return 0;
}
