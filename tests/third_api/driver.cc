// SPDX-License-Identifier: Apache-2.0
// See driver.h.
#include "tests/third_api/driver.h"

#include <vector>

namespace tendril::worker::abacus {
namespace {

constexpr size_t kLengthMax = size_t{1} << 24;
using Numbers = std::vector<uint32_t>;

Numbers& numbers(abacusColumn column) { return *reinterpret_cast<Numbers*>(column); }

abacusResult create(abacusColumn* column, size_t length) {
  if (length > kLengthMax) return ABACUS_NO_MEMORY;
  *column = reinterpret_cast<abacusColumn>(new Numbers(length));
  return ABACUS_SUCCESS;
}

abacusResult destroy(abacusColumn column) {
  delete &numbers(column);
  return ABACUS_SUCCESS;
}

abacusResult get_length(abacusColumn column, size_t* length) {
  *length = numbers(column).size();
  return ABACUS_SUCCESS;
}

abacusResult summarize(abacusColumn column, abacusSummary* summary) {
  *summary = {numbers(column).size(), 0};
  for (uint32_t number : numbers(column)) summary->sum += number;
  return ABACUS_SUCCESS;
}

abacusResult apply(abacusColumn column, abacusOperation operation, unsigned int operand) {
  if (operation != ABACUS_ADD && operation != ABACUS_MULTIPLY) return ABACUS_INVALID;
  for (uint32_t& number : numbers(column))
    number = operation == ABACUS_ADD ? number + operand : number * operand;
  return ABACUS_SUCCESS;
}

abacusResult add(abacusColumn into, abacusColumn from) {
  if (numbers(into).size() != numbers(from).size()) return ABACUS_INVALID;
  for (size_t i = 0; i < numbers(into).size(); ++i) numbers(into)[i] += numbers(from)[i];
  return ABACUS_SUCCESS;
}

abacusResult fill(abacusColumn column, size_t first, size_t count, unsigned int value) {
  const size_t length = numbers(column).size();
  if (first > length || count > length - first) return ABACUS_INVALID;
  for (size_t i = 0; i < count; ++i) numbers(column)[first + i] = value;
  return ABACUS_SUCCESS;
}

}  // namespace

const Driver& driver() {
  static const Driver table{&create, &destroy, &get_length, &summarize, &apply, &add, &fill};
  return table;
}

void* numbers_of(abacusColumn column, uint64_t bytes) {
  return bytes <= numbers(column).size() * sizeof(uint32_t) ? numbers(column).data() : nullptr;
}

}  // namespace tendril::worker::abacus
