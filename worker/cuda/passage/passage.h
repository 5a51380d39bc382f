// SPDX-License-Identifier: Apache-2.0
// One passage: connections to a worker of another server, its lines, with two threads each. One
// receives and writes to the GPU, the other reads from the GPU and sends. They copy in streams of
// their own, so neither ever waits for work of the program. While a thread works on its connection
// with a piece, the GPU copies its next or its last one. Pieces of a copy go over whichever line is
// free; all else goes over the first. Which half waits for what is the ledger's (ledger.h). Pieces
// may go over to lines of a fabric while the passage is in use (docs/decisions/0046). When these
// fail, both ends say on the first line what they have got over each, and the rest goes over the
// connections. Any thread, unless a member says otherwise.
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
#include "session/choice/late_pinned.h"
#include "transport/lasting/lasting.h"
#include "transport/transport.h"
#include "wire/assignment.h"
#include "worker/cuda/executor/contexts.h"
#include "worker/cuda/passage/ledger.h"
#include "worker/cuda/passage/shape.h"

namespace tendril::worker::cuda {

inline constexpr uint32_t kFabricLinesMax = 4;
// Of one passage: two pieces for each thread of each line. Its fabric's are used once there is one.
inline constexpr size_t kPassageMemoryBytes =
    size_t{4} * kPassagePieceBytes * wire::kPassageLinesMax;
inline constexpr size_t kFabricMemoryBytes = size_t{4} * kPassagePieceBytes * kFabricLinesMax;

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
  // Threads that copy for it now. An end waits for them, because it lets the program go on.
  uint32_t copying = 0;
  bool over = false;
  int result = 0;
};

class Passage final : public transport::Carried {
 public:
  // `released`: a hold has ended, and its word may be used again.
  Passage(gpu::Driver* driver, std::function<void(CUcontext, const PassageHold&)> released);
  ~Passage();

  // A line's connection. Null: there will be none. Without the first one the passage is lost, and
  // the others come after it.
  void connect(uint32_t line, std::unique_ptr<transport::Channel> channel);
  // Before a fabric is tried for it, once. What its lines' memory is to be registered with. `left`:
  // the fabric has failed, and both ends have left it; called once, under the passage's lock.
  std::shared_ptr<session::LatePinned> open_fabric(
      std::function<void(const std::string& why)> left);
  // Carried. The first carrier is for calls, of which a passage has none.
  base::Status take_carriers(std::vector<std::unique_ptr<transport::Carrier>> carriers) override;
  void use_carriers() override;
  // Pins what the pieces go through, in the executor's current context, if that is not done yet.
  // Executor thread.
  void pin(CUcontext context);

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
  struct Piece {
    uint64_t operation = 0, at = 0, bytes = 0;
  };
  // A piece between a GPU and a connection. Its memory is its thread's, all else is under the lock.
  struct Stage {
    uint8_t* memory = nullptr;  // one piece
    Piece piece;
    CUcontext context = nullptr;  // in which the GPU copies it; null: it does not
    bool busy = false;            // a thread is in a call of the driver for it
    CUevent event = nullptr;      // comes after the copy
    CUresult result = CUDA_SUCCESS;
    std::map<CUcontext, CUevent> events;  // made so far
  };
  struct Line {
    Passage* passage = nullptr;
    std::unique_ptr<transport::Channel> channel;  // constant once the threads run
    transport::Carrier* carrier = nullptr;        // of a fabric: the channel
    Stage in[2], out[2];                          // the receiver's and the sender's
    base::Thread receiver, sender;
    // Of a fabric. What was sent and the other end may lack, behind `heard` pieces that it has got
    // or does not need; how many this end has got.
    std::deque<Piece> sent;
    uint64_t heard = 0, got = 0;
    bool sending = false;    // its thread uses the carrier
    bool peer_left = false;  // the other end takes nothing more from it
  };
  enum class Fabric : uint8_t {
    kNone,
    kTaken,   // pieces may come over it
    kUsed,    // and they go over it
    kFailed,  // for good
  };
  // Pinned for the GPU as a whole.
  struct Memory {
    uint8_t* at = nullptr;
    size_t bytes = 0;
    CUcontext pinned_in = nullptr;  // null: it is not
  };

  static void receive_main(void* line);
  static void send_main(void* line);
  base::Status receive_one(Line* line, Stage** last);
  bool write_piece(const PassageFrame& frame, Stage* stage, Hold* hold);
  void send_all(Line* line);
  bool next_piece(Piece* piece);
  bool send_frames(Line* line, Hold* hold);
  bool send_piece(Line* line, Stage** next, Hold* hold);
  CUresult enqueue(const PassageWork& work, const Piece& piece, Stage* stage, CUevent* event) const;
  // Has the GPU copy it, for an operation that is there. Without the lock for a moment.
  void begin(Stage* stage, const Piece& piece, Hold* hold);
  // Returns when the GPU has copied it, if it does, and the ledger knows. Without the lock
  // meanwhile.
  void land(Stage* stage, Hold* hold);
  template <typename Use>
  void each_stage(const Use& use);
  // Lands what the GPU copies. Null: in any context.
  void land_all(CUcontext context, Hold* hold);
  bool is_first(const Line* line) const { return line == &lines_[0]; }
  bool takes_pieces(const Line* line) const {
    return (line->carrier != nullptr) == (fabric_ == Fabric::kUsed);
  }
  Line& fabric_line(size_t number) { return lines_[wire::kPassageLinesMax + number]; }
  void fail_fabric(const std::string& why);
  void leave_fabric(Line* line, const std::string& why);
  bool hear_left(const PassageFrame& frame);
  void note_sent(Line* line, const Piece& piece);
  void send_again(const Piece& piece);
  void take(const PassageLedger::Steps& steps);
  void finish(std::map<uint64_t, PassageWork>::iterator at);
  void shut_down();
  void lose();

  gpu::Driver* const driver_;
  const std::function<void(CUcontext, const PassageHold&)> released_;
  std::mutex mutex_;                          // of all that follows, but the pieces' memory
  std::condition_variable changed_, pieces_;  // pieces_: for the lines after the first
  PassageLedger ledger_;
  std::map<uint64_t, PassageWork> works_;
  std::deque<PassageFrame> frames_;  // to be sent
  std::deque<uint64_t> sends_;       // whose bytes are to be sent
  std::deque<Piece> again_;          // that a fabric lost
  uint32_t idle_senders_ = 0;
  uint64_t given_up_ = 0;  // settle() waits for later ones only
  bool lost_ = false, ended_ = false;
  bool unpins_ = false;  // nobody begins to copy now
  // Of all lines' pieces: of the connections, and of the fabric. Without the first there is none.
  Memory memory_[2];
  bool fabric_wanted_ = false;
  Fabric fabric_ = Fabric::kNone;
  std::string fabric_why_;  // it failed
  bool left_told_ = false;
  std::function<void(const std::string&)> left_;
  const std::shared_ptr<session::LatePinned> known_ = std::make_shared<session::LatePinned>();
  Line lines_[wire::kPassageLinesMax + kFabricLinesMax];
};

}  // namespace tendril::worker::cuda
