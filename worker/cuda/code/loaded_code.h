// SPDX-License-Identifier: Apache-2.0
// What the worker remembers of loaded modules and libraries: the image, because the driver may
// still read it; and every id that becomes invalid with a module, a library or a context. Executor
// thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "worker/core/charge.h"
#include "worker/cuda/code/code_variables.h"
#include "worker/cuda/executor/objects.h"

namespace tendril::worker::cuda {

class LoadedCode {
 public:
  // Adds a module of `context`. Null context: a library. `keeps` lives until `id` is removed.
  void add(uint64_t id, void* context, std::shared_ptr<const void> keeps,
           const CodeVariables& variables);
  // `member` is a function, kernel or module. It is removed with `id` or with `context`. A kernel
  // has no context (null). `id` may be a member itself, and what comes from a module is in the
  // module's context, whichever is the call's.
  void add_member(uint64_t id, uint64_t member, void* context);
  // `id` is a library, module or kernel. Charges a slot once for the variables of the code that it
  // belongs to. False: over the quota.
  bool pay(Charge& charge, uint64_t id, uint32_t slot);
  // The same for one variable, if the code could not be read as a whole.
  bool pay_variable(Charge& charge, uint64_t id, uint32_t slot, uint64_t address, uint64_t bytes);
  // Unbinds the id and its members, and gives back what was paid.
  void remove(Objects& objects, Charge& charge, uint64_t id);
  void remove_context(Objects& objects, Charge& charge, void* context);

 private:
  struct Member {
    uint64_t id;
    void* context;
  };
  struct Loaded {
    void* context = nullptr;
    std::shared_ptr<const void> keeps;
    std::vector<Member> members;
    CodeVariables variables;
    std::map<uint32_t, uint64_t> paid;            // by slot: the key in the charge
    std::map<uint64_t, uint64_t> paid_variables;  // by address
  };
  Loaded* loaded(uint64_t id);
  void drop(Objects& objects, uint64_t id);

  std::unordered_map<uint64_t, Loaded> loaded_;
  struct Owner {
    uint64_t id;    // of a library or a module
    void* context;  // of the member; null: of none
  };
  std::unordered_map<uint64_t, Owner> owners_;  // of members
};

}  // namespace tendril::worker::cuda
