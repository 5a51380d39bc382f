// SPDX-License-Identifier: Apache-2.0
// See cards.h.
#include "daemon/cards/cards.h"

#include <net/if.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/text.h"

namespace tendril::daemon {

using transport::rdma::PortState;

namespace {

// "RoCE on eth4, 100 Gb/s"
std::string described(const PortState& port) {
  return base::format("%s%s%s, %.3g Gb/s", port.ethernet ? "RoCE" : "InfiniBand",
                      port.interface.empty() ? "" : " on ", port.interface.c_str(),
                      double(port.megabits_per_second) / 1000);
}

const PortState* find(const std::vector<PortState>& all, const std::string& name) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const PortState& each) { return each.name() == name; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> nodes_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    struct stat node = {};
    (void)stat(entry.path().c_str(), &node);
    names.push_back(entry.path().filename().string() +
                    base::format(" %llu", static_cast<unsigned long long>(node.st_ino)));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Cards::Cards(std::string lent, CardFolders folders)
    : lent_(std::move(lent)), folders_(std::move(folders)) {}

Cards::Change Cards::look() {
  Change change;
  if (!lends()) return change;
  std::vector<PortState> ports = transport::rdma::read_ports(folders_.ports);
  ports.erase(std::remove_if(ports.begin(), ports.end(),
                             [&](const PortState& each) {
                               return !transport::rdma::names_port(lent_, each.card, each.port);
                             }),
              ports.end());
  std::vector<std::string> nodes = nodes_in(folders_.nodes);
  change.lines = changes_of(ports_, ports);
  change.other_cards = looked_ && nodes != nodes_;
  looked_ = true;
  ports_ = std::move(ports);
  nodes_ = std::move(nodes);
  return change;
}

base::Result<std::string> sockets_variable(const std::string& interfaces) {
  for (const std::string& each : base::split_at_commas(interfaces)) {
    if (if_nametoindex(each.c_str()) != 0) continue;
    return base::Status(base::Code::kNotFound,
                        "--data-interface names '" + base::printable(each, 64) +
                            "', and this machine has no such network interface; 'ip link' lists "
                            "them");
  }
  return "=" + interfaces;
}

std::vector<std::string> changes_of(const std::vector<PortState>& before,
                                    const std::vector<PortState>& after) {
  std::vector<std::string> lines;
  for (const PortState& port : after) {
    const PortState* const known = find(before, port.name());
    const std::string name = "RDMA port " + port.name();
    if (known == nullptr) {
      lines.push_back(name + " (" + described(port) + ") is here" +
                      (port.active ? "" : ", and down: sessions use TCP instead"));
    } else if (known->active != port.active) {
      lines.push_back(name + (port.active ? " is up again; the next sessions may use it"
                                          : " is down; sessions use TCP meanwhile"));
    } else if (described(*known) != described(port)) {
      lines.push_back(name + " is now " + described(port));
    }
  }
  for (const PortState& port : before) {
    if (find(after, port.name()) == nullptr)
      lines.push_back("RDMA port " + port.name() + " is gone; sessions use TCP instead");
  }
  return lines;
}

}  // namespace tendril::daemon
