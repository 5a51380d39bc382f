// SPDX-License-Identifier: Apache-2.0
// See network_bounds.h. Programs of the kernel's machine are written here by hand: two dozen
// instructions, and two or six for each address.
#include "daemon/containment/network_bounds.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "daemon/log.h"
#include "session/control/attach.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

// Older headers lack them.
constexpr long kOpenFilesystem = 430, kConfigureFilesystem = 431, kMountFilesystem = 432;
constexpr unsigned kCreateFilesystem = 6, kClosesOnExec = 1, kReplaces = 4;
// Two thousand of IPv6 are 12,000 instructions. Jumps are shorter than 32,768.
constexpr size_t kReachableMax = 2048;

// An instruction: operation, registers, jump or offset, constant.
struct Packet {
  static constexpr uint8_t kData = 64;  // below the stack's end: where the header is copied to
  std::vector<uint64_t> code;
  std::vector<size_t> denies, ports;  // jumps to these, whose distance comes later

  void add(int operation, int to, int from, int offset, int32_t constant) {
    code.push_back(static_cast<uint64_t>(operation & 0xff) | static_cast<uint64_t>(to & 15) << 8 |
                   static_cast<uint64_t>(from & 15) << 12 |
                   static_cast<uint64_t>(static_cast<uint16_t>(offset)) << 16 |
                   static_cast<uint64_t>(static_cast<uint32_t>(constant)) << 32);
  }
  void move(int to, int from) { add(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0); }
  void set(int to, int32_t constant) { add(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, constant); }
  void load(int to, int from, int offset, int size) {
    add(BPF_LDX | BPF_MEM | size, to, from, offset, 0);
  }
  void deny_unless(int compare, int which, int32_t constant) {
    // The comparison skips the jump that denies.
    add(BPF_JMP | compare | BPF_K, which, 0, 1, constant);
    denies.push_back(code.size());
    add(BPF_JMP | BPF_JA, 0, 0, 0, 0);
  }
  // Copies `bytes` of the packet from the register's offset on; a shorter packet is denied.
  void copy(int offset_register, int place, int bytes) {
    move(BPF_REG_2, offset_register);
    move(BPF_REG_1, BPF_REG_6);
    move(BPF_REG_3, BPF_REG_10);
    add(BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_3, 0, 0, place);
    set(BPF_REG_4, bytes);
    add(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_skb_load_bytes);
    deny_unless(BPF_JEQ, BPF_REG_0, 0);
  }
  void jump_to_ports(int compare, int a, int b) {
    ports.push_back(code.size());
    add(BPF_JMP | compare | BPF_X, a, b, 0, 0);
  }
  // All 64 bits, as they lie in memory.
  void set_wide(int to, const uint8_t* bytes) {
    int32_t halves[2];
    memcpy(halves, bytes, sizeof halves);
    add(BPF_LD | BPF_IMM | BPF_DW, to, 0, 0, halves[0]);
    add(0, 0, 0, 0, halves[1]);
  }
  void land(const std::vector<size_t>& jumps, size_t at) {
    for (const size_t jump : jumps) {
      code[jump] &= ~(uint64_t{0xffff} << 16);
      code[jump] |= static_cast<uint64_t>(static_cast<uint16_t>(at - jump - 1)) << 16;
    }
  }
  void deny() {
    denies.push_back(code.size());
    add(BPF_JMP | BPF_JA, 0, 0, 0, 0);
  }
};

void match_v4(Packet* packet, const std::vector<ReachableAddress>& reachable, bool leaving) {
  constexpr int kStack = -int{Packet::kData};
  packet->set(BPF_REG_8, 0);
  packet->copy(BPF_REG_8, kStack, 20);
  packet->load(BPF_REG_1, BPF_REG_10, kStack + 9, BPF_B);  // protocol
  packet->deny_unless(BPF_JEQ, BPF_REG_1, IPPROTO_TCP);
  packet->load(BPF_REG_8, BPF_REG_10, kStack, BPF_B);  // words of the header
  packet->add(BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_8, 0, 0, 15);
  packet->add(BPF_ALU64 | BPF_LSH | BPF_K, BPF_REG_8, 0, 0, 2);
  packet->load(BPF_REG_7, BPF_REG_10, kStack + (leaving ? 16 : 12), BPF_W);
  for (const ReachableAddress& address : reachable) {
    if (address.is_v6) continue;
    int32_t bits = 0;
    memcpy(&bits, address.bytes.data(), sizeof bits);
    packet->add(BPF_ALU | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, bits);  // clears the upper half
    packet->jump_to_ports(BPF_JEQ, BPF_REG_7, BPF_REG_3);
  }
  packet->deny();
}

// Headers between this one and TCP's are denied.
void match_v6(Packet* packet, const std::vector<ReachableAddress>& reachable, bool leaving) {
  constexpr int kStack = -int{Packet::kData};
  packet->set(BPF_REG_8, 0);
  packet->copy(BPF_REG_8, kStack, 40);
  packet->load(BPF_REG_1, BPF_REG_10, kStack + 6, BPF_B);  // what comes next
  packet->deny_unless(BPF_JEQ, BPF_REG_1, IPPROTO_TCP);
  packet->set(BPF_REG_8, 40);
  packet->load(BPF_REG_7, BPF_REG_10, kStack + (leaving ? 24 : 8), BPF_DW);
  packet->load(BPF_REG_9, BPF_REG_10, kStack + (leaving ? 32 : 16), BPF_DW);
  for (const ReachableAddress& address : reachable) {
    if (!address.is_v6) continue;
    packet->set_wide(BPF_REG_3, address.bytes.data());
    packet->add(BPF_JMP | BPF_JNE | BPF_X, BPF_REG_7, BPF_REG_3, 3, 0);
    packet->set_wide(BPF_REG_3, address.bytes.data() + 8);
    packet->jump_to_ports(BPF_JEQ, BPF_REG_9, BPF_REG_3);
  }
  packet->deny();
}

// The call that asks the kernel for programs and their places. Its attributes grew with time; what
// is not set is zero.
int ask_kernel(int command, const void* attributes, size_t bytes) {
  return static_cast<int>(syscall(SYS_bpf, command, attributes, bytes));
}

struct LoadAttributes {
  uint32_t kind, instructions;
  uint64_t code, licence;
  uint32_t log_level, log_bytes;
  uint64_t log;
  uint32_t kernel, flags;
  char name[16];
  uint32_t interface, place;
};
static_assert(offsetof(LoadAttributes, place) == 68);

base::Fd load_program(const std::vector<uint64_t>& code, int place) {
  static const char kLicence[] = "Apache-2.0";
  LoadAttributes attributes = {};
  attributes.kind = BPF_PROG_TYPE_CGROUP_SKB;
  attributes.instructions = static_cast<uint32_t>(code.size());
  attributes.code = reinterpret_cast<uint64_t>(code.data());
  attributes.licence = reinterpret_cast<uint64_t>(kLicence);
  attributes.place = static_cast<uint32_t>(place);
  return base::Fd(ask_kernel(BPF_PROG_LOAD, &attributes, sizeof attributes));
}

// `instead`: a program that it replaces; -1: none.
bool attach_program(int group, int program, int place, int instead) {
  struct {
    uint32_t group, program, place, flags, instead;
  } attributes = {static_cast<uint32_t>(group), static_cast<uint32_t>(program),
                  static_cast<uint32_t>(place), BPF_F_ALLOW_MULTI, 0};
  if (instead >= 0) {
    attributes.flags |= kReplaces;
    attributes.instead = static_cast<uint32_t>(instead);
  }
  return ask_kernel(BPF_PROG_ATTACH, &attributes, sizeof attributes) == 0;
}

// The folder of this process' own control group of version 2, wherever that is mounted, if at all.
base::Fd own_group() {
  const base::Fd filesystem(static_cast<int>(syscall(kOpenFilesystem, "cgroup2", kClosesOnExec)));
  if (!filesystem.valid() ||
      syscall(kConfigureFilesystem, filesystem.get(), kCreateFilesystem, nullptr, nullptr, 0) != 0)
    return base::Fd();
  const base::Fd mount(
      static_cast<int>(syscall(kMountFilesystem, filesystem.get(), kClosesOnExec, 0)));
  std::ifstream lines("/proc/self/cgroup");
  std::string place = ".";
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("0::/", 0) == 0 && line.size() > 4) place = line.substr(4);
  }
  if (!mount.valid()) return base::Fd();
  return base::Fd(openat(mount.get(), place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

uint16_t first_free_port() {
  unsigned first = 32768, last = 0;
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  range >> first >> last;
  return static_cast<uint16_t>(std::min(first, 65535u));
}

void add_address(const sockaddr* address, std::vector<ReachableAddress>* all) {
  ReachableAddress made;
  if (address->sa_family == AF_INET) {
    memcpy(made.bytes.data(), &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
  } else if (address->sa_family == AF_INET6) {
    made.is_v6 = true;
    memcpy(made.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
  } else {
    return;
  }
  all->push_back(made);
}

}  // namespace

std::vector<uint64_t> packet_program(const std::vector<ReachableAddress>& reachable,
                                     uint16_t first_port, bool leaving) {
  constexpr int kProtocolAt = 16;  // in what the kernel hands over (__sk_buff)
  constexpr int kPorts = -8;
  Packet packet;
  if (reachable.empty()) {  // the kernel refuses programs with parts that are never reached
    packet.set(BPF_REG_0, 0);
    packet.add(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    return packet.code;
  }
  packet.move(BPF_REG_6, BPF_REG_1);
  packet.load(BPF_REG_7, BPF_REG_6, kProtocolAt, BPF_W);
  const size_t to_v6 = packet.code.size();
  packet.add(BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_7, 0, 0, htons(0x86dd));
  packet.deny_unless(BPF_JEQ, BPF_REG_7, htons(0x0800));
  match_v4(&packet, reachable, leaving);
  packet.land({to_v6}, packet.code.size());
  match_v6(&packet, reachable, leaving);
  packet.land(packet.ports, packet.code.size());
  packet.copy(BPF_REG_8, kPorts, 4);
  for (const int at : {kPorts, kPorts + 2}) {
    packet.load(BPF_REG_1, BPF_REG_10, at, BPF_H);
    packet.add(BPF_ALU | BPF_END | BPF_TO_BE, BPF_REG_1, 0, 0, 16);
    packet.deny_unless(BPF_JGE, BPF_REG_1, first_port);
  }
  packet.set(BPF_REG_0, 1);
  packet.add(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
  packet.land(packet.denies, packet.code.size());
  packet.set(BPF_REG_0, 0);
  packet.add(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
  return packet.code;
}

std::vector<ReachableAddress> addresses_of_host(const std::string& host) {
  std::vector<ReachableAddress> all;
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (host.empty() || getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) {
    log(Level::kWarning, "NCCL reaches no server '%s', because its address is not known",
        printable(host).c_str());
    return all;
  }
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next)
    add_address(each->ai_addr, &all);
  freeaddrinfo(found);
  return all;
}

bool is_loopback(const ReachableAddress& address) {
  constexpr std::array<uint8_t, 16> kThis = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const auto& bytes = address.bytes;
  if (!address.is_v6) return bytes[0] == 127 || bytes[0] == 0;
  if (std::equal(kMapped.begin(), kMapped.end(), bytes.begin())) return bytes[12] == 127;
  return bytes == kThis || bytes == std::array<uint8_t, 16>();
}

void add_reachable(const std::vector<ReachableAddress>& more, std::vector<ReachableAddress>* all) {
  for (size_t i = 0; i < more.size(); ++i) {
    if (std::find(all->begin(), all->end(), more[i]) != all->end()) continue;
    if (all->size() >= kReachableMax) {
      log(Level::kWarning, "NCCL reaches %zu addresses; %zu more are left out", all->size(),
          more.size() - i);
      return;
    }
    all->push_back(more[i]);
  }
}

std::vector<ReachableAddress> reachable_addresses(const std::vector<std::string>& peers,
                                                  bool loopback) {
  std::vector<ReachableAddress> all, found;
  ifaddrs* own = nullptr;
  if (getifaddrs(&own) == 0) {
    for (const ifaddrs* each = own; each != nullptr; each = each->ifa_next) {
      const bool here = (each->ifa_flags & IFF_LOOPBACK) != 0;
      if (each->ifa_addr != nullptr && here == loopback) add_address(each->ifa_addr, &found);
    }
    freeifaddrs(own);
  }
  add_reachable(found, &all);
  for (const std::string& peer : peers) {
    auto endpoint = session::parse_endpoint(peer);
    const bool has_host = endpoint.ok() && !endpoint->host.empty();
    add_reachable(addresses_of_host(has_host ? endpoint->host : peer), &all);
  }
  return all;
}

NetworkBounds::NetworkBounds(base::Fd top, base::Fd group, std::string name)
    : top_(std::move(top)), group_(std::move(group)), name_(std::move(name)) {}

base::Result<std::unique_ptr<NetworkBounds>> NetworkBounds::open(const std::string& group) {
  std::string name;
  base::Fd top, folder;
  if (group.empty()) {
    name = "tendril-network-" + std::to_string(getpid());
    top = own_group();
    if (!top.valid() || (mkdirat(top.get(), name.c_str(), 0755) != 0 && errno != EEXIST))
      return base::errno_status(Code::kUnsupported, "cannot make a control group", errno);
    folder.reset(openat(top.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  } else {
    folder.reset(::open(group.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  if (!folder.valid())
    return base::errno_status(Code::kUnsupported, "cannot open a control group", errno);
  std::unique_ptr<NetworkBounds> made(
      new NetworkBounds(std::move(top), std::move(folder), std::move(name)));
  const Status attached = made->attach({});
  if (!attached.ok()) return attached;
  return made;
}

NetworkBounds::~NetworkBounds() {
  if (!name_.empty()) unlinkat(top_.get(), name_.c_str(), AT_REMOVEDIR);
}

Status NetworkBounds::attach(const std::vector<ReachableAddress>& reachable) {
  const uint16_t first = first_free_port();
  base::Fd leaving = load_program(packet_program(reachable, first, true), BPF_CGROUP_INET_EGRESS);
  base::Fd coming = load_program(packet_program(reachable, first, false), BPF_CGROUP_INET_INGRESS);
  if (!leaving.valid() || !coming.valid() ||
      !attach_program(group_.get(), leaving.get(), BPF_CGROUP_INET_EGRESS, leaving_.get()) ||
      !attach_program(group_.get(), coming.get(), BPF_CGROUP_INET_INGRESS, coming_.get()))
    return base::errno_status(Code::kUnsupported, "cannot bound workers' network", errno);
  leaving_ = std::move(leaving);
  coming_ = std::move(coming);
  attached_ = reachable;
  return Status();
}

Status NetworkBounds::enter(pid_t process, const std::vector<ReachableAddress>& reachable) {
  const std::lock_guard<std::mutex> hold(mutex_);
  if (!(reachable == attached_)) {
    const Status attached = attach(reachable);
    if (!attached.ok()) return attached;
  }
  if (name_.empty()) return Status();
  const base::Fd members(openat(group_.get(), "cgroup.procs", O_WRONLY | O_CLOEXEC));
  const std::string number = std::to_string(process);
  if (members.valid() && write(members.get(), number.data(), number.size()) > 0) return Status();
  return base::errno_status(Code::kExhausted, "cannot bound a worker's network", errno);
}

}  // namespace tendril::daemon
