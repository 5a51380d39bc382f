// SPDX-License-Identifier: Apache-2.0
// Where slices go: on which GPUs of a server, and on which of several servers. The daemon grants
// slices by it. The command line and the client libraries spread a program's slices by it. NVML
// uses it to show what a program would be granted. Pure: no clock, lock or connection.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "wire/control.h"

namespace tendril::lease {

// What one GPU lends, and what of it is promised. At any time, either all tenants of a GPU are
// packed or none is.
struct GpuRoom {
  uint32_t index = 0;
  uint32_t share_promised_millionths = 0;
  uint64_t memory_usable_bytes = 0;
  uint64_t memory_promised_bytes = 0;
  uint64_t process_bytes = 0;  // what a process needs before it allocates anything
  bool packed = false;         // its present tenants are packed
};

// Conversion from and to the record in a server's list.
GpuRoom room_of(const wire::GpuRecord& gpu);
void describe(const GpuRoom& room, wire::GpuRecord* gpu);

// What the slice would be on that GPU. kRefused: it can never fit there. `host` is for the message.
base::Result<wire::SliceGrant> slice_on(const GpuRoom& room, const wire::SliceSpec& spec,
                                        const std::string& host);
bool fits(const GpuRoom& room, const wire::SliceGrant& slice);

struct Placement {
  std::vector<wire::SliceGrant> chosen;  // ordered by index; at most as many as wanted
  size_t room = 0;                       // GPUs that have room now
  size_t possible = 0;                   // GPUs that could hold the slice if nobody were on them
  base::Status nearest;  // why the largest unsuitable GPU can never hold it; ok: there is none
};
// Each slice goes to a GPU of its own. Among GPUs with room the fullest are chosen. So whole GPUs
// stay free for programs that need them.
Placement place(const std::vector<GpuRoom>& gpus, const wire::SliceSpec& spec, size_t wanted,
                const std::string& host);

// The result of asking servers for slices.
struct Filling {
  uint32_t missing = 0;
  std::vector<base::Status> refusals;  // one per server that gave nothing, in order
};
// The first server gives as many slices as it can, then the next one. `ask(server, count)` takes
// that many from one server, all or none, and returns the Status. Only after kRefused is one slice
// less asked for, because only kRefused may be about the number.
template <typename Ask>
Filling fill_servers(size_t servers, uint32_t wanted, Ask&& ask) {
  Filling filling{wanted, {}};
  for (size_t server = 0; server < servers && filling.missing != 0; ++server) {
    base::Status answer;
    for (uint32_t count = filling.missing; count != 0; --count) {
      answer = ask(server, count);
      if (answer.ok()) filling.missing -= count;
      if (answer.code() != base::Code::kRefused) break;
    }
    if (!answer.ok()) filling.refusals.push_back(std::move(answer));
  }
  return filling;
}

// Why `wanted` slices were not found on these servers.
base::Status shortage(const Filling& filling, size_t servers, uint32_t wanted);

}  // namespace tendril::lease
