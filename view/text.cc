// SPDX-License-Identifier: Apache-2.0
// See text.h.
#include "view/text.h"

#include "base/text.h"
#include "config/quantity.h"

namespace tendril::view {

std::string uuid_text(const std::string& raw) {
  if (raw.size() != 16) return "";
  const std::string hex = base::hex(raw.data(), raw.size());
  return "GPU-" + hex.substr(0, 8) + "-" + hex.substr(8, 4) + "-" + hex.substr(12, 4) + "-" +
         hex.substr(16, 4) + "-" + hex.substr(20);
}

std::string age_text(uint64_t seconds) {
  const auto age = static_cast<unsigned long long>(seconds);
  if (age < 60) return base::format("%llus", age);
  if (age < 3600) return base::format("%llum%02llus", age / 60, age % 60);
  if (age < 86400) return base::format("%lluh%02llum", age / 3600, age % 3600 / 60);
  return base::format("%llud%02lluh", age / 86400, age % 86400 / 3600);
}

std::string count_text(double count) {
  if (count < 999.5) return base::format("%.0f", count);
  if (count < 999'950) return base::format("%.1fk", count / 1e3);
  return base::format("%.1fM", count / 1e6);
}

std::string counted(uint64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string percent_text(double part) { return base::format("%.1f%%", part * 100); }

std::string memory_text(uint64_t used_bytes, uint64_t quota_bytes) {
  return config::format_size(used_bytes) + " / " + config::format_size(quota_bytes);
}

std::string slices_text(const std::vector<wire::SliceGrant>& slices, const char* gpu) {
  std::string text;
  for (const wire::SliceGrant& slice : slices) {
    text += base::format("%s%s%u: ", text.empty() ? "" : ", ", gpu, slice.gpu_index) +
            config::format_fraction(slice.share_millionths) + (slice.packed ? " packed" : "");
  }
  return text;
}

std::string who_text(const wire::ClientInfo& client) {
  if (client.owner.empty() && client.user.empty() && client.host.empty()) return "-";
  const bool proven = client.proof == "certificate" || client.proof == "uid";
  if (proven) return safe(client.owner) + "@" + safe(client.host);
  return safe(client.user) + "@" + safe(client.host) + "?";
}

std::string user_text(const wire::ClientInfo& client) {
  return client.owner.empty() ? client.user : client.owner;
}

std::string safe(const std::string& text) { return base::printable(text, 200); }

}  // namespace tendril::view
