// SPDX-License-Identifier: Apache-2.0
// See patience.h.
#include "session/control/patience.h"

#include "base/text.h"

namespace tendril::session {

std::string Patience::heard(const wire::News& news, uint64_t now_ns) {
  if (now_ns - born_ns_ < kPatienceNs) return "";
  std::string line = "waiting for " + server_;
  if (news.place != 0) {
    line += base::format(": position %u of %u", unsigned(news.place),
                         unsigned(news.of < news.place ? news.place : news.of));
  }
  if (!news.text.empty()) line += ": " + base::printable(news.text, wire::kNewsTextBytesMax);
  if (line == said_) return "";
  said_ = line;
  return line;
}

}  // namespace tendril::session
