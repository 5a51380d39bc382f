// SPDX-License-Identifier: Apache-2.0
// The JIT linker. Inputs go to the worker as they are. The linked code comes back and stays here
// until cuLinkDestroy, as CUDA promises. After each call, logs are written into the buffers given
// at creation.
#include <string.h>

#include "client/cuda/bodies.h"
#include "client/cuda/code/module.h"

namespace tendril::client::cuda {

struct Link {
  Object* object = nullptr;
  JitOptions options;
  std::vector<uint8_t> cubin;
  Link* next = nullptr;
};

// A list is enough, because linkers are few and rare.
struct Links {
  base::Lock lock;
  Link* first = nullptr;
};

namespace {

CUresult link_of(CUlinkState handle, Link** out) {
  Process* program = process();
  if (program == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const Object* object = find_object(Kind::kLink, handle_value(handle));
  base::Locked locked(process()->links->lock);
  for (Link* link = process()->links->first; link != nullptr && object != nullptr;
       link = link->next) {
    if (link->object != object) continue;
    *out = link;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult add(Link* link, CUjitInputType type, const uint8_t* data, uint64_t bytes, const char* name,
             const JitOptions& options) {
  Session* session = link->object->session;
  wire::cuda::link_add_request request;
  wire::cuda::link_add_reply r;
  request.link = link->object->wire_id;
  request.type = static_cast<uint32_t>(type);
  request.name = wire::bytes_of(name != nullptr ? name : "");
  options.put(&request);
  request.size = bytes;
  if (bytes <= wire::kInlineBytesMax) {
    request.data = {data, bytes};
    const CUresult result = session->call(link->object->context, request, r);
    link->options.give_back(r);
    return result;
  }
  request.transfer = session->lane->new_transfer_id();
  const uint32_t reply = session->lane->new_reply_id();
  if (!session->append(link->object->context, request, reply)) return Session::lost_result();
  session->send_bulk(request.transfer, data, bytes);  // if it fails, so does the wait
  const CUresult result = session->answer(reply, r);
  Session::note(link->object->context, result);
  link->options.give_back(r);
  return result;
}

// Programs may pass a wrapper, whose pointers mean nothing in another process.
CodeImage input_image(CUjitInputType type, const void* data, size_t size) {
  CodeImage image;
  if (type == CU_JIT_INPUT_FATBINARY && size >= 4 &&
      api::code_read<uint32_t>(static_cast<const uint8_t*>(data)) == api::kWrapperMagic) {
    return recognise(data);
  }
  image.data = static_cast<const uint8_t*>(data);
  image.bytes = size;
  return image;
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) {
  Context* context = nullptr;
  TENDRIL_TRY(require_context(&context));
  if (stateOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Link* link = new Link;
  CUresult result = link->options.take(options, optionValues, numOptions);
  if (result == CUDA_SUCCESS) link->object = create_object(Kind::kLink, context->session, context);
  if (result == CUDA_SUCCESS && link->object == nullptr) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    wire::cuda::link_create_request request;
    wire::cuda::link_create_reply reply;
    request.link = link->object->wire_id;
    link->options.put(&request);
    result = context->session->call(context, request, reply);
    link->options.give_back(reply);
  }
  if (result != CUDA_SUCCESS) {
    if (link->object != nullptr) destroy_object(Kind::kLink, link->object);
    delete link;
    return result;
  }
  *stateOut = handle_cast<CUlinkState>(link->object);
  base::Locked locked(process()->links->lock);
  link->next = process()->links->first;
  process()->links->first = link;
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int numOptions, CUjit_option* options,
                          void** optionValues) {
  Link* link = nullptr;
  TENDRIL_TRY(link_of(state, &link));
  if (data == nullptr || size == 0 || size > api::kCodeBytesMax) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  TENDRIL_TRY(jit.take(options, optionValues, numOptions));
  const CodeImage image = input_image(type, data, size);
  if (image.data == nullptr || image.bytes == 0) return CUDA_ERROR_INVALID_IMAGE;
  return add(link, type, image.data, image.bytes, name, jit);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                          unsigned int numOptions, CUjit_option* options, void** optionValues) {
  Link* link = nullptr;
  TENDRIL_TRY(link_of(state, &link));
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  TENDRIL_TRY(jit.take(options, optionValues, numOptions));
  std::vector<uint8_t> bytes;
  TENDRIL_TRY(read_code_file(path, &bytes));
  return add(link, type, bytes.data(), bytes.size() - 1, path,
             jit);  // without the NUL that reading adds
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  Link* link = nullptr;
  TENDRIL_TRY(link_of(state, &link));
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Session* session = link->object->session;
  Context* context = link->object->context;
  wire::cuda::link_complete_request request;
  wire::cuda::link_complete_reply reply;
  request.link = link->object->wire_id;
  const CUresult result = session->call(context, request, reply);
  link->options.give_back(reply);
  if (result != CUDA_SUCCESS) return result;
  if (reply.size > api::kCodeBytesMax ||
      (reply.size <= wire::kInlineBytesMax && reply.data.count != reply.size))
    return CUDA_ERROR_UNKNOWN;
  link->cubin.resize(reply.size);
  if (reply.data.count == reply.size) {
    if (reply.size != 0) memcpy(link->cubin.data(), reply.data.data, reply.size);
  } else {
    wire::cuda::link_fetch_request fetch;
    wire::cuda::link_fetch_reply fetched;
    fetch.link = request.link;
    fetch.transfer = session->lane->new_transfer_id();
    session->lane->expect_bulk(fetch.transfer, link->cubin.data(), link->cubin.size());
    const CUresult failed = session->call(context, fetch, fetched);
    if (failed != CUDA_SUCCESS) {
      session->lane->cancel_bulk(fetch.transfer);
      return failed;
    }
    if (!session->wait_bulk(fetch.transfer, link->cubin.size())) return Session::lost_result();
  }
  *cubinOut = link->cubin.data();
  if (sizeOut != nullptr) *sizeOut = link->cubin.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
  Link* link = nullptr;
  TENDRIL_TRY(link_of(state, &link));
  {
    base::Locked locked(process()->links->lock);
    Link** at = &process()->links->first;
    while (*at != nullptr && *at != link) at = &(*at)->next;
    if (*at == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // another thread was faster
    *at = link->next;
  }
  wire::cuda::link_destroy_request request;
  request.link = link->object->wire_id;
  const CUresult result = link->object->session->enqueue(link->object->context, request);
  destroy_object(Kind::kLink, link->object);
  delete link;
  return result;
}

}  // namespace tendril::client::cuda
