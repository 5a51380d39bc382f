// SPDX-License-Identifier: Apache-2.0
// See sandbox.h.
#include "worker/process/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "base/fd.h"
#include "base/landlock.h"
#include "worker/process/filter.h"

namespace tendril::worker {
namespace {

using base::Code;
using base::FileUse;
using base::Landlock;
using base::Status;

// Bounds of one process that no driver comes near. There is none of address space, because CUDA
// reserves hundreds of gigabytes of it, and none of a file's length, because shared pages are files
// as well.
constexpr rlim_t kDescriptorsMax = 16'384;
constexpr rlim_t kThreadsMax = 8'192;  // of all processes of the user
// The kernel ends workers before the daemon when memory runs out.
constexpr char kEndEarly[] = "500";

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

bool write_text(const char* path, const std::string& text) {
  const base::Fd file(open(path, O_WRONLY | O_CLOEXEC));
  return file.valid() &&
         write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Maps the user and group to themselves.
Status enter_namespace() {
  const std::string user = std::to_string(geteuid()), group = std::to_string(getegid());
  if (unshare(CLONE_NEWUSER) != 0)
    return failed("cannot make a user namespace (user.max_user_namespaces, or a security module)",
                  errno);
  if (!write_text("/proc/self/setgroups", "deny") ||
      !write_text("/proc/self/uid_map", user + " " + user + " 1") ||
      !write_text("/proc/self/gid_map", group + " " + group + " 1"))
    return failed("cannot map this user into its namespace", errno);
  return Status();
}

void bound_resources() {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  setrlimit(RLIMIT_MSGQUEUE, &none);
  setrlimit(RLIMIT_RTPRIO, &none);
  setrlimit(RLIMIT_NICE, &none);
  for (const auto& [which, most] :
       {std::pair(RLIMIT_NOFILE, kDescriptorsMax), std::pair(RLIMIT_NPROC, kThreadsMax)}) {
    rlimit limit;
    if (getrlimit(which, &limit) != 0) continue;
    limit.rlim_cur = limit.rlim_max = limit.rlim_max < most ? limit.rlim_max : most;
    setrlimit(which, &limit);
  }
}

Status allow_matching(Landlock* rules, const char* pattern, FileUse use) {
  glob_t found = {};
  Status status;
  if (glob(pattern, GLOB_NOSORT, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc && status.ok(); ++i)
      status = rules->allow(found.gl_pathv[i], use);
  }
  globfree(&found);
  return status;
}

std::vector<std::string> folders_of_libraries() {
  std::vector<std::string> folders;
  const char* path = getenv("LD_LIBRARY_PATH");
  std::string folder;
  for (const char letter : std::string(path != nullptr ? path : "") + ":") {
    if (letter != ':') {
      folder += letter;
      continue;
    }
    if (folder.size() > 1 && folder[0] == '/') folders.push_back(folder);
    folder.clear();
  }
  return folders;
}

// What drivers read and open: libraries, what the kernel tells of processes and devices, and the
// GPUs themselves. Nothing of /etc but the loader's and the driver's, and nobody's home.
Status leave_files(const Confinement& wanted) {
  auto rules = Landlock::files(wanted.networked, wanted.own_folder);
  if (!rules.ok()) {
    const bool may_go_on = rules.status().code() == Code::kUnsupported && !wanted.own_namespace;
    return may_go_on ? Status() : rules.status();
  }
  Status status;
  const auto allow = [&](const std::string& path, FileUse use) {
    if (status.ok()) status = rules->allow(path.c_str(), use);
  };
  for (const char* path :
       {"/usr", "/lib", "/lib64", "/lib32", "/nix/store", "/run/opengl-driver", "/proc", "/sys",
        "/etc/ld.so.cache", "/etc/nvidia", "/etc/localtime", "/dev/urandom", "/dev/random"})
    allow(path, FileUse::kRead);
  // NVIDIA's driver names its threads there when it starts, and fails if it cannot (R580). A rule
  // holds while the kernel remembers the folder, so the descriptor stays open.
  (void)base::Fd(open("/proc/self/task", O_PATH | O_CLOEXEC)).release();
  allow("/proc/self/task", FileUse::kWrite);
  for (const std::string& path : folders_of_libraries()) allow(path, FileUse::kRead);
  for (const std::string& path : wanted.readable) allow(path, FileUse::kRead);
  for (const char* path : {"/dev/null", "/dev/zero"}) allow(path, FileUse::kDevice);
  if (status.ok()) status = allow_matching(&*rules, "/dev/nvidia*", FileUse::kDevice);
  // Cards for RDMA, where the operator lends them.
  const char* const cards = getenv("TENDRIL_RDMA_DEVICE");
  if (cards != nullptr && strcmp(cards, "none") != 0) {
    allow("/etc/libibverbs.d", FileUse::kRead);
    if (status.ok()) status = allow_matching(&*rules, "/dev/infiniband/uverbs*", FileUse::kDevice);
  }
  for (const std::string& path : wanted.writable) allow(path, FileUse::kManage);
  if (wanted.own_folder) {
    allow(kOwnFolder, FileUse::kOwn);
    allow("/etc/OpenCL", FileUse::kRead);
  }
  if (wanted.shares_files) allow("/dev/shm", FileUse::kManage);
  if (status.ok()) status = rules->restrict_thread();
  return status;
}

// A driver names its files by these variables, or by the home of its user.
Status make_own_folder() {
  constexpr char kSettings[] = "mode=1777,size=25%,nr_inodes=100k";
  if (unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tendril", kOwnFolder, "tmpfs", MS_NOSUID | MS_NODEV, kSettings) != 0)
    return failed("cannot give the driver's compiler a folder of its own in memory", errno);
  for (const char* name : {"HOME", "TMPDIR", "XDG_CACHE_HOME", "POCL_CACHE_DIR"})
    setenv(name, kOwnFolder, 1);
  return Status();
}

}  // namespace

Status enter_sandbox(const Confinement& wanted) {
  write_text("/proc/self/oom_score_adj", kEndEarly);
  bound_resources();
  Status status = die_with(wanted.parent);
  if (status.ok() && wanted.own_folder && !wanted.own_namespace) status = make_own_folder();
  if (status.ok() && wanted.user != 0) status = become(wanted.user);
  if (status.ok() && wanted.own_namespace) status = enter_namespace();
  if (status.ok() && wanted.own_folder && wanted.own_namespace) status = make_own_folder();
  // A worker that keeps its user may have some, and has all of them in its namespace.
  if (status.ok()) status = drop_capabilities();
  // A change of user clears the parent's death signal.
  if (status.ok()) status = die_with(wanted.parent);
  if (status.ok()) status = leave_files(wanted);
  if (status.ok() && prctl(PR_SET_DUMPABLE, 0) != 0)
    status = failed("cannot keep other processes from looking into this one", errno);
  return status;
}

Status lock_down(const Calls& calls) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return failed("cannot give up new privileges", errno);
  std::vector<std::string> names = allowed_calls(calls.driver, calls.compiles);
  names.insert(names.end(), calls.extra.begin(), calls.extra.end());
  return install_filter(names, {calls.networked, calls.compiles}, calls.learned);
}

}  // namespace tendril::worker
