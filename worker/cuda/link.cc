// SPDX-License-Identifier: Apache-2.0
// The JIT linker. While a linker lives, the driver writes logs into the options that were given
// when it was created. So the options live as long as the linker. Each reply carries the logs so
// far. Linked code also goes into the module store, so that loading it uploads nothing.
#include <cstring>
#include <memory>

#include "api/cuda/code_image.h"
#include "api/cuda_handlers.gen.h"
#include "base/content_hash.h"
#include "worker/cuda/code/jit_options.h"
#include "worker/cuda/link.h"
#include "worker/cuda/module.h"

namespace tendril::worker::cuda {
namespace {

struct Link {
  CUlinkState state = nullptr;
  JitOptions options;
  void* cubin = nullptr;  // the driver's
  size_t bytes = 0;
};

// A driver keeps what is added to a linker.
constexpr uint64_t kLinkBytes = 64u << 10;

}  // namespace

void forget_link(void* link) { const std::unique_ptr<Link> ended(static_cast<Link*>(link)); }

CUresult handle(Executor& executor, const wire::cuda::link_create_request& request,
                wire::cuda::link_create_reply& reply) {
  if (executor.driver().cuLinkCreate_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Scope scope(executor);
  scope.reserve(Kind::kLink, request.link);
  if (!scope.ok()) return scope.error();
  auto link = std::make_unique<Link>();
  CUresult result = link->options.take(request);
  if (result != CUDA_SUCCESS) return result;
  result = executor.driver().cuLinkCreate_v2(link->options.count(), link->options.options(),
                                             link->options.values(), &link->state);
  link->options.report(executor, &reply);
  if (result != CUDA_SUCCESS) return result;
  const bool held = executor.hold_host(link.get(), kLinkBytes);
  if (!held || !executor.objects().bind(Kind::kLink, request.link, link.get(),
                                        executor.context()->context)) {
    executor.driver().cuLinkDestroy(link->state);
    return held ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_OUT_OF_MEMORY;
  }
  static_cast<void>(link.release());  // until link_destroy
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::link_add_request& request,
                wire::cuda::link_add_reply& reply) {
  // This comes first. Otherwise an error would leave a transfer that nobody receives.
  const ImageBytes image = receive_image(executor, request.transfer, request.size, request.data);
  Scope scope(executor);
  Link* link = scope.get<Link*>(Kind::kLink, request.link);
  const char* name = scope.text(request.name);
  if (!scope.ok()) return scope.error();
  if (image.data == nullptr || !executor.hold_host(link, image.bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (executor.driver().cuLinkAddData_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (request.type >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  const CUjitInputType type = static_cast<CUjitInputType>(request.type);
  if (type == CU_JIT_INPUT_CUBIN ||
      type == CU_JIT_INPUT_FATBINARY) {  // the driver takes their length from their headers
    const api::CodeKind kind = api::code_image(image.data.get(), image.bytes).kind;
    if (kind != api::CodeKind::kCubin && kind != api::CodeKind::kContainer)
      return CUDA_ERROR_INVALID_IMAGE;
  }
  JitOptions options;
  CUresult result = options.take(request);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t bytes =
      type == CU_JIT_INPUT_PTX && (image.bytes == 0 || image.data[image.bytes - 1] != 0)
          ? image.bytes + 1
          : image.bytes;
  executor.gate().before_a_long_call();
  result = executor.driver().cuLinkAddData_v2(link->state, type, image.data.get(), bytes, name,
                                              options.count(), options.options(), options.values());
  link->options.report(executor, &reply);
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::link_complete_request& request,
                wire::cuda::link_complete_reply& reply) {
  Scope scope(executor);
  Link* link = scope.get<Link*>(Kind::kLink, request.link);
  if (!scope.ok()) return scope.error();
  if (executor.driver().cuLinkComplete == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  executor.gate().before_a_long_call();
  const CUresult result = executor.driver().cuLinkComplete(link->state, &link->cubin, &link->bytes);
  link->options.report(executor, &reply);
  if (result != CUDA_SUCCESS) {
    link->cubin = nullptr;
    link->bytes = 0;
    return result;
  }
  ImageBytes image = make_image(link->bytes);
  if (image.data != nullptr) {
    std::memcpy(image.data.get(), link->cubin, link->bytes);
    const std::string hash = base::content_hash(link->cubin, link->bytes);
    executor.store().add(hash, std::move(image));
  }
  reply.size = link->bytes;
  if (link->bytes <= wire::kInlineBytesMax)
    reply.data = {static_cast<const uint8_t*>(link->cubin), link->bytes};
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::link_fetch_request& request,
                wire::cuda::link_fetch_reply&) {
  Scope scope(executor);
  const Link* link = scope.get<Link*>(Kind::kLink, request.link);
  if (!scope.ok()) return scope.error();
  if (link->cubin == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!executor.service().send_bulk(request.transfer, 0, link->cubin, link->bytes))
    return CUDA_ERROR_UNKNOWN;
  executor.service().transfer_sent(request.transfer);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& executor, const wire::cuda::link_destroy_request& request) {
  const auto* link = static_cast<Link*>(executor.objects().find(Kind::kLink, request.link));
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto destroy = executor.driver().cuLinkDestroy;
  const CUresult result = destroy != nullptr ? destroy(link->state) : CUDA_ERROR_NOT_SUPPORTED;
  executor.objects().gone(Kind::kLink, request.link);
  return result;
}

}  // namespace tendril::worker::cuda
