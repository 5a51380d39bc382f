// SPDX-License-Identifier: Apache-2.0
// See background_trial.h.
#include "session/control/background_trial.h"

#include <algorithm>

#include "base/clock.h"
#include "session/choice/ways.h"
#include "session/control/control_client.h"

namespace tendril::session {

using base::Code;
using base::Locked;
using base::Result;
using base::Status;

BackgroundTrial::BackgroundTrial(Task task) : task_(std::move(task)) {
  task_.options.lessor = nullptr;
  const auto main = [](void* self) { static_cast<BackgroundTrial*>(self)->run(); };
  if (thread_.start("tendril-trial", main, this)) return;
  task_.candidate.pinned->settle(nullptr);
  outcome_ = "no " + task_.candidate.fabric + ": there is no thread to try it";
}

BackgroundTrial::~BackgroundTrial() {
  if (getpid() != owner_) thread_.forget();
}

std::string BackgroundTrial::wait(int timeout_ms) {
  const base::Deadline deadline(timeout_ms);
  for (;;) {
    const uint32_t seen = over_.read();
    {
      Locked locked(lock_);
      if (!outcome_.empty() || deadline.passed()) return outcome_;
    }
    over_.wait(seen, timeout_ms < 0 ? -1 : int64_t{deadline.left_ms()} * 1000);
  }
}

void BackgroundTrial::run() {
  Result<std::string> chosen = try_out();
  if (!chosen.ok()) task_.candidate.pinned->settle(nullptr);
  const std::string outcome =
      chosen.ok() ? chosen.take()
                  : "no " + task_.candidate.fabric + ": " + cleaned(chosen.status().message());
  task_.candidate.half.reset();
  if (task_.options.tried) task_.options.tried(outcome);
  Locked locked(lock_);
  outcome_ = outcome;
  over_.signal();
}

Result<std::vector<base::Fd>> BackgroundTrial::connect() const {
  const uint16_t count = std::max<uint16_t>(task_.bulk_channels, 1);
  std::vector<std::unique_ptr<ControlClient>> clients;
  for (uint16_t i = 0; i < count; ++i) {
    const std::vector<uint8_t> body = membership_request(task_.membership, wire::Request::kJoin,
                                                         uint16_t(wire::kTrialChannels + i));
    Result<std::unique_ptr<ControlClient>> client = ControlClient::start_unproven(
        task_.endpoint, task_.options,
        pack(uint16_t(wire::Request::kJoin), Code::kOk, body.data(), body.size()));
    if (!client.ok()) return client.status();
    clients.push_back(client.take());
  }
  std::vector<base::Fd> connections;
  for (auto& client : clients) {
    const Status greeted = client->read_hello();
    if (!greeted.ok()) return greeted;
    Result<Message> answer = client->read_reply(wire::Request::kJoin, task_.options.timeout_ms);
    if (!answer.ok()) return answer.status();
    Connection connection = client->take_connection();
    connection.allow_stalls();
    connections.push_back(connection.take_descriptor());
  }
  return connections;
}

// Not what came of a link that was about to change.
void BackgroundTrial::keep(WayRecord* record) const {
  if (!task_.candidate.half->link_changed()) Ways(task_.options.ways_folder).keep(record);
}

// What is remembered of both ways, or measured now.
Result<WayRecord> BackgroundTrial::compare(TrialLines* lines, const std::string& way) {
  const Ways known(task_.options.ways_folder);
  WayRecord record;
  if (known.find(way, &record)) return record;
  const TrialWays ways = lines->ways(task_.candidate);
  Result<transport::Measured> fabric = measure(lines->orders(), WayKind::kFabric, ways.fabric);
  if (!fabric.ok()) {
    record = {way, 0, {}, fabric.status().message(), {}};
    keep(&record);
    return fabric.status();
  }
  Result<transport::Measured> connections =
      measure(lines->orders(), WayKind::kConnections, ways.connections);
  if (!connections.ok()) return connections.status();
  record = {way, 0, *connections, {}, *fabric};
  keep(&record);
  return record;
}

Result<std::string> BackgroundTrial::try_out() {
  Candidate& candidate = task_.candidate;
  const std::string way = candidate.half->way(task_.blob);
  const Ways known(task_.options.ways_folder);
  WayRecord record;
  if (known.find(way, &record) && !record.failure.empty())
    return Status(Code::kUnavailable, "it failed within the last hour: " + record.failure);
  const Status fits = candidate.half->complete(task_.blob, base::Fd());
  if (!fits.ok()) {
    record = {way, 0, {}, fits.message(), {}};
    keep(&record);
    return Status(fits.code(), "it was tried, but it could not be had: " + fits.message());
  }
  Result<std::vector<base::Fd>> connections = connect();
  if (!connections.ok()) return connections.status();
  TrialLines lines(connections.take(), candidate.half.get());
  Result<WayRecord> found = compare(&lines, way);
  if (!found.ok()) return found.status();
  const WayChoice choice =
      choose_way(candidate.fabric, found->fabric, candidate.connections, found->connections);
  const bool moves = choice.calls || choice.bulk;
  if (moves && !lines.give(choice, candidate))
    return Status(Code::kUnavailable, "the session's connections were cut while it was tried");
  Result<bool> told = tell_choice(lines.orders(), choice, found->fabric, found->connections);
  if (!told.ok()) return told.status();
  if (moves && !*told)
    return Status(Code::kUnavailable, "the server's end was cut while it was tried");
  if (moves) candidate.lasting->use_carriers();
  if (!choice.bulk) candidate.pinned->settle(nullptr);
  return candidate.half->remark() + "; " + choice.text;
}

}  // namespace tendril::session
