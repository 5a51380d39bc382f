// SPDX-License-Identifier: Apache-2.0
// An ordinary program that uses the third API: calls each of its entry points, and says what came
// back wrong. It knows nothing of Tendril.
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/third_api/abacus.h"

namespace {

int g_failures = 0;

void expect(bool holds, const char* what, int line) {
  if (holds) return;
  std::printf("line %d: not true: %s\n", line, what);
  ++g_failures;
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

void local_calls() {
  int version = 0;
  const char* name = nullptr;
  EXPECT(abacusGetVersion(&version) == ABACUS_SUCCESS && version == ABACUS_VERSION);
  EXPECT(abacusGetResultName(ABACUS_NO_MEMORY, &name) == ABACUS_SUCCESS);
  EXPECT(name != nullptr && std::strcmp(name, "ABACUS_NO_MEMORY") == 0);
}

void before_init() {
  abacusColumn column = nullptr;
  EXPECT(abacusColumnCreate(&column, 8) == ABACUS_NOT_INITIALIZED);
}

void arithmetic() {
  abacusColumn one = nullptr, two = nullptr;
  EXPECT(abacusColumnCreate(&one, 1000) == ABACUS_SUCCESS);
  EXPECT(abacusColumnCreate(&two, 1000) == ABACUS_SUCCESS);
  EXPECT(one != two);
  EXPECT(abacusColumnFill(one, 0, 1000, 2) == ABACUS_SUCCESS);
  EXPECT(abacusColumnFill(two, 500, 500, 10) == ABACUS_SUCCESS);
  EXPECT(abacusColumnApply(one, ABACUS_MULTIPLY, 3) == ABACUS_SUCCESS);
  EXPECT(abacusColumnAdd(one, two) == ABACUS_SUCCESS);
  abacusSummary summary = {};
  EXPECT(abacusColumnSummarize(one, &summary) == ABACUS_SUCCESS);
  EXPECT(summary.count == 1000 && summary.sum == 1000 * 6 + 500 * 10);
  size_t length = 0;
  EXPECT(abacusColumnGetLength(two, &length) == ABACUS_SUCCESS && length == 1000);
  EXPECT(abacusColumnDestroy(one) == ABACUS_SUCCESS);
  EXPECT(abacusColumnDestroy(one) == ABACUS_INVALID);
  EXPECT(abacusColumnAdd(two, one) == ABACUS_INVALID);
  EXPECT(abacusColumnDestroy(two) == ABACUS_SUCCESS);
}

void bulk_data(size_t length) {
  std::vector<uint32_t> written(length), read(length);
  uint64_t sum = 0;
  for (size_t i = 0; i < length; ++i) sum += written[i] = static_cast<uint32_t>(i * 7 % 1001);
  const size_t bytes = length * sizeof(uint32_t);
  abacusColumn column = nullptr;
  abacusSummary summary = {};
  EXPECT(abacusColumnCreate(&column, length) == ABACUS_SUCCESS);
  EXPECT(abacusColumnWrite(column, written.data(), bytes) == ABACUS_SUCCESS);
  EXPECT(abacusColumnSummarize(column, &summary) == ABACUS_SUCCESS && summary.sum == sum);
  EXPECT(abacusColumnApply(column, ABACUS_ADD, 1) == ABACUS_SUCCESS);
  EXPECT(abacusColumnRead(column, read.data(), bytes) == ABACUS_SUCCESS);
  size_t wrong = 0;
  for (size_t i = 0; i < length; ++i) wrong += read[i] != written[i] + 1;
  EXPECT(wrong == 0);
  // More than there is: refused, and the session goes on.
  EXPECT(abacusColumnRead(column, read.data(), bytes + 4) == ABACUS_INVALID);
  EXPECT(abacusColumnDestroy(column) == ABACUS_SUCCESS);
}

void errors() {
  abacusColumn column = nullptr;
  EXPECT(abacusColumnCreate(nullptr, 8) == ABACUS_INVALID);
  EXPECT(abacusColumnCreate(&column, size_t{1} << 40) == ABACUS_NO_MEMORY);
  EXPECT(abacusColumnShare(column, 1) == ABACUS_UNSUPPORTED);
  EXPECT(abacusColumnCreate(&column, 8) == ABACUS_SUCCESS);
  // The error of a call without an answer comes with the next answer.
  EXPECT(abacusColumnFill(column, 4, 5, 1) == ABACUS_SUCCESS);
  size_t length = 0;
  EXPECT(abacusColumnGetLength(column, &length) == ABACUS_INVALID);
  EXPECT(abacusColumnGetLength(column, &length) == ABACUS_SUCCESS && length == 8);
  EXPECT(abacusColumnDestroy(column) == ABACUS_SUCCESS);
}

}  // namespace

int main() {
  local_calls();
  before_init();
  EXPECT(abacusInit(1) == ABACUS_INVALID);
  const abacusResult attached = abacusInit(0);
  if (attached != ABACUS_SUCCESS) {
    std::printf("abacusInit answers %d\n", attached);
    return 2;
  }
  EXPECT(abacusInit(0) == ABACUS_SUCCESS);
  arithmetic();
  bulk_data(16);
  bulk_data(3'000'000);
  errors();
  std::printf("%d failures\n", g_failures);
  return g_failures == 0 ? 0 : 1;
}
