// SPDX-License-Identifier: Apache-2.0
// tendril-bench: an ordinary CUDA program that measures what a program can measure. `tendril bench`
// starts it natively and through `tendril run` and computes ratios. tools/gpu runs it on every
// side. It knows nothing of Tendril except what it measures.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "bench/figures.h"

namespace {

using namespace tendril::bench;  // NOLINT: a program

int usage() {
  std::fprintf(
      stderr,
      "usage: tendril-bench calls|copies|waits|all|matrix|first [--driver LIBRARY] [--quick]\n"
      "       tendril-bench matrix --groups COUNT,COUNT... (only pairs of GPUs of two groups)\n"
      "       tendril-bench bare tcp|shm CHANNELS\n");
  return 2;
}

std::vector<int> counts(const char* text) {
  std::vector<int> found;
  for (const char* at = text; at != nullptr; at = std::strchr(at, ',')) {
    at += *at == ',';
    found.push_back(static_cast<int>(std::strtol(at, nullptr, 10)));
  }
  return found;
}

// The whole way once, as quickly as a program can. `tendril bench` takes the time from exec to this
// line.
void first_result(Device& device) {
  const CUdeviceptr counter = device.allocate(4);
  device.check(device.driver().cuMemsetD32_v2(counter, 41, 1), "cuMemsetD32");
  device.launch_count(counter, nullptr);
  uint32_t value = 0;
  device.check(device.driver().cuMemcpyDtoH_v2(&value, counter, 4), "cuMemcpyDtoH");
  if (value != 42) throw Failure("the first result is wrong");
  std::puts("tendril-bench first");
  std::fflush(stdout);
}

// The memory of the process at this point, with the driver's library.
void add_memory(Report& report) {
  FILE* const status = std::fopen("/proc/self/status", "re");
  char line[256];
  double kib = 0;
  while (status != nullptr && std::fgets(line, sizeof line, status) != nullptr) {
    if (std::sscanf(line, "VmRSS: %lf", &kib) == 1) report.add("resident_mb", kib / 1024);
  }
  if (status != nullptr) std::fclose(status);
}

int measure(const std::string& what, const std::string& library, const Extent& extent,
            const std::vector<int>& groups) {
  Device device(library, 0);
  if (what == "first") return first_result(device), 0;
  Report report;
  if (what == "matrix") {
    measure_matrix(device, extent, groups, report);
  } else if (what == "waits") {
    measure_waits(device, extent, report);
  } else {
    if (what == "calls" || what == "all") {
      measure_calls(device, extent, report);
      add_memory(report);
    }
    if (what == "copies" || what == "all") measure_copies(device, extent, report);
  }
  report.print();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "bare" && argc == 4) {
    Report report;
    measure_bare(argv[2], std::strtoul(argv[3], nullptr, 10), report);
    report.print();
    return 0;
  }
  std::string library;
  Extent extent;
  std::vector<int> groups;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      extent = {size_t{16} << 20, 20};
    } else if (std::strcmp(argv[i], "--driver") == 0 && i + 1 < argc) {
      library = argv[++i];
    } else if (std::strcmp(argv[i], "--groups") == 0 && i + 1 < argc) {
      groups = counts(argv[++i]);
    } else {
      return usage();
    }
  }
  const char* const known[] = {"calls", "copies", "waits", "all", "matrix", "first"};
  if (std::find(std::begin(known), std::end(known), what) == std::end(known)) return usage();
  try {
    return measure(what, library, extent, groups);
  } catch (const Failure& failure) {
    std::fprintf(stderr, "tendril-bench: %s\n", failure.what());
    return 1;
  }
}
