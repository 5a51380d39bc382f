// SPDX-License-Identifier: Apache-2.0
// See binder.h. What is known of a claim beside its process is in the claim itself, so a new
// process goes on where the last one ended.
#include "packaging/kubernetes/binder.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "packaging/kubernetes/binding.h"
#include "packaging/kubernetes/claim.h"
#include "packaging/kubernetes/holder.h"

namespace tendril::kubernetes {
namespace {

constexpr size_t kMessageMax = 1024;

std::string now_text() {
  const time_t now = time(nullptr);
  tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// Of one allocation of one claim.
struct Waiting {
  std::string allocation;
  std::unique_ptr<Holder> holder;  // null: over, whatever became of it
  Condition said;                  // what the claim says
};

class Binder {
 public:
  explicit Binder(const BindOptions& options) : options_(options) {}

  void round() {
    const Json claims = ask(options_.api, "GET", std::string(kApi) + "/resourceclaims").at("items");
    std::set<std::string> seen;
    for (const Json& claim : claims) {
      if (!waits_for_lease(claim)) continue;
      const std::string uid = claim.at("metadata").at("uid");
      seen.insert(uid);
      try {
        care_for(uid, claim);
      } catch (const std::exception& error) {
        complain(claim, error.what());
      }
    }
    std::erase_if(waiting_, [&](const auto& each) { return seen.count(each.first) == 0; });
    forget_others(seen);
  }

 private:
  void complain(const Json& claim, const std::string& what) {
    const Json& name = claim.at("metadata");
    fprintf(stderr, "tendril-kubernetes: claim %s/%s: %s\n", name.value("namespace", "").c_str(),
            name.value("name", "").c_str(), what.c_str());
  }

  void care_for(const std::string& uid, const Json& claim) {
    Waiting& waiting = waiting_[uid];
    const std::string allocation = allocation_of(claim);
    if (waiting.allocation != allocation) {
      waiting = Waiting();
      // An earlier process said so. Its program has the lease, or asks for one of its own.
      if (!is_leased(claim)) start(uid, claim, &waiting);
      waiting.allocation = allocation;
    }
    if (waiting.holder == nullptr) return;
    Holder& holder = *waiting.holder;
    holder.look();
    if (!holder.leases().empty()) {
      if (!waiting.said.holds) write_secret(uid, holder.leases());
      say(claim, {kLeased, true, "Granted", "the pool has granted the slices"}, &waiting);
    } else if (holder.has_ended()) {
      const std::string why = holder.said().empty() ? "the pool refuses" : holder.said();
      say(claim, {kRefused, true, "Refused", why}, &waiting);
    } else if (!holder.said().empty()) {
      say(claim, {kLeased, false, "Waiting", holder.said()}, &waiting);
    }
    if (holder.has_ended() && waiting.said.holds) waiting.holder.reset();
  }

  void start(const std::string& uid, const Json& claim, Waiting* waiting) {
    const Json& meta = claim.at("metadata");
    try {
      const Wanted wanted = wanted_of(claim, uid, published(options_.api));
      std::vector<std::string> words = {"-n",       std::to_string(wanted.devices.size()),
                                        "-p",       wanted.share_text(),
                                        "--filter", wanted.filter};
      if (wanted.memory_mib != 0) words.insert(words.end(), {"-m", wanted.memory_text()});
      waiting->holder = std::make_unique<Holder>(
          options_.tendril, words,
          "claim-" + meta.value("namespace", "") + "." + meta.value("name", ""));
    } catch (const ApiError&) {
      throw;  // tried again
    } catch (const std::runtime_error& error) {
      say(claim, {kRefused, true, "Refused", error.what()}, waiting);
    }
  }

  void say(const Json& claim, Condition condition, Waiting* waiting) {
    condition.message.resize(std::min(condition.message.size(), kMessageMax));
    if (waiting->said == condition) return;
    const Json& meta = claim.at("metadata");
    ask(options_.api, "PUT",
        std::string(kApi) + "/namespaces/" + meta.at("namespace").get<std::string>() +
            "/resourceclaims/" + meta.at("name").get<std::string>() + "/status",
        with_condition(claim, condition, now_text()));
    if (condition.holds) complain(claim, condition.message);
    waiting->said = condition;
  }

  void write_secret(const std::string& uid, const std::string& leases) {
    const Json secret = {
        {"apiVersion", "v1"},
        {"kind", "Secret"},
        {"metadata", {{"name", secret_name(uid)}, {"labels", {{kClaimLabel, uid}}}}},
        {"stringData", {{"leases", leases}}}};
    const std::string path = secrets_path(options_.space);
    try {
      ask(options_.api, "POST", path, secret);
    } catch (const ApiError& error) {
      if (error.status != 409) throw;  // there is one, of an earlier allocation
      ask(options_.api, "PUT", path + "/" + secret_name(uid), secret);
    }
  }

  // Secrets of claims that are gone.
  void forget_others(const std::set<std::string>& seen) {
    const std::string path = secrets_path(options_.space);
    const Json secrets = ask(options_.api, "GET", path + "?labelSelector=gpu.tendril.io%2Fclaim");
    for (const Json& secret : secrets.at("items")) {
      const Json& meta = secret.at("metadata");
      if (seen.count(meta.at("labels").value(kClaimLabel, "")) == 0)
        ask(options_.api, "DELETE", path + "/" + meta.at("name").get<std::string>());
    }
  }

  const BindOptions& options_;
  std::map<std::string, Waiting> waiting_;  // by the claim's uid
};

}  // namespace

int bind_claims(const BindOptions& options) {
  Binder binder(options);
  for (;;) {
    try {
      binder.round();
    } catch (const std::exception& error) {
      fprintf(stderr, "tendril-kubernetes: %s\n", error.what());
    }
    usleep(static_cast<useconds_t>(options.interval_ms * 1000));
  }
}

}  // namespace tendril::kubernetes
