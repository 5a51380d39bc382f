// SPDX-License-Identifier: Apache-2.0
// Files that came with a program, in a folder of this process, where the driver's compiler finds
// them under the paths that they have at the client. It ends with the object. The sandbox keeps the
// folder from others (worker/process). Any thread, one at a time.
#pragma once

#include <memory>
#include <string>

#include "wire/message.h"

namespace tendril::worker::opencl {

class IncludeFolder {
 public:
  // `names`: absolute paths, each with a NUL; `lengths`: of each one's part of `data`. Null: they
  // do not fit each other, or a path has ".." or the like, or they cannot be written.
  static std::shared_ptr<const IncludeFolder> make(const wire::Bytes& names,
                                                   const wire::Array<uint64_t>& lengths,
                                                   const uint8_t* data, uint64_t bytes);
  ~IncludeFolder();
  IncludeFolder(const IncludeFolder&) = delete;
  IncludeFolder& operator=(const IncludeFolder&) = delete;

  // `options` with this folder in each place that the client left for it.
  std::string put_into(const std::string& options) const;

 private:
  explicit IncludeFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

}  // namespace tendril::worker::opencl
