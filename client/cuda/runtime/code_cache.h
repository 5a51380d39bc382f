// SPDX-License-Identifier: Apache-2.0
// Compilers inside the program (NVRTC, nvJitLink of CUDA 13) ask their driver, through a private
// table, whether it still has what they made of the same source before, and give it what they make.
// With a local driver that is its cache of compiled code; here it is a folder on the client's
// machine, which belongs to who runs the program, as the driver's would: no server and no other
// user is asked to be trusted with code. The driver's variables hold: CUDA_CACHE_DISABLE=1,
// CUDA_CACHE_PATH (a folder `tendril` in it), CUDA_CACHE_MAXSIZE. What is asked how, was seen by
// answering (decisions/0013). Any thread. Whatever goes wrong is a miss.
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

// Where it is; empty: CUDA_CACHE_DISABLE, or no place for it.
std::string code_cache_folder();
// For tests: the environment is read again.
void code_cache_reset();

}  // namespace tendril::client::cuda
