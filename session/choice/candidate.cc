// SPDX-License-Identifier: Apache-2.0
// See candidate.h.
#include "session/choice/candidate.h"

#include <fcntl.h>

#include "transport/tcp/socket.h"

namespace tendril::session {

using base::Result;
using transport::Channel;

namespace {

// The same memory for the cards of two ports.
class BothPinned final : public transport::PinnedMemory {
 public:
  BothPinned(std::shared_ptr<transport::PinnedMemory> one,
             std::shared_ptr<transport::PinnedMemory> other)
      : one_(std::move(one)), other_(std::move(other)) {}
  // A card that does not know it has its data copied.
  base::Status add(void* memory, size_t bytes) override {
    const base::Status first = one_->add(memory, bytes);
    const base::Status second = other_->add(memory, bytes);
    return first.ok() ? first : second;
  }
  void remove(const void* memory) override {
    one_->remove(memory);
    other_->remove(memory);
  }
  std::vector<std::shared_ptr<transport::CardPort>> card_ports() override {
    std::vector<std::shared_ptr<transport::CardPort>> all = one_->card_ports();
    for (auto& port : other_->card_ports()) all.push_back(std::move(port));
    return all;
  }

 private:
  const std::shared_ptr<transport::PinnedMemory> one_, other_;
};

}  // namespace

TrialLines::TrialLines(std::vector<base::Fd> connections)
    : witness_(fcntl(connections.front().get(), F_DUPFD_CLOEXEC, 0)) {
  for (base::Fd& fd : connections) connections_.push_back(transport::socket_channel(std::move(fd)));
}

void TrialLines::begin(transport::Half* half) {
  *fabric(WayKind::kFabric) = half->carry(witness());
}

// The first one's end shows that the peer is gone, as long as the fabric carries anything.
base::Fd TrialLines::witness() const { return base::Fd(fcntl(witness_.get(), F_DUPFD_CLOEXEC, 0)); }

Way TrialLines::way(WayKind kind) const {
  Way way;
  if (kind == WayKind::kConnections) {
    way.calls = orders();
    for (const auto& each : connections_) way.bulk.push_back(each.get());
    return way;
  }
  for (const auto& each : fabrics_[size_t(kind) - 1].lines) {
    if (way.calls == nullptr)
      way.calls = each.get();
    else
      way.bulk.push_back(each.get());
  }
  return way;
}

void TrialLines::put(WayKind kind, std::unique_ptr<transport::Half> half) {
  *fabric(kind) = half->carry(witness());
  halves_[size_t(kind) - 1] = std::move(half);
}

void TrialLines::drop(WayKind kind) {
  *fabric(kind) = {};
  halves_[size_t(kind) - 1].reset();
}

bool TrialLines::give(const WayChoice& choice, const Candidate& candidate) {
  transport::Carriers& best = fabrics_[choice.second ? 1 : 0];
  transport::Carriers& other = fabrics_[choice.second ? 0 : 1];
  for (size_t i = 0; i < best.lines.size(); ++i) {
    if (!(i == 0 ? choice.calls : choice.bulk))
      best.lines[i].reset();
    else if (choice.striped && i % 2 == 0 && i != 0 && i < other.lines.size())
      best.lines[i] = std::move(other.lines[i]);
  }
  std::shared_ptr<transport::PinnedMemory> pinned = std::move(best.pinned);
  if (choice.striped) pinned = std::make_shared<BothPinned>(std::move(pinned), other.pinned);
  const bool taken = candidate.lines->take_carriers(std::move(best.lines)).ok();
  other = {};
  candidate.pinned->settle(taken && choice.bulk ? std::move(pinned) : nullptr);
  return taken;
}

Result<WayChoice> answer_trial(Candidate candidate, std::vector<base::Fd> connections) {
  TrialLines lines(std::move(connections));
  TrialServer server;
  server.only_bulk = candidate.only_bulk;
  if (candidate.half != nullptr) lines.begin(candidate.half.get());
  server.fabric_kind = candidate.fabric;
  server.connections_kind = candidate.connections;
  for (const WayKind kind : {WayKind::kConnections, WayKind::kFabric})
    server.ways[size_t(kind)] = lines.way(kind);
  server.ports = [&] {
    return candidate.half != nullptr ? candidate.half->ports() : std::vector<transport::Port>();
  };
  server.first = [&](const std::string& blob) -> Result<std::string> {
    if (candidate.half != nullptr || !candidate.answers)
      return base::Status(base::Code::kInvalid, "the server has answered that already");
    Result<std::unique_ptr<transport::Half>> half = candidate.answers(blob);
    if (!half.ok()) return half.status();
    candidate.half = half.take();
    const std::string own = candidate.half->blob();
    lines.begin(candidate.half.get());
    server.ways[size_t(WayKind::kFabric)] = lines.way(WayKind::kFabric);
    return own;
  };
  server.pair = [&](WayKind kind, const transport::Port& port,
                    const std::string& blob) -> Result<std::string> {
    lines.drop(kind);
    Result<std::unique_ptr<transport::Half>> half = candidate.half->on_port(port.name, blob);
    if (!half.ok()) return half.status();
    const std::string own = (*half)->blob();
    lines.put(kind, half.take());
    server.ways[size_t(kind)] = lines.way(kind);
    return own;
  };
  server.moves = [&](const WayChoice& chosen) {
    if (!chosen.calls && !chosen.bulk) return true;
    if (!lines.give(chosen, candidate)) return false;
    candidate.lines->use_carriers();
    return true;
  };
  Result<WayChoice> choice = serve_trial(lines.orders(), &server);
  if (!choice.ok() || !choice->bulk) candidate.pinned->settle(nullptr);
  return choice;
}

}  // namespace tendril::session
