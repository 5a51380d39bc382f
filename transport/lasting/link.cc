// SPDX-License-Identifier: Apache-2.0
// The life of a lasting session outside of cuts: acknowledgements, and noticing that a link is
// lost.
#include "transport/lasting/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace tendril::transport {

using base::Code;
using base::Locked;
using base::Result;
using base::Status;

namespace {

// An acknowledgement: the bytes of that line up to the position were taken. The last line number
// stands for none: only that this end is there. With kTurn: from the position on this end sends
// over the line's carrier.
struct Record {
  uint32_t line;
  uint32_t zero;
  uint64_t position;
};
static_assert(sizeof(Record) == 16);
constexpr uint32_t kNoLine = UINT32_MAX;
constexpr uint32_t kTurn = 1u << 16;

constexpr int kLookMs = 2000, kLookAtCarriersMs = 500;
constexpr unsigned kSilentResent = 3;
constexpr uint32_t kSilentMs = 2500;
constexpr int kTellMs = 1000;

}  // namespace

TcpEnd tcp_end(int fd) {
  tcp_info info = {};
  socklen_t bytes = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return TcpEnd::kCut;
  switch (info.tcpi_state) {
    case TCP_CLOSE:
      return TcpEnd::kCut;
    case TCP_CLOSE_WAIT:
    case TCP_LAST_ACK:
    case TCP_CLOSING:
    case TCP_TIME_WAIT:
      return TcpEnd::kByPeer;
    default:
      return TcpEnd::kNone;
  }
}

bool tcp_is_silent(int fd, unsigned resent, uint32_t silent_ms) {
  tcp_info info = {};
  socklen_t bytes = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
  return info.tcpi_unacked > 0 && info.tcpi_retransmits >= resent &&
         info.tcpi_last_ack_recv > silent_ms;
}

Result<std::shared_ptr<Lasting>> Lasting::make(std::vector<base::Fd> lines,
                                               base::Fd acknowledgements, LastingSettings settings,
                                               std::vector<std::unique_ptr<Carrier>> carriers) {
  if (carriers.size() > lines.size())
    return Status(Code::kInvalid, "a session has more carriers than lines");
  if (lines.empty() || lines.size() > kLastingLinesMax)
    return Status(Code::kInvalid, "a session has 1 to 32 connections");
  const std::shared_ptr<Link> link(new (std::nothrow) Link(
      std::move(lines), std::move(acknowledgements), std::move(settings), std::move(carriers)));
  if (link == nullptr || !link->start())
    return Status(Code::kExhausted, "no memory, descriptor or thread to keep a session's link");
  return std::shared_ptr<Lasting>(link);
}

Link::Link(std::vector<base::Fd> lines, base::Fd acknowledgements, LastingSettings settings,
           std::vector<std::unique_ptr<Carrier>> carriers)
    : lines_(lines.size()),
      acknowledgements_(std::move(acknowledgements)),
      patience_ms_(settings.patience_ms),
      redial_(std::move(settings.redial)),
      may_be_carried_(settings.may_be_carried),
      kick_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (size_t i = 0; i < lines.size(); ++i) lines_[i].fd = std::move(lines[i]);
  for (size_t i = 0; i < carriers.size(); ++i) {
    Carrier* const carrier = carriers[i].get();
    lines_[i].carrier_owned = std::move(carriers[i]);
    for (std::atomic<Carrier*>* way : {&lines_[i].carrier, &lines_[i].out, &lines_[i].in})
      way->store(carrier);
    if (carrier != nullptr) lines_[i].kind.store(carrier->kind());
    takes_carriers_ = false;
  }
}

bool Link::start() {
  if (!kick_.valid()) return false;
  const int on = 1;
  for (LastingLine& line : lines_) {
    line.kept_bytes = &line == lines_.data() ? kKeptCommandBytes : kKeptBulkBytes;
    void* memory = mmap(nullptr, line.kept_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    line.kept = static_cast<uint8_t*>(memory);
    setsockopt(line.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!may_be_carried_) continue;
    line.wake = base::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!line.wake.valid()) return false;
  }
  setsockopt(acknowledgements_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return keeper_.start("tendril-keep", &Link::keeper_main, this);
}

Link::~Link() {
  if (getpid() != owner_) {
    keeper_.forget();  // it stayed in the parent
  } else {
    stopping_.store(true);
    if (kick_.valid()) kick();
    keeper_.join();
  }
  // What they have posted leaves before a connection says that this end is over.
  for (LastingLine& line : lines_) line.carrier_owned.reset();
  for (LastingLine& line : lines_) {
    if (line.kept != nullptr) munmap(line.kept, line.kept_bytes);
  }
}

void Link::kick() {
  const uint64_t one = 1;
  (void)!write(kick_.get(), &one, sizeof one);
}

void Link::drop_kicks() {
  uint64_t count;
  (void)!read(kick_.get(), &count, sizeof count);
}

void Link::await_news(uint32_t seen, const base::Deadline& deadline) {
  const int left_ms = deadline.left_ms();
  news_.wait(seen, left_ms < 0 ? -1 : int64_t{left_ms} * 1000);
}

void Link::failed(uint64_t state) {
  if (phase_of(state) != kRunning) return;
  if (!state_.compare_exchange_strong(state, state | kCut)) return;  // known, or mended since
  news_.signal();
  kick();
}

void Link::carrier_failed(uint64_t state, const Status& why) {
  if (phase_of(state) != kRunning || this->state() != state) return;
  if (why.code() == Code::kInvalid) {
    (void)end(why.message().c_str());
    return shut_connections();
  }
  {
    Locked locked(lock_);
    if (carrier_why_.empty()) carrier_why_ = why.message();
  }
  failed(state);
}

std::string Link::carrier_failure() const {
  Locked locked(lock_);
  return carrier_why_;
}

Status Link::give_up(const char* why) {
  (void)end(why);
  shut_connections();
  return closed();
}

bool Link::end(const char* why) {
  uint64_t state = state_.load();
  {
    Locked locked(lock_);
    if (why_.empty()) why_ = why;
  }
  do {
    if (phase_of(state) == kEnded) return false;
  } while (!state_.compare_exchange_weak(state, (state >> kPhaseBits << kPhaseBits) | kEnded));
  news_.signal();
  kick();
  return true;
}

Status Link::closed() {
  if (down_.load(std::memory_order_relaxed))
    return Status(Code::kClosed, "the connection was closed on this side");
  Locked locked(lock_);
  return Status(Code::kClosed, why_.empty() ? "the peer closed the connection" : why_);
}

void Link::shut_down() {
  down_.store(true);
  (void)end("the connection was closed on this side");
  // None is dropped any more: the keeper does that only if the session runs on.
  for (LastingLine& line : lines_) {
    Carrier* const carrier = line.carrier.load();
    if (carrier != nullptr) carrier->shutdown();
  }
  shut_connections();
}

// Also wakes the threads that wait on them. What has arrived can still be read.
void Link::shut_connections() {
  for (const LastingLine& line : lines_) ::shutdown(line.fd.get(), SHUT_RDWR);
  ::shutdown(acknowledgements_.get(), SHUT_RDWR);
}

void Link::interrupt_carriers() {
  for (const LastingLine& line : lines_) {
    Carrier* const carrier = line.carrier.load();
    if (carrier != nullptr) carrier->interrupt();
  }
}

void Link::resume(std::vector<base::Fd> connections) {
  if (connections.size() != lines_.size() + 1 || phase_of(state()) == kEnded) return;
  {
    Locked locked(lock_);
    offered_ = std::move(connections);
  }
  // The client may know of a cut that this end has not noticed.
  uint64_t running = state();
  if (phase_of(running) == kRunning) (void)state_.compare_exchange_strong(running, running | kCut);
  news_.signal();
  kick();
}

// ---- acknowledgements ----

bool Link::tell(uint32_t line, uint64_t position, bool waits) {
  const Record record{line, 0, position};
  const auto* at = reinterpret_cast<const uint8_t*>(&record);
  Locked locked(tell_lock_);
  size_t done = 0;
  while (done < sizeof record && phase_of(state()) == kRunning) {
    const ssize_t sent =
        send(acknowledgements_.get(), at + done, sizeof record - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      done += size_t(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (done == 0 && !waits) break;
      pollfd waiting{acknowledgements_.get(), POLLOUT, 0};
      (void)poll(&waiting, 1, kTellMs);
    } else if (errno != EINTR) {
      break;  // the keeper notices it, too
    }
  }
  return done == sizeof record;
}

void Link::acknowledge(LastingLine* line, uint64_t state) {
  const uint64_t position = line->received.load(std::memory_order_relaxed);
  if (position - line->told < line->kept_bytes / 4 || phase_of(state) != kRunning) return;
  if (tell(number_of(*line), position, true)) line->told = position;
}

bool Link::accept_acknowledgement(uint32_t number, uint64_t position) {
  if (number == kNoLine) return true;
  if ((number & kTurn) != 0) return accept_turn(number & ~kTurn, position);
  if (number >= lines_.size()) return false;
  LastingLine& line = lines_[number];
  if (position > line.offered.load(std::memory_order_acquire)) return false;
  // A receiver and its keeper may tell in the wrong order.
  if (position > line.acknowledged.load(std::memory_order_relaxed))
    line.acknowledged.store(position, std::memory_order_release);
  return true;
}

bool Link::take_acknowledgements() {
  for (;;) {
    uint8_t buffer[64 * sizeof(Record)];
    std::memcpy(buffer, record_, record_bytes_);
    const ssize_t got = recv(acknowledgements_.get(), buffer + record_bytes_,
                             sizeof buffer - record_bytes_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0) {
      acknowledgements_end_said_ |= got < 0 && errno == EPIPE;  // a reset after the peer's end
      return false;
    }
    size_t at = 0;
    const size_t bytes = record_bytes_ + size_t(got);
    for (; bytes - at >= sizeof(Record); at += sizeof(Record)) {
      Record record;
      std::memcpy(&record, buffer + at, sizeof record);
      if (accept_acknowledgement(record.line, record.position)) continue;
      (void)end("the peer acknowledged bytes that it cannot have");
      interrupt_carriers();
      shut_connections();
      return true;
    }
    record_bytes_ = bytes - at;
    std::memcpy(record_, buffer + at, record_bytes_);
    news_.signal();
  }
}

// ---- carriers that come later ----

Status Link::take_carriers(std::vector<std::unique_ptr<Carrier>> carriers) {
  Locked locked(lock_);
  if (!may_be_carried_ || !takes_carriers_ || phase_of(state()) != kRunning)
    return Status(Code::kUnavailable, "the session's connections were cut meanwhile");
  takes_carriers_ = false;
  for (size_t i = 0; i < std::min(carriers.size(), lines_.size()); ++i) {
    Carrier* const carrier = carriers[i].get();
    lines_[i].carrier_owned = std::move(carriers[i]);
    lines_[i].carrier.store(carrier);
  }
  return Status();
}

// A cut that comes in between takes the carriers away. The permission may come after it: then
// turn_out takes it back.
void Link::use_carriers() {
  for (LastingLine& line : lines_) {
    if (line.carrier.load() != nullptr) line.may_turn.store(true);
  }
}

Carrier* Link::turn_out(LastingLine* line) {
  Carrier* const carrier = line->carrier.load();
  if (carrier == nullptr) {
    line->may_turn.store(false);
    return nullptr;
  }
  const uint64_t sent = line->sent.load(std::memory_order_relaxed);
  if (line->resending.load() != 0 ||
      sent - line->acknowledged.load(std::memory_order_acquire) > left_over_most(line->kept_bytes))
    return nullptr;
  if (!tell(number_of(*line) | kTurn, sent, true)) return nullptr;
  line->may_turn.store(false);
  line->out_from = carrier->sent();
  line->out_shift = sent - line->out_from;
  line->kind.store(carrier->kind());
  line->out.store(carrier, std::memory_order_release);
  return carrier;
}

Carrier* Link::turn_in(LastingLine* line) {
  Carrier* const carrier = line->carrier.load();
  if (carrier == nullptr) return nullptr;
  const uint64_t position = line->received.load(std::memory_order_relaxed);
  line->in_shift = position - carrier->received();
  if (tell(number_of(*line), position, true)) line->told = position;
  // In this order: a peer that says a turn twice finds one of both, and not the time in between.
  line->in.store(carrier);
  line->turns_at.store(LastingLine::kNever);
  return carrier;
}

bool Link::accept_turn(uint32_t number, uint64_t position) {
  if (number >= lines_.size()) return false;
  LastingLine& line = lines_[number];
  if (line.carrier.load() == nullptr) {  // this end has left them, and the peer does not know yet
    failed(state());
    return true;
  }
  if (line.turns_at.load() != LastingLine::kNever || line.in.load() != nullptr ||
      position == LastingLine::kNever || position < line.received.load(std::memory_order_relaxed))
    return false;
  line.turns_at.store(position, std::memory_order_release);
  (void)eventfd_write(line.wake.get(), 1);
  return true;
}

// ---- the keeper ----

void Link::keeper_main(void* self) { static_cast<Link*>(self)->keep(); }

void Link::keep() {
  while (!stopping_.load()) {
    const Phase phase = phase_of(state());
    if (phase == kEnded || (phase == kCut && !mend())) return;
    if (phase == kRunning) wait_and_serve();
  }
}

void Link::wait_and_serve() {
  pollfd waiting[2 + kLastingLinesMax];
  waiting[0] = {kick_.get(), POLLIN, 0};
  waiting[1] = {acknowledgements_.get(), POLLIN | POLLRDHUP, 0};
  nfds_t count = 2;
  // An end that is said on a connection that nobody uses must show before another one fails: later
  // it would look like the end of the peer.
  for (const LastingLine& line : lines_) {
    const bool resends = line.resending.load() != 0;
    waiting[count++] = {line.fd.get(), short(POLLRDHUP | (resends ? POLLOUT : 0)), 0};
  }
  const bool carried = is_carried();
  const int look_ms = redial_ == nullptr ? -1 : kLookMs;
  const int ready = poll(waiting, count, carried ? kLookAtCarriersMs : look_ms);
  if (ready < 0) return;
  if (carried) look_at_carriers();
  if (waiting[0].revents != 0) drop_kicks();
  if (ready == 0 && redial_ != nullptr) return look_for_silence();
  const uint64_t running = state();
  if (waiting[1].revents != 0 && !take_acknowledgements()) failed(running);
  const auto is_over = [](const pollfd& one) { return (one.revents & ~POLLOUT) != 0; };
  if (std::any_of(waiting + 2, waiting + count, is_over)) failed(running);
  for (LastingLine& line : lines_) {
    if (line.resending.load() != 0) resend(&line);
  }
}

bool Link::is_carried() const {
  return std::any_of(lines_.begin(), lines_.end(), [](const LastingLine& line) {
    return line.out.load() != nullptr || line.in.load() != nullptr;
  });
}

void Link::look_at_carriers() {
  const uint64_t seen = state();
  for (const LastingLine& line : lines_) {
    Carrier* const carrier = line.carrier.load();
    if (carrier == nullptr) continue;
    const Status good = carrier->look();
    if (!good.ok()) carrier_failed(seen, good);
  }
}

// A link can be lost while nothing is said on it. Saying something shows it: the peer's kernel
// acknowledges, even if its program is stopped. The peer also learns what was taken, however little
// it was: see is_cut_for_certain.
void Link::look_for_silence() {
  (void)tell(kNoLine, 0, false);
  for (LastingLine& line : lines_) {
    const uint64_t position = line.received.load(std::memory_order_relaxed);
    if (position != line.told_when_idle && tell(number_of(line), position, false))
      line.told_when_idle = position;
  }
  bool silent = tcp_is_silent(acknowledgements_.get(), kSilentResent, kSilentMs);
  for (const LastingLine& line : lines_)
    silent = silent || tcp_is_silent(line.fd.get(), kSilentResent, kSilentMs);
  if (silent) failed(state());
}

// Without entering: only this thread mends, and the sender may have entered.
void Link::resend(LastingLine* line) {
  const uint64_t state = this->state();
  while (phase_of(state) == kRunning) {
    const uint64_t end = line->sent.load(std::memory_order_relaxed);
    if (line->resent == end) {
      line->resending.store(0);
      news_.signal();
      break;
    }
    const size_t at = line->resent % line->kept_bytes;
    const size_t bytes = std::min<uint64_t>(end - line->resent, line->kept_bytes - at);
    const ssize_t sent = send(line->fd.get(), line->kept + at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      line->resent += size_t(sent);
    } else if (errno != EINTR) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) failed(state);
      break;
    }
  }
}

}  // namespace tendril::transport
