// SPDX-License-Identifier: Apache-2.0
// See notices.h.
#include "cli/notices.h"

#include <signal.h>

#include <algorithm>

#include "base/text.h"
#include "config/quantity.h"
#include "config/text.h"

namespace tendril::cli {
namespace {

using base::Code;
using base::Status;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kSameEndNs = 5 * kSecondNs;  // two warnings of one end differ by less
constexpr uint64_t kRepeatNs = 30 * kSecondNs;  // the parts of a lease say the same within this
constexpr uint64_t kFarS = uint64_t{10'000} * 86'400;

struct Known {
  const char* name;
  int number;
};
constexpr Known kSignals[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT},
                              {"KILL", SIGKILL}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2},
                              {"TERM", SIGTERM}, {"CONT", SIGCONT}, {"STOP", SIGSTOP},
                              {"ALRM", SIGALRM}, {"XCPU", SIGXCPU}};

int signal_number(const std::string& text) {
  const std::string name = text.rfind("SIG", 0) == 0 ? text.substr(3) : text;
  for (const Known& known : kSignals) {
    if (name == known.name) return known.number;
  }
  uint64_t number = 0;
  return config::read_number(text, &number) && number > 0 && number < 65 ? static_cast<int>(number)
                                                                         : 0;
}

}  // namespace

base::Result<SignalWish> parse_signal(const std::string& text) {
  SignalWish wish;
  const size_t at = text.find('@');
  wish.number = signal_number(text.substr(0, at));
  bool good = wish.number != 0;
  if (good && at != std::string::npos) {
    base::Result<uint64_t> before = config::parse_duration(text.substr(at + 1));
    good = before.ok();
    if (good) wish.before_s = *before;
  }
  if (good) return wish;
  return Status(Code::kInvalid,
                "--signal " + text + ": write a signal and how long before the end: USR1@120");
}

std::string Notices::heard(const wire::Notice& notice, uint64_t now_ns) {
  const uint64_t in_ns = std::min(notice.in_s, kFarS) * kSecondNs;
  std::string line = base::printable(notice.text, wire::kPoolTextBytesMax);
  switch (notice.kind) {
    case wire::NoticeKind::kWarning:
      if (notice.in_s != 0) {
        line += " (in " + config::format_duration(notice.in_s) + ")";
        expect_end(now_ns + in_ns);
      }
      break;
    case wire::NoticeKind::kRequeue:
      if (!requeues_) stop_within(in_ns, now_ns);
      break;
    case wire::NoticeKind::kEnded:
      ended_ = true;
      break;
    case wire::NoticeKind::kShrunk:
    case wire::NoticeKind::kPaused:
      break;
    case wire::NoticeKind::kResumed:  // what was warned of is over
      end_ns_ = signal_ns_ = kNever;
      break;
  }
  if (line == said_ && now_ns - said_ns_ < kRepeatNs) return "";
  said_ = line;
  said_ns_ = now_ns;
  return line;
}

// Before the server ends the lease under the program's feet. The signal that it was to get, if it
// has not had it for this end; else SIGTERM at once.
void Notices::stop_within(uint64_t in_ns, uint64_t now_ns) {
  requeues_ = true;
  if (wish_.number == 0) {
    term_ns_ = now_ns;
    kill_ns_ = now_ns + std::max(in_ns, kStubbornNs);
    return;
  }
  if (end_ns_ == kNever || signal_ns_ != kNever) signal_ns_ = now_ns;
  term_ns_ = now_ns + in_ns;
  kill_ns_ = term_ns_ + kStubbornNs;
}

void Notices::requeue(uint64_t now_ns) {
  if (requeues_) return;
  requeues_ = true;
  term_ns_ = now_ns;
  kill_ns_ = now_ns + 6 * kStubbornNs;
}

void Notices::expect_end(uint64_t end_ns) {
  const bool same = end_ns_ != kNever && end_ns < end_ns_ + kSameEndNs;
  if (same && signal_ns_ == kNever) {  // the program has had its signal for this end
    end_ns_ = std::min(end_ns_, end_ns);
    return;
  }
  end_ns_ = end_ns;
  if (wish_.number == 0) return;
  const uint64_t before_ns = std::min(wish_.before_s, kFarS) * kSecondNs;
  signal_ns_ = end_ns > before_ns ? end_ns - before_ns : 0;
}

uint64_t Notices::next_ns() const { return std::min({signal_ns_, term_ns_, kill_ns_}); }

std::optional<int> Notices::due(uint64_t now_ns) {
  if (now_ns >= signal_ns_) {
    signal_ns_ = kNever;
    return wish_.number;
  }
  if (now_ns >= term_ns_) {
    term_ns_ = kNever;
    return SIGTERM;
  }
  if (now_ns >= kill_ns_) {
    kill_ns_ = kNever;
    return SIGKILL;
  }
  return {};
}

}  // namespace tendril::cli
