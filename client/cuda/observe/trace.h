// SPDX-License-Identifier: Apache-2.0
// TENDRIL_TRACE=1: one line on stderr for each call of the driver API, with its arguments and its
// result by name. TENDRIL_TRACE=time: also the time at which it returned. The generated `observed`
// functions (api/gen/emit_print.py) fill a Trace after the call. The trace prints what a pointer
// leads to only if the description says that the call reads it, or if the call has written it and
// succeeded. The kernel copies that memory, so a pointer that leads nowhere is printed as a number
// and does not end the program. Any thread; keeps errno.
#pragma once

#include <atomic>
#include <cstdint>

#include "api/cuda_print.gen.h"

namespace tendril::client::cuda {

// Outside Process: calls are traced before there is one.
extern std::atomic<bool> g_trace_on;
inline bool trace_on() { return g_trace_on.load(std::memory_order_relaxed); }

// Reads TENDRIL_TRACE. True: it is on.
bool trace_start();
// A line for a function that is no exported entry: one of the driver's private tables.
void trace_private(const char* what, int result);

// Copies [at, at + bytes) of this process without touching it. False: not all of it can be read.
bool copy_own_memory(const void* at, void* into, size_t bytes);

class Trace {
 public:
  Trace(const char* call, CUresult result);
  ~Trace();  // writes the line
  Trace(const Trace&) = delete;

  template <typename T>
  void value(const char* name, const T& value) {
    text_.name(name);
    print(text_, value);
  }
  void flags(const char* name, uint64_t value);
  // A NUL-terminated string that the call reads.
  void string(const char* name, const char* at);
  // A buffer in which a call that succeeded has left a string.
  void text(const char* name, const char* at);

  // What the call reads.
  template <typename T>
  void in(const char* name, const T* at) {
    T copy;
    if (!copy_own_memory(at, &copy, sizeof copy)) return value(name, at);
    target(name);
    print(text_, copy);
  }
  void in(const char* name, const char* const* at) {  // a string it leads to
    const char* copy;
    if (!copy_own_memory(at, &copy, sizeof copy)) return value(name, at);
    string(name, copy);
  }
  template <typename T>
  void in(const char* name, const T* at, uint64_t count) {
    T copies[api::kPrintedElements];
    const uint64_t shown = count < api::kPrintedElements ? count : api::kPrintedElements;
    if (shown == 0 || !copy_own_memory(at, copies, shown * sizeof(T))) return value(name, at);
    text_.name(name);
    text_.open("[");
    for (uint64_t i = 0; i < shown; ++i) {
      text_.item();
      print(text_, copies[i]);
    }
    if (shown < count) text_.rest(count - shown);
    text_.close("]");
  }
  // What a call that succeeded has written.
  template <typename T, typename... Count>
  void out(const char* name, const T* at, Count... count) {
    if (result_ != CUDA_SUCCESS) return value(name, at);
    in(name, at, count...);
  }

 private:
  void target(const char* name);  // "*name="

  api::Text text_;
  CUresult result_;
};

}  // namespace tendril::client::cuda
