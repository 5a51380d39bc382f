// SPDX-License-Identifier: Apache-2.0
// See control.h.
#include "worker/process/control.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <map>
#include <thread>

#include "session/adopt.h"
#include "session/attach.h"

namespace tendril::worker {
namespace {

using base::Code;
using base::Status;

base::Result<wire::AccountingPage*> map_accounting(int fd) {
  void* at = mmap(nullptr, sizeof(wire::AccountingPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED)
    return base::errno_status(Code::kExhausted, "cannot map the accounting page", errno);
  return static_cast<wire::AccountingPage*>(at);
}

base::Result<SessionParts> adopt(SessionParts parts, base::Fd command,
                                 std::map<uint32_t, base::Fd> more) {
  std::vector<base::Fd> ordered;
  for (auto& [number, fd] : more) ordered.push_back(std::move(fd));
  auto adopted = session::adopt_channels(std::move(command), std::move(ordered));
  if (!adopted.ok()) return adopted.status();
  parts.command = std::move(adopted->command);
  parts.bulk = std::move(adopted->bulk);
  return parts;
}

}  // namespace

Status DaemonLink::say_ready() {
  const char word = 'R';
  if (::send(socket_, &word, 1, MSG_NOSIGNAL) != 1) {
    return base::errno_status(Code::kClosed, "the daemon does not listen", errno);
  }
  return Status();
}

base::Result<SessionParts> DaemonLink::receive_session() {
  SessionParts parts;
  base::Fd command;
  std::map<uint32_t, base::Fd> more;
  for (;;) {
    wire::WorkerMessage message = {};
    size_t bytes = 0;
    auto received = session::receive_descriptors(socket_, &message, sizeof message, &bytes);
    if (!received.ok()) return received.status();
    std::vector<base::Fd> fds;
    for (const int fd : *received) fds.emplace_back(fd);
    if (bytes != sizeof message) return Status(Code::kClosed, "the daemon closed its end");
    switch (message.kind) {
      case wire::WorkerMessageKind::kAssign: {
        if (fds.size() != 2 || message.assignment.slice_count > wire::kSlicesMax) break;
        auto page = map_accounting(fds[1].get());
        if (!page.ok()) return page.status();
        parts.accounting = *page;
        parts.assignment = message.assignment;
        command = std::move(fds[0]);
        continue;
      }
      case wire::WorkerMessageKind::kChannel:
        if (fds.size() != 1) break;
        more[message.reserved] = std::move(fds[0]);
        continue;
      case wire::WorkerMessageKind::kStart:
        if (!command.valid()) break;
        return adopt(std::move(parts), std::move(command), std::move(more));
      case wire::WorkerMessageKind::kStop:
        return Status(Code::kClosed, "the daemon ended the session before it began");
    }
    return Status(
        Code::kInvalid,
        "the daemon and this worker do not understand each other; are both of one build?");
  }
}

void DaemonLink::watch_for_stop(session::Service* service) {
  std::thread([socket = socket_, service] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    wire::WorkerMessage message = {};
    size_t bytes = 0;
    const auto received = session::receive_descriptors(socket, &message, sizeof message, &bytes);
    service->end(received.ok() && bytes != 0
                     ? "the server ended this session (its lease ended or was released)"
                     : "the server is shutting down");
  }).detach();
}

}  // namespace tendril::worker
