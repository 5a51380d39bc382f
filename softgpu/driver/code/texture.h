// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects: what they were made of, kept for whoever asks, and as the images
// that kernels sample. launch.cc takes a snapshot for each launch of a kernel that uses images. Any
// thread.
#pragma once

#include <memory>
#include <vector>

#include "softgpu/driver/memory/array.h"
#include "softgpu/engine.h"

namespace tendril::softgpu {

// Every object there is now; keeps their arrays alive as long as it lives.
struct ImageSnapshot {
  ImageTable table;
  std::vector<ArrayPtr> arrays;
};
ImageSnapshot image_snapshot();

}  // namespace tendril::softgpu
