// SPDX-License-Identifier: Apache-2.0
// See pool_metrics.h.
#include "view/pool_metrics.h"

#include "view/json_fields.h"
#include "view/metric_family.h"

namespace tendril::view {
namespace {

using Json = nlohmann::json;

double seconds(const Json& from, const char* key) { return number(from, key) / 1e9; }
std::string named(const char* name, const Json& from, const char* key) {
  const Json& value = part(from, key);
  return label(name, value.is_string() ? value.get<std::string>() : std::string());
}

void add_process(const PoolProcess& process, std::string* out) {
  Family(out, "tendril_pool_info", "gauge", "This scheduler.")
      .add(label("pool", process.pool) + "," + label("scheduler", process.scheduler) + "," +
               label("version", process.version),
           1);
  Family(out, "tendril_pool_scheduler_leads", "gauge", "1 if this process schedules the pool.")
      .add("", process.leads);
  Family(out, "tendril_pool_scheduler_term", "gauge",
         "The term of this scheduler; 0 if it stands by.")
      .add("", double(process.term));
  Family(out, "tendril_scheduler_term", "gauge", "The term of this scheduler; 0 if it stands by.")
      .add("", double(process.term));
  Family(out, "tendril_pool_store_failures_total", "counter", "Calls of the store that failed.")
      .add("", double(process.store_failures));
}

void add_servers(const Json& figures, std::string* out) {
  Family servers(out, "tendril_pool_servers", "gauge", "Servers by state.");
  for (const auto& each : part(figures, "servers").items()) {
    if (each.value().is_number()) {
      servers.add(label("state", each.key()), each.value().get<double>());
    }
  }
  Family up(out, "tendril_server_up", "gauge", "1 if the server reports to its pool, else 0.");
  for (const Json& each : part(figures, "servers_up")) {
    up.add(named("server", each, "server"), number(each, "up"));
  }
  Family gpus(out, "tendril_pool_gpus", "gauge",
              "GPUs by class and state: free, shared, full, or the state of their server.");
  for (const Json& each : part(figures, "gpus")) {
    gpus.add(named("class", each, "class") + "," + named("state", each, "state"),
             number(each, "gpus"));
  }
  Family capacity(out, "tendril_pool_class_gpus", "gauge",
                  "GPUs that the pool can give, by class.");
  for (const Json& each : part(figures, "classes")) {
    capacity.add(named("class", each, "name"), number(each, "gpus"));
  }
  Family given(out, "tendril_pool_class_given_gpus", "gauge",
               "GPUs that are given, by class; fractions count.");
  for (const Json& each : part(figures, "classes")) {
    given.add(named("class", each, "name"), number(each, "given"));
  }
}

void add_queue(const Json& figures, std::string* out) {
  Family requests(out, "tendril_pool_queue_requests", "gauge",
                  "Requests that wait, by queue and reason.");
  for (const Json& each : part(figures, "queue")) {
    requests.add(named("queue", each, "queue") + "," + named("reason", each, "reason"),
                 number(each, "requests"));
  }
  Family longest(out, "tendril_pool_queue_longest_wait_seconds", "gauge",
                 "How long the oldest of them has waited.");
  for (const Json& each : part(figures, "queue")) {
    longest.add(named("queue", each, "queue") + "," + named("reason", each, "reason"),
                number(each, "longest_wait_s"));
  }
}

void add_leases(const Json& figures, std::string* out) {
  Family leases(out, "tendril_pool_leases", "gauge", "Requests at servers and leases, by state.");
  for (const auto& each : part(figures, "leases").items()) {
    if (each.value().is_number()) {
      leases.add(label("state", each.key()), each.value().get<double>());
    }
  }
  const auto one = [&](const char* name, const char* help, const char* key) {
    Family(out, name, "gauge", help).add("", number(figures, key));
  };
  one("tendril_pool_leases_idle", "Leases that do nothing now.", "idle");
  one("tendril_pool_leases_paused", "Leases that are paused.", "paused");
  one("tendril_pool_leases_shrunk", "Leases that have less than they were granted.", "shrunk");
  one("tendril_pool_leases_reclaimed", "Leases that have to make room.", "reclaimed");
}

void add_accounts(const Json& figures, std::string* out) {
  Family used(out, "tendril_pool_account_gpus", "gauge", "GPUs that an account holds, by class.");
  for (const Json& each : part(figures, "accounts")) {
    for (const auto& amount : part(each, "used").items()) {
      if (!amount.value().is_number()) continue;
      used.add(named("account", each, "name") + "," + label("class", amount.key()),
               amount.value().get<double>());
    }
  }
  Family waiting(out, "tendril_pool_account_waiting", "gauge", "Requests of an account that wait.");
  for (const Json& each : part(figures, "accounts")) {
    waiting.add(named("account", each, "name"), number(each, "waiting"));
  }
  const auto by_class = [&](const char* name, const char* help, const char* key) {
    Family family(out, name, "gauge", help);
    for (const Json& each : part(figures, "accounts")) {
      for (const auto& amount : part(each, key).items()) {
        if (!amount.value().is_number()) continue;
        family.add(named("account", each, "name") + "," + label("class", amount.key()),
                   amount.value().get<double>());
      }
    }
  };
  by_class("tendril_queue_quota_gpus", "GPUs that are an account's own, by class.", "quota");
  by_class("tendril_queue_allocated_gpus", "GPUs that an account holds, by class.", "used");
  by_class("tendril_queue_lent_gpus", "GPUs of an account's quota that others use, by class.",
           "lent");
  Family share(out, "tendril_queue_fair_share_gpus", "gauge",
               "GPUs that an account is due: its quota, and by its weight a part of what is "
               "nobody's. GPUs of classes count by their weights.");
  for (const Json& each : part(figures, "accounts")) {
    share.add(named("account", each, "name"), number(each, "fair_share_gpus"));
  }
  Family pending(out, "tendril_queue_pending", "gauge", "Requests of an account that wait.");
  for (const Json& each : part(figures, "accounts")) {
    pending.add(named("account", each, "name"), number(each, "waiting"));
  }
  const Json& uses = part(part(figures, "totals"), "uses");
  Family busy(out, "tendril_pool_gpu_seconds_total", "counter",
              "GPU time that leases of the account had in turns, in this term.");
  for (const Json& each : uses)
    busy.add(named("account", each, "account"), seconds(each, "used_ns"));
  Family idle(out, "tendril_pool_idle_seconds_total", "counter",
              "Time in which leases of the account did nothing, in this term.");
  for (const Json& each : uses)
    idle.add(named("account", each, "account"), seconds(each, "idle_ns"));
}

void add_waits(const Json& from, const std::string& labels, Family* waits) {
  double sum = 0;
  for (const Json& each : part(from, "waits")) {
    sum += number(each, "grants");
    const Json& end = part(each, "up_to_s");
    const std::string le =
        label("le", end.is_number() ? std::to_string(end.get<int64_t>()) : "+Inf");
    waits->add(labels.empty() ? le : labels + "," + le, sum, "_bucket");
  }
  waits->add(labels, seconds(from, "waited_ns"), "_sum");
  waits->add(labels, sum, "_count");
}

void add_totals(const Json& figures, std::string* out) {
  const Json& totals = part(figures, "totals");
  const auto one = [&](const char* name, const char* help, const char* key) {
    Family(out, name, "counter", help).add("", number(totals, key));
  };
  one("tendril_pool_requests_total", "Requests that were accepted in this term.", "requests");
  one("tendril_pool_refusals_total", "Requests that were refused in this term.", "refused");
  one("tendril_pool_grants_total", "Leases granted in this term.", "granted");
  one("tendril_pool_ends_total", "Leases that ended in this term.", "ended");
  Family waits(out, "tendril_pool_wait_seconds", "histogram",
               "How long requests waited for their grant, in this term.");
  add_waits(totals, "", &waits);
  Family by_account(out, "tendril_queue_wait_seconds", "histogram",
                    "How long requests of an account waited for their grant, in this term.");
  for (const Json& each : part(totals, "accounts"))
    add_waits(each, named("account", each, "account"), &by_account);
}

}  // namespace

std::string pool_metrics_text(const PoolProcess& process, const std::string& figures_text) {
  std::string out;
  add_process(process, &out);
  const Json figures = Json::parse(figures_text, nullptr, false);
  if (!figures.is_object()) return out;
  const auto one = [&](const char* name, const char* help, const char* key) {
    Family(&out, name, "gauge", help).add("", number(figures, key));
  };
  one("tendril_pool_planning", "1 if requests are started now.", "planning");
  one("tendril_pool_policy_revision", "Revision of the policy that holds.", "policy_revision");
  one("tendril_pool_store_batches_unwritten", "Changes that the store does not have yet.",
      "batches_unstored");
  add_servers(figures, &out);
  add_queue(figures, &out);
  add_leases(figures, &out);
  add_accounts(figures, &out);
  add_totals(figures, &out);
  return out;
}

}  // namespace tendril::view
