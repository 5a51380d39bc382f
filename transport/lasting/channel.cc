// SPDX-License-Identifier: Apache-2.0
// A channel of a lasting session. Every system call but poll is non-blocking, and a cut wakes who
// polls. So nobody uses a connection for long after a cut, and it can be mended.
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/lasting/link.h"

namespace tendril::transport {
namespace {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

Status not_by_card() {
  return Status(Code::kUnsupported, "connections carry this line, or its card must not do it");
}

class LastingChannel final : public Channel {
 public:
  LastingChannel(std::shared_ptr<Link> link, size_t number)
      : link_(std::move(link)), line_(link_->line(number)) {}

  Status send(const iovec* parts, int count) override {
    return send_all(parts, count, [this](Parts* rest) { return some(rest, -1); });
  }
  Result<size_t> send_some(const iovec* parts, int count, int timeout_ms) override {
    Parts rest(parts, count);
    if (rest.empty()) return size_t(0);
    return some(&rest, timeout_ms);
  }
  Result<size_t> receive(void* into, size_t min, size_t max, Wait wait) override;
  Result<size_t> send_from_device(uint64_t address, size_t bytes, int timeout_ms) override;
  Result<size_t> receive_to_device(uint64_t address, size_t max) override;
  void shutdown() override { link_->shut_down(); }
  const char* kind() const override { return line_.kind.load(); }

 private:
  // kTimeout: a carrier has waited as long as it was allowed. kNotByCard: a processor must move it.
  enum class Step : uint8_t { kMoved, kFull, kNoRoom, kCut, kClosed, kTimeout, kNotByCard };
  // Whose memory it is: a GPU's is for cards alone.
  enum class Memory : uint8_t { kHost, kDevice };
  Result<size_t> some(Parts* rest, int timeout_ms, Memory memory = Memory::kHost);
  Step send_once(Parts* rest, bool waits, const Deadline& deadline, Memory memory, size_t* moved);
  Step send_over(Carrier* carrier, uint64_t state, const Parts& rest, int timeout_ms, Memory memory,
                 size_t* moved);
  Step send_to_kernel(const Parts& rest, size_t room, size_t* moved);
  Step receive_once(uint8_t* at, size_t min, size_t max, uint32_t spin_us, const Deadline& deadline,
                    Memory memory, size_t* moved);
  Step receive_over(Carrier* carrier, uint64_t state, uint8_t* at, size_t min, size_t max,
                    Wait wait, Memory memory, size_t* moved);
  Step receive_from_kernel(uint8_t* at, size_t max, uint64_t state, size_t* moved);
  void keep(const Parts& piece, size_t bytes);
  short wait_for(short events, std::atomic<uint32_t>* busy, int timeout_ms);

  const std::shared_ptr<Link> link_;
  LastingLine& line_;
};

// Copies what the kernel has taken, until the peer has taken it.
void LastingChannel::keep(const Parts& piece, size_t bytes) {
  Parts from = piece;
  const size_t at = line_.sent.load(std::memory_order_relaxed) % line_.kept_bytes;
  const size_t first = std::min(bytes, line_.kept_bytes - at);
  from.copy_out(line_.kept + at, first);
  if (first < bytes) from.copy_out(line_.kept, bytes - first);
}

LastingChannel::Step LastingChannel::send_to_kernel(const Parts& rest, size_t room, size_t* moved) {
  const uint64_t sent = line_.sent.load(std::memory_order_relaxed);
  Parts piece = rest;
  piece.limit(room);
  line_.offered.store(sent + piece.bytes(), std::memory_order_release);
  msghdr message{};
  message.msg_iov = piece.array();
  message.msg_iovlen = size_t(piece.count());
  ssize_t taken;
  do {
    taken = sendmsg(line_.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (taken < 0 && errno == EINTR);
  if (taken < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Step::kFull : Step::kCut;
  *moved = size_t(taken);
  keep(piece, *moved);
  line_.sent.store(sent + *moved, std::memory_order_release);
  return Step::kMoved;
}

// Blocks. An interrupt by the keeper ends it.
LastingChannel::Step LastingChannel::send_over(Carrier* carrier, uint64_t state, const Parts& rest,
                                               int timeout_ms, Memory memory, size_t* moved) {
  Parts piece = rest;
  const uint64_t before = carrier->sent();
  const iovec& first = piece.array()[0];
  const Result<size_t> sent =
      memory == Memory::kHost
          ? carrier->send_some(piece.array(), piece.count(), timeout_ms)
          : carrier->send_from_device(reinterpret_cast<uint64_t>(first.iov_base), first.iov_len,
                                      timeout_ms);
  *moved = size_t(carrier->sent() - before);
  if (sent.status().code() == Code::kUnsupported) return Step::kNotByCard;
  if (!sent.ok()) link_->carrier_failed(state, sent.status());
  if (*moved != 0) return Step::kMoved;
  return sent.ok() ? Step::kTimeout : Step::kNoRoom;  // the keeper has news then
}

LastingChannel::Step LastingChannel::send_once(Parts* rest, bool waits, const Deadline& deadline,
                                               Memory memory, size_t* moved) {
  const uint64_t state = link_->enter(&line_.sending);
  Carrier* carrier = line_.out.load(std::memory_order_acquire);
  const bool may_turn = line_.may_turn.load(std::memory_order_acquire);
  if (may_turn && Link::phase_of(state) == Link::kRunning) carrier = link_->turn_out(&line_);
  Step step = Step::kMoved;
  const size_t room = line_.kept_bytes - size_t(line_.sent.load(std::memory_order_relaxed) -
                                                line_.acknowledged.load(std::memory_order_acquire));
  if (Link::phase_of(state) != Link::kRunning) {
    step = Link::phase_of(state) == Link::kCut ? Step::kCut : Step::kClosed;
  } else if (carrier != nullptr) {
    step = send_over(carrier, state, *rest, waits ? deadline.left_ms() : 0, memory, moved);
  } else if (line_.skip != 0) {
    // The caller offers what a carrier had been offered, and the peer has its beginning.
    const iovec& first = rest->array()[0];
    if (first.iov_base == line_.offered_data && first.iov_len >= line_.skip) {
      *moved = std::exchange(line_.skip, 0);
    } else {
      (void)link_->give_up("the sender offered other bytes than before");
      step = Step::kClosed;
    }
  } else if (memory == Memory::kDevice) {
    step = Step::kNotByCard;
  } else if (room == 0 || may_turn || line_.resending.load(std::memory_order_acquire) != 0) {
    step = Step::kNoRoom;
  } else {
    step = send_to_kernel(*rest, room, moved);
  }
  line_.sending.store(0, std::memory_order_release);
  if (step == Step::kCut) link_->failed(state);
  return step;
}

// Returns what came. Nobody replaces the connection meanwhile: poll looks at the new one when it is
// woken, but would not be woken by it.
short LastingChannel::wait_for(short events, std::atomic<uint32_t>* busy, int timeout_ms) {
  // A receiver must hear that its peer goes over to the carrier.
  const int wake = busy == &line_.receiving ? line_.wake.get() : -1;
  pollfd waiting[2] = {{line_.fd.get(), events, 0}, {wake, POLLIN, 0}};
  if (Link::phase_of(link_->enter(busy)) != Link::kCut)
    (void)poll(waiting, wake >= 0 ? 2 : 1, timeout_ms);
  if (waiting[1].revents != 0) {
    uint64_t count;
    (void)!read(wake, &count, sizeof count);
  }
  busy->store(0, std::memory_order_release);
  return waiting[0].revents;
}

Result<size_t> LastingChannel::some(Parts* rest, int timeout_ms, Memory memory) {
  const Deadline deadline(timeout_ms == 0 ? -1 : timeout_ms);
  for (;;) {
    const uint32_t seen = link_->news();
    size_t moved = 0;
    const Step step = send_once(rest, timeout_ms != 0, deadline, memory, &moved);
    if (step == Step::kClosed) return link_->closed();
    if (step == Step::kNotByCard) return not_by_card();
    if (step == Step::kMoved) {
      rest->advance(moved);
      return moved;
    }
    if (step == Step::kTimeout || timeout_ms == 0 || deadline.passed()) return size_t(0);
    if (step == Step::kFull) {
      // A peer that ended its side reads no more.
      const uint64_t state = link_->state();
      const short came = wait_for(POLLOUT | POLLRDHUP, &line_.sending, deadline.left_ms());
      if ((came & POLLRDHUP) != 0 && (came & POLLOUT) == 0) link_->failed(state);
    } else {
      link_->await_news(seen, deadline);
    }
  }
}

LastingChannel::Step LastingChannel::receive_from_kernel(uint8_t* at, size_t max, uint64_t state,
                                                         size_t* moved) {
  ssize_t got;
  do {
    got = recv(line_.fd.get(), at, max, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    *moved = size_t(got);
    line_.received.store(line_.received.load(std::memory_order_relaxed) + size_t(got),
                         std::memory_order_relaxed);
    link_->acknowledge(&line_, state);
    return Step::kMoved;
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Step::kFull;
  if (got == 0 && max == 0) return Step::kMoved;
  if (got < 0 && errno == EPIPE) line_.end_said.store(true);  // a reset after the peer's end
  return Link::phase_of(state) == Link::kEnded ? Step::kClosed : Step::kCut;
}

// Blocks. An interrupt by the keeper ends it. What the peer said before its end can still be read.
LastingChannel::Step LastingChannel::receive_over(Carrier* carrier, uint64_t state, uint8_t* at,
                                                  size_t min, size_t max, Wait wait, Memory memory,
                                                  size_t* moved) {
  const uint64_t before = carrier->received();
  const Result<size_t> got = memory == Memory::kHost
                                 ? carrier->receive(at, min, max, wait)
                                 : carrier->receive_to_device(reinterpret_cast<uint64_t>(at), max);
  *moved = size_t(carrier->received() - before);
  if (got.ok()) return Step::kMoved;
  if (got.status().code() == Code::kUnsupported) return Step::kNotByCard;
  if (got.status().code() == Code::kTimeout) return Step::kTimeout;
  if (Link::phase_of(state) == Link::kEnded) return *moved != 0 ? Step::kMoved : Step::kClosed;
  link_->carrier_failed(state, got.status());
  return *moved != 0 ? Step::kMoved : Step::kCut;
}

LastingChannel::Step LastingChannel::receive_once(uint8_t* at, size_t min, size_t max,
                                                  uint32_t spin_us, const Deadline& deadline,
                                                  Memory memory, size_t* moved) {
  const uint64_t state = link_->enter(&line_.receiving);
  Carrier* carrier = line_.in.load(std::memory_order_acquire);
  if (line_.turns_at.load(std::memory_order_acquire) ==
          line_.received.load(std::memory_order_relaxed) &&
      Link::phase_of(state) == Link::kRunning)
    carrier = link_->turn_in(&line_);
  Step step = Step::kCut;
  if (Link::phase_of(state) != Link::kCut) {
    if (carrier != nullptr)
      step =
          receive_over(carrier, state, at, min, max, {spin_us, deadline.left_ms()}, memory, moved);
    else
      step =
          memory == Memory::kHost ? receive_from_kernel(at, max, state, moved) : Step::kNotByCard;
  }
  line_.receiving.store(0, std::memory_order_release);
  if (step == Step::kCut) link_->failed(state);
  return step;
}

Result<size_t> LastingChannel::receive(void* into, size_t min, size_t max, Wait wait) {
  auto* const at = static_cast<uint8_t*>(into);
  size_t got = 0;
  base::Spin spin(wait.spin_us);
  const Deadline deadline(wait.timeout_ms);
  const Deadline none(-1);
  for (;;) {
    const uint32_t seen = link_->news();
    const Deadline& until = got == 0 ? deadline : none;
    size_t moved = 0;
    const Step step = receive_once(at + got, min - std::min(min, got), max - got, wait.spin_us,
                                   until, Memory::kHost, &moved);
    if (step == Step::kClosed) return link_->closed();
    if (step == Step::kMoved) {
      got += moved;
      if (got >= min) return got;
      spin.reset();
      continue;
    }
    if (got >= min) return got;
    if (step == Step::kFull && spin.again()) continue;
    if (step == Step::kTimeout || (got == 0 && deadline.passed()))
      return Status(Code::kTimeout, "nothing arrived in time");
    if (step == Step::kCut) {
      if (Link::phase_of(link_->state()) == Link::kCut) link_->await_news(seen, until);
      continue;
    }
    (void)wait_for(POLLIN, &line_.receiving, until.left_ms());
  }
}

Result<size_t> LastingChannel::send_from_device(uint64_t address, size_t bytes, int timeout_ms) {
  iovec part{reinterpret_cast<void*>(address), bytes};
  Parts rest(&part, 1);
  return rest.empty() ? Result<size_t>(size_t(0)) : some(&rest, timeout_ms, Memory::kDevice);
}

// One attempt. Whoever receives the rest otherwise waits out a cut, and hears of an end.
Result<size_t> LastingChannel::receive_to_device(uint64_t address, size_t max) {
  size_t moved = 0;
  const Step step = receive_once(reinterpret_cast<uint8_t*>(address), 1, max, 0, Deadline(-1),
                                 Memory::kDevice, &moved);
  return step == Step::kMoved ? Result<size_t>(moved) : Result<size_t>(not_by_card());
}

}  // namespace

std::unique_ptr<Channel> lasting_channel(const std::shared_ptr<Lasting>& lasting, size_t line) {
  return std::unique_ptr<Channel>(
      new LastingChannel(std::static_pointer_cast<Link>(lasting), line));
}

}  // namespace tendril::transport
