// SPDX-License-Identifier: Apache-2.0
// See operations.h.
#include "worker/nccl/operations.h"

#include "api/nccl_handlers.gen.h"
#include "worker/cuda/executor/scope.h"

namespace tendril::worker::nccl {
namespace {

using api::nccl::Element;
using api::nccl::What;

template <typename Reply>
void reply_to(session::Service* service, uint32_t reply_id, const Reply& reply) {
  std::vector<uint8_t> body(wire::message_bytes(reply));
  wire::write_message(reply, body.data());
  service->reply(reply_id, 0, body.data(), static_cast<uint32_t>(body.size()));
}

wire::Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// What the session's objects are in the driver. False: the element names what is not there.
bool resolve(Executor& executor, const Element& element, Work* work) {
  cuda::Executor& session = executor.session();
  work->element = element;
  if (element.what == What::kInit || element.what == What::kUniqueId) {
    const cuda::WorkerContext* context = session.contexts().find(element.context);
    if (context == nullptr) return false;
    work->context = context->context;
    return true;
  }
  if (!is_collective(element.what)) return true;
  cuda::Scope scope(session);
  work->stream = scope.stream(element.stream);
  return scope.ok();
}

// Collectives are work for the GPU's processors. False: the session is over.
bool pass_gate(Executor& executor, const std::vector<Work>& all) {
  cuda::Executor& session = executor.session();
  for (const Work& work : all) {
    if (!is_collective(work.element.what)) continue;
    const CUcontext context = executor.communicators().context_of(work.element.communicator);
    const cuda::WorkerContext* owner = nullptr;
    session.contexts().for_each([&](cuda::WorkerContext& each) {
      if (each.context == context) owner = &each;
    });
    if (owner != nullptr && !session.gate().may_work(
                                owner, work.stream, static_cast<uint64_t>(wire::nccl::Op::nccl_run),
                                work.element.count))
      return false;
  }
  return true;
}

}  // namespace

Executor::Executor(cuda::Executor* session, std::unique_ptr<gpu::Nccl> library)
    : session_(session), communicators_(std::move(library), &session->driver()) {}

bool Executor::serve(const session::Call& call) { return dispatch(*this, call); }

bool Executor::take_on_sight(const session::Call& call) {
  wire::nccl::nccl_abort_request request;
  if (static_cast<wire::nccl::Op>(call.opcode) != wire::nccl::Op::nccl_abort ||
      !wire::read_message(request, call.body, call.bytes))
    return false;
  const uint32_t reply_id = call.reply_id;
  communicators_.abort(request.communicator, [this, reply_id](ncclResult_t result) {
    wire::nccl::nccl_abort_reply reply;
    reply.result = result;
    reply_to(&session_->service(), reply_id, reply);
  });
  return true;
}

ncclResult_t handle(Executor& executor, const wire::nccl::nccl_open_request& request,
                    wire::nccl::nccl_open_reply& reply) {
  if (request.digest != wire::nccl::kSchemaDigest) return ncclInvalidUsage;
  reply.version = static_cast<uint32_t>(executor.communicators().version());
  return ncclSuccess;
}

ncclResult_t handle(Executor& executor, const wire::nccl::nccl_run_request& request,
                    wire::nccl::nccl_run_reply& reply) {
  reply.result = ncclInvalidArgument;
  std::vector<Element> elements;
  if (!read_work(request.work.data, request.work.count, request.extra.count, &elements))
    return ncclSuccess;
  std::vector<Work> work(elements.size());
  for (size_t i = 0; i < work.size(); ++i) {
    if (!resolve(executor, elements[i], &work[i])) return ncclSuccess;
  }
  if (!pass_gate(executor, work)) return ncclSuccess;
  session::Service* service = &executor.session().service();
  const uint32_t reply_id = executor.session().call().reply_id;
  const auto done = [service, reply_id](const Answer& answer) {
    wire::nccl::nccl_run_reply late;
    late.result = answer.result;
    late.text = bytes_of(answer.text);
    late.extra = bytes_of(answer.extra);
    reply_to(service, reply_id, late);
  };
  std::string extra(reinterpret_cast<const char*>(request.extra.data), request.extra.count);
  if (executor.communicators().run(request.caller, std::move(work), std::move(extra), done))
    executor.session().replies().take_over();
  else
    reply.result = ncclInternalError;
  return ncclSuccess;
}

ncclResult_t handle(Executor& executor, const wire::nccl::nccl_state_request& request,
                    wire::nccl::nccl_state_reply& reply) {
  reply.result = executor.communicators().state(request.communicator, &reply.rank, &reply.ranks);
  return ncclSuccess;
}

// For one that nobody took on sight.
ncclResult_t handle(Executor& executor, const wire::nccl::nccl_abort_request&,
                    wire::nccl::nccl_abort_reply&) {
  executor.session().replies().take_over();
  executor.take_on_sight(executor.session().call());
  return ncclSuccess;
}

}  // namespace tendril::worker::nccl
