// SPDX-License-Identifier: Apache-2.0
// `tendril pool check`: reads a pool's policy file and says what it means, without any pool. Also
// the way in which all commands read such files and time zones.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "pool/policy/policy.h"

namespace tendril::cli {

struct PoolCheckOptions {
  std::string file, against, at;
  std::string user, role, host, account, user_class;
  std::vector<std::string> groups;
  bool settings = false, json = false;
};

int check_pool_policy(const PoolCheckOptions& options);

// The rules of a zone, from this machine's files. UTC needs none.
base::Result<pool::Zone> read_zone(const std::string& name);
// The text of a policy file without errors; an error names the file, the line and the column.
base::Result<std::string> read_pool_policy(const std::string& path, pool::PoolPolicy* policy);

}  // namespace tendril::cli
