// SPDX-License-Identifier: Apache-2.0
// Reads what a file says of an account or a class of use, in their tables and in schedules. Used by
// policy_file.cc only.
#pragma once

#include <string>
#include <vector>

#include "pool/policy/policy_values.h"

namespace tendril::pool {

const std::vector<std::string>& account_rule_keys();
const std::vector<std::string>& user_class_rule_keys();

// False: it is not such a key. `names` must have all classes of GPUs and of use.
bool read_rule(PolicyValues* values, const std::string& key, const toml::node& node,
               const PoolPolicy& names, AccountRules* rules);
bool read_rule(PolicyValues* values, const std::string& key, const toml::node& node,
               const PoolPolicy& names, UserClassRules* rules);

}  // namespace tendril::pool
