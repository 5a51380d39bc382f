// SPDX-License-Identifier: Apache-2.0
// Functions that came with later versions of OpenCL, in the order of a loader's table: the table of
// an older driver ends before them. The worker and the tests' driver read this.
#pragma once

// clang-format off
#define TENDRIL_OPENCL_SINCE_20(X) \
  X(clCreateCommandQueueWithProperties) X(clCreatePipe) X(clGetPipeInfo) \
  X(clSVMAlloc) X(clSVMFree) X(clEnqueueSVMFree) X(clEnqueueSVMMemcpy) X(clEnqueueSVMMemFill) \
  X(clEnqueueSVMMap) X(clEnqueueSVMUnmap) X(clCreateSamplerWithProperties) \
  X(clSetKernelArgSVMPointer) X(clSetKernelExecInfo) X(clGetKernelSubGroupInfoKHR)
#define TENDRIL_OPENCL_SINCE_21(X) \
  X(clCloneKernel) X(clCreateProgramWithIL) X(clEnqueueSVMMigrateMem) \
  X(clGetDeviceAndHostTimer) X(clGetHostTimer) X(clGetKernelSubGroupInfo) \
  X(clSetDefaultDeviceCommandQueue)
#define TENDRIL_OPENCL_SINCE_22(X) \
  X(clSetProgramReleaseCallback) X(clSetProgramSpecializationConstant)
#define TENDRIL_OPENCL_SINCE_30(X) \
  X(clCreateBufferWithProperties) X(clCreateImageWithProperties) X(clSetContextDestructorCallback)
// clang-format on
