// SPDX-License-Identifier: Apache-2.0
// Samplers. What the driver says of one, it says to the old function and the new one alike.
#include "client/opencl/forward.h"
#include "client/opencl/information.h"

namespace tendril::client::opencl {
namespace {

cl_sampler make(cl_context context, const std::vector<cl_sampler_properties>& properties,
                const cl_sampler_properties* shown, cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_sampler>(CL_INVALID_CONTEXT, errcode_ret);
  Sampler* sampler = create<cl_sampler>(in->session, in);
  if (sampler == nullptr) return give<cl_sampler>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  sampler->properties.clear();
  if (shown != nullptr) sampler->properties = properties;
  wire::opencl::sampler_create_request request;
  wire::opencl::sampler_create_reply reply;
  request.sampler = sampler->wire_id;
  request.context = in->wire_id;
  request.properties = {properties.data(), properties.size()};
  const cl_int result = in->session->call(0, request, reply);
  if (result != CL_SUCCESS) discard(sampler);
  return give<cl_sampler>(result, errcode_ret, sampler);
}

}  // namespace

cl_sampler clCreateSampler(cl_context context, cl_bool normalized_coords,
                           cl_addressing_mode addressing_mode, cl_filter_mode filter_mode,
                           cl_int* errcode_ret) {
  return make(context,
              {CL_SAMPLER_NORMALIZED_COORDS, normalized_coords, CL_SAMPLER_ADDRESSING_MODE,
               addressing_mode, CL_SAMPLER_FILTER_MODE, filter_mode, 0},
              nullptr, errcode_ret);
}

cl_sampler clCreateSamplerWithProperties(cl_context context,
                                         const cl_sampler_properties* sampler_properties,
                                         cl_int* errcode_ret) {
  std::vector<cl_sampler_properties> given;
  for (size_t i = 0; sampler_properties != nullptr && sampler_properties[i] != 0; i += 2) {
    given.push_back(sampler_properties[i]);
    given.push_back(sampler_properties[i + 1]);
  }
  given.push_back(0);
  return make(context, given, sampler_properties, errcode_ret);
}

bool answer_of_sampler(const Sampler& sampler, cl_sampler_info parameter, const Wanted& answer,
                       cl_int* result) {
  switch (parameter) {
    case CL_SAMPLER_REFERENCE_COUNT:
      *result = answer.one(cl_uint{sampler.references.load()});
      return true;
    case CL_SAMPLER_CONTEXT:
      *result = answer.one(handle_of<cl_context>(sampler.context));
      return true;
    case CL_SAMPLER_PROPERTIES:
      *result = answer.list(sampler.properties);
      return true;
    default:
      return false;
  }
}

cl_int ask(const Sampler& sampler, cl_sampler_info parameter, const Wanted& wanted) {
  return ask_server({sampler.session, wire::opencl::Subject::kSampler, sampler.wire_id}, parameter,
                    wanted);
}

}  // namespace tendril::client::opencl
