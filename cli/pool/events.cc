// SPDX-License-Identifier: Apache-2.0
// See events.h.
#include "cli/pool/events.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "base/text.h"

namespace tendril::cli {
namespace {

using base::Code;
using base::Status;

const char* event_name(const wire::Notice& notice) {
  switch (notice.kind) {
    case wire::NoticeKind::kWarning:
      return "warning";
    case wire::NoticeKind::kShrunk:
      return "shrunk";
    case wire::NoticeKind::kPaused:
      return notice.memory ? "parked" : "paused";
    case wire::NoticeKind::kResumed:
      return notice.memory ? "woken" : "resumed";
    case wire::NoticeKind::kRequeue:
      return "requeue";
    case wire::NoticeKind::kEnded:
      return "ended";
  }
  return "unknown";
}

nlohmann::json event_of(const char* event, const std::string& text, int64_t wall_s) {
  return {
      {"at", wall_s}, {"event", event}, {"text", base::printable(text, wire::kPoolTextBytesMax)}};
}

std::string line_of(const nlohmann::json& event) {
  return event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

base::Fd open_events(const std::string& path) {
  return base::Fd(
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600));
}

}  // namespace

std::string event_line(const wire::Notice& notice, int64_t wall_s) {
  nlohmann::json event = event_of(event_name(notice), notice.text, wall_s);
  if (notice.in_s != 0) event["in_s"] = notice.in_s;
  return line_of(event);
}

Events::Events(const std::string& path) : path_(path) {
  const char* const named = getenv("TENDRIL_EVENTS");
  if (path_.empty() && named != nullptr) path_ = named;
}

Status Events::check() const {
  if (path_.empty() || open_events(path_).valid() || errno == ENXIO) return Status();
  return Status(Code::kInvalid, "events cannot be written to " + base::printable(path_) + ": " +
                                    strerror(errno) + "; name another file");
}

void Events::tell(const wire::Notice& notice) const { append(event_line(notice, time(nullptr))); }

void Events::tell_lost(const std::string& server) const {
  append(line_of(
      event_of("lost", "the server " + server + " ended the lease or is gone", time(nullptr))));
}

void Events::append(const std::string& line) const {
  if (path_.empty()) return;
  const base::Fd file = open_events(path_);
  if (!file.valid()) return;
  const ssize_t ignored = write(file.get(), line.data(), line.size());
  (void)ignored;
}

}  // namespace tendril::cli
