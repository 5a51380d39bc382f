// SPDX-License-Identifier: Apache-2.0
// See rdma_transport.h. The client's offer is the address of its queue pairs, the worker's answer
// that of its own. The client then tries the way before it takes the answer, so a session that
// cannot have RDMA stays on TCP and says why. The session's connection stays open beside it and
// shows when the peer dies.
#include "transport/rdma/rdma_transport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "transport/rdma/end.h"
#include "transport/rdma/ibverbs.h"

namespace tendril::transport {
namespace rdma {
namespace {

using base::Code;
using base::Result;
using base::Status;

// One card moves what a few channels ask for. More would take locked memory.
constexpr uint16_t kBulkMost = 4;

Result<std::unique_ptr<End>> make_end(Verbs* verbs, const Setting& setting, uint32_t channels,
                                      const std::string& port = {});
// The ports that this end may use, as Verbs::open names them.
std::string wanted_ports();

class RdmaHalf final : public Half {
 public:
  RdmaHalf(Verbs* verbs, const Setting& setting, std::unique_ptr<End> end)
      : verbs_(verbs), setting_(setting), end_(std::move(end)) {}

  std::string blob() const override { return end_->blob(); }

  Status complete(const std::string& blob, base::Fd) override {
    Status good = end_->connect(blob);
    if (!good.ok()) return good;
    Result<Trial> trial = end_->try_out();
    if (!trial.ok()) return trial.status();
    remark_ =
        base::format("%s (%s), a read takes %.1f us, a burst runs at %.3g GB/s",
                     end_->facts().name.c_str(), end_->facts().ethernet ? "RoCE" : "InfiniBand",
                     trial->read_us, trial->gigabytes_per_second);
    return Status();
  }
  std::string remark() const override { return remark_; }
  std::string way(const std::string& blob) const override { return end_->way(blob); }

  bool link_changed() const override { return end_->link_changed(); }

  std::vector<Port> ports() const override {
    std::vector<Port> all = {port_of(end_->facts())};
    Result<std::vector<PortFacts>> found = verbs_->ports(wanted_ports());
    if (!found.ok()) return all;
    for (const PortFacts& each : *found) {
      const bool fits = each.name.size() <= kPortNameBytesMax && all.size() < kPortsMost;
      if (fits && each.name != all[0].name) all.push_back(port_of(each));
    }
    return all;
  }
  Result<std::unique_ptr<Half>> on_port(const std::string& port,
                                        const std::string& offered) const override {
    const uint32_t channels = end_->channel_count();
    if (!offered.empty() && End::channels_of(offered) != channels)
      return Status(Code::kMismatch, "the client's other port is laid out for another session");
    Result<std::unique_ptr<End>> end = make_end(verbs_, setting_, channels, port);
    if (!end.ok()) return end.status();
    auto half = std::make_unique<RdmaHalf>(verbs_, setting_, end.take());
    if (!offered.empty()) {
      const Status connected = half->connect(offered);
      if (!connected.ok()) return connected;
    }
    return std::unique_ptr<Half>(std::move(half));
  }

  Carriers carry(base::Fd witness) override {
    return {end_->channels(std::move(witness)), end_->memory()};
  }

  Status connect(const std::string& offered) { return end_->connect(offered); }

  Result<Channels> open(Streams streams) override {
    if (!streams.key.empty())
      return Status(Code::kRefused, "RDMA cannot seal, and this session must be sealed");
    if (streams.acknowledgements.valid()) return open_lasting(std::move(streams));
    Channels channels;
    channels.pinned = end_->memory();
    std::vector<std::unique_ptr<Carrier>> all = end_->channels(std::move(streams.command));
    channels.command = std::move(all[0]);
    for (size_t i = 1; i < all.size(); ++i) channels.bulk.push_back(std::move(all[i]));
    return channels;
  }

 private:
  // A session that outlasts cuts, of which these channels are carriers.
  Result<Channels> open_lasting(Streams streams) {
    base::Fd witness(fcntl(streams.command.get(), F_DUPFD_CLOEXEC, 0));
    if (!witness.valid()) return base::errno_status(Code::kExhausted, "taking a descriptor", errno);
    std::vector<base::Fd> lines;
    lines.push_back(std::move(streams.command));
    for (base::Fd& fd : streams.bulk) lines.push_back(std::move(fd));
    std::vector<std::unique_ptr<Carrier>> carriers = end_->channels(std::move(witness));
    // Both ends come to the same count.
    const size_t count = std::min(carriers.size(), lines.size());
    carriers.resize(count);
    Channels channels;
    channels.pinned = end_->memory();
    Result<std::shared_ptr<Lasting>> lasting =
        Lasting::make(std::move(lines), std::move(streams.acknowledgements),
                      std::move(streams.lasting), std::move(carriers));
    if (!lasting.ok()) return lasting.status();
    channels.lasting = lasting.take();
    channels.command = lasting_channel(channels.lasting, 0);
    for (size_t i = 1; i < count; ++i)
      channels.bulk.push_back(lasting_channel(channels.lasting, i));
    return channels;
  }

  static Port port_of(const PortFacts& facts) {
    return {facts.name, facts.ethernet ? "RoCE" : "InfiniBand", facts.megabits_per_second};
  }

  Verbs* const verbs_;
  const Setting setting_;
  const std::unique_ptr<End> end_;
  std::string remark_;
};

// Devices and ports with commas, "any" or "none".
constexpr const char* kSetting = "TENDRIL_RDMA_DEVICE";

std::string wanted_ports() {
  const char* named = getenv(kSetting);
  return named != nullptr && strcmp(named, "any") != 0 ? named : "";
}

Result<std::unique_ptr<End>> make_end(Verbs* verbs, const Setting& setting, uint32_t channels,
                                      const std::string& port) {
  if (setting.sealed) {
    return Status(Code::kRefused,
                  "the session's data are sealed, which RDMA cannot do; 'tendril serve "
                  "--trusted-network' names networks that need no seal");
  }
  const std::string wanted = wanted_ports();
  if (wanted == "none")
    return Status(Code::kRefused,
                  "TENDRIL_RDMA_DEVICE=none switches it off (at a server: --rdma off)");
  Result<std::shared_ptr<Device>> device = verbs->open(port.empty() ? wanted : port);
  if (!device.ok()) return device.status();
  Sizes sizes;
  sizes.channels = channels;
  return End::make(device.take(), sizes);
}

Result<std::unique_ptr<Half>> offer_system(const Setting& setting) {
  return offer(&system_verbs(), setting);
}
Result<std::unique_ptr<Half>> answer_system(const Setting& setting, const std::string& offered) {
  // A card reaches every machine of its fabric, whatever the sandbox keeps the worker from. So it
  // is lent where a network is trusted, or by name (daemon/sealing.h).
  if (getenv(kSetting) == nullptr) {
    return Status(Code::kRefused,
                  "the server lends no RDMA device: it trusts no network (its operator starts it "
                  "with --trusted-network, or --rdma any)");
  }
  return answer(&system_verbs(), setting, offered);
}

}  // namespace

Result<std::unique_ptr<Half>> offer(Verbs* verbs, const Setting& setting) {
  Result<std::unique_ptr<End>> end =
      make_end(verbs, setting, 1u + std::min(setting.bulk_channels, kBulkMost));
  if (!end.ok()) return Status(end.status().code(), "client: " + end.status().message());
  return std::unique_ptr<Half>(new RdmaHalf(verbs, setting, end.take()));
}

Result<std::unique_ptr<Half>> answer(Verbs* verbs, const Setting& setting,
                                     const std::string& offered) {
  // The client cannot know what it is granted, so it decides; few enough are no burden.
  const uint32_t channels = End::channels_of(offered);
  if (channels == 0 || channels > 1u + kBulkMost)
    return Status(Code::kMismatch, "the client's RDMA is laid out for another version");
  Result<std::unique_ptr<End>> end = make_end(verbs, setting, channels);
  if (!end.ok()) return Status(end.status().code(), "server: " + end.status().message());
  std::unique_ptr<RdmaHalf> half(new RdmaHalf(verbs, setting, end.take()));
  const Status connected = half->connect(offered);
  if (!connected.ok()) return connected;
  return std::unique_ptr<Half>(std::move(half));
}

}  // namespace rdma

extern const Transport kRdmaTransport;
const Transport kRdmaTransport = {
    "rdma",
    "both ends are on one RDMA fabric",
    kOrderedStream | kBulkChannels | kRegistersMemory | kCarriesLines,
    Latency::kFabric,
    false,
    rdma::offer_system,
    rdma::answer_system,
};

}  // namespace tendril::transport
