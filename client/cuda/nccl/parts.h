// SPDX-License-Identifier: Apache-2.0
// The parts of a group that are different servers': sends all of them, and awaits all. A part that
// fails can leave the others waiting for its ranks for ever, so after a while theirs are aborted.
// The calling thread of the program.
#pragma once

#include <cstdint>
#include <vector>

#include "api/nccl/element.h"
#include "api/nccl_abi.gen.h"
#include "client/cuda/state.h"

namespace tendril::client::cuda {

// The part of a group that is one server's.
struct Part {
  Session* session = nullptr;
  std::vector<api::nccl::Element> work;
  uint32_t reply_id = 0;
  bool sent = false, answered = false;
  std::vector<uint32_t> aborts = {};  // replies to come
};

// What comes back beside the result. `id`: of kUniqueId, or null. `text`: what went wrong, for
// people.
struct Returned {
  void* id;
  char* text;
  size_t text_bytes;
};

void send(Part* part, const void* extra, size_t extra_bytes);
// Of collectives that nobody awaits. False: the session is lost.
bool send_ahead(const Part& part);
// The first failure, else the first result that is no success. After a failure the communicators
// that a part waits with are aborted, unless NCCL ends the wait by itself soon.
ncclResult_t await_all(std::vector<Part>* parts, const Returned& returned);

// What NCCL answers where the driver or the session failed.
ncclResult_t result_of(CUresult result);
// Says in `text` what the session answered instead of NCCL.
void explain(char* text, size_t bytes, const Session* session, CUresult result);

}  // namespace tendril::client::cuda
