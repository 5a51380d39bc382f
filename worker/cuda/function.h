// SPDX-License-Identifier: Apache-2.0
// Parameter layouts by function id. With them a launch builds its pointer array without asking the
// driver.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

struct Layout {
  uint64_t id = 0;
  uint32_t slot = 0;
  std::vector<uint32_t> offsets, sizes;
  uint32_t bytes = 0;  // the end of the last parameter
};

class Layouts {
 public:
  // The layout of function or kernel `id` for the current device. Asks the driver the first time.
  // Null: see *error.
  const Layout* find(Executor& executor, uint64_t id, CUfunction function, bool kernel,
                     CUresult* error) {
    // Ids that the worker chose (kWorkerBit) share the table with the client's. The id inside an
    // entry tells them apart.
    const uint32_t index = api::id_index(id) & ~api::kWorkerBit;
    const std::vector<std::unique_ptr<Layout>>& table = tables_[kernel ? 1 : 0];
    const Layout* layout = index < table.size() ? table[index].get() : nullptr;
    if (layout != nullptr && layout->id == id && layout->slot == executor.slot()) return layout;
    return find_sparse(executor, id, function, kernel, error);
  }
  // The function or kernel is gone. Another may get its id.
  void forget(uint64_t id);

 private:
  // Indices that a client counts up are below this. Layouts of others are in a map.
  static constexpr uint32_t kDense = 1u << 16;
  const Layout* find_sparse(Executor& executor, uint64_t id, CUfunction function, bool kernel,
                            CUresult* error);
  const Layout* ask(Executor& executor, uint64_t id, CUfunction function, bool kernel,
                    CUresult* error);
  std::vector<std::unique_ptr<Layout>> tables_[2];                // functions, kernels; by index
  std::unordered_map<uint64_t, std::unique_ptr<Layout>> sparse_;  // by id
};

// The driver's function for the id of a function or kernel. *kernel says which.
CUfunction find_function(Executor& executor, uint64_t id, bool* kernel);

}  // namespace tendril::worker::cuda
