// SPDX-License-Identifier: Apache-2.0
// What client and worker must know alike of the files that a program's source includes.
#pragma once

#include <cstdint>

namespace tendril::api::opencl {

// In the options of a build: the folder where the worker has put the files.
inline constexpr char kServersFolder = '\x01';

inline constexpr uint64_t kIncludedFilesMax = 4096, kIncludedPathBytesMax = 48u << 10;
inline constexpr uint64_t kIncludedBytesMax = 64u << 20;

}  // namespace tendril::api::opencl
