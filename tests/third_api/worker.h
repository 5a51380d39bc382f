// SPDX-License-Identifier: Apache-2.0
// The worker's side of the third API: what the generated dispatcher needs (Executor, Scope), and
// the Api that a worker serves. Executor thread.
#pragma once

#include "api/abacus_kinds.gen.h"
#include "api/abacus_messages.gen.h"
#include "tests/third_api/driver.h"
#include "worker/core/api.h"
#include "worker/core/objects.h"
#include "worker/core/replies.h"

namespace tendril::worker::abacus {

using api::abacus::Kind;

class Executor {
 public:
  explicit Executor(session::Service* service) : service_(service), replies_(service) {}

  int run();

  const Driver& driver() const { return abacus::driver(); }
  session::Service& service() { return *service_; }
  ObjectTables<Kind>& objects() { return objects_; }

  // An error of a call without a reply is the answer to the next call with one.
  template <typename Answer>
  void answer(const session::Call& call, abacusResult result, const Answer& message) {
    if (result == ABACUS_SUCCESS) result = owed_;
    owed_ = ABACUS_SUCCESS;
    replies_.answer(call, result, message);
  }
  void finish(const session::Call&, abacusResult result) {
    if (owed_ == ABACUS_SUCCESS) owed_ = result;
  }

 private:
  session::Service* service_;
  Replies replies_;
  ObjectTables<Kind> objects_{api::abacus::kKinds};
  abacusResult owed_ = ABACUS_SUCCESS;
};

class Scope {
 public:
  explicit Scope(Executor& executor) : executor_(executor) {}
  bool ok() const { return error_ == ABACUS_SUCCESS; }
  abacusResult error() const { return error_; }

  template <typename T>
  T get(Kind kind, uint64_t id) {
    void* object = executor_.objects().find(kind, id);
    if (object == nullptr) error_ = ABACUS_INVALID;
    return static_cast<T>(object);
  }
  void reserve(Kind kind, uint64_t id) {
    if (!executor_.objects().may_bind(kind, id)) error_ = ABACUS_INVALID;
  }
  template <typename T>
  void bind(Kind kind, uint64_t id, T object) {
    executor_.objects().bind(kind, id, object);
  }
  void unbind(Kind kind, uint64_t id) { executor_.objects().unbind(kind, id); }
  template <typename T>
  T present(const T& image) {
    return image;
  }

 private:
  Executor& executor_;
  abacusResult error_ = ABACUS_SUCCESS;
};

// False: unknown opcode or malformed body; the session must end.
bool dispatch(Executor& executor, const session::Call& call);
const char* op_name(uint16_t opcode);

Api api();

}  // namespace tendril::worker::abacus
