// SPDX-License-Identifier: Apache-2.0
// See attach.h.
#include "client/core/attach.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/kept_files.h"
#include "client/common/log.h"
#include "client/core/lessor.h"
#include "client/core/progress.h"
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

}  // namespace

Attaching::Attaching(const ApiIdentity& api, const config::Configuration& configuration,
                     Newcomers* newcomers, bool lists_ahead)
    : api_(api), configuration_(configuration), newcomers_(newcomers), lists_ahead_(lists_ahead) {}

base::Status Attaching::begin() {
  const AttachProgress progress;
  return config::with_hint(configuration_, all());
}

// If `tendril run` took leases: makes one session for each. Otherwise: takes slices from the
// servers in order until it holds enough, or a lease from their pool.
base::Status Attaching::all() {
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

// All processes of a program have the same leases, so they come to the same number. Secrets stay
// out of it: every server sees it.
uint64_t Attaching::gang_of(const std::vector<config::Server>& servers) {
  bool several = false;
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const config::Server& server : servers) {
    several = several || server.endpoint != servers.front().endpoint;
    for (const char c : server.endpoint + "=" + std::to_string(server.lease_id) + ",")
      hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return several ? hash : 0;
}

base::Status Attaching::leased(const std::vector<config::Server>& servers) {
  if (configuration_.uses_windows) gang_ = gang_of(servers);
  for (const config::Server& server : servers) {
    if (lists_ahead_ && servers.size() > 1 && expect(server)) continue;
    const base::Status outcome = one(server, 0);
    if (!outcome.ok()) return outcome;
  }
  return base::Status();
}

// Of the servers that were named, those that do not answer may be other addresses of the pool.
base::Status Attaching::from_pool() {
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

wire::LeaseRequest Attaching::lease_request(uint32_t count) const {
  wire::LeaseRequest request;
  request.count = count;
  request.slice = configuration_.slice;
  request.terms = configuration_.terms;
  request.client = who_we_are();
  request.wish = configuration_.pool.wish;
  request.wish.apis = {{api_.name, api_.digest}};
  return request;
}

session::ConnectOptions Attaching::connect_options() const {
  session::ConnectOptions options;
  options.token = configuration_.token;
  options.answer_ms = kAnswerMs;
  options.patience = [](const std::string& line) {
    clear_progress();
    log(LogLevel::kWarning, "%s", line.c_str());
  };
  options.tried = [](const std::string& line) {
    log(LogLevel::kInfo, "a faster way was tried: %s", line.c_str());
  };
  options.transport = configuration_.transport;
  options.lessor = command_lessor();
  options.insists_on_sealing = configuration_.insists_on_sealing;
  options.outage_ms = configuration_.outage_ms;
  const std::string cache = base::user_cache_folder();
  if (!cache.empty()) options.ways_folder = cache + "/tendril/ways";
  options.link.delay_us = configuration_.link_delay_us;
  options.link.bytes_per_second = uint64_t{configuration_.link_megabytes_per_s} * 1'000'000;
  return options;
}

wire::AttachRequest Attaching::attach_request(const config::Server& server, uint32_t count) const {
  wire::AttachRequest request;
  request.lease_id = server.lease_id;
  request.secret = server.lease_secret;
  request.lease = lease_request(count);
  request.client = request.lease.client;
  request.api = api_.name;
  request.api_digest = api_.digest;
  request.collectives = api_.collectives;
  request.gang = gang_;
  return request;
}

// Lists the devices of a session that begins later. False: it must begin now, which then says what
// is wrong.
bool Attaching::expect(const config::Server& server) {
  base::Result<session::Endpoint> endpoint = session::parse_endpoint(server.endpoint);
  if (!endpoint.ok()) return false;
  base::Result<wire::AttachReply> seen =
      session::look(*endpoint, connect_options(), attach_request(server, 0));
  if (!seen.ok() || seen->facts.empty() || seen->facts.size() != seen->lease.slices.size())
    return false;
  Session* session = newcomers_->create();
  session->index = sessions_;
  session->endpoint = server.endpoint;
  session->nccl_versions = seen->nccl_versions;
  const int devices = newcomers_->expect(session, *seen);
  if (devices < 0) return false;
  log(LogLevel::kInfo, "%s has %d device(s) for this program", server.endpoint.c_str(), devices);
  listed_.resize(++sessions_);
  listed_.back() = server;
  return true;
}

// `count`: the slices to ask for, if there is no lease yet.
base::Status Attaching::one(const config::Server& server, uint32_t count) {
  base::Result<session::Attached> attached = connect(server, count);
  if (!attached.ok()) return attached.status();
  Session* session = newcomers_->create();
  session->index = sessions_;
  session->endpoint = server.endpoint;
  const base::Status opened = open(session, &*attached);
  if (opened.ok()) ++sessions_;
  return opened;
}

base::Status Attaching::attach(Session* session) {
  const AttachProgress progress;
  base::Result<session::Attached> attached = connect(listed_[session->index], 0);
  return config::with_hint(configuration_,
                           attached.ok() ? open(session, &*attached) : attached.status());
}

base::Result<session::Attached> Attaching::connect(const config::Server& server, uint32_t count) {
  base::Result<session::Endpoint> endpoint = session::parse_endpoint(server.endpoint);
  if (!endpoint.ok()) return endpoint.status();
  const session::ConnectOptions options = connect_options();
  wire::AttachRequest request = attach_request(server, count);
  request.bulk_channels = options.bulk_channels;
  return session::attach(*endpoint, options, request);
}

// A session that fails here is leaked on purpose, because lanes are never destroyed.
base::Status Attaching::open(Session* session, session::Attached* attached) {
  static_cast<void>(session->lane.release());  // of an attempt before this one
  session->window = std::move(attached->window);
  session->pinned = std::move(attached->pinned);
  session->trial = std::move(attached->trial);
  session->nccl_versions = attached->reply.nccl_versions;
  session->lane = session::Lane::open(std::move(attached->command), attached->bulk.data(),
                                      attached->bulk.size(), session);
  if (wire::ProgressPage* const page = g_progress.load(std::memory_order_acquire);
      page != nullptr && session->lane != nullptr)
    session->lane->count_into(&page->sent_bytes);
  const int devices = session->lane != nullptr ? newcomers_->greet(session) : -1;
  if (devices < 0) {
    return base::Status(base::Code::kClosed, "GPU server " + session->endpoint +
                                                 " ended the session while attaching; see its log");
  }
  log(LogLevel::kInfo, "attached to %s for %s over %s (%s): %d device(s)",
      session->endpoint.c_str(), api_.name, attached->transport.c_str(), attached->reason.c_str(),
      devices);
  newcomers_->admit(session);
  return base::Status();
}

base::Status attach_servers(const ApiIdentity& api, const config::Configuration& configuration,
                            Newcomers* newcomers) {
  return Attaching(api, configuration, newcomers, false).begin();
}

}  // namespace tendril::client::core
