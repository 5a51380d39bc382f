// SPDX-License-Identifier: Apache-2.0
// See owner.h.
#include "observe/owner.h"

#include <pwd.h>

#include <algorithm>

#include "config/text.h"

namespace tendril::observe {

namespace {

constexpr size_t kContainerDigits = 64;  // Docker, containerd, CRI-O and Podman
constexpr size_t kShownDigits = 12;      // as these show it
constexpr size_t kMostUsers = 10'000;

bool is_digit(char one) { return one >= '0' && one <= '9'; }
bool is_hex(char one) { return is_digit(one) || (one >= 'a' && one <= 'f'); }

// A run of exactly 64 hexadecimal digits.
std::string container_number(std::string_view path) {
  for (size_t at = 0; at < path.size();) {
    size_t end = at;
    while (end < path.size() && is_hex(path[end])) ++end;
    if (end - at == kContainerDigits) return std::string(path.substr(at, kShownDigits));
    at = end + 1;
  }
  return "";
}

// The part of a path behind that mark.
std::string name_behind(std::string_view path, std::string_view mark) {
  const size_t at = path.find(mark);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = path.substr(at + mark.size());
  return std::string(rest.substr(0, std::min(rest.find('/'), kMostNameBytes)));
}

std::string slurm_job(std::string_view path) {
  if (path.find("slurm") == std::string_view::npos) return "";
  const std::string number = name_behind(path, "/job_");
  if (number.empty() || !std::all_of(number.begin(), number.end(), is_digit)) return "";
  return "slurm-" + number;
}

// "Name:\tpython" in the text of /proc/PID/status.
std::string status_field(const std::string& text, const std::string& name) {
  const std::string mark = name + ":\t";
  size_t at = text.rfind(mark, 0) == 0 ? 0 : text.find("\n" + mark);
  if (at == std::string::npos) return "";
  at = text.find('\t', at) + 1;
  return text.substr(at, text.find_first_of("\t\n", at) - at);
}

// The third field behind the name, which may have blanks and brackets itself.
std::string process_group(const std::string& stat) {
  const size_t end = stat.rfind(')');
  if (end == std::string::npos) return "";
  const std::vector<std::string> fields = config::split(stat.substr(end + 1), ' ');
  return fields.size() > 2 ? fields[2] : "";
}

}  // namespace

Owner owner_in_cgroups(std::string_view text) {
  Owner owner;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view path = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (owner.container.empty()) owner.container = container_number(path);
    if (owner.container.empty()) owner.container = name_behind(path, "/lxc.payload.");
    if (owner.container.empty()) owner.container = name_behind(path, "/lxc/");
    if (owner.job.empty()) owner.job = slurm_job(path);
  }
  return owner;
}

std::string Owners::user_name(uint32_t number) {
  const auto known = users_.find(number);
  if (known != users_.end()) return known->second;
  if (users_.size() == kMostUsers) users_.clear();
  passwd entry = {};
  passwd* found = nullptr;
  char text[4096];
  const bool named = getpwuid_r(number, &entry, text, sizeof text, &found) == 0 && found != nullptr;
  const std::string name = named ? entry.pw_name : std::to_string(number);
  return users_[number] = name.substr(0, kMostNameBytes);
}

Owner Owners::look_up(uint32_t pid) {
  const std::string folder = proc_ + "/" + std::to_string(pid);
  auto groups = config::read_file(folder + "/cgroup");
  Owner owner = groups.ok() ? owner_in_cgroups(*groups) : Owner();
  auto status = config::read_file(folder + "/status");
  std::string program = "process";
  if (status.ok()) {
    uint64_t user = 0;
    if (config::read_number(status_field(*status, "Uid"), &user))
      owner.user = user_name(static_cast<uint32_t>(user));
    program = status_field(*status, "Name").substr(0, kMostNameBytes);
  }
  if (!owner.job.empty() || !owner.container.empty()) return owner;
  // The processes of one command of a shell are one job.
  auto stat = config::read_file(folder + "/stat");
  const std::string group = stat.ok() ? process_group(*stat) : "";
  owner.job = program + " " + (group.empty() ? std::to_string(pid) : group);
  return owner;
}

const Owner& Owners::of(uint32_t pid) {
  const auto known = known_.find(pid);
  if (known != known_.end()) return known->second;
  return known_[pid] = look_up(pid);
}

}  // namespace tendril::observe
