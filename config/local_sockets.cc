// SPDX-License-Identifier: Apache-2.0
// See local_sockets.h.
#include "config/local_sockets.h"

#include "config/text.h"

namespace tendril::config {

std::string sockets_of_root() { return "/run/tendril"; }

std::string sockets_of_user() {
  const std::string folder = variable("XDG_RUNTIME_DIR");
  return folder.empty() || folder[0] != '/' ? std::string() : folder + "/tendril";
}

std::vector<std::string> administrators_sockets(uint16_t port) {
  std::vector<std::string> paths;
  for (const std::string& folder : {sockets_of_user(), sockets_of_root()}) {
    if (!folder.empty())
      paths.push_back(folder + "/" + std::to_string(port) + "/" + kAdministratorsSocket);
  }
  return paths;
}

}  // namespace tendril::config
