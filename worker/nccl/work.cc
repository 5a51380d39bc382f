// SPDX-License-Identifier: Apache-2.0
// See work.h.
#include "worker/nccl/work.h"

#include <algorithm>
#include <cstring>

namespace tendril::worker::nccl {
namespace {

using api::nccl::Element;
using api::nccl::What;

constexpr uint64_t kRanksMax = 1 << 20;
constexpr uint32_t kTypesEnd = 64;  // more than any NCCL knows; it checks for itself

bool lies_in(uint32_t at, uint64_t bytes, uint64_t all) { return at <= all && bytes <= all - at; }

// How long each thing is that `ids` counts.
uint64_t listed_bytes(const Element& element) {
  return element.what == What::kShrink ? sizeof(int) : uint64_t{api::nccl::kUniqueIdBytes};
}

bool is_sound_configuration(const Element& element) {
  if (element.config_bytes == 0) return true;
  const bool collective = is_collective(element.what);
  const size_t least = collective ? sizeof(ncclCollConfig_t) : sizeof(ncclConfig_t);
  const size_t most = collective ? api::nccl::kCollConfigBytesMax : api::nccl::kConfigBytesMax;
  return element.config_bytes >= least && element.config_bytes <= most;
}

bool is_sound(const Element& element, uint64_t extra_bytes) {
  if (element.what >= What::kCount) return false;
  if (!lies_in(element.ids_at, element.ids * listed_bytes(element), extra_bytes) ||
      !lies_in(element.config_at, element.config_bytes, extra_bytes) ||
      !is_sound_configuration(element))
    return false;
  if (element.what == What::kInit)
    return element.ids != 0 && element.count != 0 && element.count <= kRanksMax;
  if (element.what == What::kShrink) return element.ids != 0 && element.made != 0;
  if (!is_collective(element.what)) return true;
  const bool known_operation = (element.operation >= ncclSum && element.operation < ncclNumOps) ||
                               element.operation == api::nccl::kPreMulSum;
  return element.type < kTypesEnd && (!reduces(element.what) || known_operation);
}

// The text that begins so far behind the configuration. False: it is none.
bool read_text(const std::string& extra, uint64_t begin, char* out) {
  if (begin >= extra.size()) return false;
  const size_t most = std::min<size_t>(extra.size() - begin, api::nccl::kConfigTextBytesMax);
  const size_t length = strnlen(extra.data() + begin, most);
  if (length == most) return false;
  std::memcpy(out, extra.data() + begin, length + 1);
  return true;
}

template <size_t kPointers>
void settle_pointers(const api::nccl::ConfigPointer (&pointers)[kPointers], const Element& element,
                     const std::string& extra, Configuration* out) {
  uint32_t texts = 0;
  for (const api::nccl::ConfigPointer& pointer : pointers) {
    if (pointer.at + sizeof(uint64_t) > element.config_bytes) continue;
    uint64_t place = 0;
    std::memcpy(&place, out->bytes + pointer.at, sizeof place);
    const char* text = nullptr;
    if (pointer.is_text && place != 0 && place <= api::nccl::kExtraBytesMax &&
        read_text(extra, element.config_at + place, out->texts[texts]))
      text = out->texts[texts++];
    std::memcpy(out->bytes + pointer.at, &text, sizeof text);
  }
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

std::vector<int> ranks_of(const Element& element, const std::string& extra) {
  std::vector<int> ranks(element.ids);
  if (!ranks.empty())
    std::memcpy(ranks.data(), extra.data() + element.ids_at, ranks.size() * sizeof ranks[0]);
  return ranks;
}

void read_configuration(const Element& element, const std::string& extra, Configuration* out) {
  if (element.config_bytes == 0) return;
  std::memcpy(out->bytes, extra.data() + element.config_at, element.config_bytes);
  const size_t size = element.config_bytes;
  std::memcpy(out->bytes, &size, sizeof size);
  if (is_collective(element.what))
    settle_pointers(api::nccl::kCollConfigPointers, element, extra, out);
  else
    settle_pointers(api::nccl::kConfigPointers, element, extra, out);
  out->is_given = true;
}

}  // namespace tendril::worker::nccl
