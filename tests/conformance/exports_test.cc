// SPDX-License-Identifier: Apache-2.0
// Every name that the CUDA 13.0 toolkit's libcuda stub exports must be exported by the driver.
#include <set>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

const char* const kNames[] = {
#define TENDRIL_TEXT(symbol, result, arguments, names) #symbol,
    TENDRIL_CUDA_FUNCTIONS(TENDRIL_TEXT)
#undef TENDRIL_TEXT
};

TEST(ExportsTest, ListIsComplete) { EXPECT_EQ(std::size(kNames), 637u); }

TEST(ExportsTest, EveryNameResolves) {
  std::string missing;
  int count = 0;
  for (const char* name : kNames) {
    if (!exported(name)) {
      missing += std::string(" ") + name;
      count++;
    }
  }
  EXPECT_EQ(count, 0) << "missing:" << missing;
}

TEST(ExportsTest, DefaultAndPerThreadVariantsDiffer) {
  // One address for both could not know which default stream was meant.
  for (const char* name : kNames) {
    const std::string text = name;
    if (text.size() < 6 ||
        (text.rfind("_ptsz") != text.size() - 5 && text.rfind("_ptds") != text.size() - 5))
      continue;
    void* plain = exported(text.substr(0, text.size() - 5).c_str());
    EXPECT_NE(plain, exported(name)) << name;
  }
}

TEST(ExportsTest, UnknownNamesDoNotResolve) { EXPECT_EQ(exported("cuNoSuchFunction"), nullptr); }

}  // namespace
}  // namespace tendril::conformance
