// SPDX-License-Identifier: Apache-2.0
// See policy.h.
#include "cli/pool/policy.h"

#include <stdio.h>
#include <time.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/complain.h"
#include "config/text.h"
#include "config/zone_file.h"
#include "pool/filter/nearest.h"
#include "pool/policy/assign.h"
#include "pool/policy/policy_file.h"
#include "pool/policy/settings.h"

namespace tendril::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string counted(size_t count, const char* one, const char* many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

// Everything that `check` finds out about one file.
struct Report {
  pool::PoolPolicy policy, now;  // as written, and as it is at the moment
  int64_t wall_s = 0;
  std::vector<std::string> holding;  // schedules
  int64_t next_change_s = pool::kNever;
  bool asked_for_user = false;
  pool::Assigned assigned;
  std::vector<pool::PolicyChange> changes;
};

std::vector<std::string> schedules_at(const pool::PoolPolicy& policy, int64_t wall_s) {
  std::vector<std::string> holding;
  for (size_t i = 0; i < policy.schedules.size(); ++i) {
    const pool::Schedule& one = policy.schedules[i];
    if (!one.when.holds(wall_s, policy.zone)) continue;
    holding.push_back((one.name.empty() ? std::to_string(i + 1) : one.name) + " (" +
                      one.when.text() + ")");
  }
  return holding;
}

base::Status make_report(const PoolCheckOptions& options, Report* report) {
  const auto text = read_pool_policy(options.file, &report->policy);
  if (!text.ok()) return text.status();
  const auto moment = pool::parse_moment(options.at.empty() ? "now" : options.at, time(nullptr),
                                         report->policy.zone);
  if (!moment.ok()) return base::Status(base::Code::kInvalid, "--at: " + moment.status().message());
  report->wall_s = moment.value();
  report->now = pool::effective(report->policy, report->wall_s);
  report->holding = schedules_at(report->policy, report->wall_s);
  report->next_change_s = pool::next_change(report->policy, report->wall_s);
  if (!options.against.empty()) {
    pool::PoolPolicy before;
    const auto other = read_pool_policy(options.against, &before);
    if (!other.ok()) return other.status();
    report->changes = pool::difference(before, report->policy);
  }
  report->asked_for_user = !options.user.empty() || !options.groups.empty();
  if (!report->asked_for_user) return base::Status();
  pool::UserFacts who;
  who.user = options.user;
  who.groups = options.groups;
  who.role = options.role.empty() ? "user" : options.role;
  who.host = options.host;
  const auto assigned = pool::assign(report->now, who, options.account, options.user_class);
  if (!assigned.ok()) return assigned.status();
  report->assigned = assigned.value();
  return base::Status();
}

std::vector<std::string> class_names(const Report& report) {
  std::vector<std::string> names;
  for (const uint32_t number : report.now.assignments[report.assigned.assignment].user_classes)
    names.push_back(report.now.user_classes[number].name);
  return names;
}

void print_json(const PoolCheckOptions& options, const Report& report) {
  const pool::Zone& zone = report.policy.zone;
  Json out;
  out["file"] = options.file;
  out["pool"] = report.policy.name;
  out["at"] = pool::format_moment(report.wall_s, zone);
  out["timezone"] = report.policy.timezone;
  out["schedules"] = report.holding;
  out["next_change"] = report.next_change_s == pool::kNever
                           ? Json()
                           : Json(pool::format_moment(report.next_change_s, zone));
  if (report.asked_for_user) {
    out["user"] = {{"user", options.user},
                   {"account", report.now.accounts[report.assigned.account].name},
                   {"class", report.now.user_classes[report.assigned.user_class].name},
                   {"classes", class_names(report)},
                   {"assignment", report.assigned.assignment + 1}};
  }
  if (!options.against.empty()) {
    out["changes"] = Json::array();
    for (const pool::PolicyChange& one : report.changes) {
      out["changes"].push_back({{"table", one.table},
                                {"name", one.name},
                                {"key", one.key},
                                {"before", one.before},
                                {"after", one.after}});
    }
  }
  if (options.settings) {
    out["settings"] = Json::array();
    for (const pool::PolicySetting& one : pool::settings_of(report.now)) {
      out["settings"].push_back(
          {{"table", one.table}, {"name", one.name}, {"key", one.key}, {"value", one.value}});
    }
  }
  printf("%s\n", out.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

void print_settings(const pool::PoolPolicy& policy) {
  std::string section;
  for (const pool::PolicySetting& one : pool::settings_of(policy)) {
    const std::string head = one.table + (one.name.empty() ? "" : " " + one.name);
    if (head != section) printf("%s\n", head.c_str());
    section = head;
    printf("  %-28s %s\n", one.key.c_str(), one.value.c_str());
  }
}

void print_text(const PoolCheckOptions& options, const Report& report) {
  const pool::PoolPolicy& policy = report.policy;
  printf("%s is right: %s, %s, %s, %s, %s, %s\n", options.file.c_str(),
         counted(policy.gpu_classes.size(), "class of GPUs", "classes of GPUs").c_str(),
         counted(policy.accounts.size(), "account", "accounts").c_str(),
         counted(policy.user_classes.size(), "class of use", "classes of use").c_str(),
         counted(policy.assignments.size(), "assignment", "assignments").c_str(),
         counted(policy.reservations.size(), "reservation", "reservations").c_str(),
         counted(policy.schedules.size(), "schedule", "schedules").c_str());
  std::string holding = pool::joined(report.holding);
  printf("at %s %s: %s", pool::format_moment(report.wall_s, policy.zone).c_str(),
         policy.timezone.c_str(),
         holding.empty() ? "no schedule holds" : ("schedule " + holding + " holds").c_str());
  if (report.next_change_s == pool::kNever) {
    printf("; nothing changes later\n");
  } else {
    printf("; next change %s\n",
           pool::format_clock(report.next_change_s, report.wall_s, policy.zone).c_str());
  }
  if (report.asked_for_user) {
    printf("%s: account %s, class %s of %s (assignment %u)\n",
           options.user.empty() ? "such a user" : options.user.c_str(),
           report.now.accounts[report.assigned.account].name.c_str(),
           report.now.user_classes[report.assigned.user_class].name.c_str(),
           pool::joined(class_names(report)).c_str(), report.assigned.assignment + 1);
  }
  if (!options.against.empty() && report.changes.empty())
    printf("nothing differs from %s\n", options.against.c_str());
  for (const pool::PolicyChange& one : report.changes) printf("%s\n", text_of(one).c_str());
  if (options.settings) print_settings(report.now);
}

}  // namespace

base::Result<pool::Zone> read_zone(const std::string& name) {
  if (name == "UTC") return pool::only_utc(name);
  const auto bytes = config::read_zone_file(name);
  return bytes.ok() ? pool::parse_zone(bytes.value(), name) : bytes.status();
}

base::Result<std::string> read_pool_policy(const std::string& path, pool::PoolPolicy* policy) {
  base::Result<std::string> text = config::read_file(path);
  if (!text.ok()) return text;
  base::Result<pool::PoolPolicy> parsed = pool::parse_pool_policy(*text, path, read_zone);
  if (!parsed.ok()) return parsed.status();
  *policy = parsed.take();
  return text;
}

int check_pool_policy(const PoolCheckOptions& options) {
  Report report;
  const base::Status status = make_report(options, &report);
  if (!status.ok()) return complain(kFailed, status);
  if (options.json) {
    print_json(options, report);
  } else {
    print_text(options, report);
  }
  return 0;
}

}  // namespace tendril::cli
