// SPDX-License-Identifier: Apache-2.0
// See ports.h.
#include "transport/rdma/ports.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/content_hash.h"
#include "base/fd.h"
#include "base/text.h"

namespace tendril::transport::rdma {
namespace {

constexpr unsigned kGidsLookedAt = 16;

// The first line; empty: there is no such file, or the kernel has nothing to say in it.
std::string line_of(const std::string& path) {
  const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[128] = {};
  if (!file.valid() || read(file.get(), text, sizeof text - 1) <= 0) return {};
  return std::string(text, strcspn(text, "\n"));
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const open_folder = opendir(folder.c_str());
  if (open_folder == nullptr) return names;
  while (const dirent* entry = readdir(open_folder)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(open_folder);
  std::sort(names.begin(), names.end());
  return names;
}

std::string folder_of(const PortFolders& folders, const std::string& card, unsigned port) {
  return base::format("%s/%s/ports/%u", folders.cards.c_str(), card.c_str(), port);
}

// "100 Gb/sec (4X EDR)", "2.5 Gb/sec (1X SDR)"
uint64_t megabits(const std::string& rate) {
  const double gigabits = strtod(rate.c_str(), nullptr);
  return gigabits > 0 && gigabits < 1e6 ? uint64_t(gigabits * 1000) : 0;
}

}  // namespace

std::vector<PortState> read_ports(const PortFolders& folders) {
  std::vector<PortState> all;
  for (const std::string& card : entries_of(folders.cards)) {
    for (const std::string& port : entries_of(folders.cards + "/" + card + "/ports")) {
      PortState state;
      state.card = card;
      state.port = unsigned(strtoul(port.c_str(), nullptr, 10));
      const std::string folder = folder_of(folders, card, state.port);
      state.ethernet = line_of(folder + "/link_layer") == "Ethernet";
      state.active = line_of(folder + "/state").rfind("4:", 0) == 0;
      state.megabits_per_second = megabits(line_of(folder + "/rate"));
      for (unsigned i = 0; i < kGidsLookedAt && state.interface.empty(); ++i)
        state.interface = line_of(base::format("%s/gid_attrs/ndevs/%u", folder.c_str(), i));
      all.push_back(std::move(state));
    }
  }
  return all;
}

uint32_t link_epoch(const std::string& card, unsigned port, unsigned gid_index,
                    const PortFolders& folders) {
  const std::string folder = folder_of(folders, card, port);
  const std::string interface =
      line_of(base::format("%s/gid_attrs/ndevs/%u", folder.c_str(), gid_index));
  const std::string counts =
      line_of(folder + "/counters/link_downed") + " " +
      (interface.empty() ? "" : line_of(folders.interfaces + "/" + interface + "/carrier_changes"));
  if (counts == " ") return 0;
  const std::string told = counts + " " + line_of(folders.boot_id);
  const std::string hash = base::content_hash(told.data(), told.size());
  uint32_t epoch = 0;
  memcpy(&epoch, hash.data(), sizeof epoch);
  return epoch | 1;
}

bool names_port(const std::string& list, const std::string& card, unsigned port) {
  if (list.empty() || list == "any") return true;
  const std::string whole = card + ":" + std::to_string(port);
  for (const std::string& each : base::split_at_commas(list)) {
    if (each == card || each == whole) return true;
    if (port == 0 && each.rfind(card + ":", 0) == 0) return true;
  }
  return false;
}

}  // namespace tendril::transport::rdma
