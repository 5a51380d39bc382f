// SPDX-License-Identifier: Apache-2.0
// Whose a process is: its user, its container, its job. Read from /proc, without root. Names come
// from other users: they are bounded here, and cleaned where they are shown. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tendril::observe {

inline constexpr size_t kMostNameBytes = 128;

struct Owner {
  std::string user;       // empty: the system hides it
  std::string container;  // the first 12 digits of its number, or its name; empty: none
  std::string job;        // "slurm-1234", else program and process group: "python 77"
};

// What the text of /proc/PID/cgroup says: container and a job of Slurm. Pure; any text.
Owner owner_in_cgroups(std::string_view text);

// Looks processes up, and remembers them.
class Owners {
 public:
  explicit Owners(std::string proc = "/proc") : proc_(std::move(proc)) {}
  const Owner& of(uint32_t pid);
  // Process numbers are used again. Call it each minute.
  void forget() { known_.clear(); }

 private:
  Owner look_up(uint32_t pid);
  std::string user_name(uint32_t number);

  std::string proc_;
  std::map<uint32_t, Owner> known_;
  std::map<uint32_t, std::string> users_;
};

}  // namespace tendril::observe
