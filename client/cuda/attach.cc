// SPDX-License-Identifier: Apache-2.0
// cuInit. It reads the environment, attaches to its server, takes the snapshot that answers most
// later calls, and numbers the devices. With several servers it only asks each what its devices
// are, and attaches when the program first uses one (client/core/attach.h). A forked child drops
// all of it. Slow path; one thread at a time.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "client/common/log.h"
#include "client/common/pci_places.h"
#include "client/common/visible_devices.h"
#include "client/core/attach.h"
#include "client/core/attachment.h"
#include "client/cuda/bodies.h"
#include "client/cuda/nccl/door.h"
#include "client/cuda/observe/stats.h"
#include "config/configuration.h"
#include "wire/assignment.h"

namespace tendril::client::cuda {

constinit core::Attachment<Process> g_attachment;

namespace {

void forget_after_fork() {
  thread_state().depth = 0;
  g_attachment.forget_in_child();
}

std::string text_item(const wire::Bytes& all, size_t* at) {  // NUL-separated texts
  std::string out;
  while (*at < all.count && all.data[*at] != 0) out.push_back(static_cast<char>(all.data[(*at)++]));
  ++*at;
  return out;
}

void take_device(Device* device, uint32_t slot, const wire::cuda::snapshot_reply& reply,
                 size_t* name_at, size_t* pci_at) {
  device->slot = slot;
  device->name = text_item(reply.names, name_at);
  device->pci_bus_id = text_item(reply.pci, pci_at);
  if (reply.uuids.count >= (slot + 1) * 16u)
    memcpy(&device->uuid, reply.uuids.data + slot * 16, 16);
  if (slot < reply.total_memory.count) device->memory_bytes = reply.total_memory[slot];
  const uint64_t n = reply.attribute_count;
  for (uint64_t i = 0; i < n && i < kAttributesMax; ++i) {
    const uint64_t at = (slot * n + i) * 2;
    if (at + 1 >= reply.attributes.count) break;
    device->attribute_valid[i] = reply.attributes[at] == 0;
    device->attributes[i] = reply.attributes[at + 1];
  }
  for (uint64_t i = 0; i < CU_LIMIT_MAX; ++i) {
    const uint64_t at = slot * CU_LIMIT_MAX + i;
    if (at < reply.limits.count) device->limits[i] = reply.limits[at];
  }
  if (slot * 2 + 1 < reply.priorities.count) {
    device->least_priority = reply.priorities[slot * 2];
    device->greatest_priority = reply.priorities[slot * 2 + 1];
  }
}

void add_device(Process* process, Session* session, uint32_t slot,
                const wire::cuda::snapshot_reply& reply, uint32_t reply_slot, size_t* name_at,
                size_t* pci_at) {
  Device* device = new Device;
  device->session = session;
  take_device(device, reply_slot, reply, name_at, pci_at);
  device->slot = slot;
  Context* context = process->contexts.create(Kind::kContext, session, nullptr, session->index);
  context->device = device;
  context->primary = true;
  context->context = context;
  context->id = process->next_context_id.fetch_add(1);
  device->primary = context;
  session->devices.push_back(device);
}

// What only a session knows of devices that were listed before it began. What programs may have
// asked already stays as it was.
void complete_device(Device* device, uint32_t slot, const wire::cuda::snapshot_reply& reply) {
  Device now;
  size_t name_at = reply.names.count, pci_at = reply.pci.count;
  take_device(&now, slot, reply, &name_at, &pci_at);
  memcpy(device->limits, now.limits, sizeof device->limits);
  device->least_priority = now.least_priority;
  device->greatest_priority = now.greatest_priority;
}

// Asks the worker for everything about its devices. False: the session is unusable.
bool take_snapshot(Process* process, Session* session) {
  wire::cuda::snapshot_request request;
  wire::cuda::snapshot_reply reply;
  if (session->call(static_cast<const Context*>(nullptr), request, reply) != CUDA_SUCCESS)
    return false;
  session->driver_version = reply.driver_version;
  session->keep_ptx = reply.keep_ptx != 0;
  const bool listed = !session->devices.empty();
  if (listed && session->devices.size() != reply.slots) return false;
  size_t name_at = 0, pci_at = 0;
  for (uint32_t slot = 0; slot < reply.slots && slot < wire::kSlicesMax; ++slot) {
    if (listed)
      complete_device(session->devices[slot], slot, reply);
    else
      add_device(process, session, slot, reply, slot, &name_at, &pci_at);
    Device* device = session->devices[slot];
    memcpy(device->primary->limits, device->limits, sizeof device->limits);
  }
  return true;
}

// Reads what a server says of one device. The bytes may lie anywhere; a reply's must be aligned.
bool read_facts(const std::string& facts, std::vector<uint64_t>* room,
                wire::cuda::snapshot_reply* reply) {
  room->assign(facts.size() / 8 + 1, 0);
  memcpy(room->data(), facts.data(), facts.size());
  return wire::read_message(*reply, reinterpret_cast<const uint8_t*>(room->data()), facts.size()) &&
         reply->slots == 1;
}

class CudaNewcomers final : public core::Newcomers {
 public:
  explicit CudaNewcomers(Process* process) : process_(process) {}
  core::Session* create() override { return new Session; }
  int greet(core::Session* session) override {
    auto* mine = static_cast<Session*>(session);
    if (process_->sessions.size() == SessionList::kMost) return -1;
    return take_snapshot(process_, mine) ? static_cast<int>(mine->devices.size()) : -1;
  }
  void admit(core::Session* session) override {
    auto* mine = static_cast<Session*>(session);
    if (mine->index == process_->servers.size()) process_->servers.push_back(mine);
    process_->sessions.push_back(mine);
    mine->begun.store(true, std::memory_order_release);
  }
  int expect(core::Session* session, const wire::AttachReply& seen) override {
    auto* mine = static_cast<Session*>(session);
    std::vector<std::vector<uint64_t>> rooms(seen.facts.size());
    std::vector<wire::cuda::snapshot_reply> replies(seen.facts.size());
    for (size_t i = 0; i < seen.facts.size(); ++i) {
      if (!read_facts(seen.facts[i], &rooms[i], &replies[i])) return -1;
    }
    for (uint32_t slot = 0; slot < replies.size(); ++slot) {
      size_t name_at = 0, pci_at = 0;
      add_device(process_, mine, slot, replies[slot], 0, &name_at, &pci_at);
      mine->devices[slot]->memory_bytes = seen.lease.slices[slot].memory_bytes;
      mine->driver_version = replies[slot].driver_version;
      mine->keep_ptx = replies[slot].keep_ptx != 0;
    }
    process_->servers.push_back(mine);
    return static_cast<int>(mine->devices.size());
  }

 private:
  Process* const process_;
};

// Their ids on the PCI bus become different ones, whatever their machines say.
void make_places_distinct(const std::vector<Device*>& devices) {
  std::vector<PciPlace> places;
  for (const Device* device : devices) {
    const int32_t* const values = device->attributes;
    places.push_back({static_cast<uint32_t>(values[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID]),
                      static_cast<uint32_t>(values[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID]),
                      static_cast<uint32_t>(values[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID])});
  }
  make_distinct(&places);
  for (size_t i = 0; i < devices.size(); ++i) {
    int32_t* const domain = &devices[i]->attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID];
    if (places[i].domain == static_cast<uint32_t>(*domain)) continue;
    *domain = static_cast<int32_t>(places[i].domain);
    std::string* const text = &devices[i]->pci_bus_id;
    text->replace(0, std::min(text->find(':'), text->size()),
                  base::format("%04x", places[i].domain));
  }
}

void number_devices(Process* process) {
  std::vector<Device*> all;
  std::vector<std::string> uuids;
  for (Session* session : process->servers) {
    for (Device* device : session->devices) {
      all.push_back(device);
      uuids.emplace_back(reinterpret_cast<const char*>(device->uuid.bytes), 16);
    }
    if (process->driver_version == 0 || session->driver_version < process->driver_version)
      process->driver_version = session->driver_version;
  }
  make_places_distinct(all);
  // Programs must not see a newer driver than the ABI that this library implements.
  if (process->driver_version > CUDA_VERSION) process->driver_version = CUDA_VERSION;
  for (uint32_t ordinal : visible_devices(getenv("CUDA_VISIBLE_DEVICES"), uuids)) {
    all[ordinal]->ordinal = static_cast<CUdevice>(process->devices.size());
    process->devices.push_back(all[ordinal]);
  }
}

CUresult result_of(const base::Status& failure) {
  return failure.code() == base::Code::kMismatch ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
                                                 : CUDA_ERROR_NO_DEVICE;
}

CUresult attach_process() {
  base::Result<config::Configuration> configuration = config::load_configuration();
  if (!configuration.ok()) {
    log_once(LogLevel::kError, "%s", configuration.status().message().c_str());
    return CUDA_ERROR_NO_DEVICE;
  }
  Process* process = new Process;
  process->pid = getpid();
  const char* blocking = getenv("CUDA_LAUNCH_BLOCKING");
  process->launch_blocking = blocking != nullptr && *blocking != 0 && strcmp(blocking, "0") != 0;
  process->uses_passages = configuration->uses_passages;
  g_attachment.set(process);  // look-ups during attach need it
  process->attaching =
      new core::Attaching({wire::cuda::kApiName, wire::cuda::kSchemaDigest, nccl_is_ours()},
                          *configuration, new CudaNewcomers(process), true);
  const base::Status attached = process->attaching->begin();
  if (!attached.ok()) {
    log_once(LogLevel::kError, "%s", attached.message().c_str());
    g_attachment.set(nullptr);
    for (Session* session : process->sessions) session->lane->close(100);
    return result_of(attached);
  }
  number_devices(process);
  if (process->devices.empty()) return CUDA_ERROR_NO_DEVICE;
  stats_start();
  return CUDA_SUCCESS;
}

}  // namespace

// A failure may be tried again, as a driver's that has no memory for a context.
CUresult Session::begin_slowly() {
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const base::Locked held(program->attaching_lock);
  if (begun.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  const base::Status attached = program->attaching->attach(this);
  if (attached.ok()) return CUDA_SUCCESS;
  log_once(LogLevel::kError, "%s", attached.message().c_str());
  return attached.code() == base::Code::kMismatch ? result_of(attached) : lost_result();
}

Session* any_session() {
  Process* program = process();
  if (const Context* context = current_context())
    if (context->session->begin() == CUDA_SUCCESS) return context->session;
  if (!program->sessions.empty()) return program->sessions.front();
  for (Device* device : program->devices)
    if (device->session->begin() == CUDA_SUCCESS) return device->session;
  return nullptr;
}

CUresult initialize() {
  if (g_attachment.forked()) return CUDA_ERROR_NOT_INITIALIZED;
  return static_cast<CUresult>(
      g_attachment.once(CUDA_SUCCESS, forget_after_fork, [] { return int{attach_process()}; }));
}

}  // namespace tendril::client::cuda
