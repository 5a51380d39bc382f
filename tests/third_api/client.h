// SPDX-License-Identifier: Apache-2.0
// The client's side of the third API: its session and process, and what generated bodies need
// (Forward). One thread.
#pragma once

#include <vector>

#include "api/abacus_abi.gen.h"
#include "api/abacus_bodies.gen.h"
#include "api/abacus_entries.gen.h"
#include "api/abacus_kinds.gen.h"
#include "api/abacus_messages.gen.h"
#include "client/core/record.h"
#include "client/core/session.h"

#define TENDRIL_ABACUS __attribute__((visibility("default")))

namespace tendril::client::abacus {

using api::abacus::Kind;

struct Results {
  using Result = abacusResult;
  static constexpr Result kSuccess = ABACUS_SUCCESS;
  static constexpr Result kLost = ABACUS_LOST;
  static constexpr Result kGarbled = ABACUS_LOST;
};

class Session final : public core::Calls<Results> {
 public:
  bool accepts_delivery(uint64_t, uint64_t) override { return false; }
  void delivered(uint64_t, uint64_t) override {}
  void callback(const uint8_t*, size_t) override {}
  bool awaits_callbacks() override { return false; }
  void sticky_error(int32_t, const char*, size_t) override {}
  void memory_written() override {}
  void lost(const base::Status& why) override { tell_lost(why, "ABACUS_LOST"); }
};

struct Process {
  std::vector<Session*> sessions;
  core::Table<core::Record> columns;
};
Process* process();  // null before abacusInit

abacusResult refused(const char* name, const char* reason);

class Forward {
 public:
  explicit Forward(bool) {
    if (process() == nullptr) fail(ABACUS_NOT_INITIALIZED);
  }
  bool ok() const { return error_ == ABACUS_SUCCESS; }
  abacusResult error() const { return error_; }

  template <typename T>
  bool pointer(T* pointer) {
    if (pointer == nullptr) fail(ABACUS_INVALID);
    return pointer != nullptr;
  }
  uint64_t handle(Kind kind, abacusColumn column) {
    const core::Record* record = find(kind, column);
    if (record == nullptr) fail(ABACUS_INVALID);
    return record != nullptr ? record->wire_id : 0;
  }
  uint64_t mint(Kind kind) {
    if (!ok()) return 0;
    minted_ = process()->columns.create(kind, 0, [](core::Record*) {});
    if (minted_ == nullptr) fail(ABACUS_NO_MEMORY);
    return minted_ != nullptr ? minted_->wire_id : 0;
  }
  template <typename T>
  T adopt(Kind, uint64_t id) {
    minted_ = nullptr;
    return reinterpret_cast<T>(id);
  }
  void drop(Kind kind, abacusColumn column) {
    if (core::Record* record = find(kind, column)) process()->columns.destroy(record);
  }
  template <typename T>
  T globalize(const T& image) {
    return image;
  }

  template <typename Request, typename Answer>
  abacusResult call(const Request& request, Answer& answer) {
    const abacusResult result = session().call(0, request, answer);
    if (result != ABACUS_SUCCESS && minted_ != nullptr) process()->columns.destroy(minted_);
    return result;
  }
  template <typename Request>
  abacusResult enqueue(const Request& request) {
    return session().enqueue(0, request);
  }
  static Session& session() { return *process()->sessions.front(); }

 private:
  core::Record* find(Kind kind, abacusColumn column) const {
    if (!ok()) return nullptr;
    return process()->columns.find(kind, reinterpret_cast<uint64_t>(column));
  }
  void fail(abacusResult error) {
    if (ok()) error_ = error;
  }
  abacusResult error_ = ABACUS_SUCCESS;
  core::Record* minted_ = nullptr;
};

}  // namespace tendril::client::abacus
