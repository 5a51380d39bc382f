// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects: their descriptors, and the images that kernels sample. launch.cc
// takes a snapshot for each launch of a kernel that uses images. Any thread.
#pragma once

#include <memory>
#include <vector>

#include "softgpu/driver/memory/array.h"
#include "softgpu/engine.h"

namespace tendril::softgpu {

// Every object that exists now. Keeps their arrays alive.
struct ImageSnapshot {
  ImageTable table;
  std::vector<ArrayPtr> arrays;
};
ImageSnapshot image_snapshot();

// A context ends, and with it its texture and surface objects, references and linkers.
void drop_images(CUcontext context);
void drop_references(CUcontext context);
void drop_linkers(CUcontext context);

}  // namespace tendril::softgpu
