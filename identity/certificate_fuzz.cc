// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: what peers send to an authority or show as a certificate. The first byte says
// how the rest is read.
#include "identity/certificate.h"
#include "identity/deny_list.h"
#include "identity/join_token.h"

using namespace tendril;  // NOLINT: a program

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  constexpr int64_t kNowS = 1'800'000'000;
  static const identity::Key key = identity::make_key().take();
  static const identity::Certificate authority = identity::make_authority(key, "lab", kNowS).take();
  if (bytes == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, bytes - 1);
  switch (data[0] % 5) {
    case 0:
      (void)identity::issue(authority, key, rest,
                            {{"lab", identity::Role::kUser, "alice"}, kNowS, 60});
      break;
    case 1: {
      const auto certificate = identity::read_certificate(rest);
      if (!certificate.ok()) break;
      (void)identity::read_facts(certificate.value());
      (void)identity::authority_pool(certificate.value());
      (void)identity::pin_of(certificate.value());
      (void)identity::judge(certificate.value(), authority, identity::Purpose::kClient, kNowS, "");
      break;
    }
    case 2: {
      const auto name = identity::read_name(rest);
      if (name.ok() && name.value().uri() != rest) __builtin_trap();
      break;
    }
    case 3: {
      const auto token = identity::read_join_token(rest);
      if (token.ok() && token.value().text() != rest) __builtin_trap();
      break;
    }
    default: {
      const auto list = identity::DenyList::read(rest);
      if (list.ok() && !(identity::DenyList::read(list.value().text()).take() == list.value()))
        __builtin_trap();
    }
  }
  return 0;
}
