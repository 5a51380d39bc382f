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
using transport::Measured;
using transport::Port;

namespace {

WayKind other_than(WayKind way) {
  return way == WayKind::kFabric ? WayKind::kOtherFabric : WayKind::kFabric;
}

}  // namespace

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

std::string BackgroundTrial::name_of(const PortPair& pair, const char* between) const {
  return here_[pair.client].name + between + there_[pair.worker].name;
}

// Empty lists: the first ports are all that there is, as far as can be seen.
void BackgroundTrial::find_ports(TrialLines* lines) {
  here_ = task_.candidate.half->ports();
  Result<std::vector<Port>> there = ask_ports(lines->orders());
  if (there.ok() && !here_.empty()) there_ = there.take();
}

// Over that pair of ports, in the place of one of the fabric's ways.
Status BackgroundTrial::open_pair(TrialLines* lines, WayKind kind, const PortPair& pair) {
  lines->drop(kind);
  Result<std::unique_ptr<transport::Half>> half =
      task_.candidate.half->on_port(here_[pair.client].name, {});
  if (!half.ok()) return half.status();
  Result<std::string> blob = ask_pair(lines->orders(), kind, pair.worker, (*half)->blob());
  if (!blob.ok()) return blob.status();
  const Status fits = (*half)->complete(*blob, base::Fd());
  if (!fits.ok()) return fits;
  remarks_[size_t(kind)] = (*half)->remark();
  lines->put(kind, half.take());
  return Status();
}

// The pairs that were the best ones when they were measured.
Status BackgroundTrial::open_remembered(TrialLines* lines, const WayRecord& record) {
  if (record.best.empty() && record.beside.empty()) return Status();
  find_ports(lines);
  PortPair best, beside;
  bool has_best = record.best.empty(), has_beside = record.beside.empty();
  for (size_t i = 0; i < here_.size(); ++i) {
    for (size_t j = 0; j < there_.size(); ++j) {
      const PortPair pair{i, j};
      if (name_of(pair, ">") == record.best) best = pair, has_best = true;
      if (name_of(pair, ">") == record.beside) beside = pair, has_beside = true;
    }
  }
  if (!has_best || !has_beside) return Status(Code::kUnavailable, "a port is not there any more");
  if (best != PortPair()) best_ = WayKind::kOtherFabric;
  Status good = best != PortPair() ? open_pair(lines, best_, best) : Status();
  if (good.ok() && !record.beside.empty() && beside != PortPair())
    good = open_pair(lines, other_than(best_), beside);
  striped_ = good.ok() && !record.beside.empty();
  pairs_text_ = record.best.empty() ? "" : "over " + name_of(best, " to ");
  return good;
}

// Tries other pairs than the first one, and leaves the best one open, with one beside it if there
// is one that is alike.
void BackgroundTrial::compare_pairs(TrialLines* lines, WayRecord* record, const Measured& first) {
  find_ports(lines);
  const std::vector<PortPair> pairs = pairs_to_try(here_, there_);
  if (pairs.size() < 2 || pairs[0] != PortPair()) return;
  std::vector<TriedPair> tried = {{pairs[0], name_of(pairs[0], " to "), first, {}}};
  size_t best = 0, in_other_way = SIZE_MAX;
  for (size_t i = 1; i < pairs.size(); ++i) {
    const WayKind kind = other_than(best_);
    TriedPair each{pairs[i], name_of(pairs[i], " to "), {}, {}};
    const Status opened = open_pair(lines, kind, pairs[i]);
    Result<Measured> measured =
        opened.ok() ? measure(lines->orders(), kind, lines->way(kind)) : Result<Measured>(opened);
    if (measured.ok())
      each.measured = *measured;
    else
      each.failure = cleaned(measured.status().message());
    tried.push_back(each);
    in_other_way = i;
    if (!measured.ok() || !is_better(each.measured, tried[best].measured)) continue;
    in_other_way = best;
    best = i;
    best_ = kind;
  }
  const size_t beside = pair_beside(tried, best);
  striped_ =
      beside < tried.size() &&
      (beside == in_other_way || open_pair(lines, other_than(best_), tried[beside].ports).ok());
  record->fabric = tried[best].measured;
  if (best != 0 || striped_) record->best = name_of(tried[best].ports, ">");
  if (striped_) record->beside = name_of(tried[beside].ports, ">");
  pairs_text_ = told(tried, best);
}

// What is remembered of both ways, or measured now.
Result<WayRecord> BackgroundTrial::compare(TrialLines* lines, const std::string& way) {
  const Ways known(task_.options.ways_folder);
  WayRecord record;
  if (known.find(way, &record)) {
    const Status opened = open_remembered(lines, record);
    if (opened.ok()) return record;
    known.forget(way);
    return Status(opened.code(), "the ports that were the best ones failed: " + opened.message());
  }
  Result<Measured> fabric =
      measure(lines->orders(), WayKind::kFabric, lines->way(WayKind::kFabric));
  if (!fabric.ok()) {
    record.way = way;
    record.failure = fabric.status().message();
    keep(&record);
    return fabric.status();
  }
  record.way = way;
  record.fabric = *fabric;
  compare_pairs(lines, &record, *fabric);
  Result<Measured> connections =
      measure(lines->orders(), WayKind::kConnections, lines->way(WayKind::kConnections));
  if (!connections.ok()) return connections.status();
  record.connections = *connections;
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
    record.way = way;
    record.failure = fits.message();
    keep(&record);
    return Status(fits.code(), "it was tried, but it could not be had: " + fits.message());
  }
  Result<std::vector<base::Fd>> connections = connect();
  if (!connections.ok()) return connections.status();
  TrialLines lines(connections.take(), candidate.half.get());
  Result<WayRecord> found = compare(&lines, way);
  if (!found.ok()) return found.status();
  WayChoice choice =
      choose_way(candidate.fabric, found->fabric, candidate.connections, found->connections);
  choice.second = best_ == WayKind::kOtherFabric;
  choice.striped = striped_ && choice.bulk;
  const bool moves = choice.calls || choice.bulk;
  if (moves && !lines.give(choice, candidate))
    return Status(Code::kUnavailable, "the session's connections were cut while it was tried");
  Result<bool> told = tell_choice(lines.orders(), choice, found->fabric, found->connections);
  if (!told.ok()) return told.status();
  if (moves && !*told)
    return Status(Code::kUnavailable, "the server's end was cut while it was tried");
  if (moves) candidate.lasting->use_carriers();
  if (!choice.bulk) candidate.pinned->settle(nullptr);
  std::string text = choice.second ? remarks_[size_t(best_)] : candidate.half->remark();
  if (!pairs_text_.empty()) text += "; " + pairs_text_;
  if (choice.striped) text += "; bulk data go over two pairs at once";
  return text + "; " + choice.text;
}

}  // namespace tendril::session
