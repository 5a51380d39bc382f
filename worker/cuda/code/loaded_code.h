// SPDX-License-Identifier: Apache-2.0
// What the worker remembers of loaded modules and libraries: the image that the driver may still
// read, and every id that becomes invalid with a module, a library or a context. Executor thread
// only.
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
  // A module of `context`, or (null) a library. `keeps` stays alive until it is removed.
  void add(uint64_t id, void* context, std::shared_ptr<const void> keeps,
           const CodeVariables& variables);
  // `member`, a function, kernel or module, goes when `id` goes, or when `context` does (null: a
  // kernel, which has none). `id` may be a member itself.
  void add_member(uint64_t id, uint64_t member, void* context);
  // Charges a slot for the variables of what `id`, a library, module or kernel, belongs to, once.
  // False: past the quota.
  bool pay(Charge& charge, uint64_t id, uint32_t slot);
  // The same for one variable of code that could not be read as a whole.
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
  std::unordered_map<uint64_t, uint64_t> owners_;  // of members
};

}  // namespace tendril::worker::cuda
