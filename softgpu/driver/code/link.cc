// SPDX-License-Identifier: Apache-2.0
// cuLink*: takes PTX in any container and gives a container with the PTX. Several inputs are joined
// into one text; the header of the first one counts.

#include <cstdio>
#include <cstring>

#include "softgpu/driver/code/fatbin.h"
#include "softgpu/driver/code/jit_options.h"
#include "softgpu/driver/code/module.h"
#include "softgpu/driver/code/texture.h"
#include "softgpu/driver/device/context.h"
#include "softgpu/driver/entry.h"

namespace tendril::softgpu {
namespace {

struct Linker {
  CUlinkState handle = nullptr;
  JitOptions options;
  std::string text;
  std::string log;
  std::vector<uint8_t> image;
  CUcontext context = nullptr;
};
using LinkerTable = HandleTable<CUlinkState, Linker, HandleKind::kLinker>;

LinkerTable& linkers() {
  static auto& table = *new LinkerTable;
  return table;
}

// Blanks the .version, .target and .address_size lines of every input after the first, so that line
// numbers stay.
void drop_header(std::string* text) {
  for (const char* directive : {".version", ".target", ".address_size"}) {
    size_t at = text->find(directive);
    if (at == std::string::npos) continue;
    for (; at < text->size() && (*text)[at] != '\n'; ++at) (*text)[at] = ' ';
  }
}

CUresult add(Linker& linker, CUjitInputType type, const void* data, size_t size) {
  if (static_cast<unsigned>(type) >= CU_JIT_NUM_INPUT_TYPES || data == nullptr || size == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY) {
    linker.log = "softgpu: only PTX can be linked";
    linker.options.report("", linker.log);
    return type == CU_JIT_INPUT_NVVM ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  std::string text;
  std::shared_ptr<Program> program;
  CUresult result = load_program(data, size, device_sm(), &program, &linker.log);
  if (result == CUDA_SUCCESS && image_ptx(data, device_sm(), size, &text) != ImageStatus::kOk)
    result = CUDA_ERROR_INVALID_IMAGE;
  if (result != CUDA_SUCCESS) {
    linker.options.report("", linker.log);
    return result;
  }
  if (size_t end = text.find('\0'); end != std::string::npos) text.resize(end);
  if (!linker.text.empty()) drop_header(&text);
  linker.text += text;
  linker.text += '\n';
  return CUDA_SUCCESS;
}

}  // namespace

void drop_linkers(CUcontext context) {
  for (const auto& [handle, linker] : linkers().all())
    if (linker->context == context) linkers().remove(handle);
}

SOFT(cuLinkCreate_v2)
(unsigned int numOptions, CUjit_option* options, void** optionValues, CUlinkState* stateOut) {
  if (stateOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  auto made = std::make_shared<Linker>();
  if (CUresult bad = made->options.read(numOptions, options, optionValues)) return bad;
  made->context = context->handle;
  made->handle = linkers().add(made);
  *stateOut = made->handle;
  return CUDA_SUCCESS;
}

SOFT(cuLinkCreate)(unsigned int n, CUjit_option* options, void** values, CUlinkState* state) {
  return soft_cuLinkCreate_v2(n, options, values, state);
}

SOFT(cuLinkAddData_v2)
(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name,
 unsigned int numOptions, CUjit_option* options, void** optionValues) {
  auto linker = linkers().get(state);
  if (!linker) return CUDA_ERROR_INVALID_HANDLE;
  return add(*linker, type, data, size);
}

SOFT(cuLinkAddData)
(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name, unsigned int n,
 CUjit_option* options, void** values) {
  return soft_cuLinkAddData_v2(state, type, data, size, name, n, options, values);
}

SOFT(cuLinkAddFile_v2)
(CUlinkState state, CUjitInputType type, const char* path, unsigned int numOptions,
 CUjit_option* options, void** optionValues) {
  auto linker = linkers().get(state);
  if (!linker) return CUDA_ERROR_INVALID_HANDLE;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<uint8_t> bytes;
  if (!read_file(path, &bytes)) return CUDA_ERROR_FILE_NOT_FOUND;
  return add(*linker, type, bytes.data(), bytes.size());
}

SOFT(cuLinkAddFile)
(CUlinkState state, CUjitInputType type, const char* path, unsigned int n, CUjit_option* options,
 void** values) {
  return soft_cuLinkAddFile_v2(state, type, path, n, options, values);
}

SOFT(cuLinkComplete)(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  auto linker = linkers().get(state);
  if (!linker) return CUDA_ERROR_INVALID_HANDLE;
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (linker->text.empty()) return CUDA_ERROR_INVALID_IMAGE;
  std::unique_ptr<Program> program = parse_program(linker->text, &linker->log);
  linker->options.report("", linker->log);
  if (!program) return CUDA_ERROR_INVALID_PTX;
  linker->image = make_fatbin(linker->text, program->target_sm());
  *cubinOut = linker->image.data();
  if (sizeOut != nullptr) *sizeOut = linker->image.size();
  return CUDA_SUCCESS;
}

SOFT(cuLinkDestroy)(CUlinkState state) {
  return linkers().remove(state) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace tendril::softgpu
