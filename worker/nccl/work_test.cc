// SPDX-License-Identifier: Apache-2.0
// What clients may not make NCCL believe.
#include <gtest/gtest.h>

#include <cstring>

#include "api/nccl/variables.h"
#include "worker/nccl/variables.h"
#include "worker/nccl/work.h"

namespace tendril::worker::nccl {
namespace {

using api::nccl::Element;
using api::nccl::What;

bool reads(const Element& element, uint64_t extra_bytes) {
  std::vector<Element> work;
  return read_work(reinterpret_cast<const uint8_t*>(&element), sizeof element, extra_bytes, &work);
}

Element init() {
  Element element;
  element.what = What::kInit;
  element.count = 2;
  element.ids = 1;
  return element;
}

TEST(NcclWork, IdsAndConfigurationLieInside) {
  EXPECT_TRUE(reads(init(), 128));
  EXPECT_FALSE(reads(init(), 127));
  Element element = init();
  element.ids_at = UINT32_MAX;
  EXPECT_FALSE(reads(element, 128));
  element = init();
  element.ids = UINT32_MAX;
  EXPECT_FALSE(reads(element, 128));
  element = init();
  element.config_at = 128;
  element.config_bytes = sizeof(ncclConfig_t);
  EXPECT_TRUE(reads(element, 128 + sizeof(ncclConfig_t)));
  EXPECT_FALSE(reads(element, 127 + sizeof(ncclConfig_t)));
  element.config_bytes = api::nccl::kConfigBytesMax + 1;
  EXPECT_FALSE(reads(element, 4096));
}

TEST(NcclWork, NumbersThatNcclDoesNotKnow) {
  Element element;
  EXPECT_FALSE(reads(element, 0));
  element.what = What::kAllReduce;
  EXPECT_TRUE(reads(element, 0));
  element.operation = api::nccl::kPreMulSum;
  EXPECT_TRUE(reads(element, 0));
  element.operation = ncclNumOps;  // would be an address in NCCL's tables
  EXPECT_FALSE(reads(element, 0));
  element = init();
  element.count = 0;
  EXPECT_FALSE(reads(element, 128));
  std::vector<Element> work;
  EXPECT_FALSE(read_work(nullptr, 0, 0, &work));
  EXPECT_FALSE(read_work(reinterpret_cast<const uint8_t*>(&element), sizeof element - 1, 0, &work));
}

TEST(NcclWork, RanksThatAreLeftOutLieInside) {
  Element element;
  element.what = What::kShrink;
  element.ids = 2;
  element.made = 5;
  EXPECT_TRUE(reads(element, 8));
  EXPECT_FALSE(reads(element, 7));
  EXPECT_EQ(ranks_of(element, std::string("\1\0\0\0\3\0\0\0", 8)), (std::vector<int>{1, 3}));
  element.made = 0;
  EXPECT_FALSE(reads(element, 8));
}

// The pointer at `at` of what the server reads from a configuration that has `value` there.
const char* pointer_read(What what, uint32_t bytes, uint32_t at, uint64_t value,
                         const std::string& behind, Configuration* read) {
  std::string extra(bytes, '\0');
  std::memcpy(extra.data() + at, &value, sizeof value);
  Element element;
  element.what = what;
  element.config_bytes = bytes;
  read_configuration(element, extra + behind, read);
  const char* pointer = nullptr;
  std::memcpy(&pointer, read->bytes + at, sizeof pointer);
  return pointer;
}

TEST(NcclWork, PointersOfAConfigurationPointHereOrNowhere) {
  constexpr uint32_t kBytes = api::nccl::kConfigBytesMax;
  const std::string name("Socket", 7);
  Configuration whole, beyond, endless, event, algorithm;
  const char* read = pointer_read(What::kInit, kBytes, 48, kBytes, name, &whole);
  ASSERT_NE(read, nullptr);
  EXPECT_STREQ(read, "Socket");
  EXPECT_EQ(read, whole.texts[0]);  // the first text that was read lies in the first place
  EXPECT_EQ(pointer_read(What::kInit, kBytes, 32, ~uint64_t{0}, name, &beyond), nullptr);
  EXPECT_EQ(pointer_read(What::kInit, kBytes, 32, kBytes, "no end", &endless), nullptr);
  constexpr uint32_t kCollective = api::nccl::kCollConfigBytesMax;
  EXPECT_EQ(pointer_read(What::kReduce, kCollective, api::nccl::kCollConfigEventAt, kCollective,
                         name, &event),
            nullptr);
  EXPECT_STREQ(pointer_read(What::kReduce, kCollective, 40, kCollective, name, &algorithm),
               "Socket");
  Configuration none;
  read_configuration(Element(), name, &none);
  EXPECT_EQ(none.of_communicator(), nullptr);
}

TEST(NcclWork, OnlySomeVariablesAreTheProgramsToChoose) {
  const std::string sent = std::string("NCCL_ALGO=Ring") + '\0' + "NCCL_NET_PLUGIN=/tmp/x.so" +
                           '\0' + "NCCL_DEBUG_FILE=/tmp/x" + '\0' + "NCCL_PROTO=\x01" + '\0' +
                           "NCCL_DEBUG" + '\0' + "LD_PRELOAD=x" + '\0' + "NCCL_NTHREADS=64";
  EXPECT_EQ(allowed_variables(reinterpret_cast<const uint8_t*>(sent.data()), sent.size()),
            (Variables{{"NCCL_ALGO", "Ring"}, {"NCCL_NTHREADS", "64"}}));
  const std::string much(api::nccl::kVariablesBytesMax + 1, 'x');
  EXPECT_TRUE(
      allowed_variables(reinterpret_cast<const uint8_t*>(much.data()), much.size()).empty());
}

std::vector<transport::rdma::PortState> ports() {
  return {{"mlx5_0", 1, true, true, 100'000, "eth4"},
          {"mlx5_1", 1, true, true, 100'000, "eth5"},
          {"mlx5_2", 1, true, false, 100'000, "eth6"},
          {"mlx5_3", 1, false, true, 40'000, ""}};
}

TEST(NetworkVariables, NcclGetsTheCardsThatAreLentAndWork) {
  const Variables roce = {{"NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"}};
  EXPECT_EQ(network_variables("any", false, nullptr, ports()), roce);
  EXPECT_EQ(network_variables("mlx5_0,mlx5_1:1,mlx5_2", false, "eth", ports()), roce);
  EXPECT_EQ(network_variables("mlx5_3", false, nullptr, ports()),
            (Variables{{"NCCL_IB_HCA", "=mlx5_3:1"}}));
}

TEST(NetworkVariables, WhereSocketsAreNamedTheCardsAreOfTheSameInterfaces) {
  EXPECT_EQ(network_variables("any", false, "=eth5,eth0", ports()),
            (Variables{{"NCCL_IB_HCA", "=mlx5_1:1"}}));
  EXPECT_EQ(network_variables("mlx5_0,mlx5_3", false, "=ib0", ports()),
            (Variables{{"NCCL_IB_HCA", "=mlx5_3:1"}}))
      << "InfiniBand shows no interface there";
}

TEST(NetworkVariables, WithoutACardNcclDoesNotLookForOne) {
  const Variables none = {{"NCCL_IB_DISABLE", "1"}};
  EXPECT_EQ(network_variables(nullptr, false, nullptr, ports()), none);
  EXPECT_EQ(network_variables("none", false, nullptr, ports()), none);
  EXPECT_EQ(network_variables("any", false, nullptr, {}), none);
  EXPECT_EQ(network_variables("mlx5_2", false, nullptr, ports()), none) << "its port is down";
  EXPECT_EQ(network_variables("any", true, nullptr, ports()), none) << "the policy forbids it";
}

}  // namespace
}  // namespace tendril::worker::nccl
