// SPDX-License-Identifier: Apache-2.0
// See pace.h.
#include "cli/progress/pace.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace tendril::cli {

namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
// A call that was killed leaves its mark on the page. So nothing is said of what does not go on.
constexpr uint64_t kLongestAttachNs = 60 * kNsPerSecond, kLongestPauseNs = 20 * kNsPerSecond;
constexpr double kNearlyAll = 0.9;
constexpr double kGb = 1e9;

double seconds(uint64_t ns) { return static_cast<double>(ns) / kNsPerSecond; }

std::string amount(uint64_t bytes) {
  const double gb = static_cast<double>(bytes) / kGb;
  return gb < 1 ? base::format("%.0f MB", gb * 1000) : base::format("%.1f GB", gb);
}

}  // namespace

std::string Pace::attach_line(uint64_t now_ns, const ProgressLook& look,
                              const std::string& servers) {
  if (look.attaching == 0) {
    attaching_since_ns_ = 0;
    return "";
  }
  if (attaching_since_ns_ == 0) attaching_since_ns_ = now_ns;
  const uint64_t spent_ns = now_ns - attaching_since_ns_;
  if (spent_ns < kNsPerSecond || spent_ns > kLongestAttachNs) return "";
  return base::format("attaching to %s: %.0f s", servers.c_str(), seconds(spent_ns));
}

void Pace::note(uint64_t now_ns, const ProgressLook& look) {
  if (look.sent_bytes != before_.sent_bytes || moved_at_ns_ == 0) moved_at_ns_ = now_ns;
  Tick tick{now_ns, look.sent_bytes, 0};
  const uint64_t since_ns = ticks_.empty() ? 0 : now_ns - ticks_.back().at_ns;
  const uint64_t ended_ns = look.upload_ns - std::min(look.upload_ns, before_.upload_ns);
  if (since_ns > 0)
    tick.busy = std::min(1.0, static_cast<double>(ended_ns) / static_cast<double>(since_ns));
  // A call that goes on is counted when it ends.
  if (ended_ns == 0 && look.uploading > 0) tick.busy = 1;
  ticks_.push_back(tick);
  while (ticks_.size() > 1 && now_ns - ticks_[1].at_ns >= kNsPerSecond) ticks_.pop_front();
  before_ = look;
}

std::string Pace::upload_line(uint64_t now_ns, const ProgressLook& look) {
  note(now_ns, look);
  double busy = 0;
  for (size_t i = 1; i < ticks_.size(); ++i) busy += ticks_[i].busy;
  const uint64_t window_ns = now_ns - ticks_.front().at_ns;
  const bool only =
      window_ns >= kNsPerSecond && busy >= kNearlyAll * static_cast<double>(ticks_.size() - 1);
  if (!only || now_ns - moved_at_ns_ > kLongestPauseNs) {
    streak_ns_ = 0;
    return "";
  }
  if (streak_ns_ == 0) {
    streak_ns_ = ticks_.front().at_ns;
    streak_sent_ = ticks_.front().sent_bytes;
  }
  // Between two calls the program may write.
  if (look.uploading == 0) return "";
  const double rate =
      static_cast<double>(look.sent_bytes - ticks_.front().sent_bytes) / seconds(window_ns);
  const uint64_t sent = look.sent_bytes - streak_sent_;
  const uint64_t left = look.begun_bytes - std::min(look.begun_bytes, look.sent_bytes);
  std::string text = "uploaded " + amount(sent);
  // What is begun is the whole, if one call goes on. Of small calls it is always nearly done.
  const bool lasts = static_cast<double>(left) > rate / 2;
  if (lasts) text += " of " + amount(sent + left);
  text += ", " + amount(static_cast<uint64_t>(rate)) + "/s";
  if (lasts && rate > 0)
    text += base::format(", %.0f s left", std::ceil(static_cast<double>(left) / rate));
  return text;
}

std::string Pace::line(uint64_t now_ns, const ProgressLook& look, const std::string& servers) {
  const std::string upload = upload_line(now_ns, look);
  const std::string attach = attach_line(now_ns, look, servers);
  return attach.empty() ? upload : attach;
}

}  // namespace tendril::cli
