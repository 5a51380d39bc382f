// SPDX-License-Identifier: Apache-2.0
// A cache of compiled code for compilers inside the program (NVRTC, nvJitLink of CUDA 13). Through
// a private table they ask their driver for what they made of the same source before, and give it
// what they make. A local driver has a cache for that. Ours is a folder on the client's machine
// that belongs to the user, so that no server and no other user must be trusted with code. The
// driver's variables hold: CUDA_CACHE_DISABLE=1, CUDA_CACHE_PATH (we use a folder `tendril` in it),
// CUDA_CACHE_MAXSIZE. docs/decisions/0013-compiled-code.md says how the protocol was found. Any
// thread. Whatever goes wrong is a miss.
#pragma once

#include <cstdint>
#include <string>

#include "api/cuda_abi.gen.h"

namespace tendril::client::cuda {

// The table's functions, in the order of their slots from 1 on. Slot 5 has not been seen in use.
struct Compilation;
// `kind`: 1 machine code, 2 an intermediate form. `compiler`: its build's date. `handle` lives
// until code_cache_end.
CUresult code_cache_begin(Compilation** handle, uint32_t kind, const void* source, uint32_t bytes,
                          const char* options, const char* target, const char* compiler,
                          uint32_t architecture, uint32_t more);
CUresult code_cache_end(Compilation* handle);
// The code is the caller's until code_cache_free. Anything but CUDA_SUCCESS makes the compiler
// compile.
CUresult code_cache_find(Compilation* handle, uint64_t, void** code, uint32_t* bytes);
CUresult code_cache_store(Compilation* handle, uint64_t, const void* code, uint32_t bytes);
void code_cache_free(void* code);

// Where the cache is. Empty: CUDA_CACHE_DISABLE, or there is no place for it.
std::string code_cache_folder();
// For tests: the environment is read again.
void code_cache_reset();

}  // namespace tendril::client::cuda
