// SPDX-License-Identifier: Apache-2.0
// See end.h. The blob: fixed layout, little-endian; every length is checked before it is used.
#include "transport/rdma/end.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"

namespace tendril::transport::rdma {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr uint32_t kBlobMark = 0x32445254;  // "TRD2": raise the digit when anything below changes
constexpr size_t kNonceBytes = 16;
constexpr uint32_t kProbeBytes = 64u << 10;
constexpr uint32_t kPings = 16, kBursts = 16;
constexpr int kTrialMs = 1000;  // in all; a session waits for it

struct BlobHead {
  uint32_t mark, channels;
  uint64_t command_ring, bulk_ring;
  uint8_t gid[kGidBytes];
  uint8_t nonce[kNonceBytes];
  uint64_t probe_address;
  uint32_t probe_key;
  uint16_t lid;
  uint8_t mtu_code, reads, ethernet, zero[3];
  uint32_t ports_epoch;
};
static_assert(sizeof(BlobHead) == 80);
struct BlobChannel {
  uint32_t out_number, out_packet, in_number, in_packet;
  uint64_t ring_address;
  uint32_t ring_key, zero;
};
static_assert(sizeof(BlobChannel) == 32);
static_assert(sizeof(BlobHead) + kChannelsMax * sizeof(BlobChannel) <= 1024);  // kBlobBytesMax

// Room for what the peer may tell at one time: each record, or each record's end; its closing.
constexpr PairLimits kLimits{kRecordsMax + 2 * Line::kSpareSends, kRecordsMax + 8};

class RdmaChannel final : public Carrier {
 public:
  RdmaChannel(std::shared_ptr<Session> session, std::unique_ptr<Outlet> outlet,
              std::unique_ptr<Inlet> inlet, bool command)
      : session_(std::move(session)),
        outlet_(std::move(outlet)),
        inlet_(std::move(inlet)),
        command_(command),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  Status send(const iovec* parts, int count) override {
    return send_all(parts, count, [this](Parts* rest) { return some(rest, -1); });
  }
  Result<size_t> send_some(const iovec* parts, int count, int timeout_ms) override {
    Parts rest(parts, count);
    return some(&rest, timeout_ms);
  }
  Result<size_t> receive(void* into, size_t min, size_t max, Wait wait) override {
    if (down_.load(std::memory_order_acquire)) return closed_here();
    return inlet_->receive(into, min, max, wait, wake_.get());
  }
  Result<size_t> send_from_device(uint64_t address, size_t bytes, int timeout_ms) override {
    if (down_.load(std::memory_order_acquire)) return closed_here();
    return outlet_->some_of_device(address, bytes, timeout_ms, wake_.get());
  }
  Result<size_t> receive_to_device(uint64_t address, size_t max) override {
    if (down_.load(std::memory_order_acquire)) return closed_here();
    return inlet_->receive_to_device(address, max, wake_.get());
  }
  void shutdown() override {
    if (down_.exchange(true)) return;
    outlet_->end();
    inlet_->end();
    (void)eventfd_write(wake_.get(), 1);
    if (command_ && session_->connection.valid()) ::shutdown(session_->connection.get(), SHUT_RDWR);
  }
  const char* kind() const override { return "rdma"; }

  uint64_t sent() const override { return outlet_->sent(); }
  uint64_t received() const override { return inlet_->received(); }
  bool peer_closed() const override { return outlet_->line().closed() || inlet_->line().closed(); }
  Status look() override {
    const Status device = outlet_->line().look_at_device();
    return device.ok() ? outlet_->look() : device;
  }
  void interrupt() override {
    if (!down_.exchange(true)) (void)eventfd_write(wake_.get(), 1);
  }
  Result<Remains> leave(uint8_t* ring, size_t ring_bytes, uint64_t from, uint64_t shift) override {
    outlet_->line().stop();
    inlet_->line().stop();
    session_->known->retire();
    return outlet_->remains(ring, ring_bytes, from, shift);
  }

 private:
  Result<size_t> some(Parts* rest, int timeout_ms) {
    if (down_.load(std::memory_order_acquire)) return closed_here();
    return outlet_->some(rest, timeout_ms, wake_.get());
  }
  static Status closed_here() {
    return Status(Code::kClosed, "the connection was closed on this side");
  }

  // Last, because the connection tells the peer that everything has been said.
  const std::shared_ptr<Session> session_;
  const std::unique_ptr<Outlet> outlet_;
  const std::unique_ptr<Inlet> inlet_;
  const bool command_;
  const base::Fd wake_;
  std::atomic<bool> down_{false};
};

PairAddress address_of(const BlobHead& head, uint32_t number, uint32_t packet) {
  PairAddress address;
  memcpy(address.gid, head.gid, sizeof address.gid);
  address.number = number & 0xffffff;
  address.first_packet = packet & 0xffffff;
  address.lid = head.lid;
  address.mtu_code = head.mtu_code;
  address.reads = head.reads;
  address.ethernet = head.ethernet != 0;
  return address;
}

}  // namespace

Status End::add_channel(const Layout& layout) {
  std::unique_ptr<Line> lines[2];
  for (std::unique_ptr<Line>& line : lines) {
    Result<std::unique_ptr<Pair>> pair = session_->device->make_pair(kLimits);
    if (!pair.ok()) return pair.status();
    const Status posted = (*pair)->post_receives(kLimits.receives);
    if (!posted.ok()) return posted;
    addresses_.push_back((*pair)->address());
    pairs_.push_back(pair->get());
    line = std::make_unique<Line>(session_, pair.take(), kLimits);
  }
  outlets_.push_back(std::make_unique<Outlet>(session_, std::move(lines[0]), layout));
  inlets_.push_back(std::make_unique<Inlet>(session_, std::move(lines[1]), layout));
  const Status opened = outlets_.back()->open();
  return opened.ok() ? inlets_.back()->open() : opened;
}

Result<std::unique_ptr<End>> End::make(std::shared_ptr<Device> device, const Sizes& sizes) {
  if (sizes.channels == 0 || sizes.channels > kChannelsMax ||
      !good_ring_size(sizes.command.ring_bytes) || !good_ring_size(sizes.bulk.ring_bytes))
    return Status(Code::kInvalid, "impossible sizes of RDMA rings");
  std::unique_ptr<End> end(new End);
  end->sizes_ = sizes;
  end->session_ = std::make_shared<Session>();
  end->session_->device = std::move(device);
  end->session_->report_ms = sizes.report_ms;
  end->memory_ = std::make_shared<ProgramMemory>(end->session_->device);
  end->session_->known = end->memory_;
  end->nonce_.resize(kNonceBytes);
  if (!base::random_bytes(&end->nonce_[0], kNonceBytes))
    return Status(Code::kUnavailable, "the kernel has no random bytes");
  Status good = end->probe_.open(end->session_->device.get(), kProbeBytes, Rights::kPeerReads);
  for (uint32_t i = 0; i < sizes.channels && good.ok(); ++i)
    good = end->add_channel(i == 0 ? sizes.command : sizes.bulk);
  if (!good.ok()) return good;
  for (uint32_t at = 0; at < kProbeBytes; at += kNonceBytes)
    memcpy(end->probe_.data() + at, end->nonce_.data(), kNonceBytes);
  return end;
}

std::string End::blob() const {
  BlobHead head{};
  head.mark = kBlobMark;
  head.channels = sizes_.channels;
  head.command_ring = sizes_.command.ring_bytes;
  head.bulk_ring = sizes_.bulk.ring_bytes;
  memcpy(head.gid, addresses_[0].gid, sizeof head.gid);
  memcpy(head.nonce, nonce_.data(), kNonceBytes);
  head.probe_address = probe_.remote().address;
  head.probe_key = probe_.remote().key;
  head.lid = addresses_[0].lid;
  head.mtu_code = addresses_[0].mtu_code;
  head.reads = addresses_[0].reads;
  head.ethernet = addresses_[0].ethernet ? 1 : 0;
  head.ports_epoch = facts().ports_epoch;
  std::string blob(reinterpret_cast<const char*>(&head), sizeof head);
  for (uint32_t i = 0; i < sizes_.channels; ++i) {
    const PairAddress &out = addresses_[2 * i], &in = addresses_[2 * i + 1];
    const Remote ring = inlets_[i]->ring();
    const BlobChannel channel{out.number,   out.first_packet, in.number, in.first_packet,
                              ring.address, ring.key,         0};
    blob.append(reinterpret_cast<const char*>(&channel), sizeof channel);
  }
  return blob;
}

uint32_t End::channels_of(const std::string& blob) {
  BlobHead head;
  if (blob.size() < sizeof head) return 0;
  memcpy(&head, blob.data(), sizeof head);
  return head.mark == kBlobMark && head.channels <= kChannelsMax ? head.channels : 0;
}

std::string End::way(const std::string& blob) const {
  BlobHead head;
  if (channels_of(blob) == 0) return {};
  memcpy(&head, blob.data(), sizeof head);
  return base::format("%s %s lid %u, %llu Mb/s, %08x; peer %s lid %u, %08x", facts().name.c_str(),
                      base::hex(addresses_[0].gid, kGidBytes).c_str(), unsigned(addresses_[0].lid),
                      static_cast<unsigned long long>(facts().megabits_per_second),
                      facts().ports_epoch, base::hex(head.gid, kGidBytes).c_str(),
                      unsigned(head.lid), head.ports_epoch);
}

bool End::link_changed() const {
  (void)session_->device->look_at_events();
  return session_->device->link_changed();
}

Status End::connect(const std::string& blob) {
  BlobHead head;
  if (blob.size() < sizeof head) return Status(Code::kMismatch, "an RDMA address was cut short");
  memcpy(&head, blob.data(), sizeof head);
  if (head.mark != kBlobMark || head.channels != sizes_.channels ||
      head.command_ring != sizes_.command.ring_bytes || head.bulk_ring != sizes_.bulk.ring_bytes ||
      blob.size() != sizeof head + head.channels * sizeof(BlobChannel))
    return Status(Code::kMismatch, "the other end's RDMA is laid out for another version");
  if ((head.ethernet != 0) != addresses_[0].ethernet) {
    return Status(Code::kMismatch, head.ethernet != 0
                                       ? "this end is on InfiniBand and the other one on RoCE"
                                       : "this end is on RoCE and the other one on InfiniBand");
  }
  if (head.mtu_code < 1 || head.mtu_code > 5 || head.reads == 0)
    return Status(Code::kMismatch, "an RDMA address that makes no sense");
  for (uint32_t i = 0; i < sizes_.channels; ++i) {
    BlobChannel channel;
    memcpy(&channel, blob.data() + sizeof head + i * sizeof channel, sizeof channel);
    Status connected =
        pairs_[2 * i]->connect(address_of(head, channel.in_number, channel.in_packet));
    if (connected.ok()) {
      connected =
          pairs_[2 * i + 1]->connect(address_of(head, channel.out_number, channel.out_packet));
    }
    if (!connected.ok()) return connected;
    outlets_[i]->aim({channel.ring_address, channel.ring_key});
  }
  peer_probe_ = {head.probe_address, head.probe_key};
  peer_nonce_.assign(reinterpret_cast<const char*>(head.nonce), kNonceBytes);
  return Status();
}

Status End::read_probe(RegisteredBlock* into, uint32_t bytes, uint32_t times) {
  Line& line = outlets_[0]->line();
  const base::Deadline deadline(kTrialMs);
  uint64_t last = 0;
  for (uint32_t i = 0; i < times; ++i) {
    Work work;
    work.kind = WorkKind::kRead;
    work.local = into->data();
    work.local_key = into->local_key();
    work.bytes = bytes;
    work.remote = peer_probe_;
    const Status posted = line.post(work, &last);
    if (!posted.ok()) return posted;
  }
  while (!line.is_reported(last)) {
    const Status good = line.collect();
    if (!good.ok()) return good;
    if (deadline.passed()) {
      line.stop();
      return Status(Code::kTimeout,
                    base::format("nothing came back over %s within %d ms; are both ends on one "
                                 "fabric, and is its traffic let through?",
                                 facts().name.c_str(), kTrialMs));
    }
    base::cpu_pause();
  }
  return Status();
}

Result<Trial> End::try_out() {
  RegisteredBlock into;
  Status good = into.open(session_->device.get(), kProbeBytes, Rights::kNone);
  double pings_us[kPings];
  for (uint32_t i = 0; i < kPings && good.ok(); ++i) {
    const uint64_t begin_ns = base::now_ns();
    good = read_probe(&into, i == 0 ? kNonceBytes : 8, 1);
    pings_us[i] = double(base::now_ns() - begin_ns) / 1000;
    if (good.ok() && i == 0 && memcmp(into.data(), peer_nonce_.data(), kNonceBytes) != 0)
      good = Status(Code::kMismatch, "the RDMA address leads to somebody else");
  }
  const uint64_t begin_ns = base::now_ns();
  if (good.ok()) good = read_probe(&into, kProbeBytes, kBursts);
  if (!good.ok()) return good;
  const double burst_ns = double(std::max<uint64_t>(base::now_ns() - begin_ns, 1));
  std::sort(pings_us, pings_us + kPings);
  return Trial{pings_us[kPings / 2], double(kProbeBytes) * kBursts / burst_ns};
}

std::vector<std::unique_ptr<Carrier>> End::channels(base::Fd connection) {
  session_->connection = std::move(connection);
  std::vector<std::unique_ptr<Carrier>> all;
  for (size_t i = 0; i < outlets_.size(); ++i) {
    all.emplace_back(
        new RdmaChannel(session_, std::move(outlets_[i]), std::move(inlets_[i]), i == 0));
  }
  return all;
}

}  // namespace tendril::transport::rdma
