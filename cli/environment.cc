// SPDX-License-Identifier: Apache-2.0
// See environment.h.
#include "cli/environment.h"

#include <limits.h>
#include <unistd.h>

#include <cstdlib>

namespace tendril::cli {

base::Result<std::string> client_directory() {
  const char* const named = getenv("TENDRIL_CLIENT_DIR");
  std::vector<std::string> candidates;
  if (named != nullptr && *named != 0) {
    candidates.push_back(named);
  } else {
    char self[PATH_MAX] = {};
    const ssize_t got = readlink("/proc/self/exe", self, sizeof self - 1);
    const std::string path = got > 0 ? std::string(self, static_cast<size_t>(got)) : "";
    const std::string folder = path.substr(0, path.rfind('/'));
    candidates = {folder + "/../lib/tendril", folder + "/../lib/client"};
  }
  std::string tried;
  for (const std::string& candidate : candidates) {
    char resolved[PATH_MAX];
    if (access((candidate + "/libcuda.so.1").c_str(), R_OK) == 0 &&
        realpath(candidate.c_str(), resolved) != nullptr) {
      return std::string(resolved);
    }
    tried += (tried.empty() ? "" : " and ") + candidate;
  }
  return base::Status(base::Code::kNotFound,
                      "cannot find Tendril's client library libcuda.so.1 (looked in " + tried +
                          "); set TENDRIL_CLIENT_DIR to the folder that has it");
}

std::string prefixed_path(const std::string& directory, const std::string& old) {
  if (old.empty()) return directory;
  if (old == directory || old.rfind(directory + ":", 0) == 0) return old;
  return directory + ":" + old;
}

std::string suffixed_path(const std::string& old, const std::string& directory) {
  if (old.empty()) return directory;
  const std::string tail = ":" + directory;
  const bool is_last =
      old == directory ||
      (old.size() >= tail.size() && old.compare(old.size() - tail.size(), tail.size(), tail) == 0);
  return is_last ? old : old + tail;
}

std::string nccl_to_preload(const std::string& client, size_t servers, bool lends_nccl) {
  const char* const wish = getenv("TENDRIL_NCCL");
  if ((servers < 2 && !lends_nccl) || (wish != nullptr && std::string(wish) == "program"))
    return "";
  const std::string library = client + "/nccl/libnccl.so.2";
  return access(library.c_str(), R_OK) == 0 ? library : "";
}

std::string shell_quoted(const std::string& text) {
  const char* const plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=@%+";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string out = "'";
  for (char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

}  // namespace tendril::cli
