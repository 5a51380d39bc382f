// SPDX-License-Identifier: Apache-2.0
// See pool_settings.h.
#include "config/pool_settings.h"

#include "config/quantity.h"
#include "config/text.h"

namespace tendril::config {
namespace {

using base::Code;
using base::Status;

constexpr const char* kLayouts[] = {"any", "one-server", "pack", "spread"};  // as wire::Layout

Status read_text(const Named& named, size_t bytes_max, std::string* into) {
  *into = trimmed(named.text);
  if (into->size() <= bytes_max) return {};
  return Status(Code::kInvalid, std::string(named.name) + " is longer than " +
                                    std::to_string(bytes_max) + " characters");
}

Status read_layout(const Named& named, wire::Layout* into) {
  const std::string text = trimmed(named.text);
  if (text.empty()) return {};
  for (size_t i = 0; i < sizeof kLayouts / sizeof *kLayouts; ++i) {
    if (text != kLayouts[i]) continue;
    *into = static_cast<wire::Layout>(i);
    return {};
  }
  return unexpected(named.name, text, "any, one-server, pack or spread");
}

Status read_time(const Named& named, uint64_t* into) {
  if (trimmed(named.text).empty()) return {};
  base::Result<uint64_t> seconds = parse_duration(named.text);
  if (!seconds.ok())
    return Status(Code::kInvalid, std::string(named.name) + ": " + seconds.status().message());
  *into = *seconds;
  return {};
}

}  // namespace

PoolTexts pool_variables() {
  PoolTexts texts;
  texts.filter = {"TENDRIL_FILTER", variable("TENDRIL_FILTER")};
  texts.user_class = {"TENDRIL_CLASS", variable("TENDRIL_CLASS")};
  texts.account = {"TENDRIL_ACCOUNT", variable("TENDRIL_ACCOUNT")};
  texts.layout = {"TENDRIL_LAYOUT", variable("TENDRIL_LAYOUT")};
  texts.longest = {"TENDRIL_MAX", variable("TENDRIL_MAX")};
  texts.wait = {"TENDRIL_WAIT", variable("TENDRIL_WAIT")};
  return texts;
}

base::Result<PoolSettings> read_pool_settings(const PoolTexts& texts) {
  PoolSettings settings;
  wire::PoolWish& wish = settings.wish;
  Status status = read_text(texts.filter, wire::kFilterBytesMax, &wish.filter);
  if (status.ok()) status = read_text(texts.user_class, wire::kPoolNameBytesMax, &wish.user_class);
  if (status.ok()) status = read_text(texts.account, wire::kPoolNameBytesMax, &wish.account);
  if (status.ok()) status = read_layout(texts.layout, &wish.layout);
  if (status.ok()) status = read_time(texts.longest, &wish.longest_s);
  if (status.ok()) status = read_time(texts.wait, &settings.wait_s);
  if (!status.ok()) return status;
  if (wish.longest_s == 0 && !trimmed(texts.longest.text).empty()) {
    return Status(Code::kInvalid,
                  std::string(texts.longest.name) + ": a lease lasts longer than 0 s");
  }
  wish.refuses_wait = settings.wait_s == 0;
  return settings;
}

const char* layout_name(wire::Layout layout) {
  const auto at = static_cast<size_t>(layout);
  return at < sizeof kLayouts / sizeof *kLayouts ? kLayouts[at] : kLayouts[0];
}

}  // namespace tendril::config
