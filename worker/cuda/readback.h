// SPDX-License-Identifier: Apache-2.0
// A copy to the client under way: the block that the GPU fills, the event that tells when, and how the bytes are owed: with a reply, or
// into memory that the client has named. It is paid once, by `answer` or `announce`; block and event go back with the object. Made by
// the handler of the copy, paid by whichever thread sees that the GPU is done.
#pragma once

#include <cstdint>

#include "session/service.h"
#include "worker/cuda/staging.h"

namespace tendril::worker::cuda {

class Readback {
 public:
  // transfer 0: the bytes travel in the frame itself. `host`: where an announced copy goes that is no transfer.
  Readback(session::Service* service, Loan loan, uint64_t bytes, uint64_t transfer, uint64_t host = 0)
      : service_(service), loan_(static_cast<Loan&&>(loan)), bytes_(bytes), transfer_(transfer), host_(host) {}

  bool ok() const { return loan_.ok(); }
  uint8_t* data() const { return loan_.data(); }
  CUevent event() const { return loan_.event(); }
  // Sending it takes longer than handing it to another thread.
  bool is_large() const { return bytes_ > (1u << 20); }

  // A copy that the client waits for.
  void answer(uint32_t reply_id, CUresult result);
  // An asynchronous copy: the bytes, before any later reply. An error only ends the client's registration; it is told with the
  // next wait.
  void announce(CUresult result);

 private:
  session::Service* service_;
  Loan loan_;
  uint64_t bytes_, transfer_, host_;
};

}  // namespace tendril::worker::cuda
