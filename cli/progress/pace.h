// SPDX-License-Identifier: Apache-2.0
// What a line of progress says, if one is due: after a second of attaching, or of which nearly all
// went into uploads. Pure: the time and what the page says are passed in. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

namespace tendril::cli {

// What wire::ProgressPage says at a moment.
struct ProgressLook {
  uint32_t attaching = 0, uploading = 0;
  uint64_t begun_bytes = 0, sent_bytes = 0, upload_ns = 0;
};

class Pace {
 public:
  // `servers`: where the program attaches. Empty: no line is due. Call it each kTickMs.
  std::string line(uint64_t now_ns, const ProgressLook& look, const std::string& servers);
  static constexpr int kTickMs = 100;

 private:
  struct Tick {
    uint64_t at_ns = 0, sent_bytes = 0;
    double busy = 0;  // part of the time since the tick before that went into uploads
  };
  std::string attach_line(uint64_t now_ns, const ProgressLook& look, const std::string& servers);
  std::string upload_line(uint64_t now_ns, const ProgressLook& look);
  void note(uint64_t now_ns, const ProgressLook& look);

  uint64_t attaching_since_ns_ = 0;  // 0: it does not attach
  std::deque<Tick> ticks_;           // of the last seconds
  ProgressLook before_;
  uint64_t moved_at_ns_ = 0;                  // when bytes were sent last
  uint64_t streak_ns_ = 0, streak_sent_ = 0;  // since when it only uploads; 0: it does not
};

}  // namespace tendril::cli
