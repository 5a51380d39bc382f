// SPDX-License-Identifier: Apache-2.0
// For tests: a pool's authority and identities in memory, a folder that vanishes, and time that
// stands where the test puts it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "identity/authority.h"
#include "identity/store.h"

namespace tendril::identity {

inline constexpr int64_t kTestNowS = 1'800'000'000;
inline int64_t test_time_s = kTestNowS;
inline int64_t test_clock() { return test_time_s; }

class TestFolder {
 public:
  TestFolder() {
    char name[] = "/tmp/tendril-identity-XXXXXX";
    path_ = mkdtemp(name) != nullptr ? name : "";
  }
  ~TestFolder() {
    const std::string command = "rm -rf " + path_;
    if (path_.rfind("/tmp/tendril-identity-", 0) == 0) (void)!system(command.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct TestPool {
  explicit TestPool(const std::string& pool) : name(pool) {
    key = make_key().take();
    authority = make_authority(key, pool, kTestNowS).take();
  }
  OwnIdentity issue_to(Role role, const std::string& who, int64_t lifetime_s = kDayS,
                       int64_t now_s = kTestNowS) const {
    OwnIdentity own;
    own.key = make_key().take();
    const std::string request = make_request(own.key).take();
    base::Result<Certificate> certificate =
        issue(authority, key, request, Grant{Name{name, role, who}, now_s, lifetime_s});
    EXPECT_TRUE(certificate.ok()) << certificate.status().message();
    own.certificate = certificate.take();
    own.authority = authority;
    own.facts = read_facts(own.certificate).take();
    return own;
  }

  std::string name;
  Key key;
  Certificate authority;
};

}  // namespace tendril::identity
