// SPDX-License-Identifier: Apache-2.0
// For the fuzz targets of the dispatchers: mutations that keep a client's command lane well formed,
// so that most inputs reach a handler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "wire/frame.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t bytes, size_t bytes_max);

namespace tendril::worker {

using Bytes = std::vector<uint8_t>;

// Splits the input into calls. Bytes at the end that are no call are dropped.
inline std::vector<Bytes> split_lane(const uint8_t* data, size_t bytes) {
  std::vector<Bytes> calls;
  wire::CallHeader header;
  while (bytes >= sizeof header) {
    std::memcpy(&header, data, sizeof header);
    if (header.bytes < sizeof header || header.bytes > bytes) break;
    calls.emplace_back(data, data + header.bytes);
    data += header.bytes;
    bytes -= header.bytes;
  }
  return calls;
}

inline void mutate_body(Bytes& call) {
  wire::CallHeader header;
  std::memcpy(&header, call.data(), sizeof header);
  Bytes body(call.begin() + sizeof header, call.end());
  const size_t before = body.size();
  body.resize(before + 64);
  body.resize(LLVMFuzzerMutate(body.data(), before, body.size()));
  const size_t pad = (8 - body.size() % 8) % 8;
  header.bytes = static_cast<uint32_t>(sizeof header + body.size() + pad);
  header.flags = static_cast<uint16_t>((header.flags & ~wire::kFlagPadMask) | pad);
  call.resize(header.bytes);
  std::memcpy(call.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(call.data() + sizeof header, body.data(), body.size());
}

// Copies a word of one call (perhaps an id) over a word of another call.
inline void borrow_word(Bytes& into, const Bytes& from, uint32_t where) {
  const size_t words_into = into.size() / 8, words_from = from.size() / 8;
  if (words_into <= 2 || words_from <= 2) return;
  const size_t to = 2 + where % (words_into - 2), at = 2 + where / 64 % (words_from - 2);
  std::memcpy(into.data() + to * 8, from.data() + at * 8, 8);
}

// LLVMFuzzerCustomMutator for a lane whose API has operations 1 to `operations`.
inline size_t mutate_lane(uint8_t* data, size_t bytes, size_t bytes_max, unsigned seed,
                          uint32_t operations) {
  std::minstd_rand random(seed);
  std::vector<Bytes> calls = split_lane(data, bytes);
  if (calls.empty() || random() % 16 == 0) return LLVMFuzzerMutate(data, bytes, bytes_max);
  const size_t one = random() % calls.size(), other = random() % calls.size();
  switch (random() % 8) {
    case 0:
      calls.insert(calls.begin() + static_cast<long>(one), Bytes(calls[other]));
      break;
    case 1:
      calls.erase(calls.begin() + static_cast<long>(one));
      break;
    case 2:
      std::swap(calls[one], calls[other]);
      break;
    case 3: {
      const auto opcode = static_cast<uint16_t>(1 + random() % operations);
      std::memcpy(calls[one].data() + offsetof(wire::CallHeader, opcode), &opcode, sizeof opcode);
      break;
    }
    case 4:
    case 5:
      borrow_word(calls[one], Bytes(calls[other]), static_cast<uint32_t>(random()));
      break;
    default:
      mutate_body(calls[one]);
  }
  size_t used = 0;
  for (const Bytes& call : calls) {
    if (call.size() > bytes_max - used) break;
    std::memcpy(data + used, call.data(), call.size());
    used += call.size();
  }
  return used;
}

}  // namespace tendril::worker
