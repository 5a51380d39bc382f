// SPDX-License-Identifier: Apache-2.0
// See sandbox.h.
#include "worker/process/sandbox.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace tendril::worker {
namespace {

using base::Code;
using base::Status;

constexpr const char* kDenied[] = {
    // Starting programs and processes. (Threads are made with clone, below.)
    "execve", "execveat", "fork", "vfork",
    // Other processes.
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd",
    "pidfd_open", "pidfd_send_signal", "kcmp", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
    // The file system's shape and doors around its permissions.
    "mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr", "open_by_handle_at", "name_to_handle_at", "mknod",
    "mknodat", "quotactl", "acct", "swapon", "swapoff",
    // The kernel and the machine.
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
    "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
    "iopl", "ioperm", "syslog", "vhangup", "bpf", "perf_event_open", "userfaultfd",
    "lookup_dcookie", "io_uring_setup", "io_uring_enter", "io_uring_register", "fanotify_init",
    // Keys, name spaces, users.
    "add_key", "request_key", "keyctl", "unshare", "setns", "setuid", "setgid", "setreuid",
    "setregid", "setresuid", "setresgid", "setgroups", "setfsuid", "setfsgid", "capset",
    "personality"};

// Sockets of all other families are denied, because they reach beyond this machine. Local sockets
// keep all functions, including listening: a driver's processes pass each other descriptors over
// them, even after the session has begun.
constexpr int kAllowedFamilies[] = {AF_UNIX, AF_NETLINK};
constexpr int kFamiliesMax = 64;  // more than the kernel knows

Status failed(const char* doing, int error) {
  return base::errno_status(Code::kInternal, doing, error);
}

Status die_with(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
    return failed("cannot tie this worker's life to the daemon's", errno);
  // The parent may have died before the line above.
  if (getppid() != parent)
    return Status(Code::kClosed, "the daemon that started this worker is gone");
  return Status();
}

Status drop_capabilities() {
  for (int capability = 0; capability <= 63; ++capability) {
    prctl(PR_CAPBSET_DROP, capability);  // fails for capabilities that the kernel does not know
  }
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0) return failed("cannot drop capabilities", errno);
  return Status();
}

Status become(uint32_t user) {
  if (setgroups(0, nullptr) != 0) return failed("cannot drop supplementary groups", errno);
  if (setresgid(user, user, user) != 0) return failed("cannot change to the worker's group", errno);
  if (setresuid(user, user, user) != 0) return failed("cannot change to the worker's user", errno);
  return Status();
}

class Filter {
 public:
  Filter() : filter_(seccomp_init(SCMP_ACT_ALLOW)) {}
  ~Filter() { seccomp_release(filter_); }

  int build() {
    if (filter_ == nullptr) return ENOMEM;
    int error = -seccomp_attr_set(filter_, SCMP_FLTATR_CTL_TSYNC, 1);
    // Kernels before 5.16 turn speculative store bypass off in a process with a filter. That slows
    // every call of the driver. It protects processes that interpret code for others, and this
    // process interprets none. If the kernel does not know this attribute, nothing changes.
    if (error == 0) seccomp_attr_set(filter_, SCMP_FLTATR_CTL_SSB, 1);
    for (const char* name : kDenied) {
      if (error == 0) error = deny(name, EPERM);
    }
    for (int family = 0; family < kFamiliesMax && error == 0; ++family) {
      const auto* end = std::end(kAllowedFamilies);
      if (std::find(std::begin(kAllowedFamilies), end, family) == end)
        error = deny_socket(SCMP_A0(SCMP_CMP_EQ, static_cast<scmp_datum_t>(family)));
    }
    if (error == 0) error = deny_socket(SCMP_A0(SCMP_CMP_GE, kFamiliesMax));
    const auto no_thread = SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0);
    if (error == 0)
      error = -seccomp_rule_add(filter_, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1, no_thread);
    // Its flags lie in memory, where a filter cannot see them. The C library falls back to clone.
    if (error == 0) error = deny("clone3", ENOSYS);
    const auto other = SCMP_A0(SCMP_CMP_NE, static_cast<scmp_datum_t>(getpid()));
    if (error == 0)
      error = -seccomp_rule_add(filter_, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(kill), 1, other);
    if (error == 0)
      error = -seccomp_rule_add(filter_, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(tgkill), 1, other);
    const auto type_into_terminal = SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffu, TIOCSTI);
    if (error == 0) {
      error =
          -seccomp_rule_add(filter_, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1, type_into_terminal);
    }
    return error;
  }
  // Also sets no_new_privs.
  int load() { return -seccomp_load(filter_); }

 private:
  int deny(const char* name, int answer) {
    const int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR) return 0;  // the library's tables do not have this call yet
    const int error =
        -seccomp_rule_add(filter_, SCMP_ACT_ERRNO(static_cast<uint32_t>(answer)), number, 0);
    return error == EDOM ? 0 : error;  // not a call of this architecture
  }

  int deny_socket(scmp_arg_cmp family) {
    return -seccomp_rule_add(filter_, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1, family);
  }

  scmp_filter_ctx filter_;
};

}  // namespace

Status enter_sandbox(pid_t parent, uint32_t user) {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  Status status = die_with(parent);
  if (status.ok() && user != 0) status = become(user);
  // A change from root to another user drops all capabilities. A worker that stays root must drop
  // its own.
  if (status.ok() && user == 0 && geteuid() == 0) status = drop_capabilities();
  // A change of user clears the parent's death signal.
  if (status.ok()) status = die_with(parent);
  return status;
}

Status lock_down() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return failed("cannot give up new privileges", errno);
  Filter filter;
  int error = filter.build();
  if (error == 0) error = filter.load();
  if (error != 0) return failed("cannot install the filter of system calls", error);
  return Status();
}

}  // namespace tendril::worker
