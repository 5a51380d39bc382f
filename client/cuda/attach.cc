// SPDX-License-Identifier: Apache-2.0
// cuInit: reads the environment, attaches to each server, takes the snapshot that later answers
// most calls, and builds the device list. Also what fork does to all of it. Slow path; one thread
// at a time.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cstdio>

#include "client/common/log.h"
#include "client/common/servers.h"
#include "client/common/visible_devices.h"
#include "client/cuda/bodies.h"
#include "client/cuda/observe/stats.h"
#include "session/control/attach.h"

namespace tendril::client::cuda {
namespace {

std::atomic<Process*> g_process{nullptr};
std::atomic<int> g_result{-1};      // of the first cuInit; -1: not tried
std::atomic<bool> g_forked{false};  // this is a child of an initialised process
pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;

// The parent's, whose threads and locks do not work here: kept for leak checkers to find.
std::atomic<Process*> g_left_behind{nullptr};

void forget_after_fork() {
  Process* p = g_process.exchange(nullptr);
  pthread_mutex_init(&g_mutex, nullptr);
  thread_state().depth = 0;
  if (p == nullptr) {
    g_result = -1;
    return;
  }
  g_forked = true;
  g_left_behind = p;
  for (Session* session : p->sessions) session->lane->abandon_after_fork();
}

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

std::string text_item(const wire::Bytes& all, size_t* at) {  // NUL-separated texts
  std::string out;
  while (*at < all.count && all.data[*at] != 0) out.push_back(static_cast<char>(all.data[(*at)++]));
  ++*at;
  return out;
}

void take_device(Device* d, uint32_t slot, const wire::cuda::snapshot_reply& r, size_t* name_at,
                 size_t* pci_at) {
  d->slot = slot;
  d->name = text_item(r.names, name_at);
  d->pci_bus_id = text_item(r.pci, pci_at);
  if (r.uuids.count >= (slot + 1) * 16u) memcpy(&d->uuid, r.uuids.data + slot * 16, 16);
  if (slot < r.total_memory.count) d->memory_bytes = r.total_memory[slot];
  const uint64_t n = r.attribute_count;
  for (uint64_t i = 0; i < n && i < kAttributesMax; ++i) {
    const uint64_t at = (slot * n + i) * 2;
    if (at + 1 >= r.attributes.count) break;
    d->attribute_valid[i] = r.attributes[at] == 0;
    d->attributes[i] = r.attributes[at + 1];
  }
  for (uint64_t i = 0; i < CU_LIMIT_MAX; ++i) {
    const uint64_t at = slot * CU_LIMIT_MAX + i;
    if (at < r.limits.count) d->limits[i] = r.limits[at];
  }
  if (slot * 2 + 1 < r.priorities.count) {
    d->least_priority = r.priorities[slot * 2];
    d->greatest_priority = r.priorities[slot * 2 + 1];
  }
}

// Asks the worker for everything about its devices. False: the session is unusable.
bool take_snapshot(Process* p, Session* session) {
  wire::cuda::snapshot_request m;
  wire::cuda::snapshot_reply r;
  if (session->call(static_cast<const Context*>(nullptr), m, r) != CUDA_SUCCESS) return false;
  session->driver_version = r.driver_version;
  session->keep_ptx = r.keep_ptx != 0;
  size_t name_at = 0, pci_at = 0;
  for (uint32_t slot = 0; slot < r.slots && slot < kSlicesMax; ++slot) {
    Device* d = new Device;
    d->session = session;
    take_device(d, slot, r, &name_at, &pci_at);
    Context* c = p->contexts.create(Kind::kContext, session, nullptr, session->index);
    c->device = d;
    c->primary = true;
    c->context = c;
    c->id = p->next_context_id.fetch_add(1);
    memcpy(c->limits, d->limits, sizeof c->limits);
    d->primary = c;
    session->devices.push_back(d);
  }
  return true;
}

bool attach_one(Process* p, const Configuration& configuration, const Server& server,
                uint32_t count, bool quiet, base::Status* why) {
  base::Result<session::Endpoint> endpoint = session::parse_endpoint(server.endpoint);
  if (!endpoint.ok()) {
    *why = endpoint.status();
    return false;
  }
  session::ConnectOptions options;
  options.token = configuration.token;
  options.allow_shared_memory = configuration.transport != Transport::kTcp;
  options.link.delay_us = configuration.link_delay_us;
  options.link.bytes_per_second = uint64_t{configuration.link_megabytes_per_s} * 1'000'000;
  wire::AttachRequest request;
  request.lease_id = server.lease_id;
  request.secret = server.lease_secret;
  request.lease.count = count;
  request.lease.slice = configuration.slice;
  request.lease.terms = configuration.terms;
  request.client = request.lease.client = who_we_are();
  request.api = "cuda";
  request.api_digest = wire::cuda::kSchemaDigest;
  request.bulk_channels = options.bulk_channels;
  request.shared_memory = options.allow_shared_memory;
  base::Result<session::Attached> attached = session::attach(*endpoint, options, request);
  if (!attached.ok()) {
    *why = attached.status();
    return false;
  }
  Session* session = new Session;
  session->index = static_cast<uint32_t>(p->sessions.size());
  session->endpoint = server.endpoint;
  session->window = std::move(attached->window);
  session->lane = session::Lane::open(std::move(attached->command), attached->bulk.data(),
                                      attached->bulk.size(), session);
  if (session->lane == nullptr || !take_snapshot(p, session)) {
    *why = base::Status(base::Code::kClosed, "GPU server " + server.endpoint +
                                                 " ended the session while attaching; see its log");
    return false;  // the session is leaked on purpose: lanes outlive everything
  }
  log(LogLevel::kInfo, "attached to %s over %s (%s): %zu device(s)", server.endpoint.c_str(),
      attached->transport.c_str(), attached->reason.c_str(), session->devices.size());
  (void)quiet;
  p->sessions.push_back(session);
  return true;
}

// Leases that `tendril run` took: one session each. Otherwise fill the servers in order until
// enough slices are held.
bool attach_all(Process* p, const Configuration& configuration, base::Status* why) {
  if (configuration.leased()) {
    for (const Server& server : configuration.servers) {
      if (!attach_one(p, configuration, server, 0, false, why)) return false;
    }
    return true;
  }
  uint32_t wanted = configuration.slice_count;
  for (const Server& server : configuration.servers) {
    for (uint32_t count = wanted; count != 0 && wanted != 0; --count) {
      if (attach_one(p, configuration, server, count, true, why)) {
        wanted -= count;
        break;
      }
      if (why->code() != base::Code::kRefused && why->code() != base::Code::kUnavailable) break;
    }
  }
  return wanted == 0;
}

void number_devices(Process* p) {
  std::vector<Device*> all;
  std::vector<std::string> uuids;
  for (Session* session : p->sessions) {
    for (Device* device : session->devices) {
      all.push_back(device);
      uuids.emplace_back(reinterpret_cast<const char*>(device->uuid.bytes), 16);
    }
    if (p->driver_version == 0 || session->driver_version < p->driver_version)
      p->driver_version = session->driver_version;
  }
  // Programs must not see a newer driver than the ABI that this library implements.
  if (p->driver_version > CUDA_VERSION) p->driver_version = CUDA_VERSION;
  for (uint32_t ordinal : visible_devices(getenv("CUDA_VISIBLE_DEVICES"), uuids)) {
    all[ordinal]->ordinal = static_cast<CUdevice>(p->devices.size());
    p->devices.push_back(all[ordinal]);
  }
}

CUresult attach_process() {
  base::Result<Configuration> configuration = load_configuration();
  if (!configuration.ok()) {
    log_once(LogLevel::kError, "%s", configuration.status().message().c_str());
    return CUDA_ERROR_NO_DEVICE;
  }
  Process* p = new Process;
  p->pid = getpid();
  const char* blocking = getenv("CUDA_LAUNCH_BLOCKING");
  p->launch_blocking = blocking != nullptr && *blocking != 0 && strcmp(blocking, "0") != 0;
  g_process.store(p);  // look-ups during attach need it
  base::Status why;
  if (!attach_all(p, *configuration, &why)) {
    log_once(LogLevel::kError, "%s", why.message().c_str());
    g_process.store(nullptr);
    for (Session* session : p->sessions) session->lane->close(100);
    return why.code() == base::Code::kMismatch ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
                                               : CUDA_ERROR_NO_DEVICE;
  }
  number_devices(p);
  if (p->devices.empty()) return CUDA_ERROR_NO_DEVICE;
  stats_start();
  return CUDA_SUCCESS;
}

}  // namespace

Process* process() { return g_process.load(std::memory_order_acquire); }

CUresult initialize() {
  if (g_forked.load()) return CUDA_ERROR_NOT_INITIALIZED;
  const int before = g_result.load(std::memory_order_acquire);
  if (before == CUDA_SUCCESS) return CUDA_SUCCESS;
  pthread_mutex_lock(&g_mutex);
  if (g_result.load() != CUDA_SUCCESS) {
    static bool registered = false;
    if (!registered) registered = pthread_atfork(nullptr, nullptr, forget_after_fork) == 0;
    g_result.store(attach_process(), std::memory_order_release);
  }
  pthread_mutex_unlock(&g_mutex);
  return static_cast<CUresult>(g_result.load());
}

}  // namespace tendril::client::cuda
