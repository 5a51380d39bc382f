// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: names of identities and networks from arbitrary bytes. A name that is read says
// the same when it is put together again.
#include "access/network.h"
#include "access/principal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace tendril::access;  // NOLINT
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  const auto name = parse_identity(text);
  if (name.ok() && "spiffe://" + name.value().pool + "/" + role_name(name.value().role) + "/" +
                           name.value().name !=
                       text) {
    __builtin_trap();
  }
  const auto network = parse_network(text);
  if (network.ok() && network.value().prefix_bits > 128) __builtin_trap();
  if (network.ok() && !contains({network.value()}, text.substr(0, text.find('/'))))
    __builtin_trap();
  contains({}, text);
  return 0;
}
