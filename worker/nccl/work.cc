// SPDX-License-Identifier: Apache-2.0
// See work.h.
#include "worker/nccl/work.h"

#include <cstring>

namespace tendril::worker::nccl {
namespace {

using api::nccl::Element;
using api::nccl::What;

constexpr uint64_t kRanksMax = 1 << 20;
constexpr uint32_t kTypesEnd = 64;  // more than any NCCL knows; it checks for itself

bool lies_in(uint32_t at, uint64_t bytes, uint64_t all) { return at <= all && bytes <= all - at; }

bool is_sound(const Element& element, uint64_t extra_bytes) {
  if (element.what >= What::kCount) return false;
  if (!lies_in(element.ids_at, uint64_t{element.ids} * api::nccl::kUniqueIdBytes, extra_bytes) ||
      !lies_in(element.config_at, element.config_bytes, extra_bytes))
    return false;
  if (element.config_bytes != 0 && (element.config_bytes < sizeof(ncclConfig_t) ||
                                    element.config_bytes > api::nccl::kConfigBytesMax))
    return false;
  if (element.what == What::kInit)
    return element.ids != 0 && element.count != 0 && element.count <= kRanksMax;
  if (!is_collective(element.what)) return true;
  const bool known_operation = (element.operation >= ncclSum && element.operation < ncclNumOps) ||
                               element.operation == api::nccl::kPreMulSum;
  return element.type < kTypesEnd && (!reduces(element.what) || known_operation);
}

}  // namespace

bool is_collective(What what) { return what >= What::kAllReduce && what < What::kCount; }

bool reduces(What what) {
  return what == What::kAllReduce || what == What::kReduce || what == What::kReduceScatter;
}

bool read_work(const uint8_t* bytes, uint64_t count, uint64_t extra_bytes,
               std::vector<Element>* work) {
  const uint64_t elements = count / sizeof(Element);
  if (count % sizeof(Element) != 0 || elements == 0 || elements > api::nccl::kElementsMax ||
      extra_bytes > api::nccl::kExtraBytesMax)
    return false;
  work->resize(elements);
  std::memcpy(work->data(), bytes, count);
  for (const Element& element : *work) {
    if (!is_sound(element, extra_bytes)) return false;
  }
  return true;
}

std::vector<ncclUniqueId> ids_of(const Element& element, const std::string& extra) {
  std::vector<ncclUniqueId> ids(element.ids);
  if (!ids.empty())
    std::memcpy(ids.data(), extra.data() + element.ids_at, ids.size() * sizeof ids[0]);
  return ids;
}

void read_configuration(const Element& element, const std::string& extra, Configuration* out) {
  if (element.config_bytes == 0) return;
  std::memcpy(out->bytes, extra.data() + element.config_at, element.config_bytes);
  const size_t size = element.config_bytes;
  std::memcpy(out->bytes, &size, sizeof size);
  for (const uint32_t at : api::nccl::kConfigPointers) {
    if (at + sizeof(void*) <= size) std::memset(out->bytes + at, 0, sizeof(void*));
  }
  out->given = reinterpret_cast<ncclConfig_t*>(out->bytes);
}

}  // namespace tendril::worker::nccl
