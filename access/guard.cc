// SPDX-License-Identifier: Apache-2.0
// See guard.h.
#include "access/guard.h"

#include "access/policy_file.h"
#include "base/log.h"
#include "base/text.h"
#include "config/credentials.h"

namespace tendril::access {
namespace {

using base::Code;
using base::Status;

constexpr uint32_t kStrangersPerSecond = 10;

Principal myself() {
  Principal who;
  who.name = who.id = "tendrild";
  who.role = Role::kAdmin;
  return who;
}

AuditEntry entry_of(const Principal& who, const std::string& what, const std::string& object,
                    const Decision& decision, const Guard::Details& details) {
  AuditEntry entry;
  entry.who = who;
  entry.what = what;
  entry.object = object;
  entry.decision = decision;
  entry.details = details;
  return entry;
}

}  // namespace

Guard::Guard(GuardOptions options)
    : options_(std::move(options)),
      audit_(options_.audit_file, options_.server,
             {[this](const std::string& why) { tell_trouble(why); }, {}}) {}

base::Result<Settings> Guard::read(uint64_t token_generation, const std::string& old_token) const {
  Settings settings;
  auto token = config::load_token(options_.token_file, config::TokenUse::kServer);
  if (!token.ok()) return token.status();
  settings.token = token.take();
  settings.token_generation = token_generation + (settings.token != old_token ? 1 : 0);
  settings.mode = options_.identities      ? Mode::kIdentity
                  : settings.token.empty() ? Mode::kOpen
                                           : Mode::kSecret;
  if (!options_.policy_file.empty()) {
    auto policy = read_policy(options_.policy_file);
    if (!policy.ok()) return policy.status();
    settings.policy = policy.take();
  }
  return settings;
}

base::Result<std::unique_ptr<Guard>> Guard::create(const GuardOptions& options) {
  std::unique_ptr<Guard> guard(new Guard(options));
  auto settings = guard->read(0, std::string());
  if (!settings.ok()) return settings.status();
  const Status opened = guard->audit_.open();
  if (!opened.ok()) return opened;
  guard->settings_ = std::make_shared<const Settings>(settings.take());
  return guard;
}

void Guard::serve_identities() {
  Settings identities = *settings();
  identities.mode = Mode::kIdentity;
  std::lock_guard<std::mutex> hold(mutex_);
  options_.identities = true;
  settings_ = std::make_shared<const Settings>(std::move(identities));
}

std::shared_ptr<const Settings> Guard::settings() const {
  std::lock_guard<std::mutex> hold(mutex_);
  return settings_;
}

Status Guard::reload() {
  const std::shared_ptr<const Settings> old = settings();
  auto fresh = read(old->token_generation, old->token);
  Status status = fresh.status();
  if (fresh.ok() && fresh->mode != old->mode) {
    status = Status(Code::kInvalid,
                    base::format("this server started in %s mode, and the settings ask for %s mode "
                                 "now; start it again to change the mode",
                                 mode_name(old->mode), mode_name(fresh->mode)));
  }
  // Reopened in any case: the file may have been moved away.
  const Status reopened = audit_.reopen();
  if (status.ok()) {
    std::lock_guard<std::mutex> hold(mutex_);
    settings_ = std::make_shared<const Settings>(fresh.take());
  }
  const Decision decision{status.ok(), "signal", status.message()};
  note(myself(), "reload", std::string(), decision);
  return status.ok() ? reopened : status;
}

bool Guard::token_is_right(const std::string& token) const {
  const std::shared_ptr<const Settings> now = settings();
  return !now->token.empty() && base::equal_in_constant_time(now->token, token);
}

Principal Guard::recognize(const Evidence& evidence) const {
  const std::shared_ptr<const Settings> now = settings();
  Evidence known = evidence;
  known.token_generation = now->token_generation;
  return access::recognize(known, now->mode, now->policy);
}

Limits Guard::limits_of(const Principal& who) const { return settings()->policy.limits_of(who); }

void Guard::tell_trouble(const std::string& why) const {
  base::log(base::LogLevel::kWarning, "cannot write the audit log '%s': %s; %s",
            audit_.path().c_str(), why.c_str(),
            settings()->policy.audit_required ? "actions are refused until it can be written"
                                              : "entries are lost until it can be written");
}

void Guard::note(const Principal& who, const std::string& what, const std::string& object,
                 const Decision& decision, const Details& details) {
  audit_.note(entry_of(who, what, object, decision, details));
}

Decision Guard::record(const Principal& who, const std::string& what, const std::string& object,
                       const Decision& decision, const Details& details) {
  if (!decision.allowed || !settings()->policy.audit_required) {
    note(who, what, object, decision, details);
    return decision;
  }
  if (audit_.write(entry_of(who, what, object, decision, details))) return decision;
  const Decision refused{
      false, "audit",
      "this server must write every action to its audit log and cannot do so now; tell its "
      "administrator (rule: audit)"};
  note(who, what, object, refused, details);  // the disk may still get to the line of before
  return refused;
}

void Guard::record_stranger(const Principal& who, const Decision& decision, uint64_t now_ns,
                            const std::string& what) {
  uint64_t left_out = 0;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    const uint64_t second = now_ns / 1'000'000'000u;
    if (second != stranger_second_) strangers_in_second_ = 0;
    stranger_second_ = second;
    if (++strangers_in_second_ > kStrangersPerSecond) {
      ++strangers_left_out_;
      return;
    }
    left_out = strangers_left_out_;
    strangers_left_out_ = 0;
  }
  Details details;
  if (left_out != 0) details.emplace_back("not_written_before", std::to_string(left_out));
  note(who, what, std::string(), decision, details);
}

}  // namespace tendril::access
