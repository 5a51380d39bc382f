// SPDX-License-Identifier: Apache-2.0
// All settings of a policy as lines of text, defaults too: for showing a policy and for comparing
// two. Pure.
#pragma once

#include <string>
#include <vector>

#include "pool/policy/policy.h"

namespace tendril::pool {

struct PolicySetting {
  std::string table;  // "pool", "gpu_class", ...
  std::string name;   // of the record; its number from 1 where records have no names; else empty
  std::string key;
  std::string value;
};

// In the order of the tables and their records.
std::vector<PolicySetting> settings_of(const PoolPolicy& policy);

}  // namespace tendril::pool
