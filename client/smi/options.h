// SPDX-License-Identifier: Apache-2.0
// The command line of nvidia-smi, with the vendor's spellings and refusals. Asks nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::client::smi {

// Exit statuses, as the vendor's manual numbers them.
inline constexpr int kWrongUsage = 2, kNoPermission = 4, kNoDevice = 6, kNoDriver = 9;
inline constexpr int kUnknownOption = 255;

enum class Action {
  kSummary,
  kList,
  kExcluded,
  kLog,
  kQueryGpu,
  kQueryProcesses,
  kTopology,
  kHelp,
  kHelpQueryGpu,
  kHelpQueryProcesses,
  kVersion,
};

struct Options {
  Action action = Action::kSummary;
  std::vector<std::string> ids;  // empty: all GPUs
  bool xml = false, header = true, units = true;
  std::vector<std::string> displays, fields;
  uint64_t loop_ms = 0;  // 0: once
  std::string file;      // empty: stdout
};

// A refusal: what to print, and the exit status.
struct Refusal {
  std::string text;
  int status = kWrongUsage;
};

// False: see `refusal`. `words` are those behind the program's name.
bool parse(const std::vector<std::string>& words, Options* options, Refusal* refusal);

}  // namespace tendril::client::smi
