// SPDX-License-Identifier: Apache-2.0
// See end_word.h.
#include "worker/cuda/end_word.h"

#include <cstdlib>

namespace tendril::worker::cuda {
namespace {

constexpr size_t kLine = 128;

}  // namespace

// Not measured under MPS, whose GPUs are shared anyhow.
EndWord::EndWord(gpu::Driver* driver)
    : driver_(driver),
      usable_(driver->cuStreamWriteValue32_v2 != nullptr && driver->cuMemHostGetDevicePointer_v2 != nullptr &&
              std::getenv("CUDA_MPS_PIPE_DIRECTORY") == nullptr) {}

const EndWord::Word* EndWord::word_of(CUcontext context) {
  for (const Word& word : words_) {
    if (word.context == context) return &word;
  }
  void* host = nullptr;
  Word word = {context, nullptr, 0};
  // Portable, as a stream may belong to another context than the one that is current. It ends with this one.
  if (driver_->cuMemHostAlloc(&host, kLine, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS ||
      driver_->cuMemHostGetDevicePointer_v2(&word.gpu, host, 0) != CUDA_SUCCESS) {
    return nullptr;
  }
  word.host = static_cast<uint32_t*>(host);
  words_.push_back(word);
  return &words_.back();
}

bool EndWord::write(CUcontext context, CUstream stream) {
  const Word* word = usable_ ? word_of(context) : nullptr;
  if (word == nullptr) return false;
  const CUresult result =
      driver_->cuStreamWriteValue32_v2(stream, word->gpu, ++number_, CU_STREAM_WRITE_VALUE_DEFAULT);
  last_ = word->host;
  usable_ = result != CUDA_ERROR_NOT_SUPPORTED;
  return result == CUDA_SUCCESS;
}

void EndWord::forget(CUcontext context) {
  for (size_t i = 0; i < words_.size(); ++i) {
    if (words_[i].context != context) continue;
    if (last_ == words_[i].host) last_ = &number_;
    words_.erase(words_.begin() + static_cast<ptrdiff_t>(i));
    return;
  }
}

}  // namespace tendril::worker::cuda
