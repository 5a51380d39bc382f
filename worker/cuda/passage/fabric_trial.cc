// SPDX-License-Identifier: Apache-2.0
// See fabric_trial.h.
#include "worker/cuda/passage/fabric_trial.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cstring>

#include "session/choice/way_trial.h"

namespace tendril::worker::cuda {
namespace {

using base::Code;
using base::Result;
using base::Status;
using session::Candidate;
using session::WayChoice;

constexpr const char* kConnections = "tcp";
constexpr int kWaitMs = 10'000;  // for the trial's connections

// The first of them that can carry lines.
const transport::Transport* fabric_of_this_build() {
  for (const transport::Transport* each : transport::transports())
    if ((each->abilities & transport::kCarriesLines) != 0) return each;
  return nullptr;
}

transport::Setting setting() {
  transport::Setting all;
  all.bulk_channels = kFabricLinesMax;
  return all;
}

// Transports speak of clients and servers.
Status from(const Status& status, const std::string& end, const std::string& as) {
  const std::string& text = status.message();
  const bool named = text.compare(0, end.size(), end) == 0;
  return Status(status.code(), as + (named ? text.substr(end.size()) : text));
}

}  // namespace

std::string fabric_refusal(const char* lent, bool forbidden) {
  if (lent == nullptr || strcmp(lent, "none") == 0)
    return "the server lends no RDMA device: it trusts no network (its operator starts it with "
           "--trusted-network, or --rdma any)";
  if (forbidden)
    return "the server's policy forbids RDMA to the program's owner (its administrator allows it "
           "with 'rdma = true')";
  return "";
}

FabricTrial::FabricTrial(Task task) : task_(std::move(task)) {
  connections_.expect(wire::kTrialLinesMax);
  const auto tell = task_.tell;
  pinned_ = task_.passage->open_fabric([tell](const std::string& why) {
    PassageWay way;
    way.brief = kConnections;
    way.text = "RDMA failed (" + why + "); they go on over TCP";
    way.failed = true;
    tell(way);
  });
  const auto main = [](void* self) { static_cast<FabricTrial*>(self)->run(); };
  if (!thread_.start("passage-trial", main, this)) connections_.give_up();
}

FabricTrial::~FabricTrial() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    ended_ = true;
    for (const base::Fd& each : open_) ::shutdown(each.get(), SHUT_RDWR);
  }
  connections_.give_up();
  thread_.join();
}

void FabricTrial::take(uint32_t index, base::Fd connection, const std::string& known) {
  if (!connection.valid()) return connections_.give_up();
  {
    std::lock_guard<std::mutex> hold(mutex_);
    if (!known.empty()) known_ = known;
    // What carries the lines later needs the connections, too. So they end with this only.
    base::Fd other(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
    if (ended_ || !other.valid() || open_.size() >= wire::kTrialLinesMax) return;
    open_.push_back(std::move(other));
  }
  connections_.take(index, std::move(connection));
}

void FabricTrial::run() {
  std::vector<base::Fd> connections = connections_.wait(kWaitMs);
  std::string remembered;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    remembered = known_;
  }
  const transport::Transport* const fabric = fabric_of_this_build();
  if (connections.empty() || fabric == nullptr) {
    pinned_->settle(nullptr);
    PassageWay none;
    none.brief = kConnections;
    none.text = "no RDMA: it was not tried, because the connections for that did not come";
    none.remembered = remembered;
    return task_.tell(none);
  }
  session::OneWay known(remembered);
  Candidate candidate;
  candidate.fabric = fabric->kind;
  candidate.connections = kConnections;
  candidate.lines = std::shared_ptr<transport::Carried>(std::shared_ptr<void>(), task_.passage);
  candidate.pinned = pinned_;
  candidate.only_bulk = true;
  candidate.forced = task_.forced;
  Result<WayChoice> choice = task_.chooses
                                 ? try_out(*fabric, &candidate, std::move(connections), &known)
                                 : answer(*fabric, std::move(candidate), std::move(connections));
  if (!choice.ok() && task_.chooses) pinned_->settle(nullptr);
  PassageWay way;
  way.carried = choice.ok() && choice->bulk;
  way.brief = choice.ok() ? choice->brief : kConnections;
  way.text = choice.ok() ? choice->text : "no RDMA: " + choice.status().message();
  way.remembered = known.text();
  task_.tell(way);
  // What was moved says by itself when it ends.
  std::lock_guard<std::mutex> hold(mutex_);
  open_.clear();
}

Result<WayChoice> FabricTrial::try_out(const transport::Transport& fabric, Candidate* candidate,
                                       std::vector<base::Fd> connections,
                                       session::OneWay* known) const {
  Result<std::unique_ptr<transport::Half>> half = fabric.offer(setting());
  if (!half.ok()) return from(half.status(), "client: ", "this server: ");
  candidate->half = half.take();
  session::TrialLines lines(std::move(connections));
  Result<std::string> blob = session::ask_first(lines.orders(), candidate->half->blob());
  if (!blob.ok()) return from(blob.status(), "server: ", "the other server: ");
  session::WayTrial trial(candidate, *blob, known);
  const Status opened = trial.open();
  if (!opened.ok()) return opened;
  lines.begin(candidate->half.get());
  return trial.run(&lines);
}

Result<WayChoice> FabricTrial::answer(const transport::Transport& fabric, Candidate candidate,
                                      std::vector<base::Fd> connections) const {
  std::string refused;
  candidate.answers = [&](const std::string& offered) -> Result<std::unique_ptr<transport::Half>> {
    Result<std::unique_ptr<transport::Half>> half =
        task_.refusal.empty()
            ? fabric.answer(setting(), offered)
            : Result<std::unique_ptr<transport::Half>>(Status(Code::kRefused, task_.refusal));
    if (!half.ok()) refused = half.status().message();
    return half;
  };
  Result<WayChoice> choice = session::answer_trial(std::move(candidate), std::move(connections));
  if (!refused.empty()) return from(Status(Code::kRefused, refused), "server: ", "this server: ");
  if (!choice.ok())
    return Status(choice.status().code(),
                  "the other server did not choose: " + choice.status().message());
  return choice;
}

}  // namespace tendril::worker::cuda
