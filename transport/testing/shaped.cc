// SPDX-License-Identifier: Apache-2.0
// See shaped.h.
#include "transport/testing/shaped.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "base/lock.h"
#include "transport/testing/wrapper.h"

namespace tendril::transport {
namespace {

using base::Code;
using base::Locked;
using base::Result;
using base::Status;

constexpr uint64_t kPieceMost = 64u << 10, kPieceLeast = 1500;
constexpr uint64_t kPieceNs =
    100'000;  // on the wire: so long may another channel's bytes have to wait
constexpr uint64_t kBytesLeast = 1u << 20, kBytesMost = 64u << 20;
constexpr uint64_t kSpinNs = 1'000'000;  // timers are late; the last part of a wait is spun

// The bytes that have come, each with the time from which they may be seen. Belongs to the
// receiver.
class Arrivals {
 public:
  explicit Arrivals(const Shape& shape) {
    // Room for the bytes under way. Without it nothing would ever reach the bandwidth.
    const uint64_t under_way = shape.bytes_per_second / 1'000'000 * shape.delay_us * 4;
    const uint64_t wanted = shape.bytes_per_second == 0 ? kBytesMost : under_way + kBytesLeast;
    data_.resize(std::min(wanted, kBytesMost));
  }
  bool empty() const { return pieces_.empty(); }
  uint64_t next_ns() const { return pieces_.front().due_ns; }
  // Where to put the next bytes, and how many fit there.
  uint8_t* room(size_t* bytes) {
    const size_t at = tail_ % data_.size();
    *bytes =
        std::min({data_.size() - size_t(tail_ - head_), data_.size() - at, size_t(kPieceMost)});
    return data_.data() + at;
  }
  void came(size_t bytes, uint64_t due_ns) {
    tail_ += bytes;
    pieces_.push_back({tail_, due_ns});
  }
  size_t take(uint8_t* into, size_t max) {
    const uint64_t now = base::now_ns();
    size_t done = 0;
    while (done < max && !pieces_.empty() && pieces_.front().due_ns <= now) {
      const size_t at = head_ % data_.size();
      const size_t step =
          std::min({size_t(pieces_.front().end - head_), data_.size() - at, max - done});
      std::memcpy(into + done, data_.data() + at, step);
      head_ += step;
      done += step;
      if (head_ == pieces_.front().end) pieces_.pop_front();
    }
    return done;
  }

 private:
  struct Piece {
    uint64_t end, due_ns;
  };
  std::vector<uint8_t> data_;
  std::deque<Piece> pieces_;
  uint64_t head_ = 0, tail_ = 0;
};

class ShapedChannel final : public Wrapper {
 public:
  ShapedChannel(std::unique_ptr<Channel> inner, std::shared_ptr<Line> line)
      : Wrapper(std::move(inner), "shaped"), line_(std::move(line)), arrivals_(line_->shape()) {
    const uint64_t rate = line_->shape().bytes_per_second;
    piece_ = rate == 0 ? kPieceMost
                       : std::clamp(rate * kPieceNs / 1'000'000'000u, kPieceLeast, kPieceMost);
  }

  Result<size_t> receive(void* into, size_t min, size_t max, Wait wait) override {
    auto* at = static_cast<uint8_t*>(into);
    size_t got = 0;
    const base::Deadline deadline(wait.timeout_ms);
    base::Spin spin(UINT32_MAX);
    for (bool looked = false;; looked = true) {
      if (down_.load()) return gone();
      got += arrivals_.take(at + got, max - got);
      if (got == max || (got >= min && (looked || got != 0))) return got;
      if (arrivals_.empty() && !ended_.ok()) return ended_;
      const bool over = got == 0 && deadline.passed();
      if (over && looked) return Status(Code::kTimeout, "nothing arrived in time");
      const bool may_sleep = arrivals_.empty() && min != 0 && !over;
      look(may_sleep ? Wait{wait.spin_us, got == 0 ? deadline.left_ms() : -1} : Wait{0, 0},
           may_sleep);
      if (!may_sleep && !arrivals_.empty() && min != 0) wait_until(arrivals_.next_ns(), &spin);
    }
  }

  void shutdown() override {
    down_.store(true);
    down_event_.signal();
    inner_->shutdown();
  }

 private:
  static Status gone() { return Status(Code::kClosed, "the connection was closed on this side"); }

  // Takes in what has come by now. It may be seen when the wire has carried it, and after the delay
  // of both ways.
  void look(Wait wait, bool may_sleep) {
    size_t room = 0;
    uint8_t* into = arrivals_.room(&room);
    if (room == 0 || !ended_.ok()) return;
    Result<size_t> got = inner_->receive(into, may_sleep ? 1 : 0, room, wait);
    if (!got.ok()) {
      if (got.status().code() != Code::kTimeout) ended_ = got.status();
    } else if (*got != 0) {
      arrivals_.came(*got, line_->in_ns(*got) + uint64_t(line_->shape().delay_us) * 2000);
    }
  }

  // Waits one step towards that time. Bytes that come meanwhile must get their own time.
  void wait_until(uint64_t at_ns, base::Spin* spin) {
    const uint32_t seen = down_event_.read();
    const uint64_t now = base::now_ns();
    if (at_ns <= now) return;
    if (at_ns > now + 2 * kSpinNs)
      down_event_.wait(seen, int64_t(kSpinNs / 1000));
    else if (spin->again())
      base::cpu_pause();
  }

  Result<size_t> some(Parts* rest, int timeout_ms) override {
    if (down_.load()) return gone();
    if (paid_ == 0) {
      paid_ = std::min<size_t>(rest->bytes(), piece_);
      const uint64_t end_ns = line_->out_ns(paid_);
      base::Spin spin(UINT32_MAX);
      while (base::now_ns() < end_ns && !down_.load()) {
        const uint64_t left_ns = end_ns - std::min(end_ns, base::now_ns());
        if (left_ns > kSpinNs)
          down_event_.wait(down_event_.read(), int64_t((left_ns - kSpinNs / 2) / 1000));
        else if (spin.again())
          base::cpu_pause();
      }
    }
    Parts paid = *rest;
    paid.limit(paid_);
    Result<size_t> sent = inner_->send_some(paid.array(), paid.count(), timeout_ms);
    if (!sent.ok()) return sent;
    paid_ -= *sent;
    rest->advance(*sent);
    return sent;
  }

  std::shared_ptr<Line> line_;
  uint64_t piece_ = kPieceMost;
  size_t paid_ = 0;  // the sender's: bytes that the wire has taken but the inner channel has not
  Arrivals arrivals_;
  Status ended_;  // the receiver's: nothing comes after the arrivals
  std::atomic<bool> down_{false};
  base::Event down_event_;
};

}  // namespace

uint64_t Line::reserve(uint64_t* free_at_ns, size_t bytes) {
  const uint64_t now = base::now_ns();
  if (shape_.bytes_per_second == 0) return now;
  const Locked locked(lock_);
  *free_at_ns =
      std::max(*free_at_ns, now) + uint64_t(double(bytes) * 1e9 / double(shape_.bytes_per_second));
  return *free_at_ns;
}

std::unique_ptr<Channel> shaped(std::unique_ptr<Channel> inner, std::shared_ptr<Line> line) {
  return std::unique_ptr<Channel>(new ShapedChannel(std::move(inner), std::move(line)));
}

std::unique_ptr<Channel> shaped(std::unique_ptr<Channel> inner, const Shape& shape) {
  return shaped(std::move(inner), std::make_shared<Line>(shape));
}

}  // namespace tendril::transport
