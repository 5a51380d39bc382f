// SPDX-License-Identifier: Apache-2.0
// `tendril lease hold`: takes a lease in this user's name for a program that nobody launched, and
// holds it until the program ends. The client library starts it (client/core/lessor.cc) and speaks
// over the descriptor: the request of a lease, and its answer, as control messages.
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/servers.h"
#include "session/control/control_io.h"

namespace tendril::cli {
namespace {

using base::Code;
using base::Status;

constexpr int kRequestMs = 10'000;

base::Result<std::unique_ptr<session::Control>> take(const CommonOptions& options,
                                                     const wire::LeaseRequest& request,
                                                     wire::LeaseReply* reply) {
  auto asked = reach(options);
  if (!asked.ok()) return asked.status();
  if (asked->servers.endpoints.size() != 1)
    return Status(Code::kInvalid, "a lease is held on one server; name it with --server");
  auto control = session::Control::connect(asked->servers.endpoints[0], asked->connect);
  if (!control.ok()) return control.status();
  auto lease = (*control)->lease(request);
  if (!lease.ok()) return lease.status();
  *reply = lease.take();
  return control;
}

// Until the program's end or the server's.
void hold(int program, session::Control* control) {
  for (;;) {
    pollfd waits[2] = {{program, POLLIN, 0}, {control->fd(), POLLIN, 0}};
    if (poll(waits, 2, -1) < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) return;
    if (waits[1].revents != 0 && control->has_ended()) return;
  }
}

}  // namespace

int hold_lease(const HoldOptions& options) {
  // What the program has open is not for this process to keep open.
  const long most = sysconf(_SC_OPEN_MAX);
  for (int fd = STDERR_FILENO + 1; fd < most && fd < 65'536; ++fd) {
    if (fd != options.descriptor) close(fd);
  }
  // The program waits for its own child only. The lease is held by another process.
  const pid_t holder = fork();
  if (holder != 0) _exit(holder < 0 ? kFailed : 0);
  setsid();
  session::Connection program(base::Fd(options.descriptor), "the program");
  auto message = session::receive_message(&program, base::Deadline(kRequestMs), kRequestMs);
  wire::LeaseRequest request;
  if (!message.ok() || !message->read(&request))
    return complain(kUsage, "'tendril lease hold' is started by the client library");
  wire::LeaseReply reply;
  auto control = take(options, request, &reply);
  const std::string& text = control.status().message();
  const std::vector<uint8_t> body =
      control.ok() ? wire::encode(reply) : std::vector<uint8_t>(text.begin(), text.end());
  const Status sent = session::send_message(&program, message->kind, control.status().code(), body,
                                            base::Deadline(kRequestMs));
  if (!sent.ok() || !control.ok()) return kFailed;
  hold(program.descriptor(), control->get());
  return 0;
}

}  // namespace tendril::cli
