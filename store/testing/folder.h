// SPDX-License-Identifier: Apache-2.0
// For tests: a folder that goes when its owner goes.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace tendril::store {

class Folder {
 public:
  Folder() {
    std::string pattern = testing_root() + "/tendril-store-XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  static std::string testing_root() {
    const char* named = getenv("TMPDIR");
    return named == nullptr || *named == '\0' ? "/tmp" : named;
  }
  std::string path_;
};

}  // namespace tendril::store
