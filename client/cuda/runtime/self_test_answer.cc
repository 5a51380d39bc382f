// SPDX-License-Identifier: Apache-2.0
// The answer to the CUDA runtime's self-test: a keyed digest (HMAC, RFC 2104, over MD2, RFC 1319)
// of facts about this process and its devices. Written from published facts, for interoperability
// with a genuine driver on the server: docs/runtime-self-test.md. Called a few times per runtime
// instance, through export_table.cc. Nothing else belongs into this file.
#include "client/cuda/runtime/self_test_answer.h"

#include <string.h>

#include "client/cuda/state.h"

namespace tendril::client::cuda {
namespace {

constexpr uint32_t kBlock = 16;

// RFC 1319's permutation of the bytes, made from the digits of pi.
constexpr uint8_t kPi[256] = {
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,  98,  167, 5,
    243, 192, 199, 115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,  155, 87,  60,  253, 212,
    224, 22,  103, 66,  111, 24,  138, 23,  229, 18,  190, 78,  196, 214, 218, 158, 222, 73,  160,
    251, 245, 142, 187, 47,  238, 122, 169, 104, 121, 145, 21,  178, 7,   63,  148, 194, 16,  137,
    11,  34,  95,  33,  128, 127, 93,  154, 90,  144, 50,  39,  53,  62,  204, 231, 191, 247, 151,
    3,   255, 25,  48,  179, 72,  165, 181, 209, 215, 94,  146, 42,  172, 86,  170, 198, 79,  184,
    56,  210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,  100,
    113, 135, 32,  134, 91,  207, 101, 230, 45,  168, 2,   27,  96,  37,  173, 174, 176, 185, 246,
    28,  70,  97,  105, 52,  64,  126, 15,  85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249,
    206, 186, 197, 234, 38,  44,  83,  13,  110, 133, 40,  132, 9,   211, 223, 205, 244, 65,  129,
    77,  82,  106, 220, 55,  200, 108, 193, 171, 250, 36,  225, 123, 8,   12,  189, 177, 74,  120,
    136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254, 59,  0,   29,  57,  242, 239, 183, 14,
    102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,  49,  68,  80,  180, 143, 237, 31,
    26,  219, 153, 141, 51,  159, 17,  131, 20,
};

class Digest {
 public:
  void add(const void* data, size_t bytes) {
    const uint8_t* from = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < bytes; ++i) {
      block_[filled_++] = from[i];
      if (filled_ == kBlock) take_block();
    }
  }

  void finish(uint8_t out[kBlock]) {
    const uint8_t pad = static_cast<uint8_t>(kBlock - filled_);
    for (uint32_t i = pad; i != 0; --i) add(&pad, 1);
    uint8_t checksum[kBlock];
    memcpy(checksum, checksum_, kBlock);
    add(checksum, kBlock);
    memcpy(out, state_, kBlock);
  }

 private:
  void take_block() {
    for (uint32_t i = 0; i < kBlock; ++i) {
      last_ = checksum_[i] = static_cast<uint8_t>(checksum_[i] ^ kPi[block_[i] ^ last_]);
      state_[kBlock + i] = block_[i];
      state_[2 * kBlock + i] = static_cast<uint8_t>(block_[i] ^ state_[i]);
    }
    uint8_t t = 0;
    for (uint8_t round = 0; round < 18; ++round) {
      for (uint8_t& byte : state_) t = byte = static_cast<uint8_t>(byte ^ kPi[t]);
      t = static_cast<uint8_t>(t + round);
    }
    filled_ = 0;
  }

  uint8_t state_[3 * kBlock] = {}, checksum_[kBlock] = {}, block_[kBlock] = {};
  uint8_t last_ = 0;
  uint32_t filled_ = 0;
};

// The published key of the keyed digest.
constexpr uint8_t kKey[kBlock] = {0x14, 0x6A, 0xDD, 0xAE, 0x53, 0xA9, 0xA7, 0x52,
                                  0xAA, 0x08, 0x41, 0x36, 0x0B, 0xF5, 0x5A, 0x9F};

void add_key(Digest* digest, uint8_t mask) {
  uint8_t masked[kBlock];
  for (uint32_t i = 0; i < kBlock; ++i) masked[i] = static_cast<uint8_t>(kKey[i] ^ mask);
  digest->add(masked, kBlock);
}

void add_devices(Digest* digest) {
  for (const Device* device : process()->devices) {
    const int32_t pci[3] = {device->attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID],
                            device->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID],
                            device->attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID]};
    digest->add(&device->uuid, sizeof device->uuid);
    digest->add(pci, sizeof pci);
  }
}

}  // namespace

void self_test_answer(const SelfTestQuestion& q, uint64_t answer[2]) {
  // Two of the three questions have constant answers.
  if (q.version % 10 < 2) {
    answer[0] = q.version % 10 == 0 ? 0x3341181C03CB675C : 0x1841181C03CB675C;
    answer[1] = 0x8ED383AA1F4CD1E8;
    return;
  }
  uint8_t inner[kBlock];
  Digest first;
  add_key(&first, 0x36);
  const uint32_t numbers[4] = {q.driver_version, q.version, q.process, q.thread};
  const void* addresses[3] = {q.runtime_table, q.self_test_table, q.function};
  first.add(numbers, sizeof numbers);
  first.add(addresses, sizeof addresses);
  first.add(&q.unix_seconds, sizeof q.unix_seconds);
  add_devices(&first);
  first.finish(inner);
  Digest second;
  add_key(&second, 0x5c);
  second.add(inner, kBlock);
  uint8_t outer[kBlock];
  second.finish(outer);
  memcpy(answer, outer, kBlock);
}

}  // namespace tendril::client::cuda
