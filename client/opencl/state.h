// SPDX-License-Identifier: Apache-2.0
// The library's state in one process: sessions, platforms and the records of all objects. The first
// call makes it, and it is never destroyed. Any thread.
#pragma once

#include <atomic>
#include <map>
#include <vector>

#include "api/opencl_messages.gen.h"
#include "client/core/part.h"
#include "client/core/session.h"
#include "client/opencl/object.h"

namespace tendril::client::opencl {

struct Results {
  using Result = cl_int;
  static constexpr Result kSuccess = CL_SUCCESS;
  static constexpr Result kLost = CL_DEVICE_NOT_AVAILABLE;
  static constexpr Result kGarbled = CL_OUT_OF_RESOURCES;
};

class Session final : public core::Calls<Results> {
 public:
  std::vector<Device*> devices;  // by slot
  // Content of contexts over several servers that has come here from others.
  std::atomic<uint64_t> pieces_moved{0}, bytes_moved{0};

  // A round trip whose `bytes` of `data` go along, inside of the request or beside the lane.
  template <typename Request, typename Answer>
  cl_int call_with(Request* request, wire::Bytes Request::*inside, const void* data, uint64_t bytes,
                   Answer* reply) {
    if (bytes <= wire::kInlineBytesMax) {
      request->*inside = {static_cast<const uint8_t*>(data), bytes};
      return call(0, *request, *reply);
    }
    request->transfer = lane->new_transfer_id();
    const uint32_t reply_id = lane->new_reply_id();
    if (!append(0, *request, reply_id) || !send_bulk(request->transfer, data, bytes))
      return Results::kLost;
    return answer(reply_id, *reply);
  }

  // The worker will write there until the data of the copy are complete.
  void expect_delivery(const void* address, uint64_t bytes);
  // A copy whose data come in a temporary place: `arrived(argument)` puts them where they belong.
  // It runs once, before any call learns that the copy is done.
  void expect_delivery(const void* address, uint64_t bytes, void (*arrived)(void*), void* argument);

  bool accepts_delivery(uint64_t address, uint64_t bytes) override;
  void delivered(uint64_t address, uint64_t bytes) override;
  void news(const uint8_t* body, size_t bytes) override;
  bool awaits_callbacks() override;
  void lost(const base::Status& why) override;

 private:
  struct Destination {
    uint64_t bytes, left;
    void (*arrived)(void*);
    void* argument;
  };
  base::Lock lock_;
  std::map<uint64_t, Destination> destinations_;  // guarded by lock_; by address
};

// The platforms of one name and version, one of each server.
struct Platform {
  Handle shown;
  Session* session = nullptr;  // of the first server, which answers what is asked
  uint32_t number = 0;         // there
  std::vector<std::pair<Session*, uint32_t>> servers;
  std::vector<Device*> devices;
};

struct Callbacks;
struct SharedMemories;
namespace spread {
struct Tables;
}

struct Process : Tables {
  std::vector<Session*> sessions;
  std::vector<Platform*> platforms;
  core::Table<Device> devices;
  core::Part<Callbacks> callbacks;
  core::Part<SharedMemories> shared;  // svm.h
  core::Part<spread::Tables> spread;  // spread/object.h
};
Process* process();  // null before the first attach, and in a forked child
// Attaches if that has not happened. False: there is no server; stderr has said why.
bool attached();

inline core::Table<Device>& table_of(Process& all, Device*) { return all.devices; }

// A new record with one reference, whose handle has these functions. It uses `context`. Null: there
// are too many.
template <typename Is>
typename Is::Type* create_in(core::Table<typename Is::Type>& table, const void* const* functions,
                             Session* session, Object* context) {
  return table.create(Is::kKind, session != nullptr ? session->index : 0, [&](auto* record) {
    record->shown = {functions, record};
    record->session = session;
    record->context = context;
    record->parent = nullptr;
    record->references.store(1, std::memory_order_relaxed);
    record->uses.store(0, std::memory_order_relaxed);
    use(context);
  });
}
// The same, in a context on one server; null for a context.
template <typename Pointer>
typename RecordOf<Pointer>::Type* create(Session* session, Object* context) {
  using Is = RecordOf<Pointer>;
  Process* all = process();
  if (all == nullptr) return nullptr;
  auto& table = table_of(*all, static_cast<typename Is::Type*>(nullptr));
  return create_in<Is>(table, kTable, session, context);
}
// The server made no such object after all: ends the record and says nothing to the server.
void discard(Object* object);

// Returns `object` and stores `error` where the program wants it.
template <typename Pointer>
Pointer give(cl_int error, cl_int* error_out, Object* object = nullptr) {
  if (error_out != nullptr) *error_out = error;
  return handle_of<Pointer>(error == CL_SUCCESS ? object : nullptr);
}

}  // namespace tendril::client::opencl
