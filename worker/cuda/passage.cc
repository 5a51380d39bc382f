// SPDX-License-Identifier: Apache-2.0
// Handlers of api/cuda/passage.spec.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/passage/passages.h"

namespace tendril::worker::cuda {
namespace {

template <typename Request>
CUresult copy_half(Executor& executor, const Request& request, PassageRole role) {
  Scope scope(executor);
  const bool ordered = request.ordered != 0;
  CUstream stream = ordered ? scope.stream(request.stream) : nullptr;
  if (!scope.ok()) return scope.error();
  const PassageShape shape = {request.address, request.width, request.height,
                              request.depth,   request.pitch, request.slice};
  return executor.passages().copy(request.number, request.operation, role, shape, stream, ordered);
}

}  // namespace

CUresult handle(Executor& executor, const wire::cuda::passage_offer_request& request,
                wire::cuda::passage_offer_reply& reply) {
  Scope scope(executor);
  auto* token = scope.scratch<wire::PassageToken>(1);
  if (!scope.ok()) return scope.error();
  reply.token = {reinterpret_cast<const uint8_t*>(token), sizeof *token};
  return executor.passages().offer(request.number, token);
}

CUresult handle(Executor& executor, const wire::cuda::passage_open_request& request,
                wire::cuda::passage_open_reply&) {
  wire::PassageToken token;
  if (request.token.count != sizeof token) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(&token, request.token.data, sizeof token);
  const CUresult result = executor.passages().open(request.number, token, executor.call().reply_id);
  if (result == CUDA_SUCCESS) executor.replies().take_over();
  return result;
}

CUresult handle(Executor& executor, const wire::cuda::passage_send_request& request) {
  return copy_half(executor, request, PassageRole::kSend);
}

CUresult handle(Executor& executor, const wire::cuda::passage_receive_request& request) {
  return copy_half(executor, request, PassageRole::kReceive);
}

CUresult handle(Executor& executor, const wire::cuda::passage_tell_request& request) {
  Scope scope(executor);
  CUevent event = scope.get<CUevent>(Kind::kEvent, request.event);
  if (!scope.ok()) return scope.error();
  return executor.passages().tell(request.number, request.operation, event);
}

CUresult handle(Executor& executor, const wire::cuda::passage_await_request& request) {
  Scope scope(executor);
  CUstream stream = scope.stream(request.stream);
  if (!scope.ok()) return scope.error();
  return executor.passages().await(request.number, request.operation, stream);
}

}  // namespace tendril::worker::cuda
