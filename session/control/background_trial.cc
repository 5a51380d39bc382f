// SPDX-License-Identifier: Apache-2.0
// See background_trial.h.
#include "session/control/background_trial.h"

#include <algorithm>

#include "base/clock.h"
#include "session/choice/way_trial.h"
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

Result<std::string> BackgroundTrial::try_out() {
  Ways known(task_.options.ways_folder);
  WayTrial trial(&task_.candidate, task_.blob, &known);
  const Status opened = trial.open();
  if (!opened.ok()) return opened;
  Result<std::vector<base::Fd>> connections = connect();
  if (!connections.ok()) return connections.status();
  TrialLines lines(connections.take());
  lines.begin(task_.candidate.half.get());
  Result<WayChoice> choice = trial.run(&lines);
  if (!choice.ok()) return choice.status();
  return choice->text;
}

}  // namespace tendril::session
