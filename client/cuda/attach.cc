// SPDX-License-Identifier: Apache-2.0
// cuInit. It reads the environment, attaches to each server, takes the snapshot that answers most
// later calls, and numbers the devices. A forked child drops all of it. Slow path; one thread at a
// time.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/common/log.h"
#include "client/common/visible_devices.h"
#include "client/core/attach.h"
#include "client/core/attachment.h"
#include "client/cuda/bodies.h"
#include "client/cuda/observe/stats.h"
#include "config/configuration.h"
#include "wire/assignment.h"

namespace tendril::client::cuda {

constinit core::Attachment<Process> g_attachment;

namespace {

void forget_after_fork() {
  Process* parents = g_attachment.dropped_in_child();
  thread_state().depth = 0;
  if (parents == nullptr) return;
  for (Session* session : parents->sessions) session->lane->abandon_after_fork();
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
  for (uint32_t slot = 0; slot < r.slots && slot < wire::kSlicesMax; ++slot) {
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

class CudaNewcomers final : public core::Newcomers {
 public:
  explicit CudaNewcomers(Process* process) : process_(process) {}
  core::Session* create() override { return new Session; }
  int greet(core::Session* session) override {
    auto* mine = static_cast<Session*>(session);
    return take_snapshot(process_, mine) ? static_cast<int>(mine->devices.size()) : -1;
  }
  void admit(core::Session* session) override {
    process_->sessions.push_back(static_cast<Session*>(session));
  }

 private:
  Process* const process_;
};

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
  base::Result<config::Configuration> configuration = config::load_configuration();
  if (!configuration.ok()) {
    log_once(LogLevel::kError, "%s", configuration.status().message().c_str());
    return CUDA_ERROR_NO_DEVICE;
  }
  Process* p = new Process;
  p->pid = getpid();
  const char* blocking = getenv("CUDA_LAUNCH_BLOCKING");
  p->launch_blocking = blocking != nullptr && *blocking != 0 && strcmp(blocking, "0") != 0;
  g_attachment.set(p);  // look-ups during attach need it
  CudaNewcomers newcomers(p);
  const base::Status attached = core::attach_servers(
      {wire::cuda::kApiName, wire::cuda::kSchemaDigest}, *configuration, &newcomers);
  if (!attached.ok()) {
    log_once(LogLevel::kError, "%s", attached.message().c_str());
    g_attachment.set(nullptr);
    for (Session* session : p->sessions) session->lane->close(100);
    return attached.code() == base::Code::kMismatch ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
                                                    : CUDA_ERROR_NO_DEVICE;
  }
  number_devices(p);
  if (p->devices.empty()) return CUDA_ERROR_NO_DEVICE;
  stats_start();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult initialize() {
  if (g_attachment.forked()) return CUDA_ERROR_NOT_INITIALIZED;
  return static_cast<CUresult>(
      g_attachment.once(CUDA_SUCCESS, forget_after_fork, [] { return int{attach_process()}; }));
}

}  // namespace tendril::client::cuda
