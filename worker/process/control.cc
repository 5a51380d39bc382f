// SPDX-License-Identifier: Apache-2.0
// See control.h.
#include "worker/process/control.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <map>
#include <thread>

#include "session/control/adopt.h"
#include "session/control/attach.h"

namespace tendril::worker {
namespace {

using base::Code;
using base::Status;

template <typename Page>
base::Result<Page*> map_page(int fd) {
  void* at = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED)
    return base::errno_status(Code::kExhausted, "cannot map a page that the daemon shares", errno);
  return static_cast<Page*>(at);
}

Status take_assignment(const wire::WorkerMessage& message, std::vector<base::Fd>* fds,
                       SessionParts* parts) {
  auto accounting = map_page<wire::AccountingPage>((*fds)[1].get());
  if (!accounting.ok()) return accounting.status();
  parts->accounting = *accounting;
  parts->assignment = message.assignment;
  auto turns = map_page<wire::TurnPage>((*fds)[2].get());
  if (!turns.ok()) return turns.status();
  parts->turns = {*turns, (*fds)[3].release()};
  return Status();
}

base::Result<SessionParts> adopt(SessionParts parts, base::Fd command,
                                 std::map<uint32_t, base::Fd> more) {
  std::vector<base::Fd> ordered;
  for (auto& [number, fd] : more) ordered.push_back(std::move(fd));
  auto adopted = session::adopt_channels(std::move(command), std::move(ordered));
  if (!adopted.ok()) return adopted.status();
  parts.command = std::move(adopted->command);
  parts.bulk = std::move(adopted->bulk);
  parts.window = std::move(adopted->window);
  return parts;
}

}  // namespace

Status DaemonLink::say(wire::WorkerRequestKind kind, const wire::ExportRecord& record, int fd) {
  wire::WorkerRequest request = {};
  request.kind = kind;
  request.record = record;
  return session::send_descriptors(socket_, &request, sizeof request, &fd, fd >= 0 ? 1 : 0);
}

Status DaemonLink::say_ready() { return say(wire::WorkerRequestKind::kReady, {}, -1); }

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
        if (fds.size() != 4 || message.assignment.slice_count > wire::kSlicesMax) break;
        const Status taken = take_assignment(message, &fds, &parts);
        if (!taken.ok()) return taken;
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
      case wire::WorkerMessageKind::kExport:
        break;
    }
    return Status(
        Code::kInvalid,
        "the daemon and this worker do not understand each other; are both of one build?");
  }
}

void DaemonLink::listen(session::Service* service) {
  std::thread([this, service] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    take_messages(service);
  }).detach();
}

void DaemonLink::take_messages(session::Service* service) {
  for (;;) {
    wire::WorkerMessage message = {};
    size_t bytes = 0;
    auto received = session::receive_descriptors(socket_, &message, sizeof message, &bytes);
    const bool told = received.ok() && bytes != 0;
    std::lock_guard<std::mutex> hold(mutex_);
    if (!told || message.kind != wire::WorkerMessageKind::kExport) {
      gone_ = true;
      answered_.notify_all();
      service->end(told ? "the server ended this session (its lease ended or was released)"
                        : "the server is shutting down");
      return;
    }
    Answer& answer = answer_.emplace();
    answer.answer = static_cast<wire::ExportAnswer>(message.reserved);
    answer.record = message.exported;
    if (!received->empty()) answer.fd.reset(received->front());
    answered_.notify_all();
  }
}

DaemonLink::Answer DaemonLink::ask(wire::WorkerRequestKind kind, const wire::ExportRecord& record,
                                   int fd) {
  std::unique_lock<std::mutex> hold(mutex_);
  answer_.reset();
  if (!gone_ && say(kind, record, fd).ok())
    answered_.wait(hold, [this] { return answer_.has_value() || gone_; });
  if (!answer_.has_value()) return {wire::ExportAnswer::kUnknown, record, {}};
  Answer answer = std::move(*answer_);
  answer_.reset();
  return answer;
}

wire::ExportAnswer DaemonLink::publish(wire::ExportRecord* record, int fd) {
  const Answer answer = ask(wire::WorkerRequestKind::kPublish, *record, fd);
  *record = answer.record;
  return answer.answer;
}

wire::ExportAnswer DaemonLink::fetch(wire::ExportRecord* record, base::Fd* fd) {
  Answer answer = ask(wire::WorkerRequestKind::kFetch, *record, -1);
  *record = answer.record;
  *fd = std::move(answer.fd);
  return answer.answer;
}

void DaemonLink::withdraw(const wire::ExportRecord& record, bool freed) {
  const auto kind = freed ? wire::WorkerRequestKind::kFreed : wire::WorkerRequestKind::kWithdraw;
  (void)ask(kind, record, -1);  // a daemon that is gone ends the session anyway
}

void DaemonLink::release(const wire::ExportRecord& record) {
  (void)say(wire::WorkerRequestKind::kRelease, record, -1);  // as above
}

}  // namespace tendril::worker
