// SPDX-License-Identifier: Apache-2.0
// The client's records of CUDA's objects, and the tables that turn a handle back into its record.
// How tables and handles work is in client/core/record.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api/cuda/code_image.h"
#include "api/cuda_abi.gen.h"
#include "api/cuda_kinds.gen.h"
#include "base/lock.h"
#include "client/core/record.h"
#include "client/cuda/graph/exec_changes.h"
#include "client/cuda/stream/ahead.h"

namespace tendril::client::cuda {

using api::cuda::Kind;

class Session;
struct Context;
struct Capture;

struct Object : core::Record {
  Session* session = nullptr;
  Context* context = nullptr;  // null for libraries, kernels, graphs and others without one
};

// Remembers that a wait, or a copy that waits, found a stream idle. If the session has sent nothing
// since, the next wait is answered here. Only one wait is answered so, because a program that waits
// again and again must learn that a server is gone. The numbers are Session::calls.
class IdleSince {
 public:
  // After a wait. `before`: the number before its request was sent. If another thread made a call
  // in between, the GPU may have work.
  void note(uint64_t before, uint64_t now) {
    calls_.store(now == before + 1 ? now : 0, std::memory_order_release);
  }
  bool use(uint64_t now) {
    return calls_.compare_exchange_strong(now, 0, std::memory_order_acq_rel);
  }

 private:
  std::atomic<uint64_t> calls_{0};
};

struct Stream : Object {
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  // Session serial up to which its records are known to be complete.
  std::atomic<uint64_t> synchronised{0};
  IdleSince idle;
  Ahead ahead;
  std::atomic<Capture*> capture{nullptr};
};

struct Event : Object {
  unsigned flags = 0;
  static constexpr uint64_t kUntold = UINT64_MAX;
  // Session serial of the latest record. 0: never, or known to be complete; kUntold: only the
  // worker knows.
  std::atomic<uint64_t> recorded{0};
  // Wire id of its stream, if waits for the stream say that the record is complete; else 0.
  std::atomic<uint64_t> recorded_on{0};
  std::atomic<Stream*> stream{nullptr};  // where; null: legacy stream
  // Id of the capture in which it was last recorded. Stays after that has ended.
  std::atomic<uint64_t> capture{0};
  // Graphs or other processes record it: only the worker knows whether it is complete.
  std::atomic<bool> external{false};
  // Other processes wait for it: a record has happened when its call returns.
  std::atomic<bool> shared{false};
  // A look at the worker's state at some time, and what the program had been told by then
  // (Session::told_so_far).
  struct Look {
    std::atomic<uint64_t> at_ns{0}, told{0};
  };
  Look sent;  // when it was recorded last
  // A query that was sent, and is answered while the program goes on (event.cc).
  struct Question {
    base::Lock lock;        // for what follows
    uint32_t reply_id = 0;  // 0: none is under way
    uint64_t recorded = 0;  // what it was about
    Look asked;
  } question;

  // Resets the record to its state after creation.
  void reset(unsigned with_flags) {
    flags = with_flags;
    recorded.store(0);
    recorded_on.store(0);
    stream.store(nullptr);
    capture.store(0);
    external.store(false);
    shared.store(false);
    question.recorded = 0;
  }
};

// An instantiated graph.
struct Exec : Object {
  // It has allocation or free nodes. So a launch may be refused, and the program must learn that at
  // once.
  bool has_memory = false;
  ExecChanges changes;
};

struct Library;
struct Module;
struct Function;

// A variable of a module or a library that the program has asked for.
struct Symbol {
  uint64_t context = 0;  // handle of the context where it has this address
  std::string name;
  uint64_t address = 0, bytes = 0;
  bool managed = false;  // asked for as a managed variable
};

// The named things of a module or a library. Asking twice gives the same handle. Names that do not
// exist are remembered too.
struct Names {
  base::Lock lock;
  std::map<std::string, Function*> functions;
  std::vector<Symbol> symbols;
};

struct Module : Object {
  Library* library = nullptr;  // for the module inside a library
  Names names;
};

// It belongs to no context. A library is loaded into each server where one of its kernels is used.
// See library.cc.
struct Library : Object {
  // The program's memory, or `copy`. Empty: no other server can need it.
  api::CodeImage image;
  std::vector<uint8_t> copy;
  std::vector<uint32_t> options;  // JIT options that are plain words, for later servers
  std::vector<uint64_t> values;
  std::atomic<uint64_t> loaded{0};  // a bit for each session
  Names names;
  std::vector<Module*> modules;  // from cuLibraryGetModule, one for each context
};

struct Device;

// What the worker reported about a function on one device. It is fetched once, at first use there.
// Exception: if the program asked for attributes before it had a context, the layout is fetched
// later. It is a list, because kernels run on several devices. The newest comes first. Entries are
// reused, never freed, because a launch may race with an unload.
struct FunctionInfo {
  const FunctionInfo* next = nullptr;
  const Device* device = nullptr;
  bool laid_out = false;  // the offsets and sizes are known
  std::vector<uint32_t> offsets, sizes;
  uint32_t param_bytes = 0;
  mutable int32_t attributes[32] = {};  // changed by cuFuncSetAttribute
  uint32_t attribute_count = 0;
};

// The CUfunction of a kernel in one context. Nodes are reused, never freed, as records are.
struct ContextFunction {
  std::atomic<uint64_t> context{0};
  std::atomic<Function*> function{nullptr};
  std::atomic<ContextFunction*> next{nullptr};
};

// A CUfunction or a CUkernel: programs pass either to a launch.
struct Function : Object {
  Module* module = nullptr;    // of a function from cuModuleGetFunction
  Library* library = nullptr;  // of a kernel, and of its functions
  Function* kernel = nullptr;  // of a function from cuKernelGetFunction
  std::string name;
  std::atomic<uint64_t> loaded{0};   // a bit for each session that knows its wire id
  std::atomic<bool> missing{false};  // there is no such name
  std::atomic<ContextFunction*> in_context{nullptr};  // of a kernel
  std::atomic<const FunctionInfo*> info{nullptr};
};

template <typename T>
class Table : public core::Table<T> {
 public:
  // Makes a record with its own handle. Null: kIndexMax records are alive.
  T* create(Kind kind, Session* session, Context* context, uint32_t server) {
    return core::Table<T>::create(kind, server, [&](T* record) {
      record->session = session;
      record->context = context;
    });
  }
};

// Instantiated graphs. A graph that kernels may launch has the driver's own handle, because the
// program passes it to kernels, and they accept no other value. Such a handle is an address. So it
// cannot equal one of ours, which have the kind in the topmost byte.
class ExecTable : public Table<Exec> {
 public:
  Exec* find(Kind kind, uint64_t handle) const {
    if (api::cuda::id_kind(handle) == kind) return Table::find(kind, handle);
    if (renamed_count_.load(std::memory_order_acquire) == 0) return nullptr;
    const base::Locked held(lock_);
    const auto it = renamed_.find(handle);
    return it != renamed_.end() ? it->second : nullptr;
  }

  // From now on the program knows `record` by `handle`. False: `handle` is not a driver's handle,
  // or a graph of another server has the same one.
  bool rename(Exec* record, uint64_t handle) {
    if (handle == 0 || api::cuda::id_kind(handle) != Kind::kNone) return false;
    const base::Locked held(lock_);
    if (!renamed_.emplace(handle, record).second) return false;
    record->handle.store(handle, std::memory_order_release);
    renamed_count_.store(renamed_.size(), std::memory_order_release);
    return true;
  }

  void destroy(Exec* record) {
    if (record->handle.load(std::memory_order_relaxed) != record->wire_id) {
      const base::Locked held(lock_);
      renamed_.erase(record->handle.load(std::memory_order_relaxed));
      renamed_count_.store(renamed_.size(), std::memory_order_release);
    }
    Table::destroy(record);
  }

 private:
  mutable base::Lock lock_;
  std::map<uint64_t, Exec*> renamed_;
  std::atomic<size_t> renamed_count_{0};
};

}  // namespace tendril::client::cuda
