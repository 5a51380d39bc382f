// SPDX-License-Identifier: Apache-2.0
// See filter.h.
#include "worker/process/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <thread>

#include "base/call_names.h"
#include "base/check.h"
#include "worker/process/allowed.gen.h"

namespace tendril::worker {
namespace {

using base::Code;
using base::Status;

// Sockets of all other families are denied, because they reach beyond this machine. Local sockets
// keep all functions, including listening: a driver's processes pass each other descriptors over
// them, even after the session has begun.
constexpr uint64_t kFamilies[] = {AF_UNIX, AF_NETLINK};
// Of workers that the operator gave a network for NCCL.
constexpr uint64_t kNetworkFamilies[] = {AF_UNIX, AF_NETLINK, AF_INET, AF_INET6};
constexpr uint64_t kFamiliesEnd = 64;  // more than the kernel knows
// They read, or they change how one thread is called and how exactly it sleeps. So the death signal
// that ties this process to the daemon stays, and so does what nobody may look into.
constexpr uint64_t kProcessOptions[] = {PR_GET_PDEATHSIG,  PR_GET_DUMPABLE,    PR_SET_NAME,
                                        PR_GET_NAME,       PR_CAPBSET_READ,    PR_GET_SECCOMP,
                                        PR_SET_TIMERSLACK, PR_GET_TIMERSLACK,  PR_GET_NO_NEW_PRIVS,
                                        PR_GET_TSC,        PR_SET_THP_DISABLE, PR_GET_THP_DISABLE};
constexpr uint64_t kProcessOptionsEnd = 128;
// Typing into a terminal, and signals that a descriptor sends to any process of this user.
constexpr uint64_t kDeniedRequests[] = {TIOCSTI, TIOCLINUX, FIOASYNC, FIOSETOWN, SIOCSPGRP};
constexpr uint64_t kDeniedCommands[] = {F_SETOWN, 15 /* F_SETOWN_EX */, 10 /* F_SETSIG */};

constexpr uint64_t kLowerHalf = 0xffffffffu;  // of a register; the kernel looks at no more

class Filter {
 public:
  explicit Filter(uint32_t otherwise) : filter_(seccomp_init(otherwise)) {
    if (filter_ == nullptr) error_ = ENOMEM;
    keep(-seccomp_attr_set(filter_, SCMP_FLTATR_CTL_TSYNC, 1));
    keep(-seccomp_attr_set(filter_, SCMP_FLTATR_CTL_NNP, 0));  // the sandbox has set it
    // Kernels before 5.16 turn speculative store bypass off in a process with a filter. That slows
    // every call of the driver. It protects processes that interpret code for others, and this
    // process interprets none. If the kernel does not know this attribute, nothing changes.
    if (error_ == 0) seccomp_attr_set(filter_, SCMP_FLTATR_CTL_SSB, 1);
  }
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;
  ~Filter() { seccomp_release(filter_); }

  void allow(const std::string& name) {
    const int number = seccomp_syscall_resolve_name(name.c_str());
    if (number == __NR_SCMP_ERROR || error_ != 0) return;
    const int error = -seccomp_rule_add(filter_, SCMP_ACT_ALLOW, number, 0);
    if (error != EDOM) keep(error);  // EDOM: not a call of this architecture
  }
  void deny(int number, uint32_t answer) {
    if (error_ == 0) keep(-seccomp_rule_add(filter_, SCMP_ACT_ERRNO(answer), number, 0));
  }
  void deny(int number, scmp_arg_cmp when) {
    if (error_ == 0) keep(-seccomp_rule_add(filter_, SCMP_ACT_ERRNO(EPERM), number, 1, when));
  }
  // Denies the call unless its first argument is one of a few small numbers.
  template <size_t kCount>
  void deny_others(int number, const uint64_t (&allowed)[kCount], uint64_t end) {
    for (uint64_t value = 0; value < end; ++value) {
      if (std::find(std::begin(allowed), std::end(allowed), value) == std::end(allowed))
        deny(number, SCMP_A0(SCMP_CMP_EQ, value));
    }
    deny(number, SCMP_A0(SCMP_CMP_GE, end));
  }
  int load() {
    if (error_ == 0) error_ = -seccomp_load(filter_);
    return error_;
  }
  int notifications() const { return seccomp_notify_fd(filter_); }

 private:
  void keep(int error) {
    if (error_ == 0) error_ = error;
  }
  scmp_filter_ctx filter_;
  int error_ = 0;
};

int deny_arguments(const Openings& openings) {
  Filter filter(SCMP_ACT_ALLOW);
  if (openings.networked)
    filter.deny_others(SCMP_SYS(socket), kNetworkFamilies, kFamiliesEnd);
  else
    filter.deny_others(SCMP_SYS(socket), kFamilies, kFamiliesEnd);
  filter.deny_others(SCMP_SYS(prctl), kProcessOptions, kProcessOptionsEnd);
  if (!openings.compiles)
    filter.deny(SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
  // Its flags lie in memory, where a filter cannot see them. The C library falls back to clone.
  filter.deny(SCMP_SYS(clone3), ENOSYS);
  const auto self = static_cast<scmp_datum_t>(getpid());
  filter.deny(SCMP_SYS(kill), SCMP_A0(SCMP_CMP_NE, self));
  filter.deny(SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_NE, self));
  // A number is this process' own or another's; 0 is the caller.
  filter.deny(SCMP_SYS(prlimit64), SCMP_A0(SCMP_CMP_NE, 0));
  filter.deny(SCMP_SYS(sched_setaffinity), SCMP_A0(SCMP_CMP_NE, 0));
  for (const uint64_t request : kDeniedRequests)
    filter.deny(SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_MASKED_EQ, kLowerHalf, request));
  for (const uint64_t command : kDeniedCommands)
    filter.deny(SCMP_SYS(fcntl), SCMP_A1(SCMP_CMP_MASKED_EQ, kLowerHalf, command));
  return filter.load();
}

std::string name_of(int number) {
  const std::unique_ptr<char, void (*)(void*)> name(
      seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number), free);
  return name != nullptr ? name.get() : "call_" + std::to_string(number);
}

// Lets every call go on, and tells of each kind once. It must itself make only calls that are on
// the lists, because nobody else would let those go on.
void tell(int notifications, seccomp_notif* request, seccomp_notif_resp* response,
          const std::function<void(const std::string&)>& learned) {
  std::set<int> known;
  for (;;) {
    memset(request, 0, sizeof *request);  // the kernel insists
    const int received = seccomp_notify_receive(notifications, request);
    if (received == -EINTR || received == -ENOENT || received == -ECANCELED) continue;
    if (received != 0) return;
    response->id = request->id;
    response->val = 0;
    response->error = 0;
    response->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    (void)seccomp_notify_respond(notifications, response);  // the caller may have died
    if (known.insert(request->data.nr).second) learned(name_of(request->data.nr));
  }
}

// The names on a list of this build.
std::vector<std::string> listed(const char* text) {
  std::vector<std::string> names;
  std::string wrong;
  TENDRIL_CHECK(base::read_call_names(text, &names, &wrong));
  return names;
}

}  // namespace

std::vector<std::string> allowed_calls(const std::string& driver, bool compiles) {
  std::vector<std::string> names = listed(kProcessCalls);
  const bool is_software = driver.find("libtendril-softgpu") != std::string::npos;
  for (const std::string& name : listed(is_software ? kSoftwareGpuCalls : kNvidiaCalls))
    names.push_back(name);
  if (compiles)
    for (const std::string& name : listed(kCompilerCalls)) names.push_back(name);
  return names;
}

base::Result<std::vector<std::string>> read_calls(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"), fclose);
  if (file == nullptr) {
    return base::errno_status(
        Code::kNotFound, ("cannot read the list of system calls '" + path + "'").c_str(), errno);
  }
  std::string text;
  char buffer[4096];
  for (size_t got; (got = fread(buffer, 1, sizeof buffer, file.get())) > 0;)
    if (text.size() <= base::kCallNamesBytesMax) text.append(buffer, got);
  std::vector<std::string> names;
  std::string wrong = "it has more than 1 MiB";
  if (text.size() > base::kCallNamesBytesMax || !base::read_call_names(text, &names, &wrong)) {
    return Status(Code::kInvalid, "cannot use the list of system calls '" + path + "': " + wrong);
  }
  return names;
}

Status install_filter(const std::vector<std::string>& names, const Openings& openings,
                      std::function<void(const std::string&)> learned) {
  int error = deny_arguments(openings);
  auto filter = std::make_unique<Filter>(learned ? SCMP_ACT_NOTIFY : SCMP_ACT_ERRNO(EPERM));
  for (const std::string& name : names) filter->allow(name);
  seccomp_notif* request = nullptr;
  seccomp_notif_resp* response = nullptr;
  if (learned && error == 0) error = -seccomp_notify_alloc(&request, &response);
  if (error == 0) error = filter->load();
  if (error != 0)
    return base::errno_status(Code::kInternal, "cannot install the filter of system calls", error);
  if (learned) {
    // The first call off the list waits for this thread, so it must start with calls on the list.
    std::thread([=, filter = filter.release(), learned = std::move(learned)] {
      tell(filter->notifications(), request, response, learned);
    }).detach();
  }
  return Status();
}

}  // namespace tendril::worker
