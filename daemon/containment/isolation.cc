// SPDX-License-Identifier: Apache-2.0
// See isolation.h.
#include "daemon/containment/isolation.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memory>

#include "base/check.h"
#include "base/landlock.h"
#include "daemon/log.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Landlock;
using base::Status;

// systemd's list of users ids calls the first range unused. The second lies between those of people
// and those of nobody; containers often have no ids above 65535.
constexpr uint32_t kFirstUsers[] = {0x70000000, 61000};

// Whether this process' namespace has all of these ids.
bool has_ids(const char* map, uint32_t first, uint32_t count) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(map, "re"), fclose);
  unsigned long long inside = 0, outside = 0, length = 0;
  while (file != nullptr && fscanf(file.get(), "%llu %llu %llu", &inside, &outside, &length) == 3) {
    if (inside <= first && first + uint64_t{count} <= inside + length) return true;
  }
  return false;
}

bool has_users(uint32_t first, uint32_t count) {
  return has_ids("/proc/self/uid_map", first, count) && has_ids("/proc/self/gid_map", first, count);
}

}  // namespace

base::Result<Isolation> choose_isolation(const IsolationWish& wish, uint32_t users) {
  if (wish.user != "auto" && wish.user != "none") {
    char* end = nullptr;
    const unsigned long first = strtoul(wish.user.c_str(), &end, 10);
    if (wish.user.empty() || *end != 0 || first == 0 || first > 0x7fffffff) {
      return Status(Code::kInvalid,
                    "--worker-user takes auto, none or the first of a range of user ids");
    }
    if (geteuid() != 0)
      return Status(Code::kInvalid, "--worker-user needs a daemon that runs as root");
    return Isolation{Isolation::Kind::kUsers, static_cast<uint32_t>(first)};
  }
  if (wish.user == "none") {
    if (wish.weak) return Isolation{};
    return refuse_weak_isolation("--worker-user none leaves workers this daemon's user");
  }
  if (geteuid() == 0) {
    for (const uint32_t first : kFirstUsers) {
      if (has_users(first, users)) return Isolation{Isolation::Kind::kUsers, first};
    }
    if (wish.weak) return Isolation{};
    return refuse_weak_isolation("this container has fewer than " + std::to_string(users) +
                                 " user ids for workers; give it more, or lower --workers-max");
  }
  if (Landlock::version() != 0) return Isolation{Isolation::Kind::kNamespaces, 0};
  if (wish.weak) return Isolation{};
  return refuse_weak_isolation(
      "this daemon is not root, and the kernel has no Landlock (Linux 5.13, lsm=landlock)");
}

Status refuse_weak_isolation(const std::string& why) {
  return Status(Code::kUnsupported,
                "refusing to serve: a tenant that takes over its worker could reach other tenants' "
                "data and this user's files: " +
                    why +
                    ". Start tendril serve as root, so that each lease has a user of its own, or "
                    "pass --weak-isolation if you trust everybody who may use this server");
}

std::string describe(const Isolation& isolation) {
  std::string text;
  switch (isolation.kind) {
    case Isolation::Kind::kUsers:
      text = "each lease's workers run as a user of their own, from " +
             std::to_string(isolation.first_user) + " on";
      break;
    case Isolation::Kind::kNamespaces:
      text =
          "workers run in user namespaces; a daemon started by root gives each lease a user of "
          "its own";
      break;
    case Isolation::Kind::kWeak:
      text =
          "workers run as this daemon's user (--weak-isolation): whoever takes one over may "
          "reach other tenants";
      break;
  }
  if (Landlock::version() == 0)
    text += "; this kernel cannot keep them from files that others may read (no Landlock)";
  return text;
}

Status Networks::leave() {
  constexpr const char* kNetwork = "/proc/thread-self/ns/net";
  base::Fd machines(open(kNetwork, O_RDONLY | O_CLOEXEC));
  if (!machines.valid() || unshare(CLONE_NEWNET | CLONE_NEWIPC) != 0)
    return base::errno_status(Code::kUnsupported, "cannot make a network namespace", errno);
  machines_ = std::move(machines);
  own_.reset(open(kNetwork, O_RDONLY | O_CLOEXEC));
  return Status();
}

void Networks::in_machines(const std::function<void()>& start) const {
  const bool elsewhere = machines_.valid() && own_.valid();
  if (elsewhere && setns(machines_.get(), CLONE_NEWNET) != 0)
    log(Level::kError, "a worker for NCCL gets no network: %s", strerror(errno));
  start();
  // Workers that come next must not be in the machine's network.
  if (elsewhere) TENDRIL_CHECK(setns(own_.get(), CLONE_NEWNET) == 0);
}

Status keep_children_inside() {
  auto rules = Landlock::outside();
  return rules.ok() ? rules->restrict_thread() : rules.status();
}

}  // namespace tendril::daemon
