// SPDX-License-Identifier: Apache-2.0
// How a lasting session gets over a cut. Only the keeper's thread runs this.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "transport/lasting/link.h"

namespace tendril::transport {

using base::Code;
using base::Deadline;
using base::Locked;
using base::Result;
using base::Status;

namespace {

// A process that ends closes its connections one after the other, with resets where it had not read
// everything. So an end that is said on any of them may come a moment after a reset.
constexpr int kEndIsSaidMs = 100;
// Some connections ended in order, and the others with a reset: the peer was killed with bytes
// unread, or it drops them because something in between closed one. A peer that lives connects
// again at once.
constexpr uint32_t kDoubtfulMs = 800, kDoubtfulRedialMs = 2000;
// Some ended in order and others live: something in between closed them, or packets were lost.
constexpr uint32_t kHopefulMs = 5000;
constexpr int kDialMs = 2000, kShortestDialMs = 500;
constexpr int kExchangeMs = 5000;
constexpr int kFirstPauseMs = 50, kLongestPauseMs = 1000;
constexpr const char* kPeerClosed = "the peer closed the connection";
constexpr uint64_t kGreeting = 0x6e69616761646e74;  // "tndagain"

void pause_ms(int milliseconds) {
  const timespec time = {milliseconds / 1000, (milliseconds % 1000) * 1'000'000L};
  nanosleep(&time, nullptr);
}

bool move_all(int fd, void* data, size_t bytes, bool sends, const Deadline& deadline) {
  auto* at = static_cast<uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t moved = sends ? send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                                : recv(fd, at, bytes, MSG_DONTWAIT);
    if (moved > 0) {
      at += moved;
      bytes -= size_t(moved);
      continue;
    }
    if (moved == 0 && !sends) return false;
    if (moved < 0 && errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
    pollfd waiting{fd, short(sends ? POLLOUT : POLLIN), 0};
    if (deadline.passed() || poll(&waiting, 1, deadline.left_ms()) < 0) return false;
  }
  return true;
}

// Drops a connection with a reset, also if other processes have it open. An orderly close would say
// that this end is over.
void abandon(int fd) {
  sockaddr none = {};
  none.sa_family = AF_UNSPEC;
  if (connect(fd, &none, sizeof none) == 0) return;
  const linger now = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  ::shutdown(fd, SHUT_RD);  // wakes who waits, and says nothing
}

}  // namespace

// A process that ends resets only the connections on which it left bytes unread. Nothing was left
// on this one: the peer has acknowledged all that was sent.
bool Link::is_cut_for_certain(const LastingLine& line) {
  const bool sends = line.sending.load() != 0;
  const uint64_t sent = sends ? line.offered.load() : line.sent.load();
  return !line.end_said.load() && sent == line.acknowledged.load() &&
         tcp_end(line.fd.get()) == TcpEnd::kCut;
}

// A peer's process that ended is told on all connections. In between, one that closes a connection
// in order leaves others as they are.
Link::Loss Link::look_at_loss() {
  for (const LastingLine& line : lines_) {
    const Carrier* const carrier = line.carrier.load();
    if (carrier != nullptr && carrier->peer_closed()) return Loss::kEnded;
  }
  const Deadline deadline(kEndIsSaidMs);
  for (;;) {
    size_t said = 0, over = 0;
    const auto look = [&](int fd, bool said_before) {
      const TcpEnd how = tcp_end(fd);
      const bool says = said_before || how == TcpEnd::kByPeer;
      said += says ? 1 : 0;
      over += how != TcpEnd::kNone ? 1 : 0;
      return says;
    };
    for (LastingLine& line : lines_) line.end_said.store(look(line.fd.get(), line.end_said.load()));
    acknowledgements_end_said_ = look(acknowledgements_.get(), acknowledgements_end_said_);
    const size_t all = lines_.size() + 1;
    if (said == all) return Loss::kEnded;
    if (std::any_of(lines_.begin(), lines_.end(), is_cut_for_certain)) return Loss::kCut;
    if (over == all || deadline.passed() || stopping_.load())
      return said != 0 ? Loss::kDoubtful : Loss::kCut;
    pause_ms(5);
  }
}

bool Link::is_anything_open() const {
  const auto open = [](const base::Fd& fd) { return tcp_end(fd.get()) == TcpEnd::kNone; };
  return open(acknowledgements_) ||
         std::any_of(lines_.begin(), lines_.end(), [&](const auto& line) { return open(line.fd); });
}

// Also wakes the threads that wait on them, or on carriers.
void Link::abandon_connections() {
  interrupt_carriers();
  for (const LastingLine& line : lines_) abandon(line.fd.get());
  abandon(acknowledgements_.get());
  news_.signal();
}

// Until no thread uses a connection. Those that wait were woken.
void Link::await_idle() {
  const auto busy = [this] {
    return std::any_of(lines_.begin(), lines_.end(), [](const LastingLine& line) {
      return line.sending.load() != 0 || line.receiving.load() != 0;
    });
  };
  while (busy()) pause_ms(1);
}

bool Link::mend() {
  const uint64_t began_ns = base::now_ns();
  bool called = false;
  {
    Locked locked(lock_);
    called = !offered_.empty();
  }
  Loss loss = called ? Loss::kCut : look_at_loss();
  if (loss == Loss::kEnded) {
    (void)end(kPeerClosed);
    return false;
  }
  const uint32_t patience_ms = std::min(patience_ms_, uint32_t(INT32_MAX));
  Deadline until(static_cast<int>(patience_ms));
  const bool lives = is_anything_open();
  if (loss == Loss::kDoubtful) {
    const uint32_t doubtful_ms = redial_ != nullptr ? kDoubtfulRedialMs : kDoubtfulMs;
    until = Deadline(int(std::min(patience_ms, lives ? kHopefulMs : doubtful_ms)));
  } else if (redial_ != nullptr) {
    announce_cut();
  }
  // What a peer said before it ended can still be read. A client that has not ended must know.
  if (loss == Loss::kCut || (redial_ == nullptr && lives)) abandon_connections();
  while (phase_of(state()) == kCut && !stopping_.load()) {
    Result<std::vector<base::Fd>> connections = connect_again(loss, until);
    if (!connections.ok()) {
      (void)end(connections.status().message().c_str());
      shut_connections();
      return false;
    }
    if (!resume_over(&*connections)) {
      if (loss == Loss::kDoubtful && !connections->empty()) {  // the peer is there
        loss = Loss::kCut;
        until = Deadline(int(patience_ms));
      }
      continue;
    }
    if (redial_ != nullptr) redial_->resumed((base::now_ns() - began_ns) / 1'000'000);
    return true;
  }
  return false;
}

void Link::announce_cut() {
  const std::string why = carrier_failure();
  if (!is_carried())
    redial_->cut(patience_ms_);
  else
    redial_->carrier_failed(why.empty() ? "the other end has left it" : why, patience_ms_);
}

// From now on the connections are the lines. Nobody uses the carriers.
bool Link::leave_carriers() {
  {
    Locked locked(lock_);
    takes_carriers_ = false;
    if (is_carried() && carrier_why_.empty()) carrier_why_ = "the session's connections were cut";
  }
  for (LastingLine& line : lines_) {
    Carrier* const carrier = line.carrier.load();
    if (carrier != nullptr && !leave_carrier(&line, carrier)) return false;
  }
  return true;
}

// One way may have been over it, and the other one not yet.
bool Link::leave_carrier(LastingLine* line, Carrier* carrier) {
  const bool sends = line->out.load() != nullptr;
  Result<Carrier::Remains> remains = carrier->leave(
      line->kept, line->kept_bytes, sends ? line->out_from : carrier->sent(), line->out_shift);
  if (!remains.ok()) {
    (void)end(remains.status().message().c_str());
    return false;
  }
  if (sends) {
    line->sent.store(carrier->sent() + line->out_shift);
    if (remains->acknowledged > line->out_from)
      line->acknowledged.store(remains->acknowledged + line->out_shift);
    line->offered_data = remains->offered;
    line->offered_bytes = remains->offered_bytes;
  }
  if (line->in.load() != nullptr) line->received.store(carrier->received() + line->in_shift);
  line->may_turn.store(false);
  line->turns_at.store(LastingLine::kNever);
  for (std::atomic<Carrier*>* way : {&line->carrier, &line->out, &line->in}) way->store(nullptr);
  line->kind.store("tcp");
  return true;
}

bool Link::resume_over(std::vector<base::Fd>* connections) {
  if (connections->size() != lines_.size() + 1) return false;
  abandon_connections();
  await_idle();
  if (!leave_carriers()) return false;
  std::vector<uint64_t> positions;
  if (exchange(connections->back().get(), Deadline(kExchangeMs), &positions) &&
      install(connections, positions))
    return true;
  for (const base::Fd& connection : *connections) {
    if (connection.valid()) abandon(connection.get());
  }
  return false;
}

// Empty: not this time. An error: the session is over.
Result<std::vector<base::Fd>> Link::connect_again(Loss loss, const Deadline& until) {
  const auto over = [this, loss](const std::string& detail) {
    if (loss == Loss::kDoubtful) return Status(Code::kClosed, kPeerClosed);
    return Status(Code::kClosed,
                  base::format("the network between client and server was cut, and did not come "
                               "back within %u s%s",
                               patience_ms_ / 1000, detail.c_str()));
  };
  int pause = kFirstPauseMs;
  std::string last;
  for (; phase_of(state()) == kCut && !stopping_.load();
       pause = std::min(pause * 2, kLongestPauseMs)) {
    // Also once when the time is over: the network may be back since the last attempt.
    const bool is_last = until.passed();
    if (redial_ != nullptr) {
      Result<std::vector<base::Fd>> dialled =
          redial_->dial(++attempts_, std::clamp(until.left_ms(), kShortestDialMs, kDialMs));
      if (dialled.ok()) return dialled;
      if (dialled.status().code() == Code::kRefused)
        return loss == Loss::kDoubtful ? over("") : dialled.status();
      last = dialled.status().message();
    } else {
      Locked locked(lock_);
      if (!offered_.empty()) return std::move(offered_);
    }
    if (is_last) return over(last.empty() ? "" : " (" + last + ")");
    pollfd waiting{kick_.get(), POLLIN, 0};
    const int left_ms = until.left_ms();
    (void)poll(&waiting, 1, redial_ == nullptr ? left_ms : std::min(pause, left_ms));
    if (waiting.revents != 0) drop_kicks();
  }
  return std::vector<base::Fd>();
}

// Says how far this end has taken each line, and hears the same of the other.
bool Link::exchange(int fd, const Deadline& deadline, std::vector<uint64_t>* positions) {
  std::vector<uint64_t> said = {kGreeting, lines_.size()};
  for (const LastingLine& line : lines_) said.push_back(line.received.load());
  const size_t bytes = said.size() * sizeof said[0];
  std::vector<uint64_t> heard(said.size());
  if (!move_all(fd, said.data(), bytes, true, deadline) ||
      !move_all(fd, heard.data(), bytes, false, deadline))
    return false;
  if (heard[0] != kGreeting || heard[1] != lines_.size()) return false;
  positions->assign(heard.begin() + 2, heard.end());
  return true;
}

bool Link::install(std::vector<base::Fd>* connections, const std::vector<uint64_t>& positions) {
  for (size_t i = 0; i < lines_.size(); ++i) {
    const LastingLine& line = lines_[i];
    if (positions[i] < line.acknowledged.load() ||
        positions[i] > line.sent.load() + line.offered_bytes) {
      (void)end("the peer does not know how far it got before the cut");
      return false;
    }
  }
  uint64_t cut = state();
  if (phase_of(cut) != kCut) return false;
  for (size_t i = 0; i <= lines_.size(); ++i) {
    const int fd = i < lines_.size() ? lines_[i].fd.get() : acknowledgements_.get();
    if (dup3((*connections)[i].get(), fd, O_CLOEXEC) < 0) {
      (void)end("this process cannot take up a connection again");
      return false;
    }
  }
  connections->clear();
  for (size_t i = 0; i < lines_.size(); ++i) {
    LastingLine& line = lines_[i];
    if (positions[i] > line.sent.load()) {  // the peer read it in place
      line.skip = size_t(positions[i] - line.sent.load());
      line.sent.store(positions[i]);
    }
    line.offered_bytes = 0;
    line.acknowledged.store(positions[i]);
    line.offered.store(line.sent.load());
    line.told = line.received.load();
    line.resent = positions[i];
    line.resending.store(line.resent != line.sent.load() ? 1 : 0);
    line.end_said.store(false);
  }
  acknowledgements_end_said_ = false;
  record_bytes_ = 0;
  const uint64_t running = ((cut >> kPhaseBits) + 1) << kPhaseBits | kRunning;
  const bool running_again = state_.compare_exchange_strong(cut, running);
  if (!running_again) shut_connections();  // it was shut down meanwhile
  news_.signal();
  if (running_again) {
    for (LastingLine& line : lines_) line.carrier_owned.reset();
  }
  // The client came once more meanwhile.
  Locked locked(lock_);
  if (running_again && !offered_.empty()) failed(running);
  return running_again;
}

}  // namespace tendril::transport
