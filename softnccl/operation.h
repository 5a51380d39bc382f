// SPDX-License-Identifier: Apache-2.0
// One operation of a rank: how much it reads and writes, and carrying it out between buffers of the
// host. Any thread; one operation of a mesh at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "softnccl/mesh.h"
#include "softnccl/numbers.h"

namespace tendril::softnccl {

enum class Kind : uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSend,
  kReceive
};

struct Operation {
  Kind kind = Kind::kSend;
  ncclDataType_t type = ncclInt8;
  Reduction reduction = Reduction::kSum;
  size_t count = 0;           // as the call has it
  int peer = 0;               // or the root
  uint64_t scalar = 0;        // of a scaled sum: its bytes, if they are known
  CUdeviceptr scalar_at = 0;  // else where they will be
  CUdeviceptr from = 0, to = 0;
};

// The sides of an operation, in the host's memory.
struct Sides {
  char* from;
  char* to;
  const char* scalar;
};

bool is_between_two(Kind kind);
bool reduces(Kind kind);
bool has_root(Kind kind);
size_t bytes_read(const Operation& operation, int rank, int ranks);
size_t bytes_written(const Operation& operation, int rank, int ranks);
// Whom this rank must be connected with.
std::vector<int> peers_of(const std::vector<Operation>& operations, int rank, int ranks);

// Carries out a group: everything but sends and receives in order, then all of those at once.
ncclResult_t carry_out(const std::vector<Operation>& operations, const std::vector<Sides>& sides,
                       int rank, int ranks, Mesh* mesh, const Stop& stop);

}  // namespace tendril::softnccl
