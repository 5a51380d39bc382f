// SPDX-License-Identifier: Apache-2.0
// What modules and libraries share in the client: bringing an image to a server and loading it,
// looking names up, forgetting records. Used by module.cc, library.cc and link.cc, and by calls
// that destroy a context. Any thread. No lock is held across a round trip. If threads want the same
// thing at once, each asks, and the worker ignores the second request.
#pragma once

#include <cstdint>

#include "client/cuda/code/image.h"
#include "client/cuda/code/jit_options.h"
#include "client/cuda/state.h"

namespace tendril::client::cuda {

using wire::cuda::LoadKind;

inline uint64_t session_bit(const Session* session) { return uint64_t{1} << (session->index & 63); }

// Loads `image` under `wire_id`. Uploads only what the server lacks and its GPUs can use.
CUresult load_image(Session* session, Context* context, uint64_t wire_id, LoadKind kind,
                    const CodeImage& image, JitOptions* options);

// The record for `name`, fresh if it is new; null when there are no more handles.
Function* named_function(Names* names, Kind kind, Session* session, Context* context,
                         const char* name);
// The function of a module, made known to the worker.
CUresult module_function(Module* module, const char* name, Function** out);

// Address and size of a variable; registers its range. Managed variables of a library can be asked
// for without a context.
CUresult find_symbol(Session* session, Context* context, uint64_t wire_id, LoadKind kind,
                     Names* names, const char* name, uint64_t* address, uint64_t* bytes);
// Names of all functions, as the driver enumerates them.
CUresult all_names(Session* session, Context* context, uint64_t wire_id, LoadKind kind,
                   std::vector<std::string>* out);

// Records only; tell the worker separately.
void forget_function(Kind kind, Function* function);
void forget_symbol(const Symbol& symbol);
void forget_names(Names* names, Kind kind);
void forget_module(Module* module);

// Everything that lives in `context` becomes invalid: modules, their functions, functions of
// kernels. Records only: the worker forgets its part when it destroys the context.
void forget_code(Context* context);

// Reads a whole file. Its contents are recognised within its bounds.
CUresult read_code_file(const char* path, std::vector<uint8_t>* bytes);

}  // namespace tendril::client::cuda
