// SPDX-License-Identifier: Apache-2.0
// Prints calls as they came over the wire: for the worker's trace (TENDRIL_WORKER_TRACE) and for
// recorded lanes. tell_call is generated (api/gen/emit_print.py). It checks all bounds, as the
// dispatcher does, and follows no pointer. Executor thread.
#pragma once

#include <cstdint>

#include "api/cuda_kinds.gen.h"
#include "api/cuda_messages.gen.h"
#include "api/cuda_print.gen.h"
#include "worker/cuda/executor/dispatch.h"

namespace tendril::worker::cuda {

// "op(field=value, ...)", or "op(malformed)".
void tell_call(api::Text& text, uint16_t opcode, const uint8_t* body, uint64_t bytes);

// Example: "stream#3". An id that the worker chose has a w before the number.
void tell_object(api::Text& text, uint64_t id);

template <typename T>
void tell(api::Text& text, const char* name, const T& value) {
  text.name(name);
  print(text, value);
}
// A word that may be an id, an address or a size.
void tell(api::Text& text, const char* name, uint64_t value);
// Prints the bytes if they look like text, otherwise their length.
void tell(api::Text& text, const char* name, const wire::Bytes& bytes);
template <typename T>
void tell(api::Text& text, const char* name, const wire::Array<T>& values) {
  text.name(name);
  print_array(text, values.data, values.count);
}
template <typename T>
void tell(api::Text& text, const char* name, const wire::Image<T>& image) {
  text.name(name);
  print(text, image.value);
}
template <typename T>
void tell(api::Text& text, const char* name, const wire::Optional<T>& image) {
  if (!image.present) return;
  text.name(name);
  print(text, image.value);
}

void tell_id(api::Text& text, const char* name, uint64_t id);
void tell_id(api::Text& text, const char* name, const wire::Array<uint64_t>& ids);

}  // namespace tendril::worker::cuda
