// SPDX-License-Identifier: Apache-2.0
// Instantiated graphs that the program knows by the driver's handle.
#include "client/cuda/object.h"

#include <gtest/gtest.h>

#include <vector>

namespace tendril::client::cuda {
namespace {

constexpr uint64_t kDriverHandle = 0x7f12'3456'7890;

class ExecTableTest : public ::testing::Test {
 protected:
  Exec* create() { return table_->create(Kind::kExec, nullptr, nullptr, 0); }
  Exec* find(uint64_t handle) { return table_->find(Kind::kExec, handle); }
  // A table lives as long as its process and frees nothing: reachable for good, or it counts as
  // leaked.
  static ExecTable* kept() {
    static std::vector<ExecTable*>* const all = new std::vector<ExecTable*>;
    all->push_back(new ExecTable);
    return all->back();
  }
  ExecTable* const table_ = kept();
};

TEST_F(ExecTableTest, IsFoundByTheNewHandleOnly) {
  Exec* exec = create();
  Exec* other = create();
  EXPECT_EQ(find(kDriverHandle), nullptr);
  ASSERT_TRUE(table_->rename(exec, kDriverHandle));
  EXPECT_EQ(find(kDriverHandle), exec);
  EXPECT_EQ(find(exec->wire_id), nullptr);
  EXPECT_EQ(find(other->wire_id), other);
  EXPECT_EQ(find(0), nullptr);
  EXPECT_EQ(find(kDriverHandle + 1), nullptr);
}

TEST_F(ExecTableTest, IsGoneWhenDestroyed) {
  Exec* exec = create();
  ASSERT_TRUE(table_->rename(exec, kDriverHandle));
  table_->destroy(exec);
  EXPECT_EQ(find(kDriverHandle), nullptr);
  Exec* next = create();  // a driver uses addresses again
  EXPECT_TRUE(table_->rename(next, kDriverHandle));
  EXPECT_EQ(find(kDriverHandle), next);
}

TEST_F(ExecTableTest, RefusesWhatCannotBeTold) {
  Exec *exec = create(), *other = create();
  EXPECT_FALSE(table_->rename(exec, 0));
  EXPECT_FALSE(table_->rename(exec, other->wire_id));  // a hostile server's
  ASSERT_TRUE(table_->rename(exec, kDriverHandle));
  EXPECT_FALSE(table_->rename(other, kDriverHandle));  // of another server
  EXPECT_EQ(find(other->wire_id), other);
}

}  // namespace
}  // namespace tendril::client::cuda
