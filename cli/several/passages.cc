// SPDX-License-Identifier: Apache-2.0
// See passages.h.
#include "cli/several/passages.h"

#include "view/text.h"

namespace tendril::cli {
namespace {

constexpr int kWayMs = 15'000;  // longer than the server looks

base::Result<wire::ReachReply> way(const Answering& from, const Answering& to) {
  const wire::ReachRequest request{to.server_id};
  auto body = from.control->other(uint16_t(wire::Request::kReach), wire::encode(request), kWayMs);
  if (!body.ok()) return body.status();
  wire::ReachReply reply;
  if (!wire::decode(body->data(), body->size(), &reply))
    return base::Status(base::Code::kInvalid, "answers in a way that is not understood");
  return reply;
}

view::PassageReport pair_of(const Answering& one, const Answering& other) {
  view::PassageReport report;
  report.one = one.server;
  report.other = other.server;
  if (one.server_id == other.server_id) {
    report.detail = "they are one server";
    return report;
  }
  for (const auto& [from, to] : {std::pair(&one, &other), std::pair(&other, &one)}) {
    auto reply = way(*from, *to);
    if (!reply.ok()) {
      report.detail += (report.detail.empty() ? "" : "; ") + from->server + ": " +
                       view::safe(reply.status().message());
      continue;
    }
    report.open = true;
    report.sealed = reply->sealed;
    report.round_trip_us = reply->round_trip_us;
    report.detail = from->server + " knows the other as " + view::safe(reply->server);
    return report;
  }
  return report;
}

}  // namespace

std::vector<view::PassageReport> passages_between(const std::vector<Answering>& servers) {
  std::vector<view::PassageReport> reports;
  for (size_t one = 0; one < servers.size(); ++one)
    for (size_t other = one + 1; other < servers.size(); ++other)
      reports.push_back(pair_of(servers[one], servers[other]));
  return reports;
}

}  // namespace tendril::cli
