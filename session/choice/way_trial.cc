// SPDX-License-Identifier: Apache-2.0
// See way_trial.h.
#include "session/choice/way_trial.h"

#include <utility>

#include "base/text.h"

namespace tendril::session {

using base::Code;
using base::Result;
using base::Status;
using transport::Measured;
using transport::Port;

namespace {

WayKind other_than(WayKind way) {
  return way == WayKind::kFabric ? WayKind::kOtherFabric : WayKind::kFabric;
}

constexpr size_t kTextBytesMax = 512;
std::string readable(const std::string& text) { return base::printable(text, kTextBytesMax); }

}  // namespace

WayTrial::WayTrial(Candidate* candidate, std::string blob, WayMemory* known)
    : candidate_(*candidate),
      blob_(std::move(blob)),
      known_(*known),
      way_(candidate->half->way(blob_)) {}

Status WayTrial::open() {
  WayRecord record;
  if (known_.find(way_, &record) && !record.failure.empty())
    return Status(Code::kUnavailable, "it failed within the last hour: " + record.failure);
  const Status fits = candidate_.half->complete(blob_, base::Fd());
  if (fits.ok()) return fits;
  record.way = way_;
  record.failure = fits.message();
  keep(&record);
  return Status(fits.code(), "it was tried, but it could not be had: " + fits.message());
}

// Not what came of a link that was about to change.
void WayTrial::keep(WayRecord* record) {
  if (!candidate_.half->link_changed()) known_.keep(record);
}

std::string WayTrial::name_of(const PortPair& pair, const char* between) const {
  return here_[pair.client].name + between + there_[pair.worker].name;
}

// Empty lists: the first ports are all that there is, as far as can be seen.
void WayTrial::find_ports(TrialLines* lines) {
  here_ = candidate_.half->ports();
  Result<std::vector<Port>> there = ask_ports(lines->orders());
  if (there.ok() && !here_.empty()) there_ = there.take();
}

// Over that pair of ports, in the place of one of the fabric's ways.
Status WayTrial::open_pair(TrialLines* lines, WayKind kind, const PortPair& pair) {
  lines->drop(kind);
  Result<std::unique_ptr<transport::Half>> half =
      candidate_.half->on_port(here_[pair.client].name, {});
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
Status WayTrial::open_remembered(TrialLines* lines, const WayRecord& record) {
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
void WayTrial::compare_pairs(TrialLines* lines, WayRecord* record, const Measured& first) {
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
      each.failure = readable(measured.status().message());
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
Result<WayRecord> WayTrial::compare(TrialLines* lines) {
  WayRecord record;
  if (known_.find(way_, &record)) {
    const Status opened = open_remembered(lines, record);
    if (opened.ok()) return record;
    known_.forget(way_);
    return Status(opened.code(), "the ports that were the best ones failed: " + opened.message());
  }
  Result<Measured> fabric =
      measure(lines->orders(), WayKind::kFabric, lines->way(WayKind::kFabric));
  if (!fabric.ok()) {
    record.way = way_;
    record.failure = fabric.status().message();
    keep(&record);
    return fabric.status();
  }
  record.way = way_;
  record.fabric = *fabric;
  compare_pairs(lines, &record, *fabric);
  Result<Measured> connections =
      measure(lines->orders(), WayKind::kConnections, lines->way(WayKind::kConnections));
  if (!connections.ok()) return connections.status();
  record.connections = *connections;
  keep(&record);
  return record;
}

Result<WayChoice> WayTrial::run(TrialLines* lines) {
  Result<WayRecord> found = candidate_.forced ? Result<WayRecord>(WayRecord()) : compare(lines);
  if (!found.ok()) return found.status();
  WayChoice choice = forced_way(candidate_.fabric);
  if (!candidate_.forced)
    choice = (candidate_.only_bulk ? choose_bulk : choose_way)(
        candidate_.fabric, found->fabric, candidate_.connections, found->connections);
  choice.calls = choice.calls && !candidate_.only_bulk;
  choice.second = best_ == WayKind::kOtherFabric;
  choice.striped = striped_ && choice.bulk;
  const bool moves = choice.calls || choice.bulk;
  if (moves && !lines->give(choice, candidate_))
    return Status(Code::kUnavailable, "the session's connections were cut while it was tried");
  Result<bool> told = tell_choice(lines->orders(), choice, found->fabric, found->connections);
  if (!told.ok()) return told.status();
  if (moves && !*told)
    return Status(Code::kUnavailable, "the server's end was cut while it was tried");
  if (moves) candidate_.lines->use_carriers();
  if (!choice.bulk) candidate_.pinned->settle(nullptr);
  std::string text = choice.second ? remarks_[size_t(best_)] : candidate_.half->remark();
  if (!pairs_text_.empty()) text += "; " + pairs_text_;
  if (choice.striped) text += "; bulk data go over two pairs at once";
  choice.text = text + "; " + choice.text;
  return choice;
}

}  // namespace tendril::session
