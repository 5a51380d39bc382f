// SPDX-License-Identifier: Apache-2.0
// What the programs here share: checked calls, checksums, reproducible input, and the last line
// PASS or FAIL. They print nothing that differs between two runs, so native and remote output can
// be compared byte by byte. One thread. The first error ends the program.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// `call` gives 0 on success, as the CUDA libraries do.
#define CHECK(call)                                                              \
  do {                                                                           \
    const int check_code = static_cast<int>(call);                               \
    if (check_code != 0) {                                                       \
      std::printf("%s: code %d (line %d)\nFAIL\n", #call, check_code, __LINE__); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (0)

// For what this machine lacks: reported as not run, never as passed.
[[noreturn]] inline void skip(const char* why) {
  std::printf("skip: %s\n", why);
  std::exit(77);
}

inline int finish(bool good) {
  std::printf(good ? "PASS\n" : "FAIL\n");
  return good ? 0 : 1;
}

// FNV-1a over the bytes: the same number only for the same bits.
inline uint64_t checksum(const void* data, size_t bytes) {
  uint64_t hash = 1469598103934665603u;
  const auto* p = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * 1099511628211u;
  return hash;
}

template <typename T>
uint64_t checksum(const std::vector<T>& data) {
  return checksum(data.data(), data.size() * sizeof(T));
}

// Values in [-1, 1), the same on every machine.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 2654435769u + 88172645463325252u) {}
  double next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<double>(state_ >> 11) / 4503599627370496.0 - 1.0;
  }
  template <typename T>
  std::vector<T> many(size_t count) {
    std::vector<T> out(count);
    for (T& value : out) value = static_cast<T>(next());
    return out;
  }

 private:
  uint64_t state_;
};
