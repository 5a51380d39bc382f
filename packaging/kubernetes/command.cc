// SPDX-License-Identifier: Apache-2.0
// See command.h.
#include "packaging/kubernetes/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

#include "base/fd.h"

extern char** environ;

namespace tendril::kubernetes {
namespace {

constexpr size_t kOutputMax = 64u << 20;

struct Pipe {
  base::Fd reader, writer;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no descriptors are left");
    reader.reset(ends[0]);
    writer.reset(ends[1]);
  }
};

// False: the end.
bool take(int fd, std::string* text) {
  char part[65536];
  const ssize_t got = read(fd, part, sizeof part);
  if (got < 0 && errno == EINTR) return true;
  if (got > 0 && text->size() < kOutputMax) text->append(part, static_cast<size_t>(got));
  return got > 0;
}

}  // namespace

std::string run_tendril(const std::string& program, const std::vector<std::string>& words) {
  Pipe out, err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out.writer.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.writer.get(), STDERR_FILENO);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = -1;
  const int error = posix_spawnp(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    throw std::runtime_error("cannot run '" + program + "': " + std::string(strerror(error)));
  out.writer.reset();
  err.writer.reset();
  std::string text, said;
  pollfd waits[2] = {{out.reader.get(), POLLIN, 0}, {err.reader.get(), POLLIN, 0}};
  while (waits[0].fd >= 0 || waits[1].fd >= 0) {
    if (poll(waits, 2, -1) < 0 && errno != EINTR) break;
    for (pollfd& wait : waits)
      if (wait.revents != 0 && !take(wait.fd, wait.fd == out.reader.get() ? &text : &said))
        wait.fd = -1;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  while (!said.empty() && said.back() == '\n') said.pop_back();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw std::runtime_error(said.empty() ? "'" + program + "' failed" : said.substr(0, 1000));
  return text;
}

}  // namespace tendril::kubernetes
