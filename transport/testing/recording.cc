// SPDX-License-Identifier: Apache-2.0
// See recording.h.
#include "transport/testing/recording.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

namespace tendril::transport {
namespace {

using base::Result;
using base::Status;

class RecordingChannel final : public Channel {
 public:
  RecordingChannel(std::unique_ptr<Channel> inner, base::Fd received, base::Fd sent)
      : inner_(std::move(inner)), received_(std::move(received)), sent_(std::move(sent)) {
    snprintf(kind_, sizeof kind_, "recording(%.30s)", inner_->kind());
  }

  Status send(const iovec* parts, int count) override {
    Status status = inner_->send(parts, count);
    if (status.ok()) record(&sent_, parts, count, SIZE_MAX);
    return status;
  }

  Result<size_t> send_some(const iovec* parts, int count, int timeout_ms) override {
    Result<size_t> sent = inner_->send_some(parts, count, timeout_ms);
    if (sent.ok()) record(&sent_, parts, count, *sent);
    return sent;
  }

  Result<size_t> receive(void* into, size_t min, size_t max, Wait wait) override {
    Result<size_t> got = inner_->receive(into, min, max, wait);
    const iovec part{into, got.ok() ? *got : 0};
    record(&received_, &part, 1, part.iov_len);
    return got;
  }

  void shutdown() override { inner_->shutdown(); }
  const char* kind() const override { return kind_; }

 private:
  // The first `bytes` of the parts.
  static void record(base::Fd* file, const iovec* parts, int count, size_t bytes) {
    for (int i = 0; i < count && bytes > 0 && file->valid(); ++i) {
      const char* at = static_cast<const char*>(parts[i].iov_base);
      size_t left = parts[i].iov_len < bytes ? parts[i].iov_len : bytes;
      bytes -= left;
      while (left > 0) {
        const ssize_t written = write(file->get(), at, left);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
          file->reset();
          return;
        }
        at += written;
        left -= static_cast<size_t>(written);
      }
    }
  }

  std::unique_ptr<Channel> inner_;
  base::Fd received_, sent_;
  char kind_[48];
};

}  // namespace

std::unique_ptr<Channel> recording(std::unique_ptr<Channel> inner, base::Fd received,
                                   base::Fd sent) {
  return std::unique_ptr<Channel>(
      new RecordingChannel(std::move(inner), std::move(received), std::move(sent)));
}

}  // namespace tendril::transport
