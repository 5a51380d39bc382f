// SPDX-License-Identifier: Apache-2.0
// See parts.h.
#include "client/cuda/nccl/parts.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/nccl_messages.gen.h"
#include "base/clock.h"
#include "client/common/log.h"
#include "client/cuda/bodies.h"

namespace tendril::client::cuda {
namespace {

using api::nccl::Element;
using api::nccl::What;

// Where NCCL knows of a failure, it tells all ranks within this time.
constexpr uint64_t kGraceUs = 500'000;
// A rank that has not come to NCCL yet cannot be aborted.
constexpr uint64_t kAbortEveryUs = 20'000;
constexpr uint32_t kSpinUs = 200, kSleepLeastUs = 50, kSleepMostUs = 1000;

bool is_failure(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

// NCCL takes memory for these.
bool makes_communicator(const Element& element) {
  return element.what == What::kInit || element.what == What::kSplit ||
         element.what == What::kShrink;
}

ncclResult_t await(const Part& part, const Returned& returned) {
  const auto& [id, text, text_bytes] = returned;
  if (!part.sent) return ncclRemoteError;
  wire::nccl::nccl_run_reply reply;
  const CUresult outer = part.session->answer(part.reply_id, reply);
  if (outer != CUDA_SUCCESS) {
    explain(text, text_bytes, part.session, outer);
    return result_of(outer);
  }
  const auto result = static_cast<ncclResult_t>(reply.result);
  if (result != ncclSuccess && text_bytes != 0 && reply.text.count != 0) {
    snprintf(text, text_bytes, "%.*s",
             static_cast<int>(reply.text.count < 1024 ? reply.text.count : 1024),
             reinterpret_cast<const char*>(reply.text.data));
  }
  if (id != nullptr && reply.extra.count == api::nccl::kUniqueIdBytes)
    memcpy(id, reply.extra.data, api::nccl::kUniqueIdBytes);
  return result;
}

void ask_to_abort(Part* part, uint64_t communicator) {
  wire::nccl::nccl_abort_request request;
  request.communicator = communicator;
  const uint32_t reply_id = part->session->lane->new_reply_id();
  if (!part->session->append(kNoContext, request, reply_id)) return;
  part->session->lane->flush();
  part->aborts.push_back(reply_id);
}

// Those that this part's ranks wait with.
void abort_all(Part* part, ncclResult_t why) {
  for (const uint32_t reply_id : part->aborts)
    if (!part->session->lane->answered(reply_id)) return;
  for (const Element& element : part->work) {
    if (element.made != 0 && makes_communicator(element)) ask_to_abort(part, element.made);
    if (element.communicator == 0) continue;
    ask_to_abort(part, element.communicator);
    NcclFailures& failures = part->session->nccl_failures;
    const bool stays = element.what != What::kInit && element.what != What::kDestroy;
    if (stays && failures.find(element.communicator) == 0)
      failures.add(element.communicator, uint32_t{why});
  }
}

// Of several lanes: a thread can sleep for one only, so it looks.
class Look {
 public:
  void again() {
    if (spin_.again()) return;
    usleep(sleep_us_);
    sleep_us_ = sleep_us_ * 2 < kSleepMostUs ? sleep_us_ * 2 : kSleepMostUs;
  }

 private:
  base::Spin spin_{kSpinUs};
  uint32_t sleep_us_ = kSleepLeastUs;
};

}  // namespace

ncclResult_t result_of(CUresult result) {
  switch (result) {
    case CUDA_SUCCESS:
      return ncclSuccess;
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return ncclRemoteError;
    case CUDA_ERROR_NOT_SUPPORTED:
      return ncclInvalidUsage;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
      return ncclInvalidArgument;
    default:
      return ncclUnhandledCudaError;
  }
}

void explain(char* text, size_t bytes, const Session* session, CUresult result) {
  if (bytes == 0) return;
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    snprintf(text, bytes,
             "GPU server %s gives this program no NCCL, because the program began without "
             "Tendril's libnccl.so.2 preloaded; start it with 'tendril run'",
             session->endpoint.c_str());
  } else {
    snprintf(text, bytes, "GPU server %s answered NCCL's call with CUDA's error %d",
             session->endpoint.c_str(), static_cast<int>(result));
  }
  log_once(LogLevel::kError, "%s", text);
}

void send(Part* part, const void* extra, size_t extra_bytes) {
  if (!part->session->freed.empty()) part->session->send_frees();
  bool makes = false;
  for (const Element& element : part->work) {
    makes = makes || makes_communicator(element);
    if (element.what == What::kDestroy) part->session->nccl_failures.forget(element.communicator);
  }
  if (makes) part->session->give_up_kept();
  wire::nccl::nccl_run_request request;
  request.caller = thread_serial();
  request.work = {reinterpret_cast<const uint8_t*>(part->work.data()),
                  part->work.size() * sizeof(Element)};
  request.extra = {static_cast<const uint8_t*>(extra), extra_bytes};
  part->reply_id = part->session->lane->new_reply_id();
  part->sent = part->session->append(kNoContext, request, part->reply_id);
  if (part->sent) part->session->lane->flush();
}

bool send_ahead(const Part& part) {
  if (!part.session->freed.empty()) part.session->send_frees();
  wire::nccl::nccl_ahead_request request;
  request.work = {reinterpret_cast<const uint8_t*>(part.work.data()),
                  part.work.size() * sizeof(Element)};
  return part.session->enqueue(kNoContext, request) == CUDA_SUCCESS;
}

ncclResult_t await_all(std::vector<Part>* parts, const Returned& returned) {
  if (parts->size() == 1) return await(parts->front(), returned);
  ncclResult_t first = ncclSuccess;
  uint64_t abort_at_us = 0;  // 0: nothing has failed
  Look look;
  for (size_t open = parts->size(); open != 0;) {
    size_t still_open = 0;
    for (Part& part : *parts) {
      if (part.answered) continue;
      part.session->lane->pump();
      if (part.sent && !part.session->lane->answered(part.reply_id)) {
        ++still_open;
        continue;
      }
      part.answered = true;
      // The text of the first failure: others follow from it.
      const ncclResult_t result =
          await(part, is_failure(first) ? Returned{returned.id, nullptr, 0} : returned);
      if (!is_failure(first) && result != ncclSuccess) first = result;
      if (is_failure(result) && abort_at_us == 0) abort_at_us = base::now_us() + kGraceUs;
    }
    open = still_open;
    if (open != 0) look.again();
    if (open == 0 || abort_at_us == 0 || base::now_us() < abort_at_us) continue;
    abort_at_us = base::now_us() + kAbortEveryUs;
    for (Part& part : *parts)
      if (!part.answered) abort_all(&part, first);
  }
  for (const Part& part : *parts) {
    wire::nccl::nccl_abort_reply reply;
    for (const uint32_t reply_id : part.aborts) part.session->answer(reply_id, reply);
  }
  return first;
}

}  // namespace tendril::client::cuda
