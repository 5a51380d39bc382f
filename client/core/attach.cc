// SPDX-License-Identifier: Apache-2.0
// See attach.h.
#include "client/core/attach.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/common/log.h"
#include "client/core/lessor.h"
#include "lease/placement.h"
#include "session/control/attach.h"

namespace tendril::client::core {
namespace {

// A server answers hello at once. But its processors may be busy with hundreds of others' starts.
constexpr int kAnswerMs = 30'000;

wire::ClientInfo who_we_are() {
  wire::ClientInfo info;
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) == 0) info.host = name;
  const char* user = getenv("USER");
  info.user = user != nullptr ? user : std::to_string(getuid());
  info.pid = static_cast<uint32_t>(getpid());
  if (FILE* file = fopen("/proc/self/comm", "re")) {
    char comm[64] = {};
    if (fgets(comm, sizeof comm, file) != nullptr) info.program = comm;
    fclose(file);
    while (!info.program.empty() && info.program.back() == '\n') info.program.pop_back();
  }
  return info;
}

class Attaching {
 public:
  Attaching(const ApiIdentity& api, const config::Configuration& configuration,
            Newcomers* newcomers)
      : api_(api), configuration_(configuration), newcomers_(newcomers) {}

  // If `tendril run` took leases: makes one session for each. Otherwise: takes slices from the
  // servers in order until it holds enough, or a lease from their pool.
  base::Status all() {
    const std::vector<config::Server>& servers = configuration_.servers;
    if (configuration_.leased()) return leased(servers);
    const uint32_t wanted = configuration_.slice_count;
    bool is_pool = false;
    const lease::Filling filling =
        lease::fill_servers(servers.size(), wanted, [&](size_t server, uint32_t count) {
          if (is_pool) return base::Status(base::Code::kElsewhere, "");
          const base::Status outcome = one(servers[server], count);
          is_pool = outcome.code() == base::Code::kElsewhere;
          return outcome;
        });
    if (is_pool && filling.missing == wanted) return from_pool();
    if (filling.missing == 0) return base::Status();
    return lease::shortage(filling, servers.size(), wanted);
  }

 private:
  base::Status leased(const std::vector<config::Server>& servers) {
    for (const config::Server& server : servers) {
      const base::Status outcome = one(server, 0);
      if (!outcome.ok()) return outcome;
    }
    return base::Status();
  }

  // Of the servers that were named, those that do not answer may be other addresses of the pool.
  base::Status from_pool() {
    std::vector<session::Endpoint> pools;
    for (const config::Server& server : configuration_.servers) {
      base::Result<session::Endpoint> endpoint = session::parse_endpoint(server.endpoint);
      if (!endpoint.ok()) return endpoint.status();
      pools.push_back(endpoint.take());
    }
    base::Result<wire::LeaseReply> reply =
        command_lessor()->pool_lease(pools, lease_request(configuration_.slice_count));
    if (!reply.ok()) return reply.status();
    std::vector<config::Server> servers;
    for (const wire::LeasePart& part : reply->parts) {
      config::Server server;
      server.endpoint = part.endpoint;
      server.lease_id = part.lease_id;
      server.lease_secret = part.secret;
      servers.push_back(std::move(server));
    }
    return leased(servers);
  }

  wire::LeaseRequest lease_request(uint32_t count) const {
    wire::LeaseRequest request;
    request.count = count;
    request.slice = configuration_.slice;
    request.terms = configuration_.terms;
    request.client = who_we_are();
    request.wish = configuration_.pool.wish;
    request.wish.apis = {{api_.name, api_.digest}};
    return request;
  }

  // `count`: the slices to ask for, if there is no lease yet.
  base::Status one(const config::Server& server, uint32_t count) {
    base::Result<session::Endpoint> endpoint = session::parse_endpoint(server.endpoint);
    if (!endpoint.ok()) return endpoint.status();
    session::ConnectOptions options;
    options.token = configuration_.token;
    options.answer_ms = kAnswerMs;
    options.patience = [](const std::string& line) { log(LogLevel::kWarning, "%s", line.c_str()); };
    options.transport = configuration_.transport;
    options.lessor = command_lessor();
    options.insists_on_sealing = configuration_.insists_on_sealing;
    options.link.delay_us = configuration_.link_delay_us;
    options.link.bytes_per_second = uint64_t{configuration_.link_megabytes_per_s} * 1'000'000;
    wire::AttachRequest request;
    request.lease_id = server.lease_id;
    request.secret = server.lease_secret;
    request.lease = lease_request(count);
    request.client = request.lease.client;
    request.api = api_.name;
    request.api_digest = api_.digest;
    request.bulk_channels = options.bulk_channels;
    base::Result<session::Attached> attached = session::attach(*endpoint, options, request);
    if (!attached.ok()) return attached.status();
    return open(server.endpoint, &*attached);
  }

  base::Status open(const std::string& endpoint, session::Attached* attached) {
    Session* session = newcomers_->create();
    session->index = attached_;
    session->endpoint = endpoint;
    session->window = std::move(attached->window);
    session->lane = session::Lane::open(std::move(attached->command), attached->bulk.data(),
                                        attached->bulk.size(), session);
    // A session that fails here is leaked on purpose, because lanes are never destroyed.
    const int devices = session->lane != nullptr ? newcomers_->greet(session) : -1;
    if (devices < 0) {
      return base::Status(
          base::Code::kClosed,
          "GPU server " + endpoint + " ended the session while attaching; see its log");
    }
    log(LogLevel::kInfo, "attached to %s for %s over %s (%s): %d device(s)", endpoint.c_str(),
        api_.name, attached->transport.c_str(), attached->reason.c_str(), devices);
    newcomers_->admit(session);
    ++attached_;
    return base::Status();
  }

  const ApiIdentity api_;
  const config::Configuration& configuration_;
  Newcomers* const newcomers_;
  uint32_t attached_ = 0;
};

}  // namespace

base::Status attach_servers(const ApiIdentity& api, const config::Configuration& configuration,
                            Newcomers* newcomers) {
  return config::with_hint(configuration, Attaching(api, configuration, newcomers).all());
}

}  // namespace tendril::client::core
