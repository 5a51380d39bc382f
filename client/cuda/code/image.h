// SPDX-License-Identifier: Apache-2.0
// Device code as the program hands it over, and the part of it that is worth sending. Of a
// container that is the entries that the server's GPUs can use, still compressed. Called by
// module.cc, library.cc and link.cc. It reads the program's own memory and does not trust it: every
// size from the headers is checked.
#pragma once

#include <cstdint>
#include <vector>

#include "api/cuda/code_image.h"

namespace tendril::client::cuda {

using api::CodeImage;
using api::CodeKind;

// What `code` points to; a wrapper leads to its linked container. kNone: nothing that a driver
// would take.
CodeImage recognise(const void* code);

struct Target {
  int major = 0, minor = 0;
};

// What goes to the server: either the image itself or a container rebuilt from it.
struct Payload {
  const uint8_t* data = nullptr;
  uint64_t bytes = 0;
  std::vector<uint8_t> rebuilt;
  bool reduced = false;  // entries were left out
};

// Keeps the cubins that a target can run and, for a target that has none (or with keep_ptx for
// all), the newest PTX it can compile. Keeps the whole image if it is no container, if nothing
// would be left, or if nothing would be saved.
Payload reduce(const CodeImage& image, const Target* targets, size_t target_count, bool keep_ptx);
// All of it.
Payload whole(const CodeImage& image);

}  // namespace tendril::client::cuda
