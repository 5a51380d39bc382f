// SPDX-License-Identifier: Apache-2.0
// See shaped.h. Each direction is a delay line: bytes go in with the time at which they may come out. Time on the wire (bytes over
// bandwidth) adds up, the delay does not: a line of any length stays full.
#include "transport/shaped.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "transport/parts.h"

namespace tendril::transport {
namespace {

using base::Code;
using base::Locked;
using base::Result;
using base::Status;

constexpr size_t kPiece = 64u << 10;
constexpr uint64_t kBytesLeast = 1u << 20, kBytesMost = 64u << 20;
constexpr size_t kSegments = 1u << 14;
constexpr uint64_t kWakeEarlyNs = 80'000;  // timers are late by 50 us and more; the rest is spun

class DelayLine {
 public:
  explicit DelayLine(const Shape& shape) : shape_(shape) {
    // Room for what is under way, or nothing would ever reach the bandwidth.
    uint64_t under_way = shape.bytes_per_second / 1'000'000 * shape.delay_us * 2;
    uint64_t bytes = kBytesLeast;
    uint64_t wanted = shape.bytes_per_second == 0 ? kBytesMost : std::min(under_way + kBytesLeast, kBytesMost);
    while (bytes < wanted) bytes *= 2;
    capacity_ = bytes;
    data_ = static_cast<uint8_t*>(malloc(bytes));
    segments_.resize(kSegments);
  }
  ~DelayLine() { free(data_); }

  // Puts in what fits; 0: full. One thread.
  size_t put(Parts* parts) {
    Locked locked(lock_);
    if (tail_segment_ - head_segment_ >= kSegments || data_ == nullptr) return 0;
    size_t done = 0;
    while (!parts->empty() && tail_ - head_ < capacity_) {
      uint64_t at = tail_ % capacity_;
      size_t room = size_t(std::min(capacity_ - (tail_ - head_), capacity_ - at));
      size_t step = parts->copy_out(data_ + at, std::min(room, kPiece));
      tail_ += step;
      done += step;
    }
    if (done == 0) return 0;
    uint64_t now = base::now_ns();
    free_at_ns_ = std::max(free_at_ns_, now);
    if (shape_.bytes_per_second != 0) {
      free_at_ns_ += uint64_t(double(done) * 1e9 / double(shape_.bytes_per_second));
    }
    segments_[tail_segment_++ % kSegments] = {tail_, free_at_ns_ + uint64_t(shape_.delay_us) * 1000};
    event_.signal();
    return done;
  }

  // Bytes that may come out now, in place; *next_ns: when the next ones may (0: unknown). One thread.
  size_t ready(uint8_t** data, uint64_t* next_ns) {
    Locked locked(lock_);
    *next_ns = 0;
    uint64_t now = base::now_ns();
    uint64_t until = head_;
    for (uint64_t i = head_segment_; i < tail_segment_; ++i) {
      const Segment& segment = segments_[i % kSegments];
      if (segment.due_ns > now) {
        *next_ns = segment.due_ns;
        break;
      }
      until = segment.end;
    }
    uint64_t at = head_ % capacity_;
    *data = data_ + at;
    return size_t(std::min({until - head_, capacity_ - at, uint64_t(kPiece)}));
  }
  void taken(size_t bytes) {
    Locked locked(lock_);
    head_ += bytes;
    while (head_segment_ < tail_segment_ && segments_[head_segment_ % kSegments].end <= head_) ++head_segment_;
    event_.signal();
  }
  bool empty() {
    Locked locked(lock_);
    return head_ == tail_;
  }
  void close(const Status& why) {
    {
      Locked locked(lock_);
      if (!closed_.load()) why_ = why;
      closed_.store(true);
    }
    event_.signal();
  }
  bool closed() const { return closed_.load(); }
  Status why() {
    Locked locked(lock_);
    return why_;
  }
  base::Event& event() { return event_; }

 private:
  struct Segment {
    uint64_t end = 0, due_ns = 0;
  };
  const Shape shape_;
  base::Lock lock_;
  base::Event event_;
  uint8_t* data_ = nullptr;
  uint64_t capacity_ = 0, head_ = 0, tail_ = 0;
  std::vector<Segment> segments_;
  uint64_t head_segment_ = 0, tail_segment_ = 0;
  uint64_t free_at_ns_ = 0;
  std::atomic<bool> closed_{false};
  Status why_;
};

// Sleeps until the line changes or next_ns is near, at most limit_us; then spins the rest.
void wait_on(DelayLine* line, uint32_t seen, uint64_t next_ns, int64_t limit_us) {
  if (next_ns == 0) return line->event().wait(seen, limit_us);
  uint64_t now = base::now_ns();
  if (next_ns > now + kWakeEarlyNs) {
    int64_t sleep_us = int64_t((next_ns - now - kWakeEarlyNs) / 1000);
    line->event().wait(seen, limit_us >= 0 ? std::min(limit_us, sleep_us) : sleep_us);
  } else {
    while (base::now_ns() < next_ns) base::cpu_pause();
  }
}

class ShapedChannel final : public Channel {
 public:
  ShapedChannel(std::unique_ptr<Channel> inner, const Shape& shape)
      : inner_(std::move(inner)), out_(shape), in_(shape) {
    snprintf(kind_, sizeof kind_, "shaped(%.30s)", inner_->kind());
    out_thread_.start(
        "shaped-out", [](void* self) { static_cast<ShapedChannel*>(self)->carry_out(); }, this);
    in_thread_.start(
        "shaped-in", [](void* self) { static_cast<ShapedChannel*>(self)->carry_in(); }, this);
  }
  ~ShapedChannel() override {
    if (getpid() != process_) {  // the threads stayed with the parent, and so does the connection
      out_thread_.forget();
      in_thread_.forget();
      return;
    }
    Status gone(Code::kClosed, "the connection was closed on this side");
    out_.close(gone);
    in_.close(gone);
    inner_->shutdown();
    out_thread_.join();
    in_thread_.join();
  }

  Status send(const iovec* parts, int count) override {
    Parts rest(parts, count);
    while (!rest.empty()) {
      Result<size_t> sent = some(&rest, -1);
      if (!sent.ok()) return sent.status();
    }
    return Status();
  }
  Result<size_t> send_some(const iovec* parts, int count, int timeout_ms) override {
    Parts rest(parts, count);
    if (rest.empty()) return size_t(0);
    return some(&rest, timeout_ms);
  }

  Result<size_t> receive(void* into, size_t min, size_t max, Wait wait) override {
    auto* at = static_cast<uint8_t*>(into);
    size_t got = 0;
    base::Deadline deadline(wait.timeout_ms);
    for (;;) {
      uint32_t seen = in_.event().read();
      uint8_t* data;
      uint64_t next_ns;
      size_t ready = in_.ready(&data, &next_ns);
      bool closed = in_.closed();
      if (ready > 0 && got < max) {
        size_t step = std::min(ready, max - got);
        std::memcpy(at + got, data, step);
        in_.taken(step);
        got += step;
        if (got >= min) return got;
        continue;
      }
      if (down_.load() || (closed && in_.empty())) return in_.why();
      if (got >= min) return got;
      if (got == 0 && deadline.passed()) return Status(Code::kTimeout, "nothing arrived in time");
      int left_ms = got == 0 ? deadline.left_ms() : -1;
      wait_on(&in_, seen, next_ns, left_ms < 0 ? -1 : int64_t(left_ms) * 1000);
    }
  }

  // What was sent before still arrives, as on a real line.
  void shutdown() override {
    down_.store(true);
    Status gone(Code::kClosed, "the connection was closed on this side");
    out_.close(gone);
    in_.close(gone);
  }
  const char* kind() const override { return kind_; }

 private:
  Result<size_t> some(Parts* rest, int timeout_ms) {
    base::Deadline deadline(timeout_ms);
    for (;;) {
      uint32_t seen = out_.event().read();
      if (out_.closed()) return out_.why();
      size_t done = out_.put(rest);
      if (done > 0) return done;
      if (deadline.passed()) return size_t(0);
      int left_ms = deadline.left_ms();
      out_.event().wait(seen, left_ms < 0 ? -1 : int64_t(left_ms) * 1000);
    }
  }

  void carry_out() {
    for (;;) {
      uint32_t seen = out_.event().read();
      uint8_t* data;
      uint64_t next_ns;
      size_t ready = out_.ready(&data, &next_ns);
      if (ready > 0) {
        iovec part{data, ready};
        Status sent = inner_->send(&part, 1);
        if (!sent.ok()) return out_.close(sent);
        out_.taken(ready);
        continue;
      }
      if (out_.closed() && out_.empty()) return inner_->shutdown();
      wait_on(&out_, seen, next_ns, -1);
    }
  }

  void carry_in() {
    std::vector<uint8_t> buffer(kPiece);
    for (;;) {
      Result<size_t> got = inner_->receive(buffer.data(), 1, buffer.size(), {0, -1});
      if (!got.ok()) return in_.close(got.status());
      iovec part{buffer.data(), *got};
      Parts rest(&part, 1);
      while (!rest.empty()) {
        uint32_t seen = in_.event().read();
        if (in_.closed()) return;
        if (in_.put(&rest) == 0) in_.event().wait(seen, -1);
      }
    }
  }

  const pid_t process_ = getpid();
  std::unique_ptr<Channel> inner_;
  char kind_[48];
  DelayLine out_, in_;
  std::atomic<bool> down_{false};
  base::Thread out_thread_, in_thread_;
};

}  // namespace

std::unique_ptr<Channel> shaped(std::unique_ptr<Channel> inner, const Shape& shape) {
  return std::unique_ptr<Channel>(new ShapedChannel(std::move(inner), shape));
}

}  // namespace tendril::transport
