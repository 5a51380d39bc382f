// SPDX-License-Identifier: Apache-2.0
// See policy.h.
#include "pool/policy/policy.h"

namespace tendril::pool {
namespace {

template <typename Record>
std::optional<uint32_t> position(const std::vector<Record>& records, const std::string& name) {
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].name == name) return static_cast<uint32_t>(i);
  }
  return std::nullopt;
}

}  // namespace

const char* action_name(Action action) {
  switch (action) {
    case Action::kWarn:
      return "warn";
    case Action::kShrink:
      return "shrink";
    case Action::kPause:
      return "pause";
    case Action::kRequeue:
      return "requeue";
    case Action::kEnd:
      return "end";
  }
  return "unknown";
}

std::optional<uint32_t> PoolPolicy::gpu_class(const std::string& named) const {
  return position(gpu_classes, named);
}

std::optional<uint32_t> PoolPolicy::account(const std::string& named) const {
  return position(accounts, named);
}

std::optional<uint32_t> PoolPolicy::user_class(const std::string& named) const {
  return position(user_classes, named);
}

PoolPolicy default_policy() {
  PoolPolicy policy;
  GpuClass gpus;
  gpus.name = "any";
  policy.gpu_classes.push_back(gpus);
  Account account;
  account.name = "everybody";
  account.quota = {0};
  account.limit = {kUnlimited};
  account.lending_limit = {kUnlimited};
  policy.accounts.push_back(account);
  UserClass use;
  use.name = "normal";
  use.gpu_classes = {0};
  policy.user_classes.push_back(use);
  policy.assignments.push_back({Filter(), 0, {0}});
  return policy;
}

}  // namespace tendril::pool
