// SPDX-License-Identifier: Apache-2.0
// See packed_servers.h.
#include "daemon/packed_servers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <system_error>
#include <vector>

#include "base/clock.h"
#include "daemon/log.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

constexpr int kEndMaxMs = 3000;
constexpr const char* kEnv = "/usr/bin/env";

std::string pipes_of(const std::string& folder) { return folder + "/pipe"; }

// env and setpriv give the control program its folders and its user, and end it if the daemon is
// killed.
std::vector<std::string> command(const PackedOptions& options, const std::string& folder) {
  std::vector<std::string> words = {"CUDA_MPS_PIPE_DIRECTORY=" + pipes_of(folder),
                                    "CUDA_MPS_LOG_DIRECTORY=" + folder + "/log", "setpriv",
                                    "--pdeathsig=KILL"};
  if (options.user != 0) {
    const std::string user = std::to_string(options.user);
    words.insert(words.end(), {"--reuid=" + user, "--regid=" + user, "--clear-groups"});
  }
  words.push_back(options.control);
  return words;
}

// A path, or a name that is found by PATH.
bool is_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0;
  const char* const path = getenv("PATH");
  const std::string folders = std::string(path != nullptr ? path : "/usr/bin:/bin") + ":";
  for (size_t begin = 0, end = 0; (end = folders.find(':', begin)) != std::string::npos;
       begin = end + 1) {
    if (access((folders.substr(begin, end - begin) + "/" + name).c_str(), X_OK) == 0) return true;
  }
  return false;
}

base::Result<std::string> make_folder(uint32_t user) {
  char name[] = "/tmp/tendril-packed-XXXXXX";  // short: it becomes part of the names of sockets
  if (mkdtemp(name) == nullptr)
    return base::errno_status(Code::kExhausted, "cannot make a folder in /tmp", errno);
  const std::string folder = name;
  for (const std::string& path : {folder, pipes_of(folder), folder + "/log"}) {
    if (path != folder && mkdir(path.c_str(), 0700) != 0)
      return base::errno_status(Code::kExhausted, "cannot make a folder in /tmp", errno);
    if (user != 0 && chown(path.c_str(), user, user) != 0)
      return base::errno_status(Code::kInternal, "cannot give a folder to the workers' user",
                                errno);
  }
  return folder;
}

void remove_folder(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

bool is_gone(const Child& child, int wait_ms) {
  pollfd wait = {child.pidfd.get(), POLLIN, 0};
  return poll(&wait, 1, wait_ms) == 1;
}

}  // namespace

// Measured with 132 processors (50, 25, 10 % gave 66, 32, 12); reported for 188. For very few
// processors the service gives more (5 % of 132: 8). Nothing relies on that.
uint32_t packed_percent(uint32_t wanted, uint32_t processors, uint32_t share_millionths) {
  if (wanted == 0) return std::min((share_millionths + 9'999) / 10'000, 100u);
  uint32_t percent = 1;
  while (percent < 100 && processors * percent / 100 / 2 * 2 < wanted) ++percent;
  return percent;
}

base::Result<std::unique_ptr<PackedServers::Server>> PackedServers::start() const {
  auto folder = make_folder(options_.user);
  if (!folder.ok()) return folder.status();
  auto server = std::make_unique<Server>();
  server->folder = folder.take();
  std::vector<std::string> words = command(options_, server->folder);
  words.push_back("-f");  // in the foreground, so that it is our child and we see it end
  const base::Fd log_file(
      open((server->folder + "/control.log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  std::promise<base::Result<Child>> promise;
  loop_->post([&] { promise.set_value(start_child(kEnv, words, log_file.get(), -1)); });
  base::Result<Child> child = promise.get_future().get();
  if (!child.ok()) {
    remove_folder(server->folder);
    return child.status();
  }
  server->child = child.take();
  const std::string door = pipes_of(server->folder) + "/control";
  const base::Deadline deadline(options_.start_max_ms);
  while (access(door.c_str(), F_OK) != 0) {
    const bool gone = is_gone(server->child, 10);
    if (!gone && !deadline.passed()) continue;
    if (!gone) kill_child(server->child);
    const std::string how = describe_exit(reap_child(&server->child));
    remove_folder(server->folder);
    return Status(Code::kUnavailable,
                  "packed slices need the vendor's multi-process service, and '" +
                      options_.control + "' " + (gone ? how : "did not start in time") +
                      "; install it on this server, or ask for slices without --packed");
  }
  log(Level::kInfo, "a server for packed slices runs as process %d, in %s", server->child.pid,
      server->folder.c_str());
  return server;
}

bool PackedServers::lives(const Server& server) const { return !is_gone(server.child, 0); }

// Asks the server to end, so that the processes it started end as well. Kills it if that does not
// help.
void PackedServers::end(Server* server) const {
  if (lives(*server)) {
    std::string line = std::string("echo quit -t 1 | ") + kEnv;
    for (const std::string& word : command(options_, server->folder)) line += " '" + word + "'";
    const auto asked = run_child("/bin/sh", {"-c", line}, kEndMaxMs);
    if (!asked.ok() || !is_gone(server->child, kEndMaxMs)) {
      kill(-server->child.pid, SIGKILL);  // its group, with the processes it started
      kill_child(server->child);
    }
  }
  reap_child(&server->child);
  remove_folder(server->folder);
}

Status PackedServers::available() const {
  if (is_program(options_.control)) return Status();
  return Status(Code::kRefused,
                "packed slices need the vendor's multi-process service, and this server has no '" +
                    options_.control + "'; install it there, or ask for slices without --packed");
}

base::Result<PackedServers::Seat> PackedServers::take() {
  std::lock_guard<std::mutex> hold(mutex_);
  if (stopping_) return Status(Code::kUnavailable, "the server is shutting down");
  for (auto& [id, server] : servers_) {
    if (server->taken >= kSeats || !lives(*server)) continue;
    ++server->taken;
    return Seat{id, pipes_of(server->folder)};
  }
  auto started = start();
  if (!started.ok()) return started.status();
  const uint32_t id = next_++;
  Server& server = *(servers_[id] = started.take());
  server.taken = 1;
  if (!tidier_.joinable()) tidier_ = std::thread([this] { tidy(); });
  return Seat{id, pipes_of(server.folder)};
}

void PackedServers::give_back(uint32_t id) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = servers_.find(id);
  if (found == servers_.end() || --found->second->taken != 0) return;
  found->second->idle_since_ns = base::now_ns();
  changed_.notify_all();
}

void PackedServers::tidy() {
  std::unique_lock<std::mutex> hold(mutex_);
  while (!stopping_) {
    const uint64_t now_ns = base::now_ns(),
                   most_ns = static_cast<uint64_t>(options_.idle_max_ms) * 1'000'000;
    uint64_t next_ns = UINT64_MAX;
    std::unique_ptr<Server> idle;
    for (auto at = servers_.begin(); at != servers_.end(); ++at) {
      if (at->second->taken != 0) continue;
      const uint64_t due_ns = at->second->idle_since_ns + most_ns;
      next_ns = std::min(next_ns, due_ns);
      if (due_ns > now_ns) continue;
      idle = std::move(at->second);
      servers_.erase(at);
      break;
    }
    if (idle != nullptr) {
      hold.unlock();
      end(idle.get());
      hold.lock();
    } else if (next_ns == UINT64_MAX) {
      changed_.wait(hold);
    } else {
      changed_.wait_for(hold, std::chrono::nanoseconds(next_ns - now_ns));
    }
  }
}

void PackedServers::stop() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (tidier_.joinable()) tidier_.join();
  for (auto& [id, server] : servers_) end(server.get());
  servers_.clear();
}

}  // namespace tendril::daemon
