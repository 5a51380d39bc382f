// SPDX-License-Identifier: Apache-2.0
// How far a stream's launches are ahead of its GPU, where one server has several contexts of the
// program. One thread there makes all calls of the session, and a driver stops a thread when about
// a thousand launches of a stream have not run. If that stream waits for work of another GPU, whose
// launches are behind, both would wait for ever. So the program's own thread waits here, as it
// would in a driver.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/lock.h"

namespace tendril::client::cuda {

struct Context;
struct Event;
class Session;
struct Stream;

// Of one stream. Any thread.
class Ahead {
 public:
  // Before a launch that takes `units` of the stream's room in the driver. `stream`: null for the
  // legacy one. May wait for the GPU, with the stream's other launches held up.
  void make_room(Context* context, Stream* stream, uint32_t units);
  // The stream goes away.
  void end();

 private:
  static constexpr uint32_t kMarks = 3;
  struct Mark {
    Event* event = nullptr;
    uint32_t reply_id = 0;  // of the wait that is under way; 0: none
  };
  bool place(Mark* mark, Context* context, Stream* stream);

  base::Lock lock_;
  uint32_t units_ = 0;  // since the last mark
  uint32_t next_ = 0;
  Mark marks_[kMarks];
};

inline constexpr uint32_t kLaunchUnits = 1;
// A graph's launch takes room for its nodes. A driver with 240 nodes of twelve launches ahead went
// on, and one with 2,000 nodes of a hundred launches stopped (H200, driver 580).
inline constexpr uint32_t kGraphUnits = 64;

void make_room_slowly(Context* context, Stream* stream, uint32_t units);

}  // namespace tendril::client::cuda
