// SPDX-License-Identifier: Apache-2.0
// See configuration.h.
#include "client/nccl/configuration.h"

#include <stdio.h>
#include <string.h>

#include "client/nccl/communicator.h"

namespace tendril::client::nccl {
namespace {

using api::nccl::ConfigPointer;
using api::nccl::Element;

// What differs between the two kinds.
struct ConfigurationKind {
  const char* name;
  size_t bytes_min, bytes_max;
  const ConfigPointer* pointers;
  size_t pointer_count;
};
template <size_t kCount>
constexpr ConfigurationKind kind_of(const char* name, size_t bytes_min, size_t bytes_max,
                                    const ConfigPointer (&pointers)[kCount]) {
  return {name, bytes_min, bytes_max, pointers, kCount};
}

ncclResult_t refuse_configuration(const ConfigurationKind& kind, const char* why) {
  char text[256];
  snprintf(text, sizeof text, "%s %s", kind.name, why);
  remember(text);
  return ncclInvalidArgument;
}

ncclResult_t add(const void* given, size_t size, unsigned magic, const ConfigurationKind& kind,
                 Element* element, std::vector<uint8_t>* extra) {
  if (magic != NCCL_CONFIG_MAGIC) return refuse_configuration(kind, "was not initialised");
  if (size < kind.bytes_min) return refuse_configuration(kind, "says that it has too few bytes");
  const size_t bytes = size < kind.bytes_max ? size : kind.bytes_max;
  while (extra->size() % 8 != 0) extra->push_back(0);
  const size_t begin = extra->size();
  element->config_at = static_cast<uint32_t>(begin);
  element->config_bytes = static_cast<uint32_t>(bytes);
  const auto* at = static_cast<const uint8_t*>(given);
  extra->insert(extra->end(), at, at + bytes);
  for (size_t i = 0; i < kind.pointer_count; ++i) {
    const ConfigPointer& pointer = kind.pointers[i];
    if (pointer.at + sizeof(uint64_t) > bytes) continue;
    const char* text = nullptr;
    memcpy(&text, at + pointer.at, sizeof text);
    uint64_t place = 0;
    if (pointer.is_text && text != nullptr) {
      const size_t length = strnlen(text, api::nccl::kConfigTextBytesMax);
      if (length == api::nccl::kConfigTextBytesMax)
        return refuse_configuration(kind, "has a text of 256 bytes or more");
      place = extra->size() - begin;
      extra->insert(extra->end(), text, text + length + 1);
    }
    memcpy(extra->data() + begin + pointer.at, &place, sizeof place);
  }
  return ncclSuccess;
}

}  // namespace

ncclResult_t add_configuration(const ncclConfig_t* config, Element* element,
                               std::vector<uint8_t>* extra) {
  static constexpr ConfigurationKind kKind = kind_of(
      "ncclConfig_t", sizeof *config, api::nccl::kConfigBytesMax, api::nccl::kConfigPointers);
  if (config == nullptr) return ncclSuccess;
  return add(config, config->size, config->magic, kKind, element, extra);
}

ncclResult_t add_configuration(const ncclCollConfig_t* config, Element* element,
                               std::vector<uint8_t>* extra) {
  static constexpr ConfigurationKind kKind =
      kind_of("ncclCollConfig_t", sizeof *config, api::nccl::kCollConfigBytesMax,
              api::nccl::kCollConfigPointers);
  if (config == nullptr) return ncclSuccess;
  if (config->size >= api::nccl::kCollConfigEventAt + sizeof(uint64_t)) {
    uint64_t event = 0;
    memcpy(&event, reinterpret_cast<const char*>(config) + api::nccl::kCollConfigEventAt,
           sizeof event);
    if (event != 0) {
      remember(
          "Tendril forwards no ncclCollConfig_t with a launchCompletionEvent; record an event "
          "on the stream after the call");
      return ncclInvalidUsage;
    }
  }
  return add(config, config->size, config->magic, kKind, element, extra);
}

}  // namespace tendril::client::nccl
