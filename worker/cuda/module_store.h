// SPDX-License-Identifier: Apache-2.0
// Images of device code by content: what one client uploaded, no client of this server uploads again. A directory shared by the server's
// workers (TENDRIL_MODULE_STORE, set by tendrild); every image is verified against its hash when it is read, so a bad file is only a
// miss. Without a directory, or on a full disk, images live in this worker's memory and everything still works.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace tendril::worker::cuda {

inline constexpr uint64_t kImageBytesMax = uint64_t{1} << 30;

class ModuleStore {
 public:
  explicit ModuleStore(std::string directory);
  using Image = std::shared_ptr<const std::vector<uint8_t>>;
  // Null: not here. `hash` is base::content_hash of the bytes.
  Image find(const std::string& hash, uint64_t bytes);
  // Takes the bytes in; null when they do not match the hash.
  Image add(const std::string& hash, std::vector<uint8_t> bytes);

 private:
  std::string directory_;
  std::unordered_map<std::string, Image> images_;
};

}  // namespace tendril::worker::cuda
