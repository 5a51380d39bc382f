// SPDX-License-Identifier: Apache-2.0
// Samplers, with the old function or the new one.
#include "api/opencl_handlers.gen.h"
#include "worker/opencl/executor.h"
#include "worker/opencl/scope.h"

namespace tendril::worker::opencl {
namespace {

// A driver of OpenCL 1.2 has only the old function.
cl_sampler make_old(const gpu::OpenclDriver& driver, cl_context context,
                    const std::vector<cl_sampler_properties>& properties, cl_int* result) {
  cl_bool normalized = CL_TRUE;
  cl_addressing_mode addressing = CL_ADDRESS_CLAMP;
  cl_filter_mode filter = CL_FILTER_NEAREST;
  for (size_t i = 0; i + 1 < properties.size(); i += 2) {
    const auto value = static_cast<cl_uint>(properties[i + 1]);
    if (properties[i] == CL_SAMPLER_NORMALIZED_COORDS) normalized = value;
    if (properties[i] == CL_SAMPLER_ADDRESSING_MODE) addressing = value;
    if (properties[i] == CL_SAMPLER_FILTER_MODE) filter = value;
  }
  *result = CL_INVALID_OPERATION;
  if (driver.clCreateSampler == nullptr) return nullptr;
  return driver.clCreateSampler(context, normalized, addressing, filter, result);
}

}  // namespace

cl_int handle(Executor& w, const wire::opencl::sampler_create_request& m,
              wire::opencl::sampler_create_reply&) {
  Scope scope(w);
  scope.reserve(Kind::kSampler, m.sampler);
  auto context = scope.get<cl_context>(Kind::kContext, m.context);
  if (!scope.ok()) return scope.error();
  if (m.properties.count > kPropertiesMax) return CL_INVALID_VALUE;
  std::vector<cl_sampler_properties> properties;
  for (uint64_t i = 0; i + 1 < m.properties.count && m.properties[i] != 0; i += 2) {
    properties.push_back(m.properties[i]);
    properties.push_back(m.properties[i + 1]);
  }
  properties.push_back(0);
  cl_int result = CL_INVALID_OPERATION;
  cl_sampler sampler = nullptr;
  if (w.driver().clCreateSamplerWithProperties != nullptr)
    sampler = w.driver().clCreateSamplerWithProperties(context, properties.data(), &result);
  if (result == CL_INVALID_OPERATION) sampler = make_old(w.driver(), context, properties, &result);
  if (result == CL_SUCCESS) scope.bind(Kind::kSampler, m.sampler, sampler);
  return result;
}

}  // namespace tendril::worker::opencl
