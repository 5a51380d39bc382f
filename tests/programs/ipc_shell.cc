// SPDX-License-Identifier: Apache-2.0
// One process of several that share GPU memory. It reads one command per line from its standard
// input and answers each with one line: "ok" and perhaps a value, or the name of the error. End of
// input ends it. For tests that start several, pass handles between them and kill some. Commands:
//   alloc MIB, free, fill WORD, read            the memory here: our own, or opened
//   export, open HANDLE, close                  as a 64-byte handle in hexadecimal
//   event, export_event, open_event HANDLE      an interprocess event
//   record, query, wait                         our own event, or the one that is open
//   add TIMES                                   adds 1 to each word, TIMES kernels, nobody waits
//   info                                        free bytes of the slice
//   device ORDINAL                              another device, with its own memory and event
#include <string>

#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

constexpr uint32_t kWords = 1024;
constexpr long kDevices = 2;

struct State {
  CUfunction affine = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  size_t bytes = 0;
  CUevent event = nullptr, opened = nullptr;
  CUevent awaited() const { return opened != nullptr ? opened : event; }
};

template <typename Handle>
std::string to_hex(const Handle& handle) {
  std::string text;
  char digits[3];
  for (char c : handle.reserved) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    text += digits;
  }
  return text;
}

template <typename Handle>
Handle from_hex(const std::string& text) {
  Handle handle = {};
  for (size_t i = 0; i < sizeof handle.reserved && 2 * i + 1 < text.size(); i++)
    handle.reserved[i] = static_cast<char>(std::strtol(text.substr(2 * i, 2).c_str(), nullptr, 16));
  return handle;
}

// *value: what to answer after "ok".
CUresult on_memory(State* s, const std::string& verb, const std::string& word, std::string* value) {
  const auto number = static_cast<uint32_t>(std::strtoul(word.c_str(), nullptr, 0));
  if (verb == "alloc") {
    s->bytes = size_t{number} << 20;
    return cuMemAlloc(&s->memory, s->bytes);
  }
  if (verb == "free") return cuMemFree(s->memory);
  if (verb == "fill") {
    const CUresult result = cuMemsetD32Async(s->memory, number, kWords, s->stream);
    return result != CUDA_SUCCESS ? result : cuStreamSynchronize(s->stream);
  }
  if (verb == "read") {
    uint32_t words[kWords];
    CUresult result = cuMemcpyDtoHAsync(words, s->memory, sizeof words, s->stream);
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(s->stream);
    *value = std::to_string(words[0]) + (words[0] == words[kWords - 1] ? "" : " and others");
    return result;
  }
  if (verb == "export") {
    CUipcMemHandle handle;
    const CUresult result = cuIpcGetMemHandle(&handle, s->memory);
    *value = to_hex(handle);
    return result;
  }
  if (verb == "open")
    return cuIpcOpenMemHandle_v2(&s->memory, from_hex<CUipcMemHandle>(word),
                                 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (verb == "close") return cuIpcCloseMemHandle(s->memory);
  if (verb == "info") {
    size_t free = 0, total = 0;
    const CUresult result = cuMemGetInfo(&free, &total);
    *value = std::to_string(free);
    return result;
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult on_event(State* s, const std::string& verb, const std::string& word, std::string* value) {
  if (verb == "event")
    return cuEventCreate(&s->event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
  if (verb == "export_event") {
    CUipcEventHandle handle;
    const CUresult result = cuIpcGetEventHandle(&handle, s->event);
    *value = to_hex(handle);
    return result;
  }
  if (verb == "open_event")
    return cuIpcOpenEventHandle(&s->opened, from_hex<CUipcEventHandle>(word));
  if (verb == "record") return cuEventRecord(s->event, s->stream);
  if (verb == "query") return cuEventQuery(s->awaited());
  if (verb == "wait") return cuStreamWaitEvent(s->stream, s->awaited(), 0);
  if (verb == "add") {
    CUresult result = CUDA_SUCCESS;
    const long times = std::strtol(word.c_str(), nullptr, 0);
    for (long i = 0; i < times && result == CUDA_SUCCESS; i++)
      result = program::launch(s->affine, kWords / 256, 256, s->stream, s->memory, 1u, 1u, kWords);
    return result;
  }
  return on_memory(s, verb, word, value);
}

State* use(State* states, long ordinal) {
  State* state = &states[ordinal];
  program::use_device(static_cast<int>(ordinal));
  if (state->stream != nullptr) return state;
  state->affine = program::load(kKernelsPtx, "affine");
  CHECK(cuStreamCreate(&state->stream, CU_STREAM_NON_BLOCKING));
  return state;
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  State states[kDevices];
  State* state = use(states, 0);
  std::printf("ok\n");
  char line[512];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    std::string verb = line, word, value;
    verb.erase(verb.find_last_not_of('\n') + 1);
    if (const size_t space = verb.find(' '); space != std::string::npos) {
      word = verb.substr(space + 1);
      verb.erase(space);
    }
    CUresult result = CUDA_SUCCESS;
    if (verb == "device") {
      state = use(states, std::strtol(word.c_str(), nullptr, 0) % kDevices);
    } else {
      result = on_event(state, verb, word, &value);
    }
    const char* name = "ok";
    if (result != CUDA_SUCCESS) cuGetErrorName(result, &name);
    if (result != CUDA_SUCCESS) value.clear();
    std::printf("%s%s%s\n", name, value.empty() ? "" : " ", value.c_str());
  }
  return program::finish(cuStreamSynchronize(state->stream) == CUDA_SUCCESS);
}
