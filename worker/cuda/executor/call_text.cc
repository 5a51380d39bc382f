// SPDX-License-Identifier: Apache-2.0
// See call_text.h.
#include "worker/cuda/executor/call_text.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kSizeMax = uint64_t{1} << 40;  // a larger word is an address or flags

using api::cuda::Kind;

const char* kind_name(Kind kind) {
  return kind < Kind::kCount ? api::cuda::kKinds[static_cast<uint8_t>(kind)].name : nullptr;
}

}  // namespace

void tell_object(api::Text& text, uint64_t id) {
  const char* kind = kind_name(api::cuda::id_kind(id));
  if (kind == nullptr) return text.hex(id);
  text.raw(kind);
  text.raw((api::id_index(id) & api::kWorkerBit) != 0 ? "#w" : "#");
  text.decimal(uint64_t{api::id_index(id) & ~api::kWorkerBit});
}

void tell(api::Text& text, const char* name, uint64_t value) {
  text.name(name);
  if (value < kSizeMax) return text.decimal(value);
  tell_object(text, value);
}

void tell(api::Text& text, const char* name, const wire::Bytes& bytes) {
  text.name(name);
  bool plain = bytes.count != 0;
  for (uint64_t i = 0; i < bytes.count && i < api::kPrintedTextBytes; ++i) {
    plain = plain && bytes[i] >= ' ' && bytes[i] <= '~';
  }
  if (plain) return text.quoted(reinterpret_cast<const char*>(bytes.data), bytes.count);
  text.decimal(bytes.count);
  text.raw(" bytes");
}

void tell_id(api::Text& text, const char* name, uint64_t id) {
  text.name(name);
  tell_object(text, id);
}

void tell_id(api::Text& text, const char* name, const wire::Array<uint64_t>& ids) {
  text.name(name);
  text.open("[");
  const uint64_t shown = ids.count < api::kPrintedElements ? ids.count : api::kPrintedElements;
  for (uint64_t i = 0; i < shown; ++i) {
    text.item();
    tell_object(text, ids[i]);
  }
  if (shown < ids.count) text.rest(ids.count - shown);
  text.close("]");
}

}  // namespace tendril::worker::cuda
