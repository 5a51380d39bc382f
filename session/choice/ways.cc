// SPDX-License-Identifier: Apache-2.0
// See ways.h.
#include "session/choice/ways.h"

#include <time.h>

#include "base/content_hash.h"
#include "base/text.h"

namespace tendril::session {
namespace {

constexpr uint64_t kFolderBytes = 1u << 20, kFileBytes = 4096;

uint64_t seconds_now() { return static_cast<uint64_t>(time(nullptr)); }

std::string name_of(const std::string& way) {
  const std::string hash = base::content_hash(way.data(), way.size());
  return base::hex(hash.data(), hash.size());
}

}  // namespace

Ways::Ways(const std::string& folder) : files_(folder, ".way", kFolderBytes) {}

bool Ways::find(const std::string& way, WayRecord* record) const {
  if (!files_.exists() || way.empty()) return false;
  uint64_t bytes = 0;
  const base::Fd file = files_.open(name_of(way), &bytes);
  if (!file.valid() || bytes > kFileBytes) return false;
  std::string text(bytes, 0);
  return base::read_all(file.get(), &text[0], bytes) &&
         read_record(text, way, seconds_now(), record);
}

void Ways::keep(WayRecord* record) {
  record->at_s = seconds_now();
  if (!files_.exists() || record->way.empty()) return;
  base::KeptFiles files = files_;
  if (!files.make()) return;
  const std::string text = written(*record);
  if (files.write(name_of(record->way), {{text.data(), text.size()}})) files.trim();
}

void Ways::forget(const std::string& way) {
  if (files_.exists() && !way.empty()) files_.remove(name_of(way));
}

bool OneWay::find(const std::string& way, WayRecord* record) const {
  return read_record(text_, way, seconds_now(), record);
}

void OneWay::keep(WayRecord* record) {
  record->at_s = seconds_now();
  text_ = record->way.empty() ? "" : written(*record);
}

void OneWay::forget(const std::string&) { text_.clear(); }

}  // namespace tendril::session
