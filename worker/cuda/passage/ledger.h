// SPDX-License-Identifier: Apache-2.0
// What a passage's operations wait for: the halves of this session, and what the other server's
// worker says of its own. Pure: no driver, no connection, no time. The other worker may be hostile.
// It can end the passage, and it can make an operation fail that is under way. It can write nowhere
// else than where this session's client said, and not more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace tendril::worker::cuda {

enum class PassageSays : uint32_t {
  kReady = 1,  // the receiver's half has begun; value: the bytes that it takes
  kData = 2,   // `bytes` bytes follow; value: where they begin in the operation
  kDone = 3,   // the receiver has everything in its place
  kTell = 4,   // the event is over
  kFail = 5,   // the half that says so cannot go on; value: the driver's result
  // Not of an operation. This end takes nothing more from the fabric's line `operation`, from which
  // it has taken `value` pieces.
  kLeft = 6,
};
struct PassageFrame {
  PassageSays says;
  uint32_t bytes;  // of kData
  uint64_t operation;
  uint64_t value;
};
static_assert(sizeof(PassageFrame) == 24);
inline constexpr uint32_t kPassagePieceBytes = 1u << 20;
// False: it is none.
bool is_sound(const PassageFrame& frame);

enum class PassageRole : uint8_t { kSend, kReceive, kTell, kAwait };

// A half of an operation.
struct PassageHalf {
  PassageRole role = PassageRole::kSend;
  uint64_t bytes = 0;  // of kSend and kReceive
  bool here = false;   // its stream has got there
  bool there = false;  // so has the other's, as far as this one waits for it
  bool moving = false;
  uint64_t begun = 0;  // bytes that a line has begun to move
  uint64_t moved = 0;
};

class PassageLedger {
 public:
  static constexpr size_t kHalvesMax = 1 << 16;

  // What is to be done. In that order.
  struct Step {
    enum class Kind : uint8_t {
      kSay,    // `frame` to the other worker
      kMove,   // kSend: the bytes may go; kReceive: frame.bytes are here for frame.value
      kEnd,    // the half is over with `result`; it is gone from here
      kBreak,  // the other worker breaks the rules
    } kind;
    uint64_t operation = 0;
    PassageFrame frame = {};
    int result = 0;
  };
  using Steps = std::vector<Step>;

  // False: there is one of that number, or there are too many.
  bool add(uint64_t operation, PassageRole role, uint64_t bytes, Steps* steps);
  // Its stream has got there.
  void arrived(uint64_t operation, Steps* steps);
  // The next bytes of a kSend that may go, at most so many. False: there are none.
  bool next_piece(uint64_t operation, uint64_t most, uint64_t* at, uint64_t* bytes);
  // kSend: these bytes go now. kReceive: the bytes of a kMove are in their place.
  void moved(uint64_t operation, uint64_t bytes, Steps* steps);
  // kSend: these bytes got lost on their way, and go once more.
  void again(uint64_t operation, uint64_t bytes);
  // It cannot go on, whatever the other worker says.
  void fail(uint64_t operation, int result, Steps* steps);
  // `frame` is sound, and of an operation.
  void heard(const PassageFrame& frame, Steps* steps);
  // The connection is lost: all end so.
  void lose(int result, Steps* steps);

  const PassageHalf* find(uint64_t operation) const;
  size_t size() const { return halves_.size(); }

 private:
  using Halves = std::map<uint64_t, PassageHalf>;
  // What the other worker said before this session's call came.
  struct Early {
    PassageSays says;
    uint64_t value;
  };
  void say(uint64_t operation, PassageSays says, uint64_t value, Steps* steps) const;
  void go_on(Halves::iterator at, Steps* steps);
  void end(Halves::iterator at, int result, Steps* steps);
  void apply(Halves::iterator at, const PassageFrame& frame, Steps* steps);
  static void break_rules(uint64_t operation, Steps* steps);

  Halves halves_;
  std::map<uint64_t, Early> early_;
};

}  // namespace tendril::worker::cuda
