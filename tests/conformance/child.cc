// SPDX-License-Identifier: Apache-2.0
// Runs one case of the suite in a process of its own: posix_spawn of this same program, so that the
// child inherits no driver state, thread or handler. Output is captured and shown if the child
// fails.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

#include "tests/conformance/harness.h"

extern char** environ;

namespace tendril::conformance {
namespace {

constexpr char kChildVariable[] = "TENDRIL_CONFORMANCE_CHILD";
constexpr char kTranscriptVariable[] = "TENDRIL_CONFORMANCE_TRANSCRIPT";
constexpr int kTimeoutMs = 60'000;  // far above what any case needs; only ends a hang

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& s : strings) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

bool read_until_end(int fd, std::string* output) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTimeoutMs);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          deadline - std::chrono::steady_clock::now())
                          .count();
    if (left <= 0) return false;
    pollfd waiting{fd, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    char buffer[4096];
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) return true;
    output->append(buffer, static_cast<size_t>(got));
  }
}

// The child's transcript while it runs; empty without one. Its lines are added to ours when it has
// ended, because lines of two processes that write at once have no order.
std::string transcript_of_child() {
  const char* ours = std::getenv(kTranscriptVariable);
  return ours != nullptr && *ours != 0 ? ours + std::string(".child") : std::string();
}

std::string take(const std::string& path) {
  std::string text;
  std::FILE* file = path.empty() ? nullptr : std::fopen(path.c_str(), "r");
  if (file == nullptr) return text;
  char buffer[4096];
  for (size_t got; (got = std::fread(buffer, 1, sizeof buffer, file)) > 0;)
    text.append(buffer, got);
  std::fclose(file);
  unlink(path.c_str());
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

bool in_child() { return std::getenv(kChildVariable) != nullptr; }

ChildResult run_child(const std::string& test, const std::vector<std::string>& environment) {
  ChildResult result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return result;
  std::vector<std::string> arguments = {"/proc/self/exe", "--gtest_filter=" + test,
                                        "--gtest_brief=0", "--gtest_color=no"};
  const std::string transcript = transcript_of_child();
  if (!transcript.empty()) unlink(transcript.c_str());
  std::vector<std::string> variables = environment;  // the first one of a name is found
  variables.push_back(std::string(kTranscriptVariable) + "=" + transcript);
  for (char** entry = environ; *entry; entry++) variables.push_back(*entry);
  variables.push_back(std::string(kChildVariable) + "=1");
  std::vector<char*> argv = pointers(arguments), envp = pointers(variables);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  pid_t pid = -1;
  const int failed =
      posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed) {
    close(ends[0]);
    return result;
  }
  result.timed_out = !read_until_end(ends[0], &result.output);
  close(ends[0]);
  if (result.timed_out) kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.transcript = take(transcript);
  if (!result.transcript.empty()) note(result.transcript);
  result.skipped = result.output.find("[  SKIPPED ]") != std::string::npos;
  return result;
}

void expect_child_passes(const std::string& test) {
  const ChildResult result = run_child(test);
  if (result.skipped && result.exit_code == 0) GTEST_SKIP() << result.output;
  EXPECT_FALSE(result.timed_out) << "the child process hung";
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

void expect_child_passes_or_followed_null(const std::string& test) {
  const ChildResult result = run_child(test);
  // Only the vendor's library exports its debugger's interface.
  const bool vendors = exported("cudbgGetAPI") != nullptr;
  if (vendors && result.exit_code == 128 + SIGSEGV)
    GTEST_SKIP() << "this driver follows the null pointer";
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

}  // namespace tendril::conformance
