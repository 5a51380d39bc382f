// SPDX-License-Identifier: Apache-2.0
// See code_cache.h. A file's name is the hash of everything that the compiler said of a
// compilation. The file begins with the hash of the code.
#include "client/cuda/runtime/code_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <new>

#include "base/content_hash.h"
#include "base/kept_files.h"
#include "base/text.h"
#include "client/common/log.h"
#include "client/cuda/observe/trace.h"

namespace tendril::client::cuda {

struct Compilation {
  std::string name;
};

namespace {

constexpr uint64_t kFolderBytes =
    uint64_t{1} << 30;  // as the driver's own, unless CUDA_CACHE_MAXSIZE says otherwise
constexpr uint64_t kCodeBytesMax = uint64_t{1} << 30;
constexpr char kSuffix[] = ".code";
// Raised when a file would mean something else.
constexpr uint32_t kFormat = 1;

// Made at first use, never destroyed. There is no lock, as a forked child may be the next to ask.
std::atomic<base::KeptFiles*> g_files{nullptr};

std::string setting(const char* name) {
  const char* text = getenv(name);
  return text != nullptr ? text : "";
}

uint64_t folder_limit() {
  const std::string text = setting("CUDA_CACHE_MAXSIZE");
  char* end = nullptr;
  const unsigned long long bytes = strtoull(text.c_str(), &end, 10);
  return !text.empty() && *end == 0 ? bytes : kFolderBytes;
}

// Null: there is none.
const base::KeptFiles* files() {
  base::KeptFiles* found = g_files.load(std::memory_order_acquire);
  if (found == nullptr) {
    const std::string folder = code_cache_folder();
    auto* made = new (std::nothrow) base::KeptFiles(folder, kSuffix, folder_limit());
    if (made != nullptr && !folder.empty() && !made->make())
      log_once(LogLevel::kInfo, "no folder %s for compiled code (%s): compilers compile each time",
               folder.c_str(), strerror(errno));
    if (g_files.compare_exchange_strong(found, made)) {
      found = made;
    } else {
      delete made;
    }
  }
  return found != nullptr && found->exists() ? found : nullptr;
}

void add_field(std::string* key, const void* data, uint64_t bytes) {
  key->append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  key->append(static_cast<const char*>(data), bytes);
}

void add_text(std::string* key, const char* text) {
  if (text == nullptr) text = "";
  add_field(key, text, strlen(text));
}

CUresult told(const char* what, CUresult result) {
  trace_private(what, result);
  return result;
}

}  // namespace

std::string code_cache_folder() {
  if (setting("CUDA_CACHE_DISABLE") == "1") return "";
  std::string folder = setting("CUDA_CACHE_PATH");
  if (!folder.empty()) return folder + "/tendril";
  folder = base::user_cache_folder();
  return folder.empty() ? "" : folder + "/tendril/code";
}

void code_cache_reset() { delete g_files.exchange(nullptr); }

CUresult code_cache_begin(Compilation** handle, uint32_t kind, const void* source, uint32_t bytes,
                          const char* options, const char* target, const char* compiler,
                          uint32_t architecture, uint32_t more) {
  if (handle == nullptr || source == nullptr || files() == nullptr)
    return told("compilation begins, no cache", CUDA_ERROR_NOT_SUPPORTED);
  const uint32_t numbers[] = {kFormat, kind, architecture, more};
  std::string key(reinterpret_cast<const char*>(numbers), sizeof numbers);
  add_text(&key, options);
  add_text(&key, target);
  add_text(&key, compiler);
  add_field(&key, source, bytes);
  const std::string hash = base::content_hash(key.data(), key.size());
  *handle = new (std::nothrow) Compilation{base::hex(hash.data(), hash.size())};
  return told("compilation begins", *handle != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult code_cache_end(Compilation* handle) {
  delete handle;
  return told("compilation ends", CUDA_SUCCESS);
}

CUresult code_cache_find(Compilation* handle, uint64_t, void** code, uint32_t* bytes) {
  const base::KeptFiles* kept = files();
  if (handle == nullptr || code == nullptr || bytes == nullptr || kept == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t there = 0;
  const base::Fd fd = kept->open(handle->name, &there);
  char hash[base::kContentHashBytes];
  if (!fd.valid()) return told("compiled code is not there", CUDA_ERROR_NOT_FOUND);
  const uint64_t size = there > sizeof hash ? there - sizeof hash : 0;
  // A NUL behind it: the intermediate form is text.
  char* data = size != 0 && size <= kCodeBytesMax ? static_cast<char*>(malloc(size + 1)) : nullptr;
  const bool good = data != nullptr && base::read_all(fd.get(), hash, sizeof hash) &&
                    base::read_all(fd.get(), data, size) &&
                    base::content_hash(data, size) == std::string(hash, sizeof hash);
  if (!good) {
    free(data);
    kept->remove(handle->name);
    return told("compiled code is damaged", CUDA_ERROR_NOT_FOUND);
  }
  data[size] = 0;
  *code = data;
  *bytes = static_cast<uint32_t>(size);
  return told("compiled code is found", CUDA_SUCCESS);
}

CUresult code_cache_store(Compilation* handle, uint64_t, const void* code, uint32_t bytes) {
  const base::KeptFiles* kept = files();
  if (handle == nullptr || code == nullptr || bytes == 0 || kept == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const std::string hash = base::content_hash(code, bytes);
  const bool written = kept->write(handle->name, {{hash.data(), hash.size()}, {code, bytes}});
  return told("compiled code is kept", written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM);
}

void code_cache_free(void* code) { free(code); }

}  // namespace tendril::client::cuda
