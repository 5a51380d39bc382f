// SPDX-License-Identifier: Apache-2.0
// See holders.h.
#include "cli/holders.h"

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "transport/lasting/lasting.h"

namespace tendril::cli {

using base::Code;
using base::Status;

namespace {

constexpr int kClaimMs = 10'000;
constexpr int kTryMs = 2000;
constexpr uint64_t kPauseNs = 500'000'000;

// It would say the same the next time.
bool is_final(Code code) {
  return code == Code::kRefused || code == Code::kNotFound || code == Code::kInvalid ||
         code == Code::kMismatch || code == Code::kUnsupported;
}

}  // namespace

Status claim_lease(const session::ConnectOptions& connect, TakenLease* lease) {
  auto control = session::Control::connect(lease->endpoint, connect);
  if (!control.ok()) return control.status();
  const wire::ClaimRequest claim{lease->lease.lease_id, lease->lease.secret};
  auto answer = (*control)->other(static_cast<uint16_t>(wire::Request::kClaim), wire::encode(claim),
                                  kClaimMs);
  if (!answer.ok()) return answer.status();
  wire::LeaseReply reply;
  if (!wire::decode(answer->data(), answer->size(), &reply))
    return Status(Code::kMismatch, lease->endpoint.text + " answered with a malformed lease");
  reply.lease_id = claim.lease_id;
  reply.secret = claim.secret;
  lease->lease = std::move(reply);
  lease->control = control.take();
  return Status();
}

bool Holders::waits_for(TakenLease* lease) {
  const bool cut = transport::tcp_end(lease->control->fd()) == transport::TcpEnd::kCut;
  if (!cut || !lease->endpoint.unix_path.empty() || outage_ms_ == 0) return false;
  const uint64_t now_ns = base::now_ns();
  away_[lease] = {now_ns, now_ns};
  return true;
}

int Holders::wait_ms(int otherwise_ms) const {
  const uint64_t now_ns = base::now_ns();
  for (const auto& [lease, away] : away_) {
    const uint64_t left_ns = away.next_ns > now_ns ? away.next_ns - now_ns : 0;
    const int left_ms = static_cast<int>(left_ns / 1'000'000 + 1);
    otherwise_ms = otherwise_ms < 0 ? left_ms : std::min(otherwise_ms, left_ms);
  }
  return otherwise_ms;
}

std::vector<Holders::Outcome> Holders::look() {
  std::vector<Outcome> outcomes;
  for (auto at = away_.begin(); at != away_.end();) {
    TakenLease* const lease = at->first;
    Away& away = at->second;
    if (base::now_ns() < away.next_ns) {
      ++at;
      continue;
    }
    session::ConnectOptions connect = connect_;
    connect.timeout_ms = connect.answer_ms = kTryMs;
    const Status claimed = claim_lease(connect, lease);
    away.next_ns = base::now_ns() + kPauseNs;
    const bool late = base::now_ns() - away.since_ns >= uint64_t{outage_ms_} * 1'000'000;
    if (!claimed.ok() && !is_final(claimed.code()) && !late) {
      ++at;
      continue;
    }
    if (!claimed.ok())
      say_("the network to " + lease->endpoint.text +
           " was cut, and the lease there is lost: " + claimed.message());
    outcomes.push_back({lease, claimed.ok()});
    at = away_.erase(at);
  }
  return outcomes;
}

}  // namespace tendril::cli
