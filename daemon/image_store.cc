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

std::string setting(const char* name) {
  const char* value = getenv(name);
  return value != nullptr ? value : "";
}

std::string default_folder() {
  if (geteuid() == 0) {
    mkdir("/var/cache/tendril", 0711);  // workers that are other users come by
    return "/var/cache/tendril/images";
  }
  std::string cache = setting("XDG_CACHE_HOME");
  if (cache.empty() && !setting("HOME").empty()) cache = setting("HOME") + "/.cache";
  return cache.empty() ? "" : cache + "/tendril/images";
}

}  // namespace

void choose_image_store(const std::string& wanted, bool users_differ) {
  std::string folder = wanted;
  if (folder.empty()) folder = setting(kVariable);
  if (folder.empty()) folder = default_folder();
  unsetenv(kVariable);
  if (folder.empty() || folder == "off") return;
  const bool made = base::KeptFiles(folder, "", 0).make() && (!users_differ || chmod(folder.c_str(), 0777) == 0);
  if (!made) {
    base::log(base::LogLevel::kWarning,
              "device code is not kept, and each client sends its own: %s: %s (--images FOLDER chooses another folder)",
              folder.c_str(), strerror(errno));
    return;
  }
  setenv(kVariable, folder.c_str(), 1);
}

}  // namespace tendril::daemon
