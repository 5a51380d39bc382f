// SPDX-License-Identifier: Apache-2.0
// See control.h.
#include "worker/process/control.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "base/text.h"
#include "session/choice/trial_entry.h"
#include "session/control/connection.h"
#include "transport/sealed/sealed.h"
#include "transport/tcp/socket.h"
#include "wire/control.h"

namespace tendril::worker {
namespace {

constexpr size_t kTextBytesMost = 1000;  // for people

using base::Code;
using base::Status;

// The client notices a cut later than this end, and its time begins then.
constexpr uint32_t kOutageMarginMs = 5000;

template <typename Page>
base::Result<Page*> map_page(int fd) {
  void* at = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED)
    return base::errno_status(Code::kExhausted, "cannot map a page that the daemon shares", errno);
  return static_cast<Page*>(at);
}

Status take_assignment(const wire::WorkerMessage& message, std::vector<base::Fd>* fds,
                       SessionParts* parts) {
  auto accounting = map_page<wire::AccountingPage>((*fds)[0].get());
  if (!accounting.ok()) return accounting.status();
  parts->accounting = *accounting;
  parts->assignment = message.assignment;
  auto turns = map_page<wire::TurnPage>((*fds)[1].get());
  if (!turns.ok()) return turns.status();
  parts->turns = {*turns, (*fds)[2].release()};
  return Status();
}

base::Result<Received> receive(int socket) {
  std::vector<uint8_t> buffer(sizeof(wire::WorkerMessage) + wire::kTailBytesMax);
  size_t bytes = 0;
  auto fds = session::receive_descriptors(socket, buffer.data(), buffer.size(), &bytes);
  if (!fds.ok()) return fds.status();
  Received received;
  for (const int fd : *fds) received.fds.emplace_back(fd);
  if (bytes < sizeof received.message) return Status(Code::kClosed, "the daemon closed its end");
  memcpy(&received.message, buffer.data(), sizeof received.message);
  received.tail.assign(buffer.begin() + sizeof received.message,
                       buffer.begin() + static_cast<ptrdiff_t>(bytes));
  return received;
}

wire::ExportRecord record_of_passage(uint32_t number, const wire::PassageToken& token) {
  wire::ExportRecord record = {};
  record.bytes = number;
  memcpy(record.content, &token, sizeof token);
  return record;
}

base::Result<std::unique_ptr<transport::Channel>> passage_channel(Received* received,
                                                                  bool dialled) {
  if (received->fds.empty())
    return Status(Code::kUnavailable, std::string(received->tail.begin(), received->tail.end()));
  const session::Connection facts(base::Fd(), received->message.connection);
  auto channel = transport::socket_channel(std::move(received->fds.front()));
  if (received->message.connection.sealed == 0) return channel;
  // Each line has keys of its own. Both ends know it by the same index, not by the same number.
  const auto line = static_cast<uint16_t>(received->message.reserved / wire::kPassageLine);
  return transport::sealed(std::move(channel), facts.keys(),
                           static_cast<uint16_t>(wire::kPassageChannels | line),
                           dialled ? transport::SealedEnd::kClient : transport::SealedEnd::kWorker);
}

wire::ExportRecord record_of_image(const std::string& hash, uint64_t bytes) {
  wire::ExportRecord record = {};
  record.bytes = bytes;
  memcpy(record.content, hash.data(), std::min(hash.size(), sizeof record.content));
  return record;
}

}  // namespace

Status DaemonLink::say(wire::WorkerRequestKind kind, const wire::ExportRecord& record, int fd,
                       uint32_t number) {
  wire::WorkerRequest request = {};
  request.kind = kind;
  request.reserved = number;
  request.record = record;
  return session::send_descriptors(socket_, &request, sizeof request, &fd, fd >= 0 ? 1 : 0);
}

Status DaemonLink::say_ready() { return say(wire::WorkerRequestKind::kReady, {}, -1); }

void DaemonLink::say_text(wire::WorkerRequestKind kind, const std::string& text) {
  wire::ExportRecord record = {};
  memcpy(record.content, text.data(), std::min(text.size(), sizeof record.content - 1));
  (void)say(kind, record, -1);
}

void DaemonLink::say_learned(const std::string& call) {
  say_text(wire::WorkerRequestKind::kLearned, call);
}

void DaemonLink::tell_direct(const std::string& text) {
  wire::WorkerRequest request = {};
  request.kind = wire::WorkerRequestKind::kDirect;
  say_at_length(request, base::printable(text, kTextBytesMost));
}

void DaemonLink::say_at_length(const wire::WorkerRequest& request, const std::string& tail) {
  const auto* raw = reinterpret_cast<const uint8_t*>(&request);
  std::vector<uint8_t> all(raw, raw + sizeof request);
  all.insert(all.end(), tail.begin(), tail.end());
  (void)session::send_descriptors(socket_, all.data(), all.size(), nullptr, 0);
}

base::Result<session::Choice> DaemonLink::answer_offers(const wire::WorkerMessage& message,
                                                        const std::vector<uint8_t>& tail) {
  wire::TransportOffers offers;
  transport::Setting setting;
  setting.bulk_channels = static_cast<uint16_t>(message.assignment.bulk_channels);
  setting.sealed = !session::Connection(base::Fd(), message.connection).keys().empty();
  base::Result<session::Choice> choice =
      wire::decode(tail.data(), tail.size(), &offers)
          ? session::choose(offers, setting)
          : base::Result<session::Choice>(Status(Code::kInvalid, "the offers are malformed"));
  wire::TransportAnswers answers;
  if (choice.ok()) {
    answers = choice->answers;
  } else {
    answers.answers.push_back({"", "", choice.status().message()});
  }
  wire::WorkerRequest request = {};
  request.kind = wire::WorkerRequestKind::kTransport;
  const auto* raw = reinterpret_cast<const uint8_t*>(&request);
  std::vector<uint8_t> all(raw, raw + sizeof request);
  const std::vector<uint8_t> body = wire::encode(answers);
  all.insert(all.end(), body.begin(), body.end());
  const int fd = choice.ok() ? choice->descriptor.get() : -1;
  const Status sent =
      session::send_descriptors(socket_, all.data(), all.size(), &fd, fd >= 0 ? 1 : 0);
  if (!sent.ok()) return sent;
  if (choice.ok()) choice->descriptor.reset();
  return choice;
}

base::Result<SessionParts> DaemonLink::receive_session() {
  SessionParts parts;
  session::Choice choice;
  session::Connection command;
  std::string key;
  std::map<uint32_t, session::Connection> bulk;
  for (;;) {
    auto received = receive(socket_);
    if (!received.ok()) return received.status();
    const wire::WorkerMessage& message = received->message;
    std::vector<base::Fd>& fds = received->fds;
    switch (message.kind) {
      case wire::WorkerMessageKind::kAssign: {
        if (fds.size() != 3 || message.assignment.slice_count > wire::kSlicesMax) break;
        const Status taken = take_assignment(message, &fds, &parts);
        if (!taken.ok()) return taken;
        auto answered = answer_offers(message, received->tail);
        if (!answered.ok()) return answered.status();
        choice = answered.take();
        key = session::Connection(base::Fd(), message.connection).keys();
        continue;
      }
      case wire::WorkerMessageKind::kCommand:
        if (fds.size() != 1) break;
        command = session::Connection(std::move(fds[0]), message.connection);
        continue;
      case wire::WorkerMessageKind::kChannel:
        if (fds.size() != 1) break;
        bulk[message.reserved] = session::Connection(std::move(fds[0]), message.connection);
        continue;
      case wire::WorkerMessageKind::kStart: {
        if (!command.valid() || choice.halves.empty()) break;
        transport::Streams streams;
        streams.command = command.take_descriptor();
        streams.key = std::move(key);
        streams.lasting.patience_ms = parts.assignment.outage_ms + kOutageMarginMs;
        for (auto& [number, each] : bulk) {
          if (number == parts.assignment.bulk_channels)
            streams.acknowledgements = each.take_descriptor();
          else
            streams.bulk.push_back(each.take_descriptor());
        }
        auto channels =
            session::open_choice(std::move(choice), static_cast<wire::StartOn>(message.reserved),
                                 std::move(streams), &candidate_);
        if (!channels.ok()) return channels.status();
        trial_.expect(parts.assignment.bulk_channels);
        parts.channels = channels.take();
        lasting_ = parts.channels.lasting;
        return parts;
      }
      case wire::WorkerMessageKind::kTrial:
        take_trial(&*received);
        continue;
      case wire::WorkerMessageKind::kStop:
        return Status(Code::kClosed, "the daemon ended the session before it began");
      case wire::WorkerMessageKind::kExport:
      case wire::WorkerMessageKind::kPassage:
      case wire::WorkerMessageKind::kPark:
      case wire::WorkerMessageKind::kWake:
      case wire::WorkerMessageKind::kCopyAhead:
      case wire::WorkerMessageKind::kForget:
      case wire::WorkerMessageKind::kResume:
        break;
    }
    return Status(
        Code::kInvalid,
        "the daemon and this worker do not understand each other; are both of one build?");
  }
}

namespace {

template <typename Body>
void start_thread(Body body) {
  std::thread([body] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    body();
  }).detach();
}

}  // namespace

void DaemonLink::listen(session::Service* service) {
  start_thread([this, service] { take_messages(service); });
  if (candidate_.half != nullptr) start_thread([this] { await_trial(); });
}

void DaemonLink::take_trial(Received* received) {
  if (received->fds.size() == 1)
    trial_.take(received->message.reserved, std::move(received->fds[0]));
}

void DaemonLink::await_trial() {
  std::vector<base::Fd> connections = trial_.wait(session::kTrialComesMs);
  session::Candidate candidate = std::move(candidate_);
  if (connections.empty()) return candidate.pinned->settle(nullptr);
  auto choice = session::answer_trial(std::move(candidate), std::move(connections));
  if (choice.ok()) say_text(wire::WorkerRequestKind::kLink, choice->brief);
}

void DaemonLink::take_messages(session::Service* service) {
  for (;;) {
    auto received = receive(socket_);
    const bool told = received.ok();
    if (told && received->message.kind == wire::WorkerMessageKind::kPassage) {
      take_passage(&*received);
      continue;
    }
    if (told && received->message.kind == wire::WorkerMessageKind::kTrial) {
      take_trial(&*received);
      continue;
    }
    if (told && received->message.kind == wire::WorkerMessageKind::kResume) {
      if (lasting_ != nullptr) lasting_->resume(std::move(received->fds));
      continue;
    }
    if (told && take_parking(&*received)) continue;
    std::lock_guard<std::mutex> hold(mutex_);
    if (!told || received->message.kind != wire::WorkerMessageKind::kExport) {
      gone_ = true;
      answered_.notify_all();
      ordered_.notify_all();
      trial_.give_up();
      service->end(told ? "the server ended this session (its lease ended or was released)"
                        : "the server is shutting down");
      return;
    }
    Answer& answer = answer_.emplace();
    answer.answer = static_cast<wire::ExportAnswer>(received->message.reserved);
    answer.record = received->message.exported;
    if (!received->fds.empty()) answer.fd = std::move(received->fds.front());
    answered_.notify_all();
  }
}

bool DaemonLink::take_parking(Received* received) {
  switch (received->message.kind) {
    case wire::WorkerMessageKind::kPark:
      take_order(received->message.reserved,
                 received->fds.empty() ? base::Fd() : std::move(received->fds.front()));
      return true;
    case wire::WorkerMessageKind::kWake:
      take_order(0);
      return true;
    case wire::WorkerMessageKind::kCopyAhead:
      chore_.store(ParkChore::kCopy, std::memory_order_relaxed);
      return true;
    case wire::WorkerMessageKind::kForget:
      chore_.store(ParkChore::kForget, std::memory_order_relaxed);
      return true;
    default:
      return false;
  }
}

void DaemonLink::end_chore(ParkChore done) {
  chore_.compare_exchange_strong(done, ParkChore::kNone, std::memory_order_relaxed);
  if (done == ParkChore::kForget) (void)say(wire::WorkerRequestKind::kForgot, {}, -1);
}

void DaemonLink::take_order(uint32_t number, base::Fd file) {
  std::lock_guard<std::mutex> hold(mutex_);
  file_ = std::move(file);
  wanted_.store(number, std::memory_order_relaxed);
  ordered_.notify_all();
}

void DaemonLink::wait(uint32_t number, int timeout_ms) {
  std::unique_lock<std::mutex> hold(mutex_);
  ordered_.wait_for(hold, std::chrono::milliseconds(timeout_ms),
                    [this, number] { return gone_ || wanted() != number; });
}

base::Fd DaemonLink::take_file() {
  std::lock_guard<std::mutex> hold(mutex_);
  return std::move(file_);
}

// A daemon that is gone ends the session anyway, so failures of these are not looked at.
void DaemonLink::parked(uint32_t number, uint64_t bytes, uint64_t copied) {
  wire::ExportRecord record = {};
  record.bytes = bytes;
  memcpy(record.content, &copied, sizeof copied);
  (void)say(wire::WorkerRequestKind::kParked, record, -1, number);
}

void DaemonLink::stays(uint32_t number, const std::string& why) {
  wire::ExportRecord record = {};
  memcpy(record.content, why.data(), std::min(why.size(), sizeof record.content - 1));
  (void)say(wire::WorkerRequestKind::kStays, record, -1, number);
}

void DaemonLink::wants_wake(uint32_t number) {
  (void)say(wire::WorkerRequestKind::kWantsWake, {}, -1, number);
}

void DaemonLink::returned(uint32_t number) {
  (void)say(wire::WorkerRequestKind::kReturned, {}, -1, number);
}

void DaemonLink::take_passage(Received* received) {
  const uint32_t number = received->message.reserved;
  PassageTaker* taker = nullptr;
  bool dialled = false;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    taker = taker_;
    dialled = dialled_.erase(number) != 0;
  }
  if (taker == nullptr) return;
  const uint32_t line = number / wire::kPassageLine;
  if (line >= wire::kPassageLinesMax) {
    base::Fd connection;
    const bool sealed = received->message.connection.sealed != 0;  // so it cannot be wanted
    const bool here = !received->fds.empty() && !sealed;
    if (here) connection = std::move(received->fds.front());
    const std::string known = here ? std::string(received->tail.begin(), received->tail.end()) : "";
    return taker->trial_came(number % wire::kPassageLine, line - wire::kPassageLinesMax,
                             std::move(connection), known);
  }
  auto channel = passage_channel(received, dialled);
  if (channel.ok())
    taker->passage_came(number, channel.take(), "");
  else
    taker->passage_came(number, nullptr, channel.status().message());
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

base::Fd DaemonLink::find_image(const std::string& hash, uint64_t bytes) {
  return ask(wire::WorkerRequestKind::kFindImage, record_of_image(hash, bytes), -1).fd;
}

bool DaemonLink::keep_image(const std::string& hash, uint64_t bytes, int memory) {
  return ask(wire::WorkerRequestKind::kKeepImage, record_of_image(hash, bytes), memory).answer ==
         wire::ExportAnswer::kDone;
}

void DaemonLink::take_passages(PassageTaker* taker) {
  std::lock_guard<std::mutex> hold(mutex_);
  taker_ = taker;
}

bool DaemonLink::offer_passage(uint32_t number, wire::PassageToken* token) {
  const Answer answer =
      ask(wire::WorkerRequestKind::kOfferPassage, record_of_passage(number, {}), -1);
  memcpy(token, answer.record.content, sizeof *token);
  return answer.answer == wire::ExportAnswer::kDone;
}

bool DaemonLink::dial_passage(uint32_t number, const wire::PassageToken& token) {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    dialled_.insert(number);
  }
  return say(wire::WorkerRequestKind::kDialPassage, record_of_passage(number, token), -1).ok();
}

void DaemonLink::say_passage_way(uint32_t number, const PassageWay& way) {
  wire::WorkerRequest request = {};
  request.kind = wire::WorkerRequestKind::kPassageWay;
  request.record.bytes = number;
  memcpy(request.record.content, way.brief.data(),
         std::min(way.brief.size(), sizeof request.record.content - 1));
  say_at_length(request, base::printable(way.text, kTextBytesMost) + "\n" + way.remembered);
}

void DaemonLink::release(const wire::ExportRecord& record) {
  (void)say(wire::WorkerRequestKind::kRelease, record, -1);  // as above
}

}  // namespace tendril::worker
