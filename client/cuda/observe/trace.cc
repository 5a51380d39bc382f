// SPDX-License-Identifier: Apache-2.0
// See trace.h.
#include "client/cuda/observe/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

namespace tendril::client::cuda {

std::atomic<bool> g_trace_on{false};

namespace {

std::atomic<bool> g_trace_times{false};  // each line says when the call returned

constexpr size_t kPageBytes = 4096;  // where memory may end; larger pages end at these, too

void begin(api::Text* text) {
  text->raw("tendril trace: ");
  if (g_trace_times.load(std::memory_order_relaxed)) text->now();
}

// " -> CUDA_SUCCESS\n", and out with the line in one system call.
void finish(api::Text* text, int result) {
  const int kept = errno;
  char tail[96];
  const char* name = api::Enumerators<CUresult>::name_of(static_cast<uint32_t>(result));
  if (name != nullptr) {
    snprintf(tail, sizeof tail, " -> %s\n", name);
  } else {
    snprintf(tail, sizeof tail, " -> %d\n", result);
  }
  text->end(tail);
  if (write(STDERR_FILENO, text->data(), text->bytes()) < 0) errno = kept;  // nobody to tell
  errno = kept;
}

// A string may end right before memory that is not there. So it is copied up to the end of its
// page, then on.
size_t copy_string(const char* at, char* into, size_t most) {
  size_t have = 0;
  while (have < most) {
    const size_t in_page = kPageBytes - (reinterpret_cast<uintptr_t>(at) + have) % kPageBytes;
    const size_t piece = most - have < in_page ? most - have : in_page;
    if (!copy_own_memory(at + have, into + have, piece)) break;
    const void* end = memchr(into + have, 0, piece);
    if (end != nullptr) return static_cast<size_t>(static_cast<const char*>(end) - into);
    have += piece;
  }
  return have;
}

}  // namespace

bool trace_start() {
  const char* wish = getenv("TENDRIL_TRACE");
  g_trace_times.store(wish != nullptr && strcmp(wish, "time") == 0);
  g_trace_on.store(wish != nullptr && *wish != 0 && strcmp(wish, "0") != 0);
  return trace_on();
}

void trace_private(const char* what, int result) {
  if (!trace_on()) return;
  api::Text text;
  begin(&text);
  text.raw("private: ");
  text.raw(what);
  finish(&text, result);
}

bool copy_own_memory(const void* at, void* into, size_t bytes) {
  const int kept = errno;
  const iovec to = {into, bytes};
  const iovec from = {const_cast<void*>(at), bytes};
  const ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
  errno = kept;
  return got >= 0 && static_cast<size_t>(got) == bytes;
}

Trace::Trace(const char* call, CUresult result) : result_(result) {
  begin(&text_);
  text_.raw(call);
  text_.open("(");
}

Trace::~Trace() {
  text_.close(")");
  finish(&text_, result_);
}

void Trace::target(const char* name) {
  text_.item();
  text_.raw("*");
  text_.raw(name);
  text_.raw("=");
}

void Trace::flags(const char* name, uint64_t value) {
  text_.name(name);
  text_.hex(value);
}

void Trace::string(const char* name, const char* at) {
  char copy[api::kPrintedTextBytes + 1];
  if (at == nullptr || !copy_own_memory(at, copy, 1)) return value(name, at);
  text_.name(name);
  text_.quoted(copy, copy_string(at, copy, sizeof copy));
}

void Trace::text(const char* name, const char* at) {
  if (result_ != CUDA_SUCCESS) return value(name, at);
  string(name, at);
}

}  // namespace tendril::client::cuda
