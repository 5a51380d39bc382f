// SPDX-License-Identifier: Apache-2.0
// See pool.h.
#include "view/pool.h"

#include <time.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "view/json_fields.h"
#include "view/table.h"
#include "view/text.h"

namespace tendril::view {
namespace {

using Json = nlohmann::json;

std::string text(const Json& from, const char* key) {
  const Json& value = part(from, key);
  return value.is_string() ? safe(value.get<std::string>()) : std::string();
}
std::string whole(const Json& from, const char* key) {
  return part(from, key).is_number() ? base::format("%.0f", number(from, key)) : "-";
}
bool truth(const Json& from, const char* key) {
  const Json& value = part(from, key);
  return value.is_boolean() && value.get<bool>();
}
std::string gpus(double count) { return base::format("%.2f", count); }
std::string or_dash(const std::string& value) { return value.empty() ? "-" : value; }

// "14:10", or with the day if that is another one; by this machine's clock.
std::string moment(const Json& from, const char* key, const char* otherwise) {
  if (!part(from, key).is_number()) return otherwise;
  const auto at = static_cast<time_t>(number(from, key)), now = time(nullptr);
  tm then = {}, today = {};
  localtime_r(&at, &then);
  localtime_r(&now, &today);
  char out[64];
  const bool same = then.tm_yday == today.tm_yday && then.tm_year == today.tm_year;
  strftime(out, sizeof out, same ? "%H:%M" : "%Y-%m-%d %H:%M", &then);
  return out;
}

std::string labels(const Json& server) {
  const Json& all = part(server, "labels");
  std::string out;
  if (!all.is_object()) return "-";
  for (const auto& [key, value] : all.items()) {
    out += (out.empty() ? "" : " ") + safe(key) + "=";
    if (value.is_string()) out += safe(value.get<std::string>());
  }
  return or_dash(out);
}

std::string server_state(const Json& server) {
  std::string state = text(server, "state");
  if (state == "silent") state += " for " + age_text(uint64_t(number(server, "silent_s")));
  if (truth(server, "draining")) state += ", draining";
  return state;
}

std::string servers_text(const Json& answer, size_t width) {
  std::vector<Row> rows = {
      {"SERVER", "STATE", "GPUS", "MODEL", "CLASS", "GIVEN", "LEASES", "VERSION", "LABELS"}};
  for (const Json& server : part(answer, "servers")) {
    // One row for all GPUs of one model and class.
    struct Kind {
      size_t count = 0;
      double given = 0;
    };
    std::map<std::pair<std::string, std::string>, Kind> kinds;
    for (const Json& gpu : part(server, "gpus")) {
      Kind& kind = kinds[{text(gpu, "model"), or_dash(text(gpu, "class"))}];
      ++kind.count;
      kind.given += number(gpu, "given");
    }
    if (kinds.empty()) kinds[{"-", "-"}] = Kind();
    bool first = true;
    for (const auto& [names, kind] : kinds) {
      rows.push_back({first ? text(server, "name") : "", first ? server_state(server) : "",
                      std::to_string(kind.count), names.first, names.second, gpus(kind.given),
                      first ? whole(server, "leases") : "", first ? text(server, "version") : "",
                      first ? labels(server) : ""});
      first = false;
    }
  }
  return rows.size() == 1 ? "no servers\n" : fitted(rows, width, {"VERSION", "LABELS"});
}

std::string amount(const Json& amounts, const char* otherwise, const std::string& name) {
  const Json& value = part(amounts, name.c_str());
  return value.is_number() ? gpus(value.get<double>()) : otherwise;
}

std::string accounts_text(const Json& answer, size_t width) {
  std::vector<Row> rows = {
      {"ACCOUNT", "PARENT", "CLASS", "USED", "QUOTA", "LENT", "LIMIT", "WAITING"}};
  for (const Json& account : part(answer, "accounts")) {
    const Json& used = part(account, "used");
    if (!used.is_object()) continue;
    bool first = true;
    for (const auto& [name, ignored] : used.items()) {
      rows.push_back(
          {first ? text(account, "name") : "", first ? or_dash(text(account, "parent")) : "",
           safe(name), amount(used, "0.00", name), amount(part(account, "quota"), "-", name),
           amount(part(account, "lent"), "-", name), amount(part(account, "limit"), "-", name),
           first ? whole(account, "waiting") : ""});
      first = false;
    }
  }
  return rows.size() == 1 ? "" : "\n" + fitted(rows, width, {"PARENT"});
}

std::string places(const Json& lease) {
  std::string out;
  for (const Json& each : part(lease, "parts")) {
    std::string numbers;
    for (const Json& gpu : part(each, "gpus"))
      numbers += (numbers.empty() ? "" : ",") + (gpu.is_number() ? gpu.dump() : "?");
    out += (out.empty() ? "" : " ") + text(each, "server") + ":" + numbers;
  }
  return or_dash(out);
}

std::string leases_text(const Json& answer, size_t width) {
  std::vector<Row> rows = {{"LEASE", "STATE", "WHO", "ACCOUNT", "CLASS", "SLICES", "WHERE", "AGE",
                            "IDLE", "ENDS IN", "PROGRAM"}};
  const auto age = [](const Json& lease, const char* key) {
    return part(lease, key).is_number() ? age_text(uint64_t(number(lease, key))) : "-";
  };
  for (const Json& lease : part(answer, "leases")) {
    std::string state = text(lease, "state");
    if (truth(lease, "paused")) state += ", paused";
    if (truth(lease, "shrunk")) state += ", shrunk";
    rows.push_back({whole(lease, "lease"), state, or_dash(text(lease, "owner")),
                    or_dash(text(lease, "account")), or_dash(text(lease, "user_class")),
                    whole(lease, "slices") + " x " + gpus(number(lease, "share")), places(lease),
                    age(lease, "age_s"), age(lease, "idle_s"), age(lease, "ends_in_s"),
                    or_dash(text(lease, "program"))});
  }
  if (rows.size() == 1) return "";
  return "\n" + fitted(rows, width, {"IDLE", "CLASS", "ACCOUNT", "ENDS IN"});
}

std::string status_text(const Json& answer, size_t width) {
  std::string out = "pool " + text(answer, "pool") + ": " + text(answer, "scheduler") +
                    " schedules, in term " + whole(answer, "term") + "; policy " +
                    whole(answer, "policy_revision") + "; " + whole(answer, "waiting") +
                    " requests wait\n";
  if (!truth(answer, "planning"))
    out += "nothing is planned: " + text(answer, "planning_why") + "\n";
  const std::string trouble = text(answer, "store_trouble");
  if (!trouble.empty()) out += "the store: " + trouble + "\n";
  return out + "\n" + servers_text(answer, width) + accounts_text(answer, width) +
         leases_text(answer, width);
}

std::string queue_text(const Json& answer, size_t width) {
  std::vector<Row> rows = {{"REQUEST", "PLACE", "QUEUE", "WHO", "ACCOUNT", "CLASS", "SLICES",
                            "WAITED", "START", "REASON"}};
  for (const Json& each : part(answer, "waiting")) {
    std::string place = whole(each, "place");
    if (place != "-") place += " of " + whole(each, "of");
    std::string start = moment(each, "start_from_at", "-");
    const std::string to = moment(each, "start_to_at", "");
    if (!to.empty() && to != start) start += " to " + to;
    std::string reason = or_dash(text(each, "reason"));
    if (!text(each, "numbers").empty()) reason += ": " + text(each, "numbers");
    rows.push_back({whole(each, "request"), place, or_dash(text(each, "queue")),
                    or_dash(text(each, "owner")), or_dash(text(each, "account")),
                    or_dash(text(each, "user_class")),
                    whole(each, "slices") + " x " + gpus(number(each, "share")),
                    age_text(uint64_t(number(each, "waited_s"))), start, reason});
  }
  return rows.size() == 1 ? "nobody waits\n" : fitted(rows, width, {"QUEUE", "CLASS", "ACCOUNT"});
}

// Lists of texts under a heading.
std::string lines_text(const Json& answer) {
  std::string out;
  const std::pair<const char*, const char*> headings[] = {
      {"changes", "changes"}, {"waits", "waits then"}, {"shrinks", "shrinks"}, {"ends", "ends"}};
  for (const auto& [key, heading] : headings) {
    const Json& list = part(answer, key);
    if (!list.is_array()) continue;
    if (list.empty()) out += std::string(heading) + ": nothing\n";
    for (const Json& line : list) {
      if (line.is_string())
        out += std::string(heading) + ": " + safe(line.get<std::string>()) + "\n";
    }
  }
  if (part(answer, "policy_revision").is_number())
    out += "policy " + whole(answer, "policy_revision") + " holds\n";
  return out;
}

// Any other answer: what it says, a line for each key.
std::string keys_text(const Json& answer) {
  std::string out;
  for (const auto& [key, value] : answer.items())
    out += safe(key) + ": " + (value.is_string() ? safe(value.get<std::string>()) : value.dump()) +
           "\n";
  return out;
}

}  // namespace

base::Result<std::string> pool_text(const std::string& verb, const std::string& json,
                                    size_t width) {
  const Json answer = Json::parse(json, nullptr, false);
  if (!answer.is_object()) {
    return base::Status(base::Code::kMismatch,
                        "the pool answered with something else than a JSON object");
  }
  if (verb == "status") return status_text(answer, width);
  if (verb == "queue") return queue_text(answer, width);
  if (verb == "show") {
    const Json& policy = part(answer, "policy");
    const std::string whole = policy.is_string() ? policy.get<std::string>() : std::string();
    std::string out;
    for (size_t at = 0; at < whole.size();) {
      const size_t end = std::min(whole.find('\n', at), whole.size());
      out += base::printable(whole.substr(at, end - at), end - at) + "\n";
      at = end + 1;
    }
    return out.empty() ? std::string("# no policy was applied\n") : out;
  }
  if (verb == "apply" || verb == "move" || verb == "dry-run") return lines_text(answer);
  return keys_text(answer);
}

}  // namespace tendril::view
