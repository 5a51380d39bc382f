// SPDX-License-Identifier: Apache-2.0
// How objects are named between client and worker. A handle that the program sees is such an id
// dressed as the vendor's pointer type; ids are chosen by the client (or, for objects that only the
// driver can bring about, by the worker, with kWorkerBit), so creating an object needs no reply.
// Values 0, 1, 2 and -1 have meanings of their own in CUDA and are never ids.
#pragma once

#include <cstdint>

namespace tendril::api {

enum class Kind : uint8_t {
  kNone = 0,
  kContext,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kKernel,
  kLibrary,
  kGraph,
  kNode,
  kExec,
  kPool,
  kArray,
  kMipmap,
  kLink,
  kAllocation,
  kUserObject,
  kTexref,
  kSurfref,
  kGreenContext,
  kResourceDesc,
  kCount,
};

inline constexpr uint32_t kWorkerBit = 1u << 31;  // in the index: the worker chose this id
inline constexpr uint32_t kIndexMax = 1u << 24;   // objects of one kind alive at once

// kind:8 | server:8 | generation:16 | index:32
constexpr uint64_t make_id(Kind kind, uint32_t server, uint32_t generation, uint32_t index) {
  return uint64_t(kind) << 56 | uint64_t(server & 0xff) << 48 |
         uint64_t(generation & 0xffff) << 32 | index;
}
constexpr Kind id_kind(uint64_t id) { return static_cast<Kind>(id >> 56); }
constexpr uint32_t id_index(uint64_t id) { return static_cast<uint32_t>(id); }

// Stream ids on the wire that are no objects: 0 = the call was synchronous (legacy stream), 1 = the
// legacy stream.
inline constexpr uint64_t kLegacyStream = 1;

}  // namespace tendril::api
