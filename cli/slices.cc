// SPDX-License-Identifier: Apache-2.0
// See slices.h.
#include "cli/slices.h"

#include <algorithm>

#include "base/text.h"
#include "config/pool_settings.h"
#include "config/quantity.h"
#include "lease/placement.h"
#include "wire/assignment.h"

namespace tendril::cli {
namespace {

using base::Code;
using base::Status;

constexpr size_t kGpusNamed = 8;  // of a server; more only make the line long

std::string free_text(const std::string& server, const std::vector<wire::GpuRecord>& gpus) {
  std::string text = server + " has " + std::to_string(gpus.size()) +
                     (gpus.size() == 1 ? " GPU with " : " GPUs with ");
  for (size_t i = 0; i < gpus.size() && i < kGpusNamed; ++i) {
    const lease::GpuRoom room = lease::room_of(gpus[i]);
    text += (i == 0 ? "" : ", ") +
            config::format_fraction(config::kWholeGpu - room.share_promised_millionths) + " and " +
            config::format_size(room.memory_usable_bytes - room.memory_promised_bytes);
  }
  return text + (gpus.size() > kGpusNamed ? ", ... free" : " free");
}

// Takes slices from one server after another and keeps the leases.
class Taking {
 public:
  Taking(const std::vector<session::Endpoint>& endpoints, const session::ConnectOptions& connect,
         const wire::LeaseRequest& request, Met met)
      : endpoints_(endpoints), connect_(connect), request_(request), met_(std::move(met)) {}

  // Takes `count` slices from this server, or none.
  Status ask(const session::Endpoint& endpoint, uint32_t count) {
    if (control_ == nullptr || endpoint_.text != endpoint.text) {
      const Status met = meet(endpoint);
      if (!met.ok()) return met;
    }
    // No server can give more slices than it has GPUs, so do not ask.
    if (count > std::max<size_t>(gpus_, 1)) return Status(Code::kRefused, "too few GPUs");
    if (gpus_ == 0) return Status(Code::kRefused, "host " + host_ + " has no GPU");
    request_.count = count;
    auto lease = control_->lease(request_);
    if (!lease.ok()) return lease.status();
    taken_.push_back({endpoint, std::move(control_), lease.take(), lends_opencl_});
    return Status();
  }

  std::vector<TakenLease> take() { return std::move(taken_); }

  // What the servers had before this program took anything, for who gets too little.
  std::string had() const {
    std::string text;
    for (const std::string& server : had_) text += (text.empty() ? "" : "; ") + server;
    return text;
  }

 private:
  Status meet(const session::Endpoint& endpoint) {
    control_.reset();
    auto control = connect(endpoint);
    if (!control.ok()) return control.status();
    if (!(*control)->server_hello().pool.empty()) {
      return Status(Code::kInvalid, endpoint.text +
                                        " is a pool, and others here are GPU servers: name either "
                                        "the pool's addresses or servers");
    }
    auto list = (*control)->list();
    if (!list.ok()) return list.status();
    const Status fits = check_apis(endpoint, *list);
    if (!fits.ok()) return fits;
    control_ = control.take();
    lends_opencl_ = std::any_of(list->apis.begin(), list->apis.end(),
                                [](const wire::ApiRecord& api) { return api.name == kOpenclName; });
    endpoint_ = endpoint;
    host_ = list->server;
    gpus_ = list->gpus.size();
    had_.push_back(free_text(endpoint.text, list->gpus));
    return Status();
  }

  base::Result<std::unique_ptr<session::Control>> connect(const session::Endpoint& endpoint) {
    for (size_t i = 0; i < met_.silent.size(); ++i) {
      if (endpoints_[i].text == endpoint.text) return met_.silent[i];
    }
    if (met_.control != nullptr && endpoints_[met_.at].text == endpoint.text)
      return std::move(met_.control);
    return session::Control::connect(endpoint, connect_);
  }

  // Before a lease is taken that no program could use.
  Status check_apis(const session::Endpoint& endpoint, const wire::ListReply& list) const {
    for (const wire::ApiRecord& mine : {wire::ApiRecord{kApiName, schema_digest()},
                                        wire::ApiRecord{kOpenclName, opencl_digest()}}) {
      for (const wire::ApiRecord& theirs : list.apis) {
        if (mine.name != theirs.name || mine.digest == theirs.digest) continue;
        return Status(Code::kMismatch, endpoint.text + " runs Tendril " +
                                           base::printable(list.product_version, 32) +
                                           " and this is " + wire::product_version() +
                                           ": they describe the calls of " + mine.name +
                                           " differently; install the same version on both");
      }
    }
    return Status();
  }

  const std::vector<session::Endpoint>& endpoints_;
  const session::ConnectOptions& connect_;
  wire::LeaseRequest request_;
  Met met_;
  session::Endpoint endpoint_;  // of control_
  bool lends_opencl_ = false;   // the server of control_
  std::unique_ptr<session::Control> control_;
  std::string host_;
  size_t gpus_ = 0;
  std::vector<TakenLease> taken_;
  std::vector<std::string> had_;
};

}  // namespace

base::Result<wire::SliceSpec> slice_spec(const SliceOptions& options) {
  base::Result<wire::SliceSpec> slice =
      config::read_slice({"-p", options.share}, {"-m", options.memory});
  if (slice.ok()) slice->packed = options.packed;
  return slice;
}

wire::LeaseTerms lease_terms(const SliceOptions& options) {
  return {options.capped ? wire::SharePolicy::kCap : wire::SharePolicy::kLend, options.priority};
}

base::Result<config::PoolSettings> pool_settings(const PoolOptions& options) {
  config::PoolTexts texts = config::pool_variables();
  const auto prefer = [](config::Named* named, const char* name, const std::string& text) {
    if (!text.empty()) *named = {name, text};
  };
  prefer(&texts.filter, "--filter", options.filter);
  prefer(&texts.user_class, "--class", options.user_class);
  prefer(&texts.account, "--account", options.account);
  prefer(&texts.longest, "--max", options.longest);
  prefer(&texts.wait, "--wait", options.wait);
  if (options.one_server) texts.layout = {"--one-server", "one-server"};
  if (options.pack) texts.layout = {"--pack", "pack"};
  if (options.spread) texts.layout = {"--spread", "spread"};
  return config::read_pool_settings(texts);
}

Met meet_first(const std::vector<session::Endpoint>& endpoints,
               const session::ConnectOptions& connect) {
  Met met;
  for (; met.at < endpoints.size(); ++met.at) {
    auto control = session::Control::connect(endpoints[met.at], connect);
    if (control.ok()) {
      met.control = control.take();
      break;
    }
    met.silent.push_back(control.status());
  }
  return met;
}

base::Result<std::vector<TakenLease>> take_leases(const std::vector<session::Endpoint>& endpoints,
                                                  const session::ConnectOptions& connect,
                                                  uint32_t count, const wire::LeaseRequest& request,
                                                  Met met) {
  const bool one_each = count == 0;
  const size_t wanted = one_each ? endpoints.size() : count;
  if (wanted > wire::kSlicesMax) {
    return Status(Code::kInvalid,
                  "a program gets at most " + std::to_string(wire::kSlicesMax) + " slices");
  }
  Taking taking(endpoints, connect, request, std::move(met));
  if (one_each) {
    for (const session::Endpoint& endpoint : endpoints) {
      const Status answer = taking.ask(endpoint, 1);
      if (!answer.ok()) return answer;
    }
    return taking.take();
  }
  const lease::Filling filling = lease::fill_servers(
      endpoints.size(), count,
      [&](size_t server, uint32_t slices) { return taking.ask(endpoints[server], slices); });
  if (filling.missing == 0) return taking.take();
  const Status too_few = lease::shortage(filling, endpoints.size(), count);
  if (!filling.refusals.empty() || taking.had().empty()) return too_few;
  return Status(too_few.code(), too_few.message() + " (" + taking.had() + ")");
}

std::string leases_text(const std::vector<TakenLease>& leases) {
  std::string text;
  for (const TakenLease& lease : leases) {
    text += (text.empty() ? "" : ",") + lease.endpoint.text + "=" +
            std::to_string(lease.lease.lease_id) + ":" +
            base::hex(lease.lease.secret.data(), lease.lease.secret.size());
  }
  return text;
}

std::string servers_text(const std::vector<session::Endpoint>& endpoints) {
  std::string text;
  for (const session::Endpoint& endpoint : endpoints)
    text += (text.empty() ? "" : ",") + endpoint.text;
  return text;
}

}  // namespace tendril::cli
