// SPDX-License-Identifier: Apache-2.0
// See passes.h.
#include "dashboard/passes.h"

#include <algorithm>

#include "base/text.h"

namespace tendril::dashboard {
namespace {

constexpr size_t kNameLetters = 16, kRestLetters = 64;

}  // namespace

base::Result<std::string> Passes::add(const access::Principal& who, uint64_t until_ns,
                                      uint64_t now_ns, size_t most, Entries* entries) {
  unsigned char bytes[(kNameLetters + kRestLetters) / 2];
  if (!base::random_bytes(bytes, sizeof bytes))
    return base::Status(base::Code::kExhausted, "the kernel gives no random bytes; try again");
  const std::string secret = base::hex(bytes, sizeof bytes);
  for (auto entry = entries->begin(); entry != entries->end();)
    entry = entry->second.until_ns <= now_ns ? entries->erase(entry) : std::next(entry);
  if (entries->size() >= most) {
    entries->erase(std::min_element(
        entries->begin(), entries->end(),
        [](const auto& a, const auto& b) { return a.second.until_ns < b.second.until_ns; }));
  }
  (*entries)[secret.substr(0, kNameLetters)] = {secret.substr(kNameLetters), who, until_ns};
  return secret;
}

Passes::Entries::iterator Passes::find(const std::string& secret, uint64_t now_ns,
                                       Entries* entries) {
  if (secret.size() != kNameLetters + kRestLetters) return entries->end();
  const auto entry = entries->find(secret.substr(0, kNameLetters));
  if (entry == entries->end() || entry->second.until_ns <= now_ns) return entries->end();
  const bool right = base::equal_in_constant_time(entry->second.rest, secret.substr(kNameLetters));
  return right ? entry : entries->end();
}

base::Result<std::string> Passes::give_pass(const access::Principal& who, uint64_t now_ns) {
  std::lock_guard<std::mutex> hold(mutex_);
  return add(who, now_ns + kPassNs, now_ns, kPassesMax, &passes_);
}

std::optional<access::Principal> Passes::use_pass(const std::string& pass, uint64_t now_ns) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto entry = find(pass, now_ns, &passes_);
  if (entry == passes_.end()) return std::nullopt;
  access::Principal who = std::move(entry->second.who);
  passes_.erase(entry);
  return who;
}

base::Result<std::string> Passes::begin_session(const access::Principal& who, uint64_t now_ns) {
  std::lock_guard<std::mutex> hold(mutex_);
  return add(who, now_ns + kSessionNs, now_ns, kSessionsMax, &sessions_);
}

std::optional<access::Principal> Passes::session(const std::string& secret, uint64_t now_ns) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto entry = find(secret, now_ns, &sessions_);
  if (entry == sessions_.end()) return std::nullopt;
  return entry->second.who;
}

void Passes::end_session(const std::string& secret) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto entry = find(secret, 0, &sessions_);
  if (entry != sessions_.end()) sessions_.erase(entry);
}

}  // namespace tendril::dashboard
