// SPDX-License-Identifier: Apache-2.0
// Names and texts of results. Names are the enumerators of the ABI. Texts are the driver's own,
// asked once for each code while a server is attached. Before that they come from result_texts.h,
// and for a code that is not there from its enumerator, in plain words.
#include <string.h>

#include "client/cuda/bodies.h"
#include "client/cuda/observe/result_texts.h"

namespace tendril::client::cuda {
namespace {

struct Name {
  int code;
  const char* name;
};
constexpr Name kNames[] = {
#include "api/cuda_results.gen.inc"
};
constexpr size_t kCount = sizeof kNames / sizeof kNames[0];

// Outside Process: programs keep these pointers for as long as they run.
std::atomic<const char*> g_texts[kCount];

size_t index_of(CUresult error) {
  for (size_t i = 0; i < kCount; ++i) {
    if (kNames[i].code == error) return i;
  }
  return kCount;
}

// "CUDA_ERROR_INVALID_VALUE" -> "invalid value".
const char* plain_words(const char* name) {
  const char* from = strncmp(name, "CUDA_ERROR_", 11) == 0 ? name + 11 : name;
  char* words = strdup(from);
  for (char* p = words; p != nullptr && *p != 0; ++p) {
    if (*p == '_') *p = ' ';
    if (*p >= 'A' && *p <= 'Z') *p = static_cast<char>(*p - 'A' + 'a');
  }
  return words != nullptr ? words : from;
}

const char* own_text(CUresult error, const char* name) {
  for (const ResultText& row : kResultTexts) {
    if (row.code == error) return row.text;
  }
  return plain_words(name);
}

const char* ask(CUresult error) {
  Process* program = process();
  if (program == nullptr || program->sessions.empty()) return nullptr;  // none begins for a text
  wire::cuda::error_text_request request;
  wire::cuda::error_text_reply reply;
  request.code = static_cast<uint32_t>(error);
  if (program->sessions.front()->call(static_cast<const Context*>(nullptr), request, reply) !=
          CUDA_SUCCESS ||
      reply.text.count == 0)
    return nullptr;
  return strndup(reinterpret_cast<const char*>(reply.text.data), reply.text.count);
}

}  // namespace

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const size_t i = index_of(error);
  *pStr = i < kCount ? kNames[i].name : nullptr;
  return i < kCount ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pStr = nullptr;
  const size_t i = index_of(error);
  if (i == kCount) return CUDA_ERROR_INVALID_VALUE;
  const char* text = g_texts[i].load(std::memory_order_acquire);
  if (text == nullptr) {
    text = ask(error);
    const bool final_word = text != nullptr;
    if (!final_word) text = own_text(error, kNames[i].name);
    const char* expected = nullptr;
    if (!g_texts[i].compare_exchange_strong(expected, text)) text = expected;
  }
  *pStr = text;
  return CUDA_SUCCESS;
}

}  // namespace tendril::client::cuda
