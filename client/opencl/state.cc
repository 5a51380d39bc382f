// SPDX-License-Identifier: Apache-2.0
// See state.h and object.h. Attaching: one session for each server, whose devices and platforms
// become this process'.
#include "client/opencl/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "client/common/log.h"
#include "client/core/attach.h"
#include "client/core/attachment.h"
#include "client/core/stats.h"
#include "client/opencl/callbacks.h"
#include "client/opencl/information.h"
#include "client/opencl/memory.h"
#include "client/opencl/spread/spread.h"
#include "config/configuration.h"

namespace tendril::client::opencl {
namespace {

constinit core::Attachment<Process> g_attachment;

void forget_after_fork() { g_attachment.forget_in_child(); }

// Platforms of two servers are one if their drivers are: then a context may have devices of both.
bool is_same(const Platform& one, Session* session, uint32_t number) {
  for (const cl_platform_info what :
       {CL_PLATFORM_NAME, CL_PLATFORM_VENDOR, CL_PLATFORM_VERSION, CL_PLATFORM_PROFILE}) {
    std::string first, second;
    const auto platform = wire::opencl::Subject::kPlatform;
    if (ask_server({one.session, platform, one.number}, what, &first) != CL_SUCCESS ||
        ask_server({session, platform, number}, what, &second) != CL_SUCCESS || first != second)
      return false;
  }
  return true;
}

Platform* platform_of(Process* process, Session* session, uint32_t number) {
  for (Platform* platform : process->platforms)
    for (const auto& [at, its_number] : platform->servers)
      if (at == session && its_number == number) return platform;
  Platform* found = nullptr;
  for (Platform* platform : process->platforms)
    if (found == nullptr && platform->servers.back().first != session &&
        is_same(*platform, session, number))
      found = platform;
  if (found == nullptr) {
    found = new Platform;
    found->shown = {kTable, nullptr};
    found->session = session;
    found->number = number;
    process->platforms.push_back(found);
  }
  found->servers.emplace_back(session, number);
  return found;
}

class Newcomers final : public core::Newcomers {
 public:
  explicit Newcomers(Process* process) : process_(process) {}
  core::Session* create() override { return new Session; }
  int greet(core::Session* session) override {
    auto* mine = static_cast<Session*>(session);
    wire::opencl::session_devices_request request;
    wire::opencl::session_devices_reply reply;
    if (mine->call(0, request, reply) != CL_SUCCESS) return -1;
    const uint64_t count = reply.device.count;
    if (reply.platform.count != count || reply.kind.count != count) return -1;
    // What is asked about platforms takes the answer's place.
    const std::vector<uint32_t> platforms(reply.platform.begin(), reply.platform.end());
    const std::vector<uint64_t> kinds(reply.kind.begin(), reply.kind.end());
    const std::vector<uint64_t> ids(reply.device.begin(), reply.device.end());
    for (uint64_t slot = 0; slot < count; ++slot) {
      Platform* platform = platform_of(process_, mine, platforms[slot]);
      Device* device = process_->devices.create(Kind::kDevice, mine->index, [&](Device* record) {
        record->shown = {kTable, record};
        record->session = mine;
        record->platform = platform;
        record->type = kinds[slot];
        record->references.store(1);
      });
      if (device == nullptr) return -1;
      device->wire_id = ids[slot];
      mine->devices.push_back(device);
      platform->devices.push_back(device);
    }
    return static_cast<int>(count);
  }
  void admit(core::Session* session) override {
    process_->sessions.push_back(static_cast<Session*>(session));
  }

 private:
  Process* const process_;
};

// Of what the program had sent at its exit. Sessions are never destroyed.
void print_statistics() {
  const Process* all = process();
  const char* where = getenv("TENDRIL_STATS");
  if (all == nullptr || where == nullptr) return;
  FILE* to = core::open_statistics(where);
  for (const Session* session : all->sessions) core::print_traffic(to, *session, 0);
  for (const Session* session : all->sessions)
    if (all->sessions.size() > 1)
      core::print_moved(to, *session, session->pieces_moved.load(), session->bytes_moved.load());
  core::close_statistics(to);
}

void statistics_begin() {
  const char* where = getenv("TENDRIL_STATS");
  if (where != nullptr && *where != 0 && strcmp(where, "0") != 0) atexit(&print_statistics);
}

int attach() {
  base::Result<config::Configuration> configuration = config::load_configuration();
  base::Status status = configuration.status();
  if (configuration.ok()) {
    auto* fresh = new Process;
    g_attachment.set(fresh);
    Newcomers newcomers(fresh);
    status = core::attach_servers({wire::opencl::kApiName, wire::opencl::kSchemaDigest},
                                  *configuration, &newcomers);
    if (!status.ok()) {
      g_attachment.set(nullptr);
      for (Session* session : fresh->sessions) session->lane->close(100);
    }
  }
  if (!status.ok()) log_once(LogLevel::kError, "%s", status.message().c_str());
  if (status.ok()) statistics_begin();
  return status.ok() ? CL_SUCCESS : CL_DEVICE_NOT_FOUND;
}

// Takes the record out of its table, after which it may be another object's.
void destroy(Object* object) {
  Process* all = process();
  if (all == nullptr) return;
  if (object->session == nullptr) return spread::destroy(object);
  if (api::id_kind<Kind>(object->handle.load(std::memory_order_acquire)) == Kind::kDevice)
    return all->devices.destroy(static_cast<Device*>(object));
  destroy_in(*all, object);
}

// What an object needs besides its context.
Object* other_need(Object* object) {
  switch (api::id_kind<Kind>(object->handle.load(std::memory_order_acquire))) {
    case Kind::kEvent:
      return static_cast<Event*>(object)->queue;
    case Kind::kKernel:
      return static_cast<Kernel*>(object)->program;
    case Kind::kDevice:
    case Kind::kMemory:
      return object->parent;
    default:
      return nullptr;
  }
}

void end_locally(Object* object) {
  const Kind kind = api::id_kind<Kind>(object->handle.load(std::memory_order_acquire));
  std::vector<std::pair<cl_context_destructor, void*>> destructors;
  const cl_context as_context = handle_of<cl_context>(object);
  std::vector<Device*> devices;
  if (kind == Kind::kContext) {
    destructors.swap(static_cast<Context*>(object)->destructors);
    devices.swap(static_cast<Context*>(object)->devices);
  }
  if (kind == Kind::kMemory) free_shadow(static_cast<Memory*>(object));
  if (kind == Kind::kKernel) static_cast<Kernel*>(object)->program->kernels.fetch_sub(1);
  Object* const context = object->context;
  Object* const other = other_need(object);
  for (auto it = destructors.rbegin(); it != destructors.rend(); ++it)
    it->first(as_context, it->second);
  destroy(object);
  if (other != nullptr) unuse(other);
  for (Device* device : devices) unuse(device);
  if (context != nullptr) unuse(context);
}

void end_if_unneeded(Object* object) {
  if (object->references.load(std::memory_order_acquire) != 0 ||
      object->uses.load(std::memory_order_acquire) != 0)
    return;
  // Of two threads that find it unneeded, one ends it.
  uint32_t none = 0;
  if (!object->uses.compare_exchange_strong(none, UINT32_MAX)) return;
  if (object->session != nullptr) {
    wire::opencl::release_request request;
    request.object = object->wire_id;
    (void)object->session->enqueue(0, request);  // a lost session has no objects
  } else {
    spread::end_members(object);
  }
  end_locally(object);
}

}  // namespace

Process* process() { return g_attachment.process(); }

bool attached() {
  if (process() != nullptr) return true;
  if (g_attachment.forked()) return false;
  return g_attachment.once(CL_SUCCESS, &forget_after_fork, &attach) == CL_SUCCESS;
}

void unuse(Object* object) {
  if (object->uses.fetch_sub(1, std::memory_order_acq_rel) == 1) end_if_unneeded(object);
}

void retain(Object* object) { object->references.fetch_add(1, std::memory_order_relaxed); }

bool release(Object* object) {
  uint32_t count = object->references.load(std::memory_order_relaxed);
  do {
    if (count == 0) return false;
  } while (!object->references.compare_exchange_weak(count, count - 1, std::memory_order_acq_rel));
  if (count == 1) end_if_unneeded(object);
  return true;
}

void discard(Object* object) {
  object->references.store(0, std::memory_order_relaxed);
  end_locally(object);
}

void Session::expect_delivery(const void* address, uint64_t bytes) {
  expect_delivery(address, bytes, nullptr, nullptr);
}

void Session::expect_delivery(const void* address, uint64_t bytes, void (*arrived)(void*),
                              void* argument) {
  const base::Locked held(lock_);
  Destination& destination = destinations_[reinterpret_cast<uint64_t>(address)];
  destination.bytes = std::max(destination.bytes, bytes);
  destination.left += bytes;
  destination.arrived = arrived;
  destination.argument = argument;
}

bool Session::accepts_delivery(uint64_t address, uint64_t bytes) {
  const base::Locked held(lock_);
  auto after = destinations_.upper_bound(address);
  while (after != destinations_.begin()) {
    --after;
    const uint64_t offset = address - after->first;
    if (offset < after->second.bytes) return bytes <= after->second.bytes - offset;
  }
  return false;
}

void Session::delivered(uint64_t address, uint64_t bytes) {
  Destination done = {};
  {
    const base::Locked held(lock_);
    auto after = destinations_.upper_bound(address);
    while (after != destinations_.begin()) {
      --after;
      if (address - after->first >= after->second.bytes) continue;
      after->second.left -= std::min(after->second.left, bytes);
      if (after->second.left != 0) return;
      done = after->second;
      destinations_.erase(after);
      break;
    }
  }
  if (done.arrived != nullptr) done.arrived(done.argument);
}

void Session::news(const uint8_t* body, size_t bytes) {
  wire::opencl::News told;
  if (bytes != sizeof told) return;
  __builtin_memcpy(&told, body, sizeof told);
  callback_due(told.token, told.status);
}

bool Session::awaits_callbacks() { return callbacks_awaited(); }

void Session::lost(const base::Status& why) {
  tell_lost(why, "CL_DEVICE_NOT_AVAILABLE");
  callbacks_lost(this, CL_DEVICE_NOT_AVAILABLE);
}

}  // namespace tendril::client::opencl
