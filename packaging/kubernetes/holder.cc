// SPDX-License-Identifier: Apache-2.0
// See holder.h.
#include "packaging/kubernetes/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

namespace tendril::kubernetes {
namespace {

constexpr size_t kLineMax = 64u << 10;

// Says which leases `tendril run` has, and does nothing.
constexpr char kIdle[] = "printf '%s\\n' \"$TENDRIL_LEASES\"; exec sleep infinity";

// In the child. Ends with the process that started it.
[[noreturn]] void become(const std::string& tendril, const std::vector<char*>& argv, pid_t parent,
                         int out, int err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execvp(tendril.c_str(), argv.data());
  dprintf(STDERR_FILENO, "cannot run '%s': %s\n", tendril.c_str(), strerror(errno));
  _exit(127);
}

void read_all(int fd, std::string* text) {
  char part[4096];
  for (;;) {
    const ssize_t got = read(fd, part, sizeof part);
    if (got <= 0) return;
    text->append(part, static_cast<size_t>(got));
    if (text->size() > kLineMax) text->erase(0, text->size() - kLineMax);
  }
}

// The last of the whole lines that is not empty, without the command's name. Keeps what follows.
void take_last_line(std::string* text, std::string* line) {
  for (size_t end = text->find('\n'); end != std::string::npos; end = text->find('\n')) {
    std::string next = text->substr(0, end);
    text->erase(0, end + 1);
    if (next.rfind("tendril: ", 0) == 0) next.erase(0, strlen("tendril: "));
    if (!next.empty()) *line = next;
  }
}

}  // namespace

Holder::Folder::~Folder() {
  std::error_code ignored;
  if (!path.empty()) std::filesystem::remove_all(path, ignored);
}

Holder::Holder(const std::string& tendril, const std::vector<std::string>& words,
               const std::string& name) {
  std::string made = (std::filesystem::temp_directory_path() / "tendril-claim-XXXXXX").string();
  if (mkdtemp(made.data()) == nullptr)
    throw std::runtime_error("cannot make a folder '" + made + "': " + strerror(errno));
  folder_.path = made;
  const std::string program = folder_.path + "/" + name;
  int out[2], err[2];
  if (symlink("/bin/sh", program.c_str()) != 0 || pipe2(out, O_CLOEXEC) != 0)
    throw std::runtime_error("cannot hold a lease: " + std::string(strerror(errno)));
  out_.reset(out[0]);
  const base::Fd out_writer(out[1]);
  if (pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("no descriptors are left");
  err_.reset(err[0]);
  const base::Fd err_writer(err[1]);
  std::vector<std::string> all = {tendril, "run"};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), {"--", program, "-c", kIdle});
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ == 0) become(tendril, argv, parent, out[1], err[1]);
  if (process_ < 0) throw std::runtime_error("cannot start a process");
  for (const int fd : {out[0], err[0]}) fcntl(fd, F_SETFL, O_NONBLOCK);
}

Holder::~Holder() {
  if (process_ > 0 && !ended_) {
    // Not SIGTERM: the command would say that its lease is over, even if a program has it now.
    kill(process_, SIGKILL);
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void Holder::look() {
  read_all(out_.get(), &out_text_);
  read_all(err_.get(), &err_text_);
  if (leases_.empty()) take_last_line(&out_text_, &leases_);
  take_last_line(&err_text_, &said_);
  if (!ended_ && waitpid(process_, nullptr, WNOHANG) == process_) {
    ended_ = true;
    read_all(err_.get(), &err_text_);
    take_last_line(&err_text_, &said_);
  }
}

}  // namespace tendril::kubernetes
