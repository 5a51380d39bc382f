// SPDX-License-Identifier: Apache-2.0
// See local_server.h.
#include "cli/local/local_server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "base/clock.h"
#include "config/text.h"

namespace tendril::cli {

using base::Code;
using base::Status;

namespace {

constexpr int kServesMs = 60'000;  // it measures each GPU before

[[noreturn]] void become_local_server(std::vector<std::string> words, const std::string& log_path,
                                      pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (log >= 0) {
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(&word[0]);
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  _exit(127);
}

// TENDRIL_LOCAL_OPTIONS adds words, with blanks between them.
std::vector<std::string> words_of_local_server(const std::string& folder) {
  std::vector<std::string> words = {"tendril",     "serve",          "--port",      "0",
                                    "--port-file", folder + "/port", "--audit-log", "off"};
  const char* const more = getenv("TENDRIL_LOCAL_OPTIONS");
  std::string word;
  for (const char* at = more != nullptr ? more : ""; *at != 0 || !word.empty(); ++at) {
    if (*at != 0 && *at != ' ') {
      word += *at;
      continue;
    }
    if (!word.empty()) words.push_back(word);
    word.clear();
    if (*at == 0) break;
  }
  return words;
}

}  // namespace

LocalServer::~LocalServer() {
  if (process_ > 0) {
    kill(process_, SIGTERM);
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (folder_.empty()) return;
  unlink((folder_ + "/log").c_str());
  unlink((folder_ + "/port").c_str());
  rmdir(folder_.c_str());
}

base::Result<session::Endpoint> LocalServer::standing() {
  const std::string named = config::variable("TENDRIL_LOCAL_SERVER");
  return session::parse_endpoint(named.empty() || named == "new" ? "127.0.0.1" : named);
}

base::Result<session::Endpoint> LocalServer::find(const session::ConnectOptions& connect) {
  const std::string named = config::variable("TENDRIL_LOCAL_SERVER");
  const bool given = !named.empty();
  if (process_ > 0) return session::parse_endpoint(started_);
  if (named == "new") return start();
  auto endpoint = standing();
  if (!endpoint.ok()) return endpoint;
  const auto control = session::Control::connect(*endpoint, connect);
  if (control.ok() || given) return control.ok() ? endpoint : control.status();
  // Somebody is there who does not want us: another server beside it would lend the same GPUs.
  if (control.status().code() != Code::kUnavailable) return control.status();
  return start();
}

base::Result<session::Endpoint> LocalServer::start() {
  char folder[] = "/tmp/tendril-local-XXXXXX";
  if (mkdtemp(folder) == nullptr)
    return base::errno_status(Code::kExhausted, "cannot make a folder for this machine's server",
                              errno);
  folder_ = folder;
  const std::vector<std::string> words = words_of_local_server(folder_);
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ < 0)
    return base::errno_status(Code::kExhausted, "cannot start a server for --local", errno);
  if (process_ == 0) become_local_server(words, folder_ + "/log", parent);
  const base::Deadline deadline(kServesMs);
  for (;;) {
    const auto port = config::read_file(folder_ + "/port");
    if (port.ok() && !port.value().empty()) {
      started_ = "127.0.0.1:" + std::to_string(strtoul(port.value().c_str(), nullptr, 10));
      return session::parse_endpoint(started_);
    }
    int status = 0;
    const bool ended = waitpid(process_, &status, WNOHANG) == process_;
    if (ended) process_ = -1;
    if (ended || deadline.passed()) {
      const auto log = config::read_file(folder_ + "/log");
      return Status(Code::kUnavailable,
                    "no server of this machine answers, and one started for --local does not "
                    "serve; run 'tendril serve' here. It said: " +
                        (log.ok() ? log.value() : log.status().message()));
    }
    usleep(50'000);
  }
}

}  // namespace tendril::cli
