// SPDX-License-Identifier: Apache-2.0
// Any bytes as a server's answer. In whatever pieces they come, the reader finds the same.
#include <cstdint>

#include "base/check.h"
#include "http/response_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tendril;
  constexpr size_t kBodyBytesMax = 1000;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  http::ResponseReader whole(kBodyBytesMax), pieces(kBodyBytesMax);
  const bool fits = whole.take(text).ok();
  bool also_fits = true;
  for (const char& letter : text) also_fits = also_fits && pieces.take({&letter, 1}).ok();
  TENDRIL_CHECK(fits == also_fits);
  if (!fits) return 0;
  (void)whole.end().ok();
  (void)pieces.end().ok();
  TENDRIL_CHECK(whole.is_whole() == pieces.is_whole());
  TENDRIL_CHECK(whole.status() == pieces.status());
  TENDRIL_CHECK(whole.body() == pieces.body() && whole.body().size() <= kBodyBytesMax);
  return 0;
}
