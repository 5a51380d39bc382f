// SPDX-License-Identifier: Apache-2.0
// See sealed.h.
#include "transport/sealed/sealed.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/clock.h"

namespace tendril::transport {
namespace {

using base::Code;
using base::Result;
using base::Status;

// So many full records go out with one system call, and may wait to be opened.
constexpr size_t kRecordsAtOnce = 4;
constexpr size_t kBufferBytes = kRecordsAtOnce * kRecordBytesMax;
constexpr size_t kCheapMoveBytes = 4096;
constexpr char kToWorker = 'w', kToClient = 'c';

Digest channel_secret(const std::string& session_key, uint16_t number, char direction) {
  Digest key;
  std::memcpy(key.data(), session_key.data(), key.size());
  std::string info = "tendril channel";
  info += char(number >> 8);
  info += char(number);
  info += direction;
  std::string secret = hkdf_expand(key, info, kDigestBytes);
  std::memcpy(key.data(), secret.data(), key.size());
  wipe(secret.data(), secret.size());
  return key;
}

class SealedChannel final : public Channel {
 public:
  SealedChannel(std::unique_ptr<Channel> inner, const Digest& send_secret,
                const Digest& receive_secret, uint64_t records_per_key)
      : inner_(std::move(inner)),
        writer_(send_secret, records_per_key),
        reader_(receive_secret, records_per_key) {
    snprintf(kind_, sizeof kind_, "sealed(%.30s)", inner_->kind());
  }
  bool has_memory() const { return out_ != nullptr && in_ != nullptr; }

  Status send(const iovec* parts, int count) override {
    return send_all(parts, count, [this](Parts* rest) { return some(rest, -1); });
  }
  Result<size_t> send_some(const iovec* parts, int count, int timeout_ms) override {
    Parts rest(parts, count);
    if (rest.empty()) return size_t(0);
    return some(&rest, timeout_ms);
  }
  Result<size_t> receive(void* into, size_t min, size_t max, Wait wait) override;
  void shutdown() override { inner_->shutdown(); }
  const char* kind() const override { return kind_; }

 private:
  Result<size_t> some(Parts* rest, int timeout_ms);
  // Opens records until `max` bytes are there, or no whole record is left.
  Status open_records(uint8_t* into, size_t max, size_t* got);
  void take_opened(uint8_t* into, size_t max, size_t* got);
  Status spoiled();

  const std::unique_ptr<Channel> inner_;
  char kind_[40];
  std::atomic<bool> spoiled_{false};

  // The sender's. Sealed bytes that the inner channel has not taken, and how much data they hold.
  RecordWriter writer_;
  const std::unique_ptr<uint8_t[]> out_{new (std::nothrow) uint8_t[kBufferBytes]};
  size_t out_at_ = 0, out_end_ = 0, out_data_ = 0;

  // The receiver's. Opened data first, then what is still sealed.
  RecordReader reader_;
  const std::unique_ptr<uint8_t[]> in_{new (std::nothrow) uint8_t[kBufferBytes]};
  size_t opened_at_ = 0, opened_bytes_ = 0, in_at_ = 0, in_end_ = 0;
};

Status SealedChannel::spoiled() {
  spoiled_.store(true, std::memory_order_relaxed);
  inner_->shutdown();
  return Status(Code::kClosed,
                "a sealed record does not fit its key: somebody between client and server changed, "
                "left out, repeated or reordered bytes, so the session was ended");
}

Result<size_t> SealedChannel::some(Parts* rest, int timeout_ms) {
  if (spoiled_.load(std::memory_order_relaxed)) return spoiled();
  if (out_at_ == out_end_) {
    Parts unsealed = *rest;
    out_at_ = out_end_ = out_data_ = 0;
    while (!unsealed.empty() && out_end_ + kRecordBytesMax <= kBufferBytes) {
      const size_t record = writer_.seal(&unsealed, out_.get() + out_end_);
      out_end_ += record;
      out_data_ += record - kRecordExtraBytes;
    }
  }
  const base::Deadline deadline(timeout_ms);
  const size_t before = out_at_ / kRecordBytesMax;
  while (out_at_ < out_end_) {
    const iovec part{out_.get() + out_at_, out_end_ - out_at_};
    Result<size_t> sent = inner_->send_some(&part, 1, deadline.left_ms());
    if (!sent.ok()) return spoiled_.load(std::memory_order_relaxed) ? spoiled() : sent.status();
    if (*sent == 0) break;
    out_at_ += *sent;
  }
  // Every record but the last is full. Data count as taken when their record has gone.
  const size_t gone = out_at_ / kRecordBytesMax * kRecordDataMax;
  const size_t taken = (out_at_ == out_end_ ? out_data_ : gone) - before * kRecordDataMax;
  rest->advance(taken);
  return taken;
}

void SealedChannel::take_opened(uint8_t* into, size_t max, size_t* got) {
  const size_t bytes = std::min(opened_bytes_, max - *got);
  if (bytes == 0) return;
  std::memcpy(into + *got, in_.get() + opened_at_, bytes);
  opened_at_ += bytes;
  opened_bytes_ -= bytes;
  *got += bytes;
}

Status SealedChannel::open_records(uint8_t* into, size_t max, size_t* got) {
  take_opened(into, max, got);
  while (opened_bytes_ == 0 && in_end_ - in_at_ >= kRecordHeaderBytes) {
    uint8_t* const record = in_.get() + in_at_;
    const size_t bytes = RecordReader::whole_bytes(record);
    if (bytes == 0) return spoiled();
    if (in_end_ - in_at_ < bytes || (*got == max && max != 0)) break;
    const size_t data_bytes = RecordReader::data_bytes(bytes);
    const bool fits = data_bytes <= max - *got;
    if (!reader_.open(record, bytes, fits ? into + *got : record + kRecordHeaderBytes))
      return spoiled();
    opened_at_ = in_at_ + kRecordHeaderBytes;
    in_at_ += bytes;
    if (fits) {
      *got += data_bytes;
    } else {
      opened_bytes_ = data_bytes;
      take_opened(into, max, got);
    }
  }
  if (opened_bytes_ != 0) return Status();
  if (in_at_ == in_end_) {
    in_at_ = in_end_ = 0;
  } else if (kBufferBytes - in_at_ < kRecordBytesMax || in_end_ - in_at_ < kCheapMoveBytes) {
    // The record might not fit behind, or moving it costs less than a smaller receive.
    std::memmove(in_.get(), in_.get() + in_at_, in_end_ - in_at_);
    in_end_ -= in_at_;
    in_at_ = 0;
  }
  return Status();
}

Result<size_t> SealedChannel::receive(void* into, size_t min, size_t max, Wait wait) {
  auto* const at = static_cast<uint8_t*>(into);
  const base::Deadline deadline(wait.timeout_ms);
  size_t got = 0;
  for (bool looked = false;; looked = true) {
    const bool was_spoiled = spoiled_.load(std::memory_order_relaxed);
    const Status opened = was_spoiled ? spoiled() : open_records(at, max, &got);
    if (!opened.ok()) return opened;
    // After one look, nothing is an answer too.
    if (got >= min && (got > 0 || looked || opened_bytes_ != 0)) return got;
    const size_t least = min == 0 ? 0 : 1;
    const int timeout_ms = got == 0 ? deadline.left_ms() : -1;
    Result<size_t> came = inner_->receive(in_.get() + in_end_, least, kBufferBytes - in_end_,
                                          {wait.spin_us, timeout_ms});
    if (!came.ok()) {
      if (came.status().code() == Code::kClosed && in_end_ != in_at_) {
        return Status(Code::kClosed, "the connection was cut off in the middle of a sealed record");
      }
      return came.status();
    }
    in_end_ += *came;
  }
}

}  // namespace

Result<std::unique_ptr<Channel>> sealed(std::unique_ptr<Channel> inner,
                                        const std::string& session_key, uint16_t number,
                                        SealedEnd end, uint64_t records_per_key) {
  if (session_key.size() != kSessionKeyBytes)
    return Status(Code::kInternal, "the key of a sealed session has a wrong size");
  const bool client = end == SealedEnd::kClient;
  Digest send = channel_secret(session_key, number, client ? kToWorker : kToClient);
  Digest receive = channel_secret(session_key, number, client ? kToClient : kToWorker);
  std::unique_ptr<SealedChannel> channel(
      new (std::nothrow) SealedChannel(std::move(inner), send, receive, records_per_key));
  wipe(send.data(), send.size());
  wipe(receive.data(), receive.size());
  if (channel == nullptr || !channel->has_memory())
    return Status(Code::kExhausted, "out of memory for a sealed connection");
  return std::unique_ptr<Channel>(std::move(channel));
}

}  // namespace tendril::transport
