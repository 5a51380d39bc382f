// SPDX-License-Identifier: Apache-2.0
// See lessor.h.
#include "client/core/lessor.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "session/control/control_io.h"
#include "session/control/lease_socket.h"

namespace tendril::client::core {
namespace {

using base::Code;
using base::Status;

constexpr int kHelpersDescriptor = 3;
constexpr size_t kHelpersStackBytes = 256 << 10;
constexpr int kAnswerMs = 120'000;  // the lease may wait for others
constexpr int kWholeMs = 5'000;
constexpr int kQueueMs = 1'000'000'000;  // for ever: who holds the lease ends, or answers

// The file that this code was loaded from. (dladdr would need another library.)
struct Loaded {
  uintptr_t code = reinterpret_cast<uintptr_t>(&command_lessor);
  std::string file;
};

int find_loaded(dl_phdr_info* object, size_t /*bytes*/, void* argument) {
  auto* const loaded = static_cast<Loaded*>(argument);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const uintptr_t begin = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
    if (object->dlpi_phdr[i].p_type != PT_LOAD || loaded->code < begin ||
        loaded->code - begin >= object->dlpi_phdr[i].p_memsz) {
      continue;
    }
    loaded->file = object->dlpi_name;
    return 1;
  }
  return 0;
}

std::string command() {
  const char* named = getenv("TENDRIL_COMMAND");
  if (named != nullptr && *named != 0) return named;
  Loaded loaded;
  dl_iterate_phdr(find_loaded, &loaded);
  const size_t slash = loaded.file.rfind('/');
  if (slash != std::string::npos) {
    const std::string beside = loaded.file.substr(0, slash) + "/../../bin/tendril";
    if (access(beside.c_str(), X_OK) == 0) return beside;
  }
  return "tendril";
}

// What is preloaded into the program is not for the command.
std::vector<char*> environment_of_command() {
  std::vector<char*> kept;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    if (strncmp(*each, "LD_", 3) != 0) kept.push_back(*each);
  }
  kept.push_back(nullptr);
  return kept;
}

// Starts the command and waits for its end. 0 or an errno.
int run_command(const std::string& file, const std::vector<std::string>& arguments,
                int descriptor) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, descriptor, kHelpersDescriptor);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  argv.push_back(const_cast<char*>("tendril"));
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::vector<char*> kept = environment_of_command();
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, file.c_str(), &actions, &attributes, argv.data(), kept.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  // It continues in a process of its own and ends at once.
  while (failed == 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return failed;
}

struct Helped {
  const std::string* file;
  const std::vector<std::string>* arguments;
  int descriptor;
  int failed;
};

int help(void* argument) {
  auto* const helped = static_cast<Helped*>(argument);
  helped->failed = run_command(*helped->file, *helped->arguments, helped->descriptor);
  return 0;
}

// Starts the command out of the program's sight: the program gets no SIGCHLD, and its wait() finds
// no child. A process that is executed always sends SIGCHLD to its parent. So its parent is a
// helper, which shares this memory while this thread stands still, executes nothing, and ends
// without a signal. 0 or an errno.
int spawn(const std::string& file, const std::vector<std::string>& arguments, int descriptor) {
  std::vector<char> stack(kHelpersStackBytes);
  const uintptr_t top = reinterpret_cast<uintptr_t>(stack.data() + stack.size()) & ~uintptr_t{15};
  Helped helped = {&file, &arguments, descriptor, 0};
  // No handler of the program runs in the helper.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t helper = clone(help, reinterpret_cast<void*>(top), CLONE_VM | CLONE_VFORK, &helped);
  const int cloned = helper < 0 ? errno : 0;
  while (helper > 0 && waitpid(helper, nullptr, __WCLONE) < 0 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return cloned != 0 ? cloned : helped.failed;
}

class CommandLessor final : public session::Lessor {
 public:
  base::Result<wire::LeaseReply> lease(const session::Endpoint& endpoint,
                                       const wire::LeaseRequest& request) override {
    return from_command({endpoint}, request, kAnswerMs);
  }

  base::Result<wire::LeaseReply> pool_lease(const std::vector<session::Endpoint>& pools,
                                            const wire::LeaseRequest& request) override {
    // Who started this process may hold a lease already.
    for (base::Fd& holder : session::lease_holders()) {
      base::Result<wire::LeaseReply> shared = ask(pools[0], std::move(holder), request, kQueueMs);
      if (shared.ok()) return shared;
    }
    return from_command(pools, request, kQueueMs);
  }

 private:
  static base::Result<wire::LeaseReply> from_command(
      const std::vector<session::Endpoint>& endpoints, const wire::LeaseRequest& request,
      int answer_ms) {
    const session::Endpoint& endpoint = endpoints[0];
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return base::errno_status(Code::kExhausted, "making a pair of sockets", errno);
    base::Fd mine(ends[0]), theirs(ends[1]);
    // Not the number that the command uses: dup2 to itself would leave it closed there.
    if (theirs.get() == kHelpersDescriptor)
      theirs.reset(fcntl(theirs.get(), F_DUPFD_CLOEXEC, kHelpersDescriptor + 1));
    const std::string file = command();
    std::vector<std::string> words = {"lease", "hold", "--fd", std::to_string(kHelpersDescriptor)};
    for (const session::Endpoint& each : endpoints) {
      words.push_back("--server");
      words.push_back(each.text);
    }
    const int failed = spawn(file, words, theirs.get());
    theirs.reset();
    if (failed != 0) {
      return Status(Code::kUnavailable,
                    endpoint.text + " wants to know who asks, and the command '" + file +
                        "' that would say it does not start (" + strerror(failed) +
                        "); run the program under 'tendril run', or name the command in "
                        "TENDRIL_COMMAND");
    }
    return ask(endpoint, std::move(mine), request, answer_ms);
  }

  static base::Result<wire::LeaseReply> ask(const session::Endpoint& endpoint, base::Fd fd,
                                            const wire::LeaseRequest& request, int answer_ms) {
    session::Connection connection(std::move(fd), "tendril lease hold");
    const uint16_t kind = static_cast<uint16_t>(wire::Request::kLease);
    const Status sent = session::send_message(&connection, kind, Code::kOk, wire::encode(request),
                                              base::Deadline(kWholeMs));
    base::Result<session::Message> answer =
        sent.ok() ? session::receive_message(&connection, base::Deadline(answer_ms), kWholeMs)
                  : base::Result<session::Message>(sent);
    wire::LeaseReply reply;
    if (answer.ok() && answer->code != Code::kOk)
      return Status(answer->code, session::cleaned(answer->text()));
    if (!answer.ok() || !answer->read(&reply)) {
      return Status(Code::kUnavailable,
                    endpoint.text +
                        " wants to know who asks, and 'tendril lease hold', which would say "
                        "it, ended without an answer; run the program under 'tendril "
                        "run'");
    }
    // Open until this process ends. The lease ends then.
    (void)connection.take_descriptor().release();
    return reply;
  }
};

}  // namespace

std::shared_ptr<session::Lessor> command_lessor() { return std::make_shared<CommandLessor>(); }

}  // namespace tendril::client::core
