// SPDX-License-Identifier: Apache-2.0
// See landlock.h. The constants are the kernel's (linux/landlock.h), which older headers lack.
#include "base/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstdint>

namespace tendril::base {
namespace {

constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;
constexpr unsigned kAskVersion = 1;
constexpr unsigned kPathBeneath = 1;

struct Ruleset {
  uint64_t files, network, scoped;
};
// As the kernel lays it out.
struct __attribute__((packed)) PathRule {
  uint64_t allowed;
  int32_t folder;
};

constexpr uint64_t kExecute = 1u << 0, kWriteFile = 1u << 1, kReadFile = 1u << 2,
                   kReadFolder = 1u << 3, kRemoveFolder = 1u << 4, kRemoveFile = 1u << 5,
                   kMakeFolder = 1u << 7, kMakeFile = 1u << 8, kMakeLink = 1u << 12,
                   kMoveBetween = 1u << 13, kTruncate = 1u << 14, kIoctlDevice = 1u << 15;
constexpr uint64_t kConnectAndBindTcp = 3, kAbstractSockets = 1, kSignals = 2;

// All rights on files that a version of the interface knows.
uint64_t all_files(int version) {
  const unsigned known = version >= 5 ? 16 : version >= 3 ? 15 : version == 2 ? 14 : 13;
  return (uint64_t{1} << known) - 1;
}

uint64_t rights(FileUse use) {
  constexpr uint64_t kRead = kExecute | kReadFile | kReadFolder;
  switch (use) {
    case FileUse::kRead:
      return kRead;
    case FileUse::kWrite:
      return kRead | kWriteFile | kTruncate;
    case FileUse::kManage:
      return kRead | kWriteFile | kTruncate | kMakeFile | kRemoveFile;
    case FileUse::kOwn:
      return rights(FileUse::kManage) | kRemoveFolder | kMakeFolder | kMakeLink | kMoveBetween;
    case FileUse::kDevice:
      return kReadFile | kReadFolder | kWriteFile | kTruncate | kIoctlDevice;
  }
  return 0;
}

// The kernel refuses a structure that is longer than it knows unless the rest is zero.
Fd make(const Ruleset& rules, int version) {
  const size_t bytes = version >= 6 ? 24 : version >= 4 ? 16 : 8;
  return Fd(static_cast<int>(syscall(kCreateRuleset, &rules, bytes, 0)));
}

Status failed(const char* doing) { return errno_status(Code::kInternal, doing, errno); }

Status absent(const char* what) {
  return Status(Code::kUnsupported, std::string("this kernel cannot ") + what +
                                        " (Landlock is missing, turned off at boot, or too old)");
}

}  // namespace

int Landlock::version() {
  const long answer = syscall(kCreateRuleset, nullptr, 0, kAskVersion);
  return answer > 0 ? static_cast<int>(answer) : 0;
}

Result<Landlock> Landlock::files(bool networked, bool alone) {
  const int known = version();
  if (known == 0) return absent("keep a process from the machine's files");
  const Ruleset rules = {all_files(known), known >= 4 && !networked ? kConnectAndBindTcp : 0,
                         known >= kScopesSince && alone ? kAbstractSockets | kSignals : 0};
  Fd made = make(rules, known);
  if (!made.valid()) return failed("cannot make a set of rules for files");
  return Landlock(std::move(made), rules.files);
}

Result<Landlock> Landlock::outside() {
  const int known = version();
  if (known < kScopesSince) return absent("keep a process from other programs' sockets");
  Fd made = make({0, 0, kAbstractSockets | kSignals}, known);
  if (!made.valid()) return failed("cannot make a set of rules for sockets and signals");
  return Landlock(std::move(made), 0);
}

Status Landlock::allow(const char* path, FileUse use) {
  const Fd folder(open(path, O_PATH | O_CLOEXEC));
  struct stat info;
  if (!folder.valid() || fstat(folder.get(), &info) != 0) {
    const bool is_there = errno != ENOENT && errno != ENOTDIR && errno != EACCES;
    return is_there ? failed((std::string("cannot look at ") + path).c_str()) : Status();
  }
  constexpr uint64_t kOfFiles = kExecute | kWriteFile | kReadFile | kTruncate | kIoctlDevice;
  PathRule rule = {rights(use) & handled_, folder.get()};
  if (!S_ISDIR(info.st_mode)) rule.allowed &= kOfFiles;
  if (syscall(kAddRule, rules_.get(), kPathBeneath, &rule, 0) != 0)
    return failed((std::string("cannot allow the use of ") + path).c_str());
  return Status();
}

Status Landlock::restrict_thread() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("cannot give up new privileges");
  if (syscall(kRestrictSelf, rules_.get(), 0) != 0)
    return failed("cannot give up the use of files, sockets and signals");
  return Status();
}

}  // namespace tendril::base
