// SPDX-License-Identifier: Apache-2.0
// Bytes that the client sends with a call: in the call itself, or as a bulk transfer. They end in
// memory of this process, which the session's part of the host's memory bounds. What is not taken
// is discarded, so a call that fails early leaves nothing behind. Executor thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "wire/message.h"
#include "worker/opencl/executor.h"

namespace tendril::worker::opencl {

class Incoming {
 public:
  // `bytes`: how many the call announces. `transfer` 0: `inside` has them.
  Incoming(Executor& executor, uint64_t transfer, uint64_t bytes, const wire::Bytes& inside)
      : executor_(executor), transfer_(transfer), bytes_(bytes), inside_(inside) {}
  ~Incoming();
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  // Null: the counts do not match, there is no memory, or the session is over. Those of a transfer
  // lie in memory of this object, and those of a call in the call.
  const uint8_t* take();
  // The same, but in memory that outlives the call.
  const uint8_t* take_to_keep();
  // Keeps that memory until `event` is over. Takes the caller's reference of the event.
  void keep(cl_event event);
  // Receives a transfer at `place`, which has room for all of it. False: the session is over.
  bool receive_into(uint8_t* place);
  // Shows each piece of a transfer as it comes. Who answers true keeps it, and releases it later.
  // False: the pieces do not fit what was announced, or the session is over.
  using Takes = std::function<bool(const session::Piece& piece)>;
  bool each_piece(const Takes& takes);

 private:
  bool room();
  bool receive();

  Executor& executor_;
  uint64_t transfer_;  // 0 as soon as all has come
  const uint64_t bytes_;
  const wire::Bytes inside_;
  Room memory_;
};

}  // namespace tendril::worker::opencl
