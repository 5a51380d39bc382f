// SPDX-License-Identifier: Apache-2.0
// See cgroups.h.
#include "daemon/containment/cgroups.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/fd.h"
#include "daemon/containment/host_memory.h"
#include "daemon/log.h"

namespace tendril::daemon {
namespace {

namespace fs = std::filesystem;
using base::Code;
using base::Status;

constexpr char kPrefix[] = "tendril-";
constexpr char kOwn[] = "/tendril-daemon";  // where the daemon goes if it is in the way
constexpr const char* kControllers[] = {"memory", "pids", "cpu", "io"};
constexpr int kEndTries = 20, kEndStepUs = 2'000;

// Errno, or 0.
int write_text(const std::string& path, const std::string& text) {
  const base::Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return errno;
  const ssize_t done = write(file.get(), text.data(), text.size());
  return done == static_cast<ssize_t>(text.size()) ? 0 : errno;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool has_word(const std::string& text, const std::string& word) {
  std::istringstream words(text);
  for (std::string each; words >> each;) {
    if (each == word) return true;
  }
  return false;
}

// A service manager marks what it has handed over. The root of a container's own tree is its own.
bool is_delegated(const std::string& folder, const std::string& place) {
  char value[8];
  for (const char* mark : {"user.delegate", "trusted.delegate"}) {
    if (getxattr(folder.c_str(), mark, value, sizeof value) > 0 && value[0] == '1') return true;
  }
  return place == "/";
}

// Ends every process in the group and below, and removes it.
void end_group(const std::string& folder) {
  write_text(folder + "/cgroup.kill", "1");
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_directory(ignored)) end_group(entry.path());
  }
  for (int tries = 0; tries < kEndTries; ++tries) {
    if (rmdir(folder.c_str()) == 0 || errno != EBUSY) return;
    usleep(kEndStepUs);
  }
}

}  // namespace

base::Result<std::unique_ptr<Cgroups>> Cgroups::open(const std::string& wish) {
  if (wish == "off") return std::unique_ptr<Cgroups>();
  std::string base = wish;
  std::string missing;
  if (wish == "auto") {
    const std::string mount = cgroup_mount(), place = own_cgroup();
    base = mount + (place == "/" ? "" : place);
    if (mount.empty() || place.empty())
      missing = "this system has no cgroup v2";
    else if (!is_delegated(base, place))
      missing = "this service's cgroup is not its own (systemd: Delegate=yes)";
  }
  if (missing.empty()) {
    std::unique_ptr<Cgroups> made(
        new Cgroups(base, base + "/" + kPrefix + std::to_string(getpid())));
    const Status prepared = made->prepare();
    if (prepared.ok()) return made;
    if (wish != "auto") return prepared;
    missing = prepared.message();
  }
  log(Level::kInfo,
      "leases share this machine's memory, threads and processors without bounds of their own: %s",
      missing.c_str());
  return std::unique_ptr<Cgroups>();
}

Status Cgroups::prepare() {
  tidy();
  if (mkdir(top_.c_str(), 0755) != 0)
    return base::errno_status(Code::kInvalid, ("cannot make a cgroup in " + base_).c_str(), errno);
  const std::string offered = read_text(base_ + "/cgroup.controllers");
  for (const char* controller : kControllers) {
    if (!has_word(offered, controller)) continue;
    const std::string wanted = std::string("+") + controller;
    int error = write_text(base_ + "/cgroup.subtree_control", wanted);
    // A group that hands controllers down may have no process of its own.
    if (error == EBUSY) {
      mkdir((base_ + kOwn).c_str(), 0755);
      write_text(base_ + kOwn + "/cgroup.procs", std::to_string(getpid()));
      error = write_text(base_ + "/cgroup.subtree_control", wanted);
    }
    if (error == 0) error = write_text(top_ + "/cgroup.subtree_control", wanted);
    if (error == 0) controllers_ += (controllers_.empty() ? "" : ", ") + std::string(controller);
  }
  return Status();
}

// Groups whose daemon is gone.
void Cgroups::tidy() const {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(base_, ignored)) {
    const std::string name = entry.path().filename();
    if (name.rfind(kPrefix, 0) != 0) continue;
    const auto daemon = static_cast<pid_t>(strtol(name.c_str() + strlen(kPrefix), nullptr, 10));
    if (daemon > 0 && (daemon == getpid() || (kill(daemon, 0) != 0 && errno == ESRCH)))
      end_group(entry.path());
  }
}

Cgroups::~Cgroups() { end_group(top_); }

Status Cgroups::make(const std::string& folder, const lease::HostShare& share) const {
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST)
    return base::errno_status(Code::kExhausted, "cannot make a cgroup for a lease", errno);
  const std::string weight = std::to_string(share.weight);
  const std::pair<const char*, std::string> bounds[] = {
      {"memory.max", std::to_string(share.memory_bytes)},
      {"memory.swap.max", "0"},
      {"pids.max", std::to_string(share.threads)},
      {"cpu.weight", weight},
      {"io.weight", weight}};
  for (const auto& [file, value] : bounds) {
    // Without a controller there is no such file. Some kernels have no weights for disks.
    const int error = write_text(folder + "/" + file, value);
    if (error != 0 && error != ENOENT)
      log(Level::kWarning, "cannot bound a lease by %s: %s", file, strerror(error));
  }
  return Status();
}

Status Cgroups::enter(uint64_t lease_id, const lease::HostShare& share, pid_t process) {
  const std::string folder = top_ + "/lease-" + std::to_string(lease_id);
  std::lock_guard<std::mutex> hold(mutex_);
  if (groups_.emplace(lease_id, Group{folder, share.memory_bytes}).second) {
    const Status made = make(folder, share);
    if (!made.ok()) return made;
  }
  const int error = write_text(folder + "/cgroup.procs", std::to_string(process));
  if (error == 0) return Status();
  return base::errno_status(Code::kExhausted, "cannot put a worker into its lease's cgroup", error);
}

void Cgroups::add_memory(uint64_t lease_id, uint64_t bytes) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = groups_.find(lease_id);
  if (found == groups_.end()) return;
  const int error = write_text(found->second.folder + "/memory.max",
                               std::to_string(found->second.memory_bytes + bytes));
  if (error != 0 && error != ENOENT)
    log(Level::kWarning, "cannot give a parked lease host memory: %s", strerror(error));
}

void Cgroups::remove(uint64_t lease_id) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = groups_.find(lease_id);
  if (found == groups_.end()) return;
  end_group(found->second.folder);
  groups_.erase(found);
}

}  // namespace tendril::daemon
