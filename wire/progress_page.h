// SPDX-License-Identifier: Apache-2.0
// How far a program has come with attaching and with large uploads. `tendril run` makes the page, a
// sealed memory file, and draws a line on the terminal. The client libraries of the program and of
// its children write it. They never write to the terminal for that: where a line stands when
// something ends, they ask `run` to take it away, and wait for a moment. So the program's own
// output begins on a line of its own.
#pragma once

#include <atomic>
#include <cstdint>

namespace tendril::wire {

inline constexpr uint32_t kProgressMagic = 0x54504731;  // "TPG1"

// `line`, a futex.
inline constexpr uint32_t kNoLine = 0, kLineStands = 1, kLineUnwanted = 2;

struct alignas(64) ProgressPage {
  std::atomic<uint32_t> magic;
  std::atomic<uint32_t> attaching, uploading;  // calls under way
  std::atomic<uint32_t> line;                  // run draws and clears; programs only say "unwanted"
  // Of all uploads so far: begun; handed over to the network; time that calls took, each counted
  // when it ends.
  std::atomic<uint64_t> begun_bytes, sent_bytes, upload_ns;
};
static_assert(sizeof(ProgressPage) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace tendril::wire
