// SPDX-License-Identifier: Apache-2.0
// Calls as they came over the wire, as text: for the worker's trace (TENDRIL_WORKER_TRACE) and for
// recorded lanes. tell_call is generated (api/gen/emit_print.py) and believes nothing: it decodes
// as the dispatcher does. Executor thread; follows no pointer.
#pragma once

#include <cstdint>

#include "api/cuda_kinds.gen.h"
#include "api/cuda_messages.gen.h"
#include "api/cuda_print.gen.h"
#include "worker/cuda/executor/dispatch.h"

namespace tendril::worker::cuda {

// "op(field=value, ...)", or "op(malformed)".
void tell_call(api::Text& text, uint16_t opcode, const uint8_t* body, uint64_t bytes);

// "stream#3"; ids that the worker chose have a w before the number.
void tell_object(api::Text& text, uint64_t id);

template <typename T>
void tell(api::Text& text, const char* name, const T& value) {
  text.name(name);
  print(text, value);
}
// A word that may be an id, an address or a size.
void tell(api::Text& text, const char* name, uint64_t value);
// Text when it looks like text; otherwise its length.
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
