// SPDX-License-Identifier: Apache-2.0
// The JIT linker. The driver writes logs into the options given at creation for as long as the
// linker lives, so they live here with it; each reply carries what they say so far. What was linked
// also goes into the module store: loading it then uploads nothing.
#include <cstring>

#include "api/cuda/code_image.h"
#include "api/cuda_handlers.gen.h"
#include "base/content_hash.h"
#include "worker/cuda/code/jit_options.h"
#include "worker/cuda/module.h"

namespace tendril::worker::cuda {
namespace {

struct Link {
  CUlinkState state = nullptr;
  JitOptions options;
  void* cubin = nullptr;  // the driver's
  size_t bytes = 0;
};

}  // namespace

CUresult handle(Executor& w, const wire::cuda::link_create_request& m,
                wire::cuda::link_create_reply& r) {
  if (w.driver().cuLinkCreate_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  auto link = std::make_unique<Link>();
  CUresult result = link->options.take(m);
  if (result != CUDA_SUCCESS) return result;
  result = w.driver().cuLinkCreate_v2(link->options.count(), link->options.options(),
                                      link->options.values(), &link->state);
  link->options.report(w, &r);
  if (result != CUDA_SUCCESS) return result;
  if (!w.objects().bind(Kind::kLink, m.link, link.get())) {
    w.driver().cuLinkDestroy(link->state);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  link.release();  // until link_destroy
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::link_add_request& m, wire::cuda::link_add_reply& r) {
  // First of all, so that the client is not left with a transfer that nobody takes.
  const ImageBytes image = receive_image(w, m.transfer, m.size, m.data);
  Scope s(w);
  Link* link = s.get<Link*>(Kind::kLink, m.link);
  const char* name = s.text(m.name);
  if (!s.ok()) return s.error();
  if (image.data == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (w.driver().cuLinkAddData_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (m.type >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  const CUjitInputType type = static_cast<CUjitInputType>(m.type);
  if (type == CU_JIT_INPUT_CUBIN ||
      type == CU_JIT_INPUT_FATBINARY) {  // these the driver measures by their headers
    const api::CodeKind kind = api::code_image(image.data.get(), image.bytes).kind;
    if (kind != api::CodeKind::kCubin && kind != api::CodeKind::kContainer)
      return CUDA_ERROR_INVALID_IMAGE;
  }
  JitOptions options;
  CUresult result = options.take(m);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t bytes =
      type == CU_JIT_INPUT_PTX && (image.bytes == 0 || image.data[image.bytes - 1] != 0)
          ? image.bytes + 1
          : image.bytes;
  w.gate().before_a_long_call();
  result = w.driver().cuLinkAddData_v2(link->state, type, image.data.get(), bytes, name,
                                       options.count(), options.options(), options.values());
  link->options.report(w, &r);
  return result;
}

CUresult handle(Executor& w, const wire::cuda::link_complete_request& m,
                wire::cuda::link_complete_reply& r) {
  Scope s(w);
  Link* link = s.get<Link*>(Kind::kLink, m.link);
  if (!s.ok()) return s.error();
  if (w.driver().cuLinkComplete == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  w.gate().before_a_long_call();
  const CUresult result = w.driver().cuLinkComplete(link->state, &link->cubin, &link->bytes);
  link->options.report(w, &r);
  if (result != CUDA_SUCCESS) {
    link->cubin = nullptr;
    link->bytes = 0;
    return result;
  }
  ImageBytes image = make_image(link->bytes);
  if (image.data != nullptr) {
    std::memcpy(image.data.get(), link->cubin, link->bytes);
    const std::string hash = base::content_hash(link->cubin, link->bytes);
    w.store().add(hash, std::move(image));
  }
  r.size = link->bytes;
  if (link->bytes <= wire::kInlineBytesMax)
    r.data = {static_cast<const uint8_t*>(link->cubin), link->bytes};
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::link_fetch_request& m,
                wire::cuda::link_fetch_reply&) {
  Scope s(w);
  const Link* link = s.get<Link*>(Kind::kLink, m.link);
  if (!s.ok()) return s.error();
  if (link->cubin == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!w.service().send_bulk(m.transfer, 0, link->cubin, link->bytes)) return CUDA_ERROR_UNKNOWN;
  w.service().transfer_sent(m.transfer);
  return CUDA_SUCCESS;
}

CUresult handle(Executor& w, const wire::cuda::link_destroy_request& m) {
  Link* link = static_cast<Link*>(w.objects().unbind(Kind::kLink, m.link));
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::unique_ptr<Link> owned(link);
  return w.driver().cuLinkDestroy != nullptr ? w.driver().cuLinkDestroy(link->state)
                                             : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace tendril::worker::cuda
