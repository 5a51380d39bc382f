// SPDX-License-Identifier: Apache-2.0
// The program's own processes on a GPU: for the summary, -q and --query-compute-apps.
#pragma once

#include <string>
#include <vector>

#include "client/smi/fields.h"

namespace tendril::client::smi {

struct Process {
  unsigned pid = 0;
  std::string name;
  unsigned long long memory_bytes = 0;
};
// Empty too if the GPU is lost.
std::vector<Process> processes_of(const Gpu& gpu);

struct ProcessField {
  const char* name;
  const char* alias;  // "": none
  const char* unit;   // "": none
  std::string (*read)(const Gpu& gpu, const Process& process);
};
extern const ProcessField kProcessFields[];
extern const size_t kProcessFieldCount;
// Null: the tool has no such field.
const ProcessField* find_process_field(const std::string& name);

}  // namespace tendril::client::smi
