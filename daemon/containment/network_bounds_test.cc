// SPDX-License-Identifier: Apache-2.0
// The kernel itself runs the programs on packets, without a network. Needs root.
#include "daemon/containment/network_bounds.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace tendril::daemon {
namespace {

constexpr uint16_t kFirstPort = 32768;

struct Loaded {
  explicit Loaded(const std::vector<uint64_t>& code, bool leaving) {
    static const char kLicence[] = "Apache-2.0";
    uint32_t attributes[32] = {};
    const auto count = static_cast<uint32_t>(code.size());
    const uint64_t at = reinterpret_cast<uint64_t>(code.data());
    const uint64_t licence = reinterpret_cast<uint64_t>(kLicence);
    attributes[0] = BPF_PROG_TYPE_CGROUP_SKB;
    attributes[1] = count;
    std::memcpy(attributes + 2, &at, sizeof at);
    std::memcpy(attributes + 4, &licence, sizeof licence);
    attributes[17] = leaving ? BPF_CGROUP_INET_EGRESS : BPF_CGROUP_INET_INGRESS;
    program.reset(static_cast<int>(syscall(SYS_bpf, BPF_PROG_LOAD, attributes, 72)));
  }
  base::Fd program;
};

// What the program says of an Ethernet frame; -1: it did not run.
int verdict(const Loaded& loaded, const std::vector<uint8_t>& frame) {
  uint32_t attributes[32] = {};
  const uint64_t at = reinterpret_cast<uint64_t>(frame.data());
  attributes[0] = static_cast<uint32_t>(loaded.program.get());
  attributes[2] = static_cast<uint32_t>(frame.size());
  std::memcpy(attributes + 4, &at, sizeof at);
  const long done = syscall(SYS_bpf, BPF_PROG_TEST_RUN, attributes, 80);
  return done == 0 ? static_cast<int>(attributes[1]) : -1;
}

struct Header {
  std::vector<uint8_t> here, there;  // addresses
  uint16_t near = 40000, far = 41000;
  uint8_t protocol = 6;
  bool leaving = true;
  unsigned options = 0;  // words of IPv4
};

std::vector<uint8_t> frame_of(const Header& h) {
  const bool v6 = h.here.size() == 16;
  std::vector<uint8_t> frame(12, 2);
  const auto add = [&frame](std::initializer_list<unsigned> bytes) {
    for (const unsigned byte : bytes) frame.push_back(static_cast<uint8_t>(byte));
  };
  const auto append = [&frame](const std::vector<uint8_t>& bytes) {
    frame.insert(frame.end(), bytes.begin(), bytes.end());
  };
  const auto& from = h.leaving ? h.here : h.there;
  const auto& to = h.leaving ? h.there : h.here;
  const unsigned source = h.leaving ? h.near : h.far, target = h.leaving ? h.far : h.near;
  if (v6) {
    add({0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, h.protocol, 64});
  } else {
    add({8, 0, 0x45 + h.options, 0, 0, 40 + 4 * h.options, 0, 0, 0, 0, 64, h.protocol, 0, 0});
  }
  append(from);
  append(to);
  append(std::vector<uint8_t>(h.options * 4, 0xff));
  add({source >> 8, source & 255, target >> 8, target & 255});
  append(std::vector<uint8_t>(16, 0));
  return frame;
}

ReachableAddress address_of(const std::vector<uint8_t>& bytes) {
  ReachableAddress made;
  made.is_v6 = bytes.size() == 16;
  std::copy(bytes.begin(), bytes.end(), made.bytes.begin());
  return made;
}

TEST(NetworkBounds, OnlyTcpBetweenHighPortsOfNamedServers) {
  const std::vector<uint8_t> here = {10, 0, 0, 1}, named = {10, 0, 0, 2}, other = {10, 0, 0, 3};
  const std::vector<uint8_t> here6(16, 1),
      named6 = {0xfe, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6};
  std::vector<uint8_t> almost6 = named6;
  almost6[15] ^= 1;
  std::vector<uint8_t> almost6_first = named6;
  almost6_first[0] ^= 1;
  const std::vector<ReachableAddress> reachable = {address_of({10, 0, 0, 9}), address_of(named),
                                                   address_of(here6), address_of(named6)};
  for (const bool leaving : {true, false}) {
    const Loaded loaded(packet_program(reachable, kFirstPort, leaving), leaving);
    if (!loaded.program.valid() && errno == EPERM)
      GTEST_SKIP() << "needs root, and a kernel that lets it load programs";
    ASSERT_TRUE(loaded.program.valid()) << strerror(errno);
    const auto says = [&](Header header) {
      header.leaving = leaving;
      return verdict(loaded, frame_of(header));
    };
    EXPECT_EQ(says({here, named}), 1);
    EXPECT_EQ(says({here, named, kFirstPort, kFirstPort}), 1);
    EXPECT_EQ(says({here, named, 40000, 41000, 6, true, 3}), 1);
    EXPECT_EQ(says({here, other}), 0);
    EXPECT_EQ(says({named, here}), 0) << "the wrong end's address";
    EXPECT_EQ(says({here, named, 40000, 22}), 0);
    EXPECT_EQ(says({here, named, 40000, kFirstPort - 1}), 0);
    EXPECT_EQ(says({here, named, 22, 41000}), 0);
    EXPECT_EQ(says({here, named, 40000, 41000, 17}), 0) << "UDP";
    EXPECT_EQ(says({here6, named6}), 1);
    EXPECT_EQ(says({here6, almost6}), 0);
    EXPECT_EQ(says({here6, almost6_first}), 0);
    EXPECT_EQ(says({here6, named6, 40000, 41000, 17}), 0);
    EXPECT_EQ(says({here6, named6, 40000, 22}), 0);
    const Loaded none(packet_program({}, kFirstPort, leaving), leaving);
    Header header{here, named};
    header.leaving = leaving;
    EXPECT_EQ(verdict(none, frame_of(header)), 0);
  }
}

}  // namespace
}  // namespace tendril::daemon
