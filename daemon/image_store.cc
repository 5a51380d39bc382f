// SPDX-License-Identifier: Apache-2.0
// See image_store.h.
#include "daemon/image_store.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/kept_files.h"
#include "base/log.h"

namespace tendril::daemon {
namespace {

constexpr char kVariable[] = "TENDRIL_MODULE_STORE";

std::string default_folder() {
  if (geteuid() == 0) {
    mkdir("/var/cache/tendril", 0711);  // workers of other users need access
    return "/var/cache/tendril/images";
  }
  const std::string cache = base::user_cache_folder();
  return cache.empty() ? "" : cache + "/tendril/images";
}

}  // namespace

void choose_image_store(const std::string& wanted, bool users_differ) {
  std::string folder = wanted;
  if (const char* value = getenv(kVariable); folder.empty() && value != nullptr) folder = value;
  if (folder.empty()) folder = default_folder();
  unsetenv(kVariable);
  if (folder.empty() || folder == "off") return;
  const bool made =
      base::KeptFiles(folder, "", 0).make() && (!users_differ || chmod(folder.c_str(), 0777) == 0);
  if (!made) {
    base::log(base::LogLevel::kWarning,
              "device code is not kept, and each client sends its own: %s: %s (--images FOLDER "
              "chooses another folder)",
              folder.c_str(), strerror(errno));
    return;
  }
  setenv(kVariable, folder.c_str(), 1);
}

}  // namespace tendril::daemon
