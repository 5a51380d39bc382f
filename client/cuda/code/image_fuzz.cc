// SPDX-License-Identifier: Apache-2.0
// Device code as a hostile or broken program (and, for the worker, a hostile peer) may present it:
// never read beyond the bytes, and what is rebuilt must itself be well-formed.
#include <cstdlib>

#include "client/cuda/code/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tendril;
  const api::CodeImage image = api::code_image(data, size);
  if (image.kind == api::CodeKind::kNone) return 0;
  if (image.bytes > size) std::abort();
  const client::cuda::Target targets[] = {{9, 0}, {12, 0}};
  const client::cuda::Payload payload = client::cuda::reduce(image, targets, 2, (size & 1) != 0);
  if (payload.reduced &&
      (api::container_bytes(payload.data, payload.bytes) != payload.bytes || payload.bytes >= size))
    std::abort();
  return 0;
}
