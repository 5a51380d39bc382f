// SPDX-License-Identifier: Apache-2.0
// Which changes of an instantiated graph's nodes its driver has taken. A change is sent without
// waiting for the answer if it differs from one of these only in what a driver cannot refuse:
// pointers to known memory, values of parameters. XLA changes some hundred nodes before each
// launch. Called by graph.cc and graph_node.cc, on any thread; never blocks.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/lock.h"

namespace tendril::client::cuda {

// The part of a change that the driver judges. For one node, it accepts all changes of equal shape,
// or none.
struct ChangeShape {
  static constexpr unsigned kWords = 16;
  uint64_t words[kWords] = {};
  unsigned count = 0;  // of all that were added

  void add(uint64_t word) {
    if (count < kWords) words[count] = word;
    ++count;
  }
  // False: nothing was added, or more than there is room for. Then only the driver can judge.
  bool is_whole() const { return count != 0 && count <= kWords; }
  bool operator==(const ChangeShape& other) const;
};

class ExecChanges {
 public:
  // True if the last change of the node had this shape, and was taken.
  bool taken(uint64_t node, const ChangeShape& shape);
  void note(uint64_t node, const ChangeShape& shape, bool was_taken);
  void clear();

 private:
  base::Lock lock_;
  std::unordered_map<uint64_t, ChangeShape> shapes_;
};

}  // namespace tendril::client::cuda
