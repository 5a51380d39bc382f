// SPDX-License-Identifier: Apache-2.0
// What every store must do, as one suite of tests (store_suite.cc). Each kind of store has a World:
// a place where stores share what they keep. A test file registers its kinds with
// INSTANTIATE_TEST_SUITE_P(Name, StoreSuite, ...).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "store/store.h"

namespace tendril::store {

class World {
 public:
  virtual ~World() = default;
  // Another store of the same place, as another scheduler opens it.
  virtual std::unique_ptr<Store> open() = 0;
};

struct Kind {
  std::string name;
  std::function<std::unique_ptr<World>()> make;  // null: cannot be had here, and the test skips
  friend void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
};

class StoreSuite : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override;
  // `store` gets the lock, which must be free.
  static uint64_t elect(Store& store, const std::string& holder = "one");
  static base::Deadline soon() { return base::Deadline(10'000); }

  std::unique_ptr<World> world_;
};

inline std::string kind_name(const testing::TestParamInfo<Kind>& info) { return info.param.name; }

}  // namespace tendril::store
