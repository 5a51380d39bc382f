// SPDX-License-Identifier: Apache-2.0
// The content hash against values from an independent implementation of BLAKE2b-256, with sizes
// around the block size, where mistakes hide.
#include "base/content_hash.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace tendril::base {
namespace {

std::string of(size_t bytes) {
  std::string data(bytes, 0);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i & 0xff);
  const std::string hash = content_hash(data.data(), data.size());
  return hex(hash.data(), hash.size());
}

TEST(ContentHash, MatchesKnownValues) {
  EXPECT_EQ(of(0), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  EXPECT_EQ(of(1), "03170a2e7597b7b7e3d84c05391d139a62b157e78786d8c082f29dcf4c111314");
  EXPECT_EQ(of(3), "3d8c3d594928271f44aad7a04b177154806867bcf918e1549c0bc16f9da2b09b");
  EXPECT_EQ(of(127), "f2fe67ff342e21b8f45e8f2e0bcd1d9243245d50ee6c78042e9c491388791c72");
  EXPECT_EQ(of(128), "c3582f71ebb2be66fa5dd750f80baae97554f3b015663c8be377cfcb2488c1d1");
  EXPECT_EQ(of(129), "f7f3c46ba2564ff4c4c162da1f5b605f9f1c4aa6a20652a9f9a337c1a2f5b9c9");
  EXPECT_EQ(of(255), "1d0850ee9bca0abc9601e9deabe1418fedec2fb6ac4150bd5302d2430f9be943");
  EXPECT_EQ(of(256), "39a7eb9fedc19aabc83425c6755dd90e6f9d0c804964a1f4aaeea3b9fb599835");
  EXPECT_EQ(of(257), "45f7f084c30bac7cbae2e1963bc6e6b0d8cb227a12927e97fb941d288fb1f9a3");
  EXPECT_EQ(of(1000), "c636324d47d89f2b2434dc2c994100663fbbaea880ff020fc5de89dd0f77a1ec");
  EXPECT_EQ(of(100000), "2876d1bbfa8e8637e8bd364c4d91006030f439ef3d9b87f66d087dd0b021c0af");
}

TEST(ContentHash, TakesNothingFromNowhere) {
  EXPECT_EQ(content_hash(nullptr, 0).size(), kContentHashBytes);
}

}  // namespace
}  // namespace tendril::base
