// SPDX-License-Identifier: Apache-2.0
// See queue_lines.h.
#include "cli/queue_lines.h"

#include <algorithm>

#include "base/text.h"
#include "config/quantity.h"

namespace tendril::cli {
namespace {

std::string clean(const std::string& text) {
  return base::printable(text, wire::kNewsTextBytesMax);
}

}  // namespace

void QueueLines::add(const std::string& line, std::string* before,
                     std::vector<std::string>* lines) {
  if (line == *before) return;
  *before = line;
  if (!line.empty()) lines->push_back(line);
}

std::vector<std::string> QueueLines::heard(const wire::News& news) {
  std::vector<std::string> lines;
  if (news.place == 0) {
    // On its way into the queue or out of it, mostly for milliseconds.
    // Held back by somebody or by the time of day, it stays.
    const std::string& why = news.text.empty() ? news.reason : news.text;
    const std::string text = "waiting: " + clean(why);
    if (text == passing_ && !why.empty()) add(text, &text_, &lines);
    if (!lines.empty()) place_.clear(), reason_.clear(), start_.clear();
    passing_ = text;
    lost_.clear();
    spoken_ = spoken_ || !lines.empty();
    return lines;
  }
  std::string place = "waiting, position " + std::to_string(news.place) + " of " +
                      std::to_string(std::max(news.of, news.place));
  if (!news.queue.empty()) place += " for " + clean(news.queue);
  add(place, &place_, &lines);
  add(news.reason.empty() ? "" : "reason " + clean(news.reason), &reason_, &lines);
  add(news.start.empty() ? "" : "start " + clean(news.start), &start_, &lines);
  add(clean(news.text), &text_, &lines);
  lost_.clear();
  spoken_ = true;
  return lines;
}

std::vector<std::string> QueueLines::lost(const std::string& why) {
  std::vector<std::string> lines;
  if (lost_.empty()) add(why, &lost_, &lines);
  spoken_ = true;
  place_.clear();  // said again by whoever schedules next
  return lines;
}

std::string granted_line(const wire::LeaseReply& reply) {
  std::vector<std::string> names;
  for (const wire::LeasePart& part : reply.parts) {
    const std::string name = base::printable(part.server, wire::kPoolNameBytesMax);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string line = "leases " + std::to_string(reply.lease_id) + " (";
  for (size_t i = 0; i < names.size(); ++i) line += (i == 0 ? "" : ", ") + names[i];
  line += ")";
  if (reply.waited_s != 0) line += " after " + config::format_duration(reply.waited_s);
  return line;
}

}  // namespace tendril::cli
