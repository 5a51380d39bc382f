// SPDX-License-Identifier: Apache-2.0
// See include_folder.h.
#include "worker/opencl/include_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "api/opencl/include_limits.h"
#include "base/fd.h"

namespace tendril::worker::opencl {
namespace {

// The sandbox says where this process may write.
std::string new_folder() {
  const char* const top = getenv("TMPDIR");
  std::string path = std::string(top != nullptr ? top : "/tmp") + "/tendril-include-XXXXXX";
  return mkdtemp(path.data()) != nullptr ? path : std::string();
}

// It begins at the root, and each part is a name.
bool is_plain(const std::string& path) {
  if (path.empty() || path.front() != '/' || path.back() == '/') return false;
  for (size_t at = 1; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string name = path.substr(at, end - at);
    if (name.empty() || name == "." || name == "..") return false;
    at = end + 1;
  }
  return true;
}

bool write_file(const std::string& path, const uint8_t* data, uint64_t bytes) {
  std::error_code error;
  std::filesystem::create_directories(path.substr(0, path.rfind('/')), error);
  if (error) return false;
  const base::Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  while (file.valid() && bytes != 0) {
    const ssize_t written = write(file.get(), data, bytes);
    if (written <= 0) return false;
    data += written;
    bytes -= static_cast<uint64_t>(written);
  }
  return file.valid();
}

}  // namespace

std::shared_ptr<const IncludeFolder> IncludeFolder::make(const wire::Bytes& names,
                                                         const wire::Array<uint64_t>& lengths,
                                                         const uint8_t* data, uint64_t bytes) {
  std::vector<std::string> paths(1);
  for (const uint8_t letter : names) {
    if (letter != 0)
      paths.back().push_back(static_cast<char>(letter));
    else
      paths.emplace_back();
  }
  const bool ends = paths.back().empty();
  paths.pop_back();
  if (!ends || paths.size() != lengths.count || paths.size() > api::opencl::kIncludedFilesMax ||
      bytes > api::opencl::kIncludedBytesMax)
    return nullptr;
  uint64_t left = bytes;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!is_plain(paths[i]) || lengths[i] > left) return nullptr;
    left -= lengths[i];
  }
  std::string path = new_folder();
  if (path.empty()) return nullptr;
  const std::shared_ptr<const IncludeFolder> folder(new IncludeFolder(std::move(path)));
  for (size_t i = 0; i < paths.size(); data += lengths[i], ++i)
    if (!write_file(folder->path_ + paths[i], data, lengths[i])) return nullptr;
  return folder;
}

IncludeFolder::~IncludeFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string IncludeFolder::put_into(const std::string& options) const {
  std::string whole;
  for (const char letter : options) {
    if (letter == api::opencl::kServersFolder)
      whole += path_;
    else
      whole.push_back(letter);
  }
  return whole;
}

}  // namespace tendril::worker::opencl
