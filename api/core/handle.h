// SPDX-License-Identifier: Apache-2.0
// How client and worker name an object, whatever its API. The program sees the same number, cast to
// the vendor's pointer type. The client chooses the number, so creating an object needs no reply.
// Exception: if only the driver can create the object, the worker chooses the number and sets
// kWorkerBit. Each API has its own kinds of objects: api/<name>_kinds.gen.h, from its api.ini. An
// index is never 0, so no handle is a small number or -1. Vendors give such values other meanings.
#pragma once

#include <cstdint>

namespace tendril::api {

inline constexpr uint32_t kWorkerBit = 1u << 31;  // in the index: the worker chose this id
inline constexpr uint32_t kIndexMax = 1u << 24;   // objects of one kind alive at once

// What an API says about a kind. Each API has a table of these, indexed by kind.
struct KindTraits {
  const char* name;   // in traces; null for kNone
  bool returned;      // the driver hands such objects back, so the worker can look up their ids
  bool ends_unnamed;  // ends with its context, and no call names it then; its index is used again
};

// kind:8 | server:8 | generation:16 | index:32
template <typename Kind>
constexpr uint64_t make_id(Kind kind, uint32_t server, uint32_t generation, uint32_t index) {
  static_assert(sizeof(Kind) == 1);
  return uint64_t(kind) << 56 | uint64_t(server & 0xff) << 48 |
         uint64_t(generation & 0xffff) << 32 | index;
}
// Unchecked: a peer's id may have a kind that does not exist.
template <typename Kind>
constexpr Kind id_kind(uint64_t id) {
  return static_cast<Kind>(id >> 56);
}
constexpr uint32_t id_index(uint64_t id) { return static_cast<uint32_t>(id); }

}  // namespace tendril::api
