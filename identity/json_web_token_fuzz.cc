// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: signed tokens, key sets, answers of web servers and files of providers. The
// first byte says how the rest is read.
#include "identity/json_web_token.h"

#include "identity/providers.h"
#include "identity/web/device_login.h"
#include "identity/web/fetch.h"
#include "identity/web/line.h"

using namespace tendril;  // NOLINT: a program

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  // The test vector of RFC 7517, A.1.
  static const identity::KeySet keys =
      identity::KeySet::read(R"({"keys":[{"kty":"EC","crv":"P-256","kid":"1",)"
                             R"("x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",)"
                             R"("y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]})")
          .take();
  identity::Expected expected;
  expected.groups_claim = "groups";
  switch (data[0] % 5) {
    case 0:
      (void)identity::claimed_issuer(rest);
      // No fuzzer signs.
      if (identity::read_signed_token(rest, keys, expected, 1'800'000'000).ok()) __builtin_trap();
      break;
    case 1:
      (void)identity::KeySet::read(rest);
      break;
    case 2: {
      identity::Address address;
      (void)identity::read_address(rest, &address);
      (void)identity::read_answer(rest);
      break;
    }
    case 3:
      (void)identity::read_provider_addresses(rest, "https://login.example.org");
      (void)identity::read_device_code(rest);
      (void)identity::read_token_answer(data[0] < 128 ? 200 : 400, rest);
      break;
    default:
      (void)identity::parse_providers(rest, "file");
  }
  return 0;
}
