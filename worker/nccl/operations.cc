// SPDX-License-Identifier: Apache-2.0
// See operations.h.
#include "worker/nccl/operations.h"

#include <unistd.h>

#include <cstdlib>

#include "api/nccl/version.h"
#include "api/nccl_handlers.gen.h"
#include "base/text.h"
#include "gpu/nccl/driver.h"
#include "worker/core/output.h"
#include "worker/cuda/executor/scope.h"
#include "worker/nccl/driver/calls.h"
#include "worker/nccl/variables.h"

namespace tendril::worker::nccl {
namespace {

using api::nccl::Element;
using api::nccl::What;

// What NCCL takes for a communicator, where its allocations are not counted: 544 MB for two ranks
// and 688 MB for more were seen, without connections.
constexpr uint32_t kCommunicatorMegabytes = 1024;
constexpr char kEstimate[] = "TENDRIL_WORKER_NCCL_MB";  // an operator's own

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

const cuda::WorkerContext* owner_of(Executor& executor, CUcontext context) {
  const cuda::WorkerContext* owner = nullptr;
  executor.session().contexts().for_each([&](cuda::WorkerContext& each) {
    if (each.context == context) owner = &each;
  });
  return owner;
}

// Collectives are work for the GPU's processors. False: the session is over.
bool pass_gate(Executor& executor, const std::vector<Work>& all) {
  cuda::Executor& session = executor.session();
  for (const Work& work : all) {
    if (!is_collective(work.element.what)) continue;
    const CUcontext context = executor.communicators()->context_of(work.element.communicator);
    const cuda::WorkerContext* owner = owner_of(executor, context);
    if (owner != nullptr && !session.gate().may_work(
                                owner, work.stream, static_cast<uint64_t>(wire::nccl::Op::nccl_run),
                                work.element.count))
      return false;
  }
  return true;
}

// Charges those that come to be. False: a slice has no room; then nothing is charged.
bool charge_all(Executor& executor, const std::vector<Work>& all) {
  std::vector<uint64_t> charged;
  for (const Work& work : all) {
    const Element& element = work.element;
    const bool begins = element.what == What::kInit;
    const uint64_t made = begins ? element.communicator : element.made;
    const bool parts = element.what == What::kSplit || element.what == What::kShrink;
    if (!begins && (!parts || made == 0)) continue;
    const CUcontext context =
        begins ? work.context : executor.communicators()->context_of(element.communicator);
    const cuda::WorkerContext* owner = owner_of(executor, context);
    if (owner == nullptr || executor.charge(made, owner)) {
      charged.push_back(made);
      continue;
    }
    executor.ended(charged);
    executor.give_back();
    return false;
  }
  return true;
}

// Those of a group's communicators that are no more when it is done.
std::vector<uint64_t> gone_after(Communicators* communicators, const std::vector<Element>& all) {
  std::vector<uint64_t> gone;
  for (const Element& element : all) {
    for (const uint64_t each : {element.communicator, element.made}) {
      if (each != 0 && element.what < What::kRegister && !communicators->knows(each))
        gone.push_back(each);
    }
  }
  return gone;
}

}  // namespace

Executor::Executor(cuda::Executor* session, std::vector<gpu::NcclFile> libraries)
    : session_(session), libraries_(std::move(libraries)) {}

ncclResult_t Executor::open(uint32_t version, std::string* why) {
  if (communicators_ != nullptr) {
    const bool same = static_cast<uint32_t>(communicators_->version()) == version;
    if (!same) *why = "this session uses another version of NCCL already";
    return same ? ncclSuccess : ncclInvalidUsage;
  }
  for (const gpu::NcclFile& each : libraries_) {
    if (each.version != version) continue;
    count_memory();
    auto library = gpu::Nccl::open(each.path);
    if (!library.ok()) {
      *why = library.status().message();
      return ncclSystemError;
    }
    session::Service* const service = &session_->service();
    const auto tell = [service](uint64_t communicator, ncclResult_t state) {
      const api::nccl::Failure failure = {communicator, static_cast<uint32_t>(state), 0};
      service->push(wire::FrameKind::kNews, 0, &failure, sizeof failure);
    };
    communicators_ = std::make_unique<Communicators>(library.take(), &session_->driver(), tell);
    on_sight_.store(communicators_.get(), std::memory_order_release);
    return ncclSuccess;
  }
  *why = "this server has no NCCL " + api::nccl::version_text(version);
  return ncclInvalidUsage;
}

// From now on NCCL gets a driver that charges what it takes. A process opens one NCCL.
void Executor::count_memory() {
  if (memory_ != nullptr || getenv(kEstimate) != nullptr) return;
  auto table = gpu::take_drivers_place(session_->driver(), gpu::nccl_driver_path());
  if (!table.ok()) {
    dprintf(session_->output().log_descriptor(),
            "%s; communicators are charged by an estimate of %u MiB\n",
            table.status().message().c_str(), kCommunicatorMegabytes);
    return;
  }
  std::vector<CUdevice> devices;
  for (uint32_t slot = 0; slot < session_->assignment().slice_count; ++slot)
    devices.push_back(session_->device_of(slot));
  memory_ = std::make_unique<Memory>(&session_->driver(), session_->charge(), &session_->host(),
                                     std::move(devices));
  charge_calls(*table, memory_.get(), session_->output().log_descriptor());
}

// An NCCL that has made communicators and has not come to our driver has found another way to it.
bool Executor::counts_memory() const {
  return memory_ != nullptr && (!any_began_ || calls_seen() != 0);
}

bool Executor::charge(uint64_t communicator, const cuda::WorkerContext* context) {
  Charge& slices = session_->charge();
  const bool has_costs = slices.context_bytes(context->slot) != 0;
  const uint64_t bytes = uint64_t{base::env_u32(kEstimate, has_costs ? kCommunicatorMegabytes : 0)}
                         << 20;
  const bool counts = counts_memory();
  any_began_ = true;
  if (counts) {
    memory_->belongs(context->context, context->slot);
    // Memory that is kept for later makes room for NCCL, which cannot ask for it.
    if (bytes != 0 && slices.take(context->slot, bytes)) slices.give_back(context->slot, bytes);
    return true;
  }
  if (bytes == 0 || charges_.count(communicator) != 0) return true;
  const uint64_t key = slices.hold(context->slot, bytes, context);
  if (key == 0) return false;
  charges_[communicator] = key;
  return true;
}

void Executor::context_ended(CUcontext context) {
  if (memory_ != nullptr) memory_->context_ended(context);
}

void Executor::explain_shortage(std::string* text) {
  if (memory_ == nullptr || !memory_->had_no_room()) return;
  *text =
      "the slice has no memory for what NCCL takes; take a larger one (-m). NCCL says: " + *text;
}

void Executor::ended(const std::vector<uint64_t>& communicators) {
  const std::lock_guard<std::mutex> hold(mutex_);
  ended_.insert(ended_.end(), communicators.begin(), communicators.end());
  any_ended_.store(!ended_.empty(), std::memory_order_release);
}

void Executor::give_back() {
  if (!any_ended_.exchange(false, std::memory_order_acquire)) return;
  const std::lock_guard<std::mutex> hold(mutex_);
  for (const uint64_t communicator : ended_) {
    const auto found = charges_.find(communicator);
    if (found == charges_.end()) continue;
    session_->charge().release(found->second);
    charges_.erase(found);
  }
  ended_.clear();
}

bool Executor::serve(const session::Call& call) { return dispatch(*this, call); }

bool Executor::take_on_sight(const session::Call& call) {
  wire::nccl::nccl_abort_request request;
  if (static_cast<wire::nccl::Op>(call.opcode) != wire::nccl::Op::nccl_abort ||
      !wire::read_message(request, call.body, call.bytes))
    return false;
  Communicators* const all = on_sight_.load(std::memory_order_acquire);
  if (all == nullptr) return false;
  const uint32_t reply_id = call.reply_id;
  all->abort(request.communicator,
             [this, reply_id, communicator = request.communicator](ncclResult_t result) {
               ended({communicator});
               wire::nccl::nccl_abort_reply reply;
               reply.result = result;
               reply_to(&session_->service(), reply_id, reply);
             });
  return true;
}

ncclResult_t handle(Executor& executor, const wire::nccl::nccl_open_request& request,
                    wire::nccl::nccl_open_reply& reply) {
  if (request.digest != wire::nccl::kSchemaDigest) return ncclInvalidUsage;
  set_variables(allowed_variables(request.variables.data, request.variables.count));
  const wire::Assignment& assignment = executor.session().assignment();
  set_variables(own_variables(assignment.server_id, getuid()));
  const bool forbidden = assignment.forbids_rdma != 0;
  set_variables(network_variables(getenv("TENDRIL_RDMA_DEVICE"), forbidden,
                                  getenv("NCCL_SOCKET_IFNAME"), transport::rdma::read_ports()),
                forbidden);
  std::string& why = executor.why();
  why.clear();
  reply.result = executor.open(request.version, &why);
  reply.text = bytes_of(why);
  return ncclSuccess;
}

ncclResult_t handle(Executor& executor, const wire::nccl::nccl_run_request& request,
                    wire::nccl::nccl_run_reply& reply) {
  reply.result = ncclInvalidArgument;
  if (executor.communicators() == nullptr) return ncclInvalidUsage;
  std::vector<Element> elements;
  if (!read_work(request.work.data, request.work.count, request.extra.count, &elements))
    return ncclSuccess;
  std::vector<Work> work(elements.size());
  for (size_t i = 0; i < work.size(); ++i) {
    if (!resolve(executor, elements[i], &work[i])) return ncclSuccess;
  }
  if (!pass_gate(executor, work)) return ncclSuccess;
  if (!charge_all(executor, work)) {
    reply.result = ncclUnhandledCudaError;
    executor.why() = "the slice has no memory for another communicator; take a larger one (-m)";
    reply.text = bytes_of(executor.why());
    return ncclSuccess;
  }
  session::Service* service = &executor.session().service();
  const uint32_t reply_id = executor.session().call().reply_id;
  const auto done = [service, reply_id, &executor, elements](const Answer& answer) {
    executor.ended(gone_after(executor.communicators(), elements));
    std::string text = answer.text;
    if (answer.result != ncclSuccess && answer.result != ncclInProgress)
      executor.explain_shortage(&text);
    wire::nccl::nccl_run_reply late;
    late.result = answer.result;
    late.text = bytes_of(text);
    late.extra = bytes_of(answer.extra);
    reply_to(service, reply_id, late);
  };
  std::string extra(reinterpret_cast<const char*>(request.extra.data), request.extra.count);
  if (executor.communicators()->run(request.caller, std::move(work), std::move(extra), done))
    executor.session().replies().take_over();
  else
    reply.result = ncclInternalError;
  return ncclSuccess;
}

// On the executor, because the session's next calls may be about what NCCL is to write. The client
// asks only for what NCCL has done before for this communicator, and then NCCL waits for nobody.
ncclResult_t handle(Executor& executor, const wire::nccl::nccl_ahead_request& request) {
  Communicators* const communicators = executor.communicators();
  std::vector<Element> elements;
  if (communicators == nullptr || !read_work(request.work.data, request.work.count, 0, &elements))
    return ncclInvalidUsage;
  std::vector<Work> work(elements.size());
  bool is_sound = true;
  for (size_t i = 0; i < work.size() && is_sound; ++i)
    is_sound = is_collective(elements[i].what) && resolve(executor, elements[i], &work[i]);
  ncclResult_t result = ncclInvalidArgument;
  if (is_sound && pass_gate(executor, work)) {
    cuda::Executor& session = executor.session();
    const CUcontext before = session.contexts().current_in_driver();
    result = communicators->run_here(std::move(work));
    session.driver().cuCtxSetCurrent(before);
  }
  if (result == ncclSuccess || result == ncclInProgress) return ncclSuccess;
  for (const Element& element : elements) communicators->fail(element.communicator, result);
  return ncclSuccess;
}

ncclResult_t handle(Executor& executor, const wire::nccl::nccl_state_request& request,
                    wire::nccl::nccl_state_reply& reply) {
  if (executor.communicators() == nullptr) return ncclInvalidUsage;
  reply.result = executor.communicators()->state(request.communicator, &reply.rank, &reply.ranks);
  return ncclSuccess;
}

// For one that nobody took on sight.
ncclResult_t handle(Executor& executor, const wire::nccl::nccl_abort_request&,
                    wire::nccl::nccl_abort_reply&) {
  if (executor.communicators() == nullptr) return ncclInvalidUsage;
  executor.session().replies().take_over();
  executor.take_on_sight(executor.session().call());
  return ncclSuccess;
}

}  // namespace tendril::worker::nccl
