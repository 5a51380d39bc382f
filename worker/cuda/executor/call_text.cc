// SPDX-License-Identifier: Apache-2.0
// See call_text.h.
#include "worker/cuda/executor/call_text.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kSizeMax = uint64_t{1} << 40;  // what is more is an address or flags

using api::cuda::Kind;

const char* kind_name(Kind kind) {
  return kind < Kind::kCount ? api::cuda::kKinds[static_cast<uint8_t>(kind)].name : nullptr;
}

}  // namespace

void tell_object(api::Text& t, uint64_t id) {
  const char* kind = kind_name(api::cuda::id_kind(id));
  if (kind == nullptr) return t.hex(id);
  t.raw(kind);
  t.raw((api::id_index(id) & api::kWorkerBit) != 0 ? "#w" : "#");
  t.decimal(uint64_t{api::id_index(id) & ~api::kWorkerBit});
}

void tell(api::Text& t, const char* name, uint64_t value) {
  t.name(name);
  if (value < kSizeMax) return t.decimal(value);
  tell_object(t, value);
}

void tell(api::Text& t, const char* name, const wire::Bytes& bytes) {
  t.name(name);
  bool plain = bytes.count != 0;
  for (uint64_t i = 0; i < bytes.count && i < api::kPrintedTextBytes; ++i) {
    plain = plain && bytes[i] >= ' ' && bytes[i] <= '~';
  }
  if (plain) return t.quoted(reinterpret_cast<const char*>(bytes.data), bytes.count);
  t.decimal(bytes.count);
  t.raw(" bytes");
}

void tell_id(api::Text& t, const char* name, uint64_t id) {
  t.name(name);
  tell_object(t, id);
}

void tell_id(api::Text& t, const char* name, const wire::Array<uint64_t>& ids) {
  t.name(name);
  t.open("[");
  const uint64_t shown = ids.count < api::kPrintedElements ? ids.count : api::kPrintedElements;
  for (uint64_t i = 0; i < shown; ++i) {
    t.item();
    tell_object(t, ids[i]);
  }
  if (shown < ids.count) t.rest(ids.count - shown);
  t.close("]");
}

}  // namespace tendril::worker::cuda
