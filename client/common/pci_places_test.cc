// SPDX-License-Identifier: Apache-2.0
// Equal places become different ones, and places that differ stay.
#include "client/common/pci_places.h"

#include <gtest/gtest.h>

namespace tendril::client {
namespace {

TEST(PciPlaces, DifferentOnesStay) {
  std::vector<PciPlace> places = {{0, 1, 0}, {0, 2, 0}, {1, 1, 0}, {0, 1, 1}};
  const std::vector<PciPlace> before = places;
  make_distinct(&places);
  EXPECT_EQ(places, before);
}

TEST(PciPlaces, EqualOnesGetTheNextFreeDomain) {
  std::vector<PciPlace> places = {{0, 1, 0}, {0, 1, 0}, {1, 1, 0}, {0, 1, 0}, {0, 2, 0}};
  make_distinct(&places);
  const std::vector<PciPlace> wanted = {{0, 1, 0}, {2, 1, 0}, {1, 1, 0}, {3, 1, 0}, {0, 2, 0}};
  EXPECT_EQ(places, wanted);
}

TEST(PciPlaces, NoneAndOneAreFine) {
  std::vector<PciPlace> none, one = {{7, 8, 9}};
  make_distinct(&none);
  make_distinct(&one);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(one[0], (PciPlace{7, 8, 9}));
}

}  // namespace
}  // namespace tendril::client
