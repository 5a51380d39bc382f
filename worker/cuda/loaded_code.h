// SPDX-License-Identifier: Apache-2.0
// What the worker remembers of loaded modules and libraries: the image that the driver may still
// read, and every id that becomes invalid with a module, a library or a context. Executor thread
// only.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "worker/cuda/objects.h"

namespace tendril::worker::cuda {

class LoadedCode {
 public:
  // A module of `context`, or (null) a library. `keeps` stays alive until it is removed.
  void add(uint64_t id, void* context, std::shared_ptr<const void> keeps);
  // `member`, a function, kernel or module, goes when `id` goes, or when `context` does (null: a
  // kernel, which has none). `id` may be a member itself.
  void add_member(uint64_t id, uint64_t member, void* context);
  // Unbinds the id and its members.
  void remove(Objects& objects, uint64_t id);
  void remove_context(Objects& objects, void* context);

 private:
  struct Member {
    uint64_t id;
    void* context;
  };
  struct Loaded {
    void* context = nullptr;
    std::shared_ptr<const void> keeps;
    std::vector<Member> members;
  };
  void drop(Objects& objects, uint64_t id);

  std::unordered_map<uint64_t, Loaded> loaded_;
  std::unordered_map<uint64_t, uint64_t> owners_;  // of members
};

}  // namespace tendril::worker::cuda
