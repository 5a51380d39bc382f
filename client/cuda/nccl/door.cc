// SPDX-License-Identifier: Apache-2.0
// See door.h.
#include "client/cuda/nccl/door.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

#include "api/nccl/variables.h"
#include "api/nccl/version.h"
#include "api/nccl_messages.gen.h"
#include "client/common/log.h"
#include "client/cuda/bodies.h"
#include "client/cuda/nccl/parts.h"

// Exported by our libnccl.so.2. Null where the loader has found no such library.
extern "C" __attribute__((weak)) const char ncclTendrilMark;

namespace tendril::client::cuda {
namespace {

using api::nccl::Element;
using api::nccl::version_text;
using api::nccl::What;

// NCCL needs no call of the driver before its own.
Process* attached_process() { return initialize() == CUDA_SUCCESS ? process() : nullptr; }

Part& part_of(std::vector<Part>* parts, Session* session) {
  for (Part& part : *parts) {
    if (part.session == session) return part;
  }
  parts->emplace_back();
  parts->back().session = session;
  return parts->back();
}

// The context in which NCCL works for a device: the current one there, or the primary.
CUresult context_on(Device* device, Context** out) {
  *out = current_context();
  if (*out != nullptr && (*out)->device == device) return use_context(*out, out);
  *out = device->primary;
  if (device->primary->active.load() != 0) return use_context(*out, out);
  CUcontext handle = nullptr;
  return cuDevicePrimaryCtxRetain(&handle, device->ordinal);
}

CUresult localize(Device* device, Element* element) {
  if (element->what == What::kInit || element->what == What::kUniqueId) {
    Context* context = nullptr;
    TENDRIL_TRY(context_on(device, &context));
    element->context = context->wire_id;
  }
  if (element->what < What::kAllReduce) return CUDA_SUCCESS;
  Context* context = nullptr;
  Stream* stream = nullptr;
  const auto handle = reinterpret_cast<CUstream>(element->stream);
  stream = process()->streams.find(Kind::kStream, element->stream);
  if (stream == nullptr) {
    TENDRIL_TRY(context_on(device, &context));
    TENDRIL_TRY(require_stream(context, handle, &stream));
  } else {
    TENDRIL_TRY(use_context(stream->context, &context));
  }
  if (context->session != device->session) return CUDA_ERROR_INVALID_HANDLE;
  element->stream = stream_wire_id(stream);
  return CUDA_SUCCESS;
}

CUresult divide(const Element* work, size_t count, std::vector<Part>* parts) {
  for (size_t i = 0; i < count; ++i) {
    Device* device = device_of(work[i].device);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    TENDRIL_TRY(device->session->begin());
    Element element = work[i];
    TENDRIL_TRY(localize(device, &element));
    part_of(parts, device->session).work.push_back(element);
  }
  return CUDA_SUCCESS;
}

// What the servers of this program lend, for people.
void append_versions(std::string* text, const Session& session) {
  *text += (text->empty() ? "" : "; ") + session.endpoint + " has";
  for (const uint32_t version : session.nccl_versions)
    *text += (version == session.nccl_versions.front() ? " " : ", ") + version_text(version);
  if (session.nccl_versions.empty()) *text += " none";
}

// The highest version that all servers of the program have: each process of it comes to the same.
// 0: there is none; `why` says so.
uint32_t common_version(std::string* why) {
  const std::vector<Session*>& servers = process()->servers;
  std::string text;
  std::vector<std::vector<uint32_t>> versions;
  for (const Session* server : servers) {
    append_versions(&text, *server);
    versions.push_back(server->nccl_versions);
    if (!server->nccl_versions.empty()) continue;
    *why = "GPU server " + server->endpoint +
           " lends no NCCL; its operator starts it with 'tendril serve --nccl FILE'";
    return 0;
  }
  const uint32_t best = api::nccl::highest_common(versions);
  if (best == 0)
    *why = "the servers have no version of NCCL in common (" + text +
           "); their operators give them one with 'tendril serve --nccl FOLDER'";
  return best;
}

// The variables of the program that NCCL at the server gets.
std::string chosen_variables() {
  std::string all;
  for (const char* name : api::nccl::kVariables) {
    const char* value = getenv(name);
    if (value == nullptr || strlen(value) > api::nccl::kVariableBytesMax) continue;
    all += std::string(name) + "=" + value + '\0';
  }
  return all;
}

void tell(char* text, size_t bytes, const std::string& why) {
  if (bytes != 0) snprintf(text, bytes, "%s", why.c_str());
  log_once(LogLevel::kError, "%s", why.c_str());
}

// Before the session's first work. What failed once fails again.
ncclResult_t open_nccl(Session* session, char* text, size_t text_bytes) {
  if (session->nccl_open.load(std::memory_order_acquire)) return ncclSuccess;
  std::string why;
  const uint32_t version = common_version(&why);
  if (version == 0) {
    tell(text, text_bytes, why);
    return ncclInvalidUsage;
  }
  const std::string variables = chosen_variables();
  wire::nccl::nccl_open_request request;
  wire::nccl::nccl_open_reply reply;
  request.digest = wire::nccl::kSchemaDigest;
  request.version = version;
  request.variables = {reinterpret_cast<const uint8_t*>(variables.data()), variables.size()};
  const CUresult outer = session->call(kNoContext, request, reply);
  if (outer != CUDA_SUCCESS) {
    explain(text, text_bytes, session, outer);
    return result_of(outer);
  }
  if (reply.result != ncclSuccess) {
    tell(text, text_bytes,
         "GPU server " + session->endpoint + " gives this program no NCCL: " +
             std::string(reinterpret_cast<const char*>(reply.text.data), reply.text.count));
    return static_cast<ncclResult_t>(reply.result);
  }
  log_once(LogLevel::kInfo, "NCCL %s, which all %zu servers have", version_text(version).c_str(),
           process()->servers.size());
  session->nccl_open.store(true, std::memory_order_release);
  return ncclSuccess;
}

uint32_t version(int32_t* version) {
  if (attached_process() == nullptr) return ncclUnhandledCudaError;
  std::string why;
  const uint32_t common = common_version(&why);
  if (common == 0) tell(nullptr, 0, why);
  *version = static_cast<int32_t>(common);
  return common != 0 ? ncclSuccess : ncclInvalidUsage;
}

// A worker that waits for its peers inside a part would wait for ever if another part came only
// after its answer.
uint32_t run(const Element* work, size_t count, const void* extra, size_t extra_bytes, void* id,
             char* text, size_t text_bytes) {
  if (attached_process() == nullptr) return ncclUnhandledCudaError;
  std::vector<Part> parts;
  const CUresult divided = divide(work, count, &parts);
  if (divided != CUDA_SUCCESS) return result_of(divided);
  for (const Part& part : parts) {
    const ncclResult_t opened = open_nccl(part.session, text, text_bytes);
    if (opened != ncclSuccess) return opened;
  }
  for (Part& part : parts) send(&part, extra, extra_bytes);
  return await_all(&parts, {id, text, text_bytes});
}

bool run_ahead(const Element* work, size_t count) {
  // A capture decides what NCCL does, so the program waits for it.
  Process* program = process();
  if (program == nullptr || program->open_captures.load() != 0) return false;
  std::vector<Part> parts;
  if (divide(work, count, &parts) != CUDA_SUCCESS || parts.size() != 1) return false;
  const Part& part = parts.front();
  if (!part.session->nccl_open.load(std::memory_order_acquire)) return false;
  for (const Element& element : part.work)
    if (part.session->nccl_failures.find(element.communicator) != 0) return false;
  return send_ahead(part);
}

int32_t current_device() {
  const Process* program = attached_process();
  if (program == nullptr || program->devices.empty()) return -1;
  const Context* context = current_context();
  return context != nullptr ? context->device->ordinal : 0;
}

Session* session_of(int32_t ordinal) {
  const Device* device = device_of(ordinal);
  return device != nullptr && device->session->begun.load() ? device->session : nullptr;
}

// What has arrived is looked at. Nobody else may be receiving.
uint32_t failure(int32_t device, uint64_t communicator) {
  Session* session = session_of(device);
  if (session == nullptr) return ncclInvalidArgument;
  session->lane->pump();
  if (session->lane->is_lost()) return ncclRemoteError;
  return session->nccl_failures.find(communicator);
}

uint32_t state(int32_t device, uint64_t communicator, int32_t* rank, int32_t* ranks) {
  Session* session = session_of(device);
  if (session == nullptr) return ncclInvalidArgument;
  wire::nccl::nccl_state_request request;
  wire::nccl::nccl_state_reply reply;
  request.communicator = communicator;
  const CUresult result = session->call_ahead_of_frees(kNoContext, request, reply);
  *rank = reply.rank;
  *ranks = reply.ranks;
  return result == CUDA_SUCCESS ? reply.result : uint32_t{result_of(result)};
}

uint32_t end_at_once(int32_t device, uint64_t communicator) {
  Session* session = session_of(device);
  if (session == nullptr) return ncclInvalidArgument;
  wire::nccl::nccl_abort_request request;
  wire::nccl::nccl_abort_reply reply;
  request.communicator = communicator;
  const CUresult result = session->call_ahead_of_frees(kNoContext, request, reply);
  const bool ended_before = session->nccl_failures.forget(communicator);
  if (result != CUDA_SUCCESS) return result_of(result);
  return reply.result == ncclInvalidArgument && ended_before ? uint32_t{ncclSuccess} : reply.result;
}

uint32_t allocate(void** memory, size_t bytes) {
  CUdeviceptr address = 0;
  const CUresult result = cuMemAlloc_v2(&address, bytes);
  *memory = reinterpret_cast<void*>(address);
  return result_of(result);
}

uint32_t release(void* memory) {
  return result_of(cuMemFree_v2(reinterpret_cast<CUdeviceptr>(memory)));
}

}  // namespace

bool nccl_is_ours() { return &ncclTendrilMark != nullptr; }

const api::nccl::Door kNcclDoor = {
    sizeof(api::nccl::Door),
    wire::nccl::kSchemaDigest,
    &version,
    &current_device,
    &run,
    &run_ahead,
    &failure,
    &state,
    &end_at_once,
    &allocate,
    &release,
};

}  // namespace tendril::client::cuda
