// SPDX-License-Identifier: Apache-2.0
// See information.h.
#include "client/opencl/information.h"

#include <string.h>

#include <algorithm>

namespace tendril::client::opencl {
namespace {

cl_int ask(const Question& question, uint32_t parameter, bool wanted, uint64_t room,
           wire::opencl::information_reply* reply) {
  wire::opencl::information_request request;
  request.subject = question.subject;
  request.object = question.object;
  request.other = question.other;
  request.parameter = parameter;
  request.room = room;
  request.wanted = wanted ? 1 : 0;
  request.input = {static_cast<const uint8_t*>(question.input), question.input_bytes};
  return question.session->call(0, request, *reply);
}

}  // namespace

cl_int Wanted::bytes(const void* data, size_t bytes) const {
  if (value != nullptr && room < bytes) return CL_INVALID_VALUE;
  if (value != nullptr && bytes != 0) memcpy(value, data, bytes);
  if (length != nullptr) *length = bytes;
  return CL_SUCCESS;
}

cl_int ask_server(const Question& question, uint32_t parameter, const Wanted& answer) {
  wire::opencl::information_reply reply;
  const cl_int result = ask(question, parameter, answer.value != nullptr, answer.room, &reply);
  if (result != CL_SUCCESS) return result;
  if (answer.value != nullptr && reply.value.count != 0)
    memcpy(answer.value, reply.value.data, std::min<size_t>(answer.room, reply.value.count));
  if (answer.length != nullptr) *answer.length = reply.length;
  return result;
}

cl_int ask_server(const Question& question, uint32_t parameter, std::string* answer) {
  wire::opencl::information_reply reply;
  const cl_int result = ask(question, parameter, true, wire::kReplyBytesMax, &reply);
  if (result != CL_SUCCESS) return result;
  answer->assign(reinterpret_cast<const char*>(reply.value.data), reply.value.count);
  return result;
}

}  // namespace tendril::client::opencl
