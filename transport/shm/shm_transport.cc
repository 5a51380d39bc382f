// SPDX-License-Identifier: Apache-2.0
// Shared memory as a registered transport. The client offers its host's boot id. If the worker has
// the same, it makes the memory and answers with its descriptor. The client fetches that from the
// server's unix socket and maps the memory. The session's connection stays open beside the memory
// and shows when the peer dies.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "transport/registry.h"
#include "transport/shm/shm.h"

namespace tendril::transport {
namespace {

using base::Code;
using base::Result;
using base::Status;

// One thread on each side of a ring copies some 10 GB/s to memory that no cache holds. On a small
// machine more threads would only take processors from the program.
constexpr uint16_t kBulkFew = 2, kBulkMany = 4;
constexpr unsigned kManyCpus = 8;

// Empty if it cannot be read. Containers of one host have the same id.
std::string boot_id() {
  const base::Fd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[64];
  ssize_t bytes = file.valid() ? read(file.get(), text, sizeof text) : 0;
  while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == ' ')) --bytes;
  return bytes > 0 ? std::string(text, size_t(bytes)) : std::string();
}

class ShmHalf final : public Half {
 public:
  ShmHalf(ShmSide side, std::string blob) : side_(side), blob_(std::move(blob)) {}

  // Worker's end.
  Status create(uint16_t bulk_channels) {
    ShmSizes sizes;
    sizes.channels =
        1u + std::min(bulk_channels, base::usable_cpus() >= kManyCpus ? kBulkMany : kBulkFew);
    Result<base::Fd> memory = create_shm(sizes);
    if (!memory.ok()) return memory.status();
    descriptor_.reset(fcntl(memory->get(), F_DUPFD_CLOEXEC, 3));
    if (!descriptor_.valid()) return Status(Code::kExhausted, "no descriptor is free");
    return map(memory.take());
  }

  std::string blob() const override { return blob_; }
  base::Fd take_descriptor() override { return std::move(descriptor_); }

  Status complete(const std::string&, base::Fd descriptor) override {
    if (!descriptor.valid()) return Status(Code::kMismatch, "no descriptor came with the answer");
    return map(std::move(descriptor));
  }

  Result<Channels> open(Streams streams) override {
    std::vector<std::unique_ptr<Channel>> all =
        shm_channels(memory_, side_, std::move(streams.command));
    Channels channels;
    channels.command = std::move(all[0]);
    for (size_t i = 1; i < all.size(); ++i) channels.bulk.push_back(std::move(all[i]));
    channels.window = std::move(window_);
    return channels;
  }

 private:
  Status map(base::Fd descriptor) {
    Result<std::shared_ptr<ShmMemory>> memory = map_shm(descriptor);
    if (!memory.ok()) return memory.status();
    memory_ = memory.take();
    window_ = host_window(std::move(descriptor));
    return Status();
  }

  const ShmSide side_;
  const std::string blob_;
  base::Fd descriptor_;
  std::shared_ptr<ShmMemory> memory_;
  HostWindow window_;
};

Result<std::unique_ptr<Half>> offer_shm(const Setting&) {
  std::string boot = boot_id();
  if (boot.empty()) return Status(Code::kUnavailable, "the client cannot read its boot id");
  return std::unique_ptr<Half>(new ShmHalf(ShmSide::kClient, std::move(boot)));
}

Result<std::unique_ptr<Half>> answer_shm(const Setting& setting, const std::string& offered) {
  const std::string boot = boot_id();
  if (boot.empty()) return Status(Code::kUnavailable, "the server cannot read its boot id");
  if (offered != boot) return Status(Code::kUnavailable, "the server is another host");
  std::unique_ptr<ShmHalf> half(new ShmHalf(ShmSide::kWorker, {}));
  const Status created = half->create(setting.bulk_channels);
  if (!created.ok()) return created;
  return std::unique_ptr<Half>(std::move(half));
}

}  // namespace

extern const Transport kShmTransport;
const Transport kShmTransport = {
    "shm",
    "client and server are on one host",
    kOrderedStream | kBulkChannels | kSharedPages,
    Latency::kSharedMemory,
    false,
    offer_shm,
    answer_shm,
};

}  // namespace tendril::transport
