// SPDX-License-Identifier: Apache-2.0
// Free stretches of a range of addresses or offsets: who gives out parts of one takes from here,
// first fit, and puts back. Neighbours join. A hole may carry a note, such as when its bytes were
// last used. The arena, the worker's blocks and the client's heap use it. Arithmetic only; not
// thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace tendril::base {

struct NoNote {};

template <typename Note = NoNote>
class Holes {
 public:
  // Takes `bytes` from the start of the first hole that has room and for which may(note) holds.
  // False: there is none. The rest of the hole keeps its note, which *note is, too.
  template <typename May>
  bool take(uint64_t bytes, uint64_t* start, Note* note, May&& may) {
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      if (hole->second.bytes < bytes || !may(hole->second.note)) continue;
      const auto [at, found] = *hole;
      hole = holes_.erase(hole);
      if (found.bytes > bytes)
        holes_.emplace_hint(hole, at + bytes, Hole{found.bytes - bytes, found.note});
      *start = at;
      *note = found.note;
      return true;
    }
    return false;
  }
  bool take(uint64_t bytes, uint64_t* start) {
    Note note;
    return take(bytes, start, &note, [](const Note&) { return true; });
  }

  // Puts back, or adds. Not what is a hole already. A hole that joins others has the new note.
  // Returns how large it is now.
  uint64_t add(uint64_t start, uint64_t bytes, const Note& note = Note()) {
    auto next = holes_.lower_bound(start);
    if (next != holes_.end() && next->first == start + bytes) {
      bytes += next->second.bytes;
      next = holes_.erase(next);
    }
    if (next != holes_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second.bytes == start) {
        before->second.bytes += bytes;
        before->second.note = note;
        return before->second.bytes;
      }
    }
    holes_.emplace_hint(next, start, Hole{bytes, note});
    return bytes;
  }

  // These bytes are given out no more, whether they are holes or not.
  void cut_out(uint64_t start, uint64_t bytes) {
    const uint64_t end = start + bytes;
    std::map<uint64_t, Hole> left;
    for (const auto& [from, hole] : holes_) {
      const uint64_t to = from + hole.bytes;
      if (from < start) left[from] = {std::min(to, start) - from, hole.note};
      if (to > end) left[std::max(from, end)] = {to - std::max(from, end), hole.note};
    }
    holes_ = std::move(left);
  }

  // visit(start, bytes) for each hole.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [start, hole] : holes_) visit(start, hole.bytes);
  }

  uint64_t largest() const {
    uint64_t bytes = 0;
    for (const auto& [at, hole] : holes_) bytes = std::max(bytes, hole.bytes);
    return bytes;
  }
  bool empty() const { return holes_.empty(); }
  void clear() { holes_.clear(); }

 private:
  struct Hole {
    uint64_t bytes;
    Note note;
  };
  std::map<uint64_t, Hole> holes_;
};

}  // namespace tendril::base
