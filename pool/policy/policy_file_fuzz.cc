// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: a pool's policy from arbitrary bytes. What is read must hold together at every
// time; an error must name a line.
#include "pool/policy/assign.h"
#include "pool/policy/policy_file.h"
#include "pool/policy/settings.h"

namespace {

// What the engine may rely on.
void check(const tendril::pool::PoolPolicy& policy) {
  const size_t classes = policy.gpu_classes.size();
  if (classes == 0 || policy.assignments.empty()) __builtin_trap();
  for (size_t i = 0; i < policy.accounts.size(); ++i) {
    const tendril::pool::Account& account = policy.accounts[i];
    if (account.quota.size() != classes || account.limit.size() != classes ||
        account.lending_limit.size() != classes)
      __builtin_trap();
    if (account.parent != tendril::pool::kNoAccount && account.parent >= i) __builtin_trap();
  }
  for (const tendril::pool::UserClass& one : policy.user_classes) {
    if (one.gpu_classes.empty() || one.default_wall_s > one.max_wall_s) __builtin_trap();
    for (const uint32_t number : one.gpu_classes) {
      if (number >= classes) __builtin_trap();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace tendril::pool;  // NOLINT
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  const auto policy = parse_pool_policy(text, "p", only_utc);
  if (!policy.ok()) {
    if (policy.status().message().find("p, line ") != 0) __builtin_trap();
    return 0;
  }
  check(policy.value());
  int64_t now = 1'800'000'000;
  for (int i = 0; i < 4 && now != kNever; ++i) {
    check(effective(policy.value(), now));
    now = next_change(policy.value(), now);
  }
  UserFacts who;
  who.user = "alice";
  const tendril::base::Status ignored = assign(policy.value(), who).status();
  (void)ignored;
  if (!difference(policy.value(), policy.value()).empty()) __builtin_trap();
  return 0;
}
