// SPDX-License-Identifier: Apache-2.0
// cuGetExportTable: the function tables through which CUDA's own runtimes and libraries talk to
// their driver. Ten of them are needed, and answered here in the client. Every other one is
// refused; callers expect that of an older or newer driver. A slot of unknown purpose answers
// CUDA_ERROR_NOT_SUPPORTED and says so once: it is never null and never succeeds silently. One more
// table is our own: counters for programs that measure what they cost
// (tools/gpu/frameworks/meter.py), and what our NVML calls before it looks at memory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/common/log.h"
#include "client/cuda/bodies.h"
#include "client/cuda/nccl/door.h"
#include "client/cuda/observe/trace.h"
#include "client/cuda/runtime/code_cache.h"
#include "client/cuda/runtime/context_storage.h"
#include "client/cuda/runtime/self_test_answer.h"

namespace tendril::client::cuda {
namespace {

// 6bd5fb6c: the runtime's interface.
constexpr size_t kRuntimeWords = 13, kHookWords = 7, kThreadWords = 3, kStorageWords = 4,
                 kCheckWords = 15, kSelfTestWords = 3;
constexpr size_t kToolsContextWords = 93, kToolsModuleWords = 99, kLayoutWords = 17,
                 kCompilerWords = 7, kOwnWords = 3;

// Returns when the workers have run all that was sent. A program hears of memory that it has
// allocated or freed before the server does.
void settle_all() {
  Process* program = process();
  if (program == nullptr) return;
  for (Session* session : program->sessions) {
    wire::cuda::error_text_request request;  // the least that is answered
    wire::cuda::error_text_reply reply;
    (void)session->call(kNoContext, request, reply);
  }
}

// The tables as callers get them. Written once (build_tables), the same for every process.
struct Tables {
  const void* runtime[kRuntimeWords];
  const void* hooks[kHookWords];
  const void* thread[kThreadWords];
  const void* storage[kStorageWords];
  const void* checks[kCheckWords];
  const void* self_test[kSelfTestWords];
  const void* tools_context[kToolsContextWords];
  const void* tools_module[kToolsModuleWords];
  const void* layout[kLayoutWords];
  const void* compiler[kCompilerWords];
  const void* own[kOwnWords];
  uint64_t buffer_large[1024], buffer_small[14];  // scratch of tools
};
Tables g_tables;

CUresult unknown_slot() {
  trace_private("unknown slot", CUDA_ERROR_NOT_SUPPORTED);
  log_once(LogLevel::kWarning,
           "a library used a private function of the driver that Tendril does not know; it gets "
           "CUDA_ERROR_NOT_SUPPORTED");
  return CUDA_ERROR_NOT_SUPPORTED;
}

// ---- runtime interface ----

CUresult module_from_wrapper(CUmodule* module, const void* wrapper) {
  return cuModuleLoadData(module, wrapper);
}
CUresult module_from_wrapper_with(CUmodule* module, const void* wrapper, void*, void*, uint32_t) {
  return cuModuleLoadData(module, wrapper);
}
CUresult module_from_container(const void* container, CUmodule* module, void*, void*, uint32_t) {
  return cuModuleLoadData(module, container);
}

// The handle of a device's primary context, without retaining it.
CUresult primary_handle(CUcontext* context, CUdevice dev) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Device* device = device_of(dev);
  if (device == nullptr || context == nullptr)
    return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
  *context = handle_cast<CUcontext>(device->primary);
  return CUDA_SUCCESS;
}

void module_unregistered(uintptr_t) {}
CUresult load_compilers() { return CUDA_SUCCESS; }

// ---- tools: two scratch buffers of 1024 and 14 words, notices, the current context ----

void large_buffer(void** buffer, size_t* size) {
  *buffer = g_tables.buffer_large;
  *size = 1024;
}
void small_buffer(void** buffer, size_t* size) {
  *buffer = g_tables.buffer_small;
  *size = 14;
}
void notice() { trace_private("notice", 0); }

CUresult tools_current_context(CUcontext* context) {
  Context* c = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = c != nullptr ? handle_cast<CUcontext>(c) : nullptr;
  trace_private("current context", 0);
  return CUDA_SUCCESS;
}

// ---- checks ----

CUresult context_check(CUcontext, uint32_t* wrapped, const void** inner) {
  if (wrapped != nullptr) *wrapped = 0;
  if (inner != nullptr) *inner = nullptr;
  return CUDA_SUCCESS;
}
uint32_t no_checks() { return 0; }

#if TENDRIL_RUNTIME_SELF_TEST
// True: a server executes PTX itself. It has no answer to the self-test, because the answer is only
// for genuine drivers (docs/runtime-self-test.md).
bool in_front_of_a_software_gpu() {
  for (const Session* session : process()->servers) {
    if (session->keep_ptx) return true;
  }
  return false;
}

CUresult self_test(uint32_t version, uint64_t unix_seconds, uint64_t answer[2]) {
  if (process() == nullptr || answer == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (in_front_of_a_software_gpu()) {
    log_once(LogLevel::kError,
             "the CUDA runtime does not start on a software GPU: its self-test is answered in "
             "front of a genuine "
             "driver only; use programs of the driver API there, or a server with a GPU");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  SelfTestQuestion question;
  int driver_version = 0;
  cuDriverGetVersion(&driver_version);
  question.version = version;
  question.unix_seconds = unix_seconds;
  question.driver_version = static_cast<uint32_t>(driver_version);
  question.process = static_cast<uint32_t>(getpid());
  question.thread = static_cast<uint32_t>(pthread_self());
  question.runtime_table = g_tables.runtime;
  question.self_test_table = g_tables.self_test;
  question.function = reinterpret_cast<const void*>(&self_test);
  self_test_answer(question, answer);
  return CUDA_SUCCESS;
}
#endif

// ---- contexts and modules as cuBLAS and cuFFT ask for them ----

CUresult tools_context_id(CUcontext context, uint64_t* id) {
  unsigned long long value = 0;
  const CUresult result = cuCtxGetId(context, &value);
  if (id != nullptr) *id = value;
  trace_private("context id", result);
  return result;
}
CUresult tools_stream_object(CUcontext, CUstream stream, void** object) {
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  trace_private("stream object", 0);
  *object = stream;  // the caller only passes it to tools_stream_property
  return CUDA_SUCCESS;
}
CUresult tools_stream_property(CUcontext, void*, uint64_t* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *value = 0;
  trace_private("stream property", 0);
  return CUDA_SUCCESS;
}

// 1734dc26, as cuBLASLt uses it on Hopper (seen on an H200, driver 580.159.04): [4] gives out two
// arrays with a byte for each multiprocessor: its group, and its place in the group. [13] takes
// them back.
CUresult multiprocessor_layout(uint8_t** group, uint8_t** place) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (group == nullptr || place == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto count =
      static_cast<size_t>(context->device->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]);
  wire::cuda::multiprocessor_layout_request request;
  wire::cuda::multiprocessor_layout_reply reply;
  TENDRIL_TRY(context->session->call(context, request, reply));
  if (reply.group.count != count || reply.place.count != count) return CUDA_ERROR_UNKNOWN;
  *group = static_cast<uint8_t*>(calloc(1, count));
  *place = static_cast<uint8_t*>(calloc(1, count));
  if (*group == nullptr || *place == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(*group, reply.group.data, count);
  memcpy(*place, reply.place.data, count);
  trace_private("multiprocessor layout", 0);
  return CUDA_SUCCESS;
}
CUresult multiprocessor_layout_done(uint8_t* group, uint8_t* place) {
  free(group);
  free(place);
  return CUDA_SUCCESS;
}

using FunctionVisitor = void (*)(void* user, CUfunction function, void*, void*);

// Calls the visitor for every function of a module. Returns how many there are.
int tools_module_functions(CUcontext, CUmodule module, FunctionVisitor visit, void* user) {
  trace_private("functions of a module", 0);
  unsigned count = 0;
  if (cuModuleGetFunctionCount(&count, module) != CUDA_SUCCESS || count == 0) return 0;
  std::vector<CUfunction> functions(count);
  if (cuModuleEnumerateFunctions(functions.data(), count, module) != CUDA_SUCCESS) return 0;
  for (CUfunction function : functions) visit(user, function, nullptr, nullptr);
  return static_cast<int>(count);
}

// ---- the tables ----

template <typename Function>
const void* slot(Function* function) {
  return reinterpret_cast<const void*>(function);
}

void fill(const void** table, size_t words) {
  table[0] = reinterpret_cast<const void*>(words * sizeof(void*));
  for (size_t i = 1; i < words; ++i) table[i] = slot(&unknown_slot);
}

void build_tables() {
  fill(g_tables.runtime, kRuntimeWords);
  g_tables.runtime[1] = slot(&module_from_wrapper);
  g_tables.runtime[2] = slot(&primary_handle);
  g_tables.runtime[6] = slot(&module_from_wrapper_with);
  g_tables.runtime[7] = slot(&module_unregistered);
  g_tables.runtime[8] = slot(&module_from_container);
  g_tables.runtime[12] = slot(&load_compilers);
  fill(g_tables.hooks, kHookWords);
  for (size_t i = 1; i < kHookWords; ++i) g_tables.hooks[i] = slot(&notice);
  g_tables.hooks[2] = slot(&large_buffer);
  g_tables.hooks[6] = slot(&small_buffer);
  fill(g_tables.thread, kThreadWords);
  g_tables.thread[2] = slot(&tools_current_context);
  g_tables.storage[0] = slot(&storage_put);
  g_tables.storage[1] = slot(&storage_delete);
  g_tables.storage[2] = slot(&storage_get);
  g_tables.storage[3] = nullptr;
  fill(g_tables.checks, kCheckWords);
  g_tables.checks[2] = slot(&context_check);
  g_tables.checks[3] = slot(&no_checks);
  fill(g_tables.self_test, kSelfTestWords);
#if TENDRIL_RUNTIME_SELF_TEST
  g_tables.self_test[1] = slot(&self_test);
#endif
  fill(g_tables.tools_context, kToolsContextWords);
  g_tables.tools_context[4] = slot(&tools_context_id);
  g_tables.tools_context[39] = slot(&tools_stream_property);
  g_tables.tools_context[51] = slot(&tools_stream_object);
  fill(g_tables.tools_module, kToolsModuleWords);
  fill(g_tables.layout, kLayoutWords);
  g_tables.layout[4] = slot(&multiprocessor_layout);
  g_tables.layout[13] = slot(&multiprocessor_layout_done);
  g_tables.tools_module[7] = slot(&tools_module_functions);
  fill(g_tables.compiler, kCompilerWords);
  g_tables.compiler[1] = slot(&code_cache_begin);
  g_tables.compiler[2] = slot(&code_cache_end);
  g_tables.compiler[3] = slot(&code_cache_find);
  g_tables.compiler[4] = slot(&code_cache_store);
  g_tables.compiler[6] = slot(&code_cache_free);
  fill(g_tables.own, kOwnWords);
  g_tables.own[1] = slot(&stats_counters);
  g_tables.own[2] = slot(&settle_all);
}

struct Known {
  uint8_t id[16];
  const void** table;
};
constexpr Known kKnown[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
      0xf9},
     g_tables.runtime},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
      0x66},
     g_tables.hooks},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
      0xdc},
     g_tables.thread},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
      0x93},
     g_tables.storage},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
      0x7e},
     g_tables.checks},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
      0xf2},
     g_tables.self_test},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
      0xf2},
     g_tables.tools_context},
    {{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99,
      0x1e},
     g_tables.tools_module},
    {{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b,
      0xca},
     g_tables.layout},
    {{0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3,
      0x28},
     g_tables.compiler},
    {{'t', 'e', 'n', 'd', 'r', 'i', 'l', ' ', 'c', 'o', 'u', 'n', 't', 'e', 'r', 's'},
     g_tables.own},
};

}  // namespace

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, build_tables);
  *ppExportTable = nullptr;
  for (const Known& known : kKnown) {
    if (memcmp(known.id, pExportTableId->bytes, sizeof known.id) == 0) *ppExportTable = known.table;
  }
  if (memcmp(api::nccl::kDoorId, pExportTableId->bytes, sizeof api::nccl::kDoorId) == 0)
    *ppExportTable = &kNcclDoor;
  char name[64] = "table ";
  for (int i = 0; i < 16; ++i)
    snprintf(name + 6 + 2 * i, 3, "%02x", static_cast<unsigned char>(pExportTableId->bytes[i]));
  trace_private(name, *ppExportTable != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
  return *ppExportTable != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace tendril::client::cuda
