// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as a client's work for NCCL, and as its variables. What is accepted is read as
// `communicators.cc` does.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "worker/nccl/variables.h"
#include "worker/nccl/work.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace tendril;  // NOLINT: a fuzz target is one function
  if (bytes == 0) return 0;
  const size_t split = (bytes - 1) * data[0] / 255;
  const uint8_t* from = data + 1;
  const std::string extra(reinterpret_cast<const char*>(from + split), bytes - 1 - split);
  worker::nccl::allowed_variables(from, split);
  std::vector<api::nccl::Element> work;
  if (!worker::nccl::read_work(from, split, extra.size(), &work)) return 0;
  for (const api::nccl::Element& element : work) {
    worker::nccl::Configuration configuration;
    worker::nccl::read_configuration(element, extra, &configuration);
    if (element.what == api::nccl::What::kShrink) {
      if (worker::nccl::ranks_of(element, extra).size() != element.ids) abort();
    } else if (worker::nccl::ids_of(element, extra).size() != element.ids) {
      abort();
    }
  }
  return 0;
}
