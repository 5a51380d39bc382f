// SPDX-License-Identifier: Apache-2.0
// What the worker remembers of loaded modules and libraries: their members, and what was paid.
#include "worker/cuda/code/loaded_code.h"

#include <gtest/gtest.h>

namespace tendril::worker::cuda {
namespace {

TEST(LoadedCode, MembersGoWithTheirOwnerAndTheirContext) {
  using api::cuda::Kind;
  Objects objects;
  LoadedCode code;
  int things[6], contexts[2];
  const auto id = [](Kind kind, uint32_t index) { return api::make_id(kind, 0, 1, index); };
  const uint64_t module = id(Kind::kModule, 1), function = id(Kind::kFunction, 1),
                 library = id(Kind::kLibrary, 1);
  const uint64_t kernel = id(Kind::kKernel, 1), one = id(Kind::kFunction, 2),
                 two = id(Kind::kFunction, 3);
  ASSERT_TRUE(objects.bind(Kind::kModule, module, &things[0]));
  ASSERT_TRUE(objects.bind(Kind::kFunction, function, &things[1]));
  ASSERT_TRUE(objects.bind(Kind::kLibrary, library, &things[2]));
  ASSERT_TRUE(objects.bind(Kind::kKernel, kernel, &things[3]));
  ASSERT_TRUE(objects.bind(Kind::kFunction, one, &things[4]));
  ASSERT_TRUE(objects.bind(Kind::kFunction, two, &things[5]));
  wire::Assignment assignment{};
  assignment.slice_count = 1;
  constexpr uint64_t kPage = 2u << 20;
  assignment.slices[0].memory_bytes = 20 * kPage;
  Charge charge(assignment, nullptr);
  code.add(module, &contexts[0], nullptr, {2 * kPage, true});
  code.add_member(module, function, &contexts[0]);
  auto image = std::make_shared<int>(7);
  code.add(library, nullptr, image, {kPage, false});
  code.add_member(library, kernel, nullptr);
  code.add_member(kernel, one, &contexts[0]);
  code.add_member(kernel, two, &contexts[1]);
  EXPECT_EQ(image.use_count(), 2);
  EXPECT_TRUE(code.pay(charge, module, 0) && code.pay(charge, module, 0) &&
              code.pay(charge, kernel, 0));
  EXPECT_EQ(charge.used(0), 3 * kPage) << "each once, a kernel for its library";
  EXPECT_TRUE(code.pay_variable(charge, module, 0, 0x7000, 50)) << "known already";
  EXPECT_TRUE(code.pay_variable(charge, library, 0, 0x8000, 3) &&
              code.pay_variable(charge, library, 0, 0x8000, 3));
  EXPECT_FALSE(code.pay_variable(charge, library, 0, 0x9000, 18 * kPage));
  EXPECT_EQ(charge.used(0), 4 * kPage) << "a small one begins a page";

  code.remove_context(objects, charge, &contexts[0]);
  EXPECT_EQ(charge.used(0), 2 * kPage);
  EXPECT_EQ(objects.find(Kind::kModule, module), nullptr);
  EXPECT_EQ(objects.find(Kind::kFunction, function), nullptr);
  EXPECT_EQ(objects.find(Kind::kFunction, one), nullptr);
  EXPECT_NE(objects.find(Kind::kKernel, kernel), nullptr);
  EXPECT_NE(objects.find(Kind::kFunction, two), nullptr);

  code.remove(objects, charge, library);
  EXPECT_EQ(charge.used(0), 0u);
  EXPECT_EQ(objects.find(Kind::kLibrary, library), nullptr);
  EXPECT_EQ(objects.find(Kind::kKernel, kernel), nullptr);
  EXPECT_EQ(objects.find(Kind::kFunction, two), nullptr);
  EXPECT_EQ(image.use_count(), 1);
}

}  // namespace
}  // namespace tendril::worker::cuda
