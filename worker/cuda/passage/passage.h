// SPDX-License-Identifier: Apache-2.0
// One passage: a connection to a worker of another server, and two threads. One receives and
// writes to the GPU, the other reads from the GPU and sends. They copy in streams of their own, so
// neither ever waits for work of the program. Which half waits for what is the ledger's (ledger.h).
// Any thread, unless a member says otherwise.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/thread.h"
#include "gpu/cuda/driver.h"
#include "transport/transport.h"
#include "worker/cuda/executor/contexts.h"
#include "worker/cuda/passage/ledger.h"
#include "worker/cuda/passage/shape.h"

namespace tendril::worker::cuda {

// What holds a stream: it waits until the word is at least `value`.
struct PassageHold {
  uint32_t* word = nullptr;  // null: nothing is held
  uint32_t value = 0;
  uint32_t index = 0;  // among the words of its context
};

// This session's half of an operation, for the GPU.
struct PassageWork {
  PassageRole role = PassageRole::kSend;
  WorkerContext* owner = nullptr;  // gets the error
  CUcontext context = nullptr;
  CUstream mover = nullptr;  // in which the bytes are copied
  PassageShape shape;
  PassageHold hold;
};

class Passage {
 public:
  // `released`: a hold has ended, and its word may be used again.
  Passage(gpu::Driver* driver, std::function<void(CUcontext, const PassageHold&)> released);
  ~Passage();

  // Null: there will be no connection.
  void connect(std::unique_ptr<transport::Channel> channel);

  // False: it cannot be; nothing is held, and the error is the caller's to report.
  bool add(uint64_t operation, const PassageWork& work, uint64_t bytes);
  void arrived(uint64_t operation);
  void fail(uint64_t operation, CUresult result);
  // Returns when no bytes of the context are to be copied any more, or none has moved for
  // `patience`. Then no later call waits for the same operations.
  void settle(CUcontext context, std::chrono::milliseconds patience);
  // The context is about to end. Its operations fail, and no thread uses it afterwards.
  void end_context(CUcontext context);
  bool is_lost();

 private:
  using Hold = std::unique_lock<std::mutex>;
  static void receive_main(void* self);
  static void send_main(void* self);
  void receive_all();
  bool receive_one();
  void write_piece(const PassageFrame& frame, Hold* hold);
  void send_all();
  bool send_frames(Hold* hold);
  bool send_work(uint64_t operation, Hold* hold);
  CUresult copy(const PassageWork& work, uint64_t at, uint64_t bytes, uint8_t* memory) const;
  void take(const PassageLedger::Steps& steps);
  void lose();

  gpu::Driver* const driver_;
  const std::function<void(CUcontext, const PassageHold&)> released_;
  std::unique_ptr<transport::Channel> channel_;  // constant once the threads run
  std::mutex mutex_;                             // of all that follows, but the buffers
  std::condition_variable changed_;
  PassageLedger ledger_;
  std::map<uint64_t, PassageWork> works_;
  std::deque<PassageFrame> frames_;                        // to be sent
  std::deque<uint64_t> sends_;                             // whose bytes are to be sent
  CUcontext receiver_in_ = nullptr, sender_in_ = nullptr;  // contexts that the threads use now
  uint64_t given_up_ = 0;                                  // settle() waits for later ones only
  bool lost_ = false, ended_ = false;
  std::vector<uint8_t> received_, sent_;  // one piece; of one thread each
  base::Thread receiver_, sender_;
};

}  // namespace tendril::worker::cuda
