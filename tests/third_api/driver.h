// SPDX-License-Identifier: Apache-2.0
// The vendor's library of the third API, as the worker sees it: a table of functions, and an
// implementation that adds up columns in ordinary memory. Executor thread.
#pragma once

#include "api/abacus_abi.gen.h"

namespace tendril::worker::abacus {

struct Driver {
  abacusColumnCreate_t* abacusColumnCreate;
  abacusColumnDestroy_t* abacusColumnDestroy;
  abacusColumnGetLength_t* abacusColumnGetLength;
  abacusColumnSummarize_t* abacusColumnSummarize;
  abacusColumnApply_t* abacusColumnApply;
  abacusColumnAdd_t* abacusColumnAdd;
  abacusColumnFill_t* abacusColumnFill;
};

const Driver& driver();

// Where a column's numbers lie, for copies. Null when they are fewer than `bytes` bytes.
void* numbers_of(abacusColumn column, uint64_t bytes);

}  // namespace tendril::worker::abacus
