// SPDX-License-Identifier: Apache-2.0
// Entry of the conformance suite: binds the driver, writes test names and outcomes to the
// transcript, runs GoogleTest. It makes no driver call, so that cases in a process of their own can
// be the first caller.
#include <cstdio>

#include "tests/conformance/harness.h"

namespace {

class TranscriptWriter : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& test) override {
    if (!tendril::conformance::in_child()) tendril::conformance::note(name(test));
  }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (tendril::conformance::in_child()) return;
    const char* outcome = test.result()->Failed()    ? "FAILED"
                          : test.result()->Skipped() ? "SKIPPED"
                                                     : "passed";
    tendril::conformance::note(name(test) + " " + outcome);
  }
  static std::string name(const ::testing::TestInfo& test) {
    return std::string(test.test_suite_name()) + "." + test.name();
  }
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::UnitTest::GetInstance()->listeners().Append(new TranscriptWriter);
  tendril::conformance::bind_driver();
  if (!tendril::conformance::in_child())
    std::printf("driver: %s\n", tendril::conformance::driver_path());
  return RUN_ALL_TESTS();
}
