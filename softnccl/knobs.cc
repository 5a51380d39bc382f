// SPDX-License-Identifier: Apache-2.0
// Reads the knobs. See knobs.h.
#include "softnccl/knobs.h"

#include <arpa/inet.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace tendril::softnccl {
namespace {

bool number(const char* text, uint64_t most, uint64_t* value) {
  char* end = nullptr;
  if (*text < '0' || *text > '9') return false;
  const unsigned long long read = std::strtoull(text, &end, 10);
  if (*end != '\0' || read > most) return false;
  *value = read;
  return true;
}

// NAME:N:CODE or NAME:N+:CODE
bool failure(const std::string& text, Failure* made) {
  const size_t first = text.find(':'), second = text.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) return false;
  made->call = text.substr(0, first);
  std::string count = text.substr(first + 1, second - first - 1);
  made->from_there_on = !count.empty() && count.back() == '+';
  if (made->from_there_on) count.pop_back();
  uint64_t code = 0;
  if (!number(count.c_str(), UINT64_MAX, &made->first) ||
      !number(text.c_str() + second + 1, ncclNumResults - 1, &code))
    return false;
  made->code = static_cast<ncclResult_t>(code);
  return true;
}

bool failures(const std::string& text, std::vector<Failure>* made) {
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    Failure one;
    if (!failure(text.substr(at, end - at), &one)) return false;
    made->push_back(one);
    at = end + 1;
  }
  return true;
}

}  // namespace

Knobs read_knobs(const std::function<const char*(const char*)>& variable, std::string* problem) {
  Knobs read;
  auto take = [&](const char* name, uint64_t most, auto* into) {
    const char* text = variable(name);
    uint64_t value = 0;
    if (text == nullptr) return;
    if (number(text, most, &value))
      *into = static_cast<std::remove_reference_t<decltype(*into)>>(value);
    else
      *problem +=
          std::string(name) + " = " + text + " is no number up to " + std::to_string(most) + "; ";
  };
  take("VERSION", INT_MAX, &read.version);
  take("CONNECT_DELAY_MS", 600'000, &read.connect_delay_ms);
  take("QUEUE", UINT32_MAX, &read.queue);
  take("LOSE", UINT64_MAX, &read.lose);
  take("FLIP", UINT64_MAX, &read.flip);
  take("BUFFER_MB", 1 << 20, &read.buffer_mb);
  take("PEER_MB", 1 << 20, &read.peer_mb);
  if (read.queue == 0) read.queue = 1;
  if (const char* text = variable("ADDRESS")) {
    in_addr parsed{};
    if (inet_pton(AF_INET, text, &parsed) == 1)
      read.address = text;
    else
      *problem += std::string("ADDRESS = ") + text + " is no IPv4 address; ";
  }
  if (const char* text = variable("FAIL")) {
    if (!failures(text, &read.failures)) {
      read.failures.clear();
      *problem += std::string("FAIL = ") + text + " is not NAME:N:CODE or NAME:N+:CODE, ...; ";
    }
  }
  return read;
}

// A copy of this library that is named libnccl.so.2.27.5 is that version.
static void take_version_of_file(Knobs* read) {
  Dl_info info;
  unsigned major = 0, minor = 0, patch = 0;
  if (dladdr(reinterpret_cast<const void*>(&read_knobs), &info) == 0) return;
  const char* name = std::strrchr(info.dli_fname, '/');
  if (name != nullptr && std::sscanf(name, "/libnccl.so.%u.%u.%u", &major, &minor, &patch) == 3)
    read->version = static_cast<int>(major * 10'000 + minor * 100 + patch);
}

const Knobs& knobs() {
  static const Knobs& all = *[] {
    std::string problem;
    auto variable = [](const char* name) {
      return std::getenv((std::string("TENDRIL_SOFTNCCL_") + name).c_str());
    };
    auto* made = new Knobs(read_knobs(variable, &problem));
    if (variable("VERSION") == nullptr) take_version_of_file(made);
    if (!problem.empty())
      std::fprintf(stderr, "softnccl: knobs that do not parse are left out: %s\n", problem.c_str());
    return made;
  }();
  return all;
}

ncclResult_t wanted_failure(const char* name) {
  const std::vector<Failure>& wanted = knobs().failures;
  if (wanted.empty()) return ncclSuccess;
  static std::mutex& lock = *new std::mutex;
  static auto& calls = *new std::map<std::string, uint64_t>;
  std::lock_guard guard(lock);
  const uint64_t call = ++calls[name];
  for (const Failure& one : wanted)
    if (one.call == name && (call == one.first || (one.from_there_on && call > one.first)))
      return one.code;
  return ncclSuccess;
}

}  // namespace tendril::softnccl
