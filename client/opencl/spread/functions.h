// SPDX-License-Identifier: Apache-2.0
// The functions that a loader calls for handles of this folder. They have the types of the ordinary
// ones, and call these for each server.
#pragma once

#include "api/opencl_bodies.gen.h"
#include "client/opencl/information.h"
#include "client/opencl/spread/object.h"

namespace tendril::client::opencl::spread {

decltype(opencl::clRetainContext) clRetainContext;
decltype(opencl::clReleaseContext) clReleaseContext;
decltype(opencl::clGetContextInfo) clGetContextInfo;
decltype(opencl::clSetContextDestructorCallback) clSetContextDestructorCallback;
decltype(opencl::clSVMAlloc) clSVMAlloc;
decltype(opencl::clSVMFree) clSVMFree;
decltype(opencl::clEnqueueSVMFree) clEnqueueSVMFree;
decltype(opencl::clEnqueueSVMMemcpy) clEnqueueSVMMemcpy;
decltype(opencl::clEnqueueSVMMemFill) clEnqueueSVMMemFill;
decltype(opencl::clEnqueueSVMMap) clEnqueueSVMMap;
decltype(opencl::clEnqueueSVMUnmap) clEnqueueSVMUnmap;
decltype(opencl::clEnqueueSVMMigrateMem) clEnqueueSVMMigrateMem;
decltype(opencl::clSetKernelArgSVMPointer) clSetKernelArgSVMPointer;
decltype(opencl::clSetKernelExecInfo) clSetKernelExecInfo;
decltype(opencl::clCreatePipe) clCreatePipe;
decltype(opencl::clGetPipeInfo) clGetPipeInfo;
decltype(opencl::clEnqueueReadBuffer) clEnqueueReadBuffer;
decltype(opencl::clEnqueueWriteBuffer) clEnqueueWriteBuffer;
decltype(opencl::clEnqueueReadBufferRect) clEnqueueReadBufferRect;
decltype(opencl::clEnqueueWriteBufferRect) clEnqueueWriteBufferRect;
decltype(opencl::clEnqueueMapBuffer) clEnqueueMapBuffer;
decltype(opencl::clEnqueueUnmapMemObject) clEnqueueUnmapMemObject;
decltype(opencl::clEnqueueCopyBuffer) clEnqueueCopyBuffer;
decltype(opencl::clEnqueueCopyBufferRect) clEnqueueCopyBufferRect;
decltype(opencl::clEnqueueFillBuffer) clEnqueueFillBuffer;
decltype(opencl::clEnqueueMigrateMemObjects) clEnqueueMigrateMemObjects;
decltype(opencl::clWaitForEvents) clWaitForEvents;
decltype(opencl::clGetEventInfo) clGetEventInfo;
decltype(opencl::clGetEventProfilingInfo) clGetEventProfilingInfo;
decltype(opencl::clRetainEvent) clRetainEvent;
decltype(opencl::clReleaseEvent) clReleaseEvent;
decltype(opencl::clCreateUserEvent) clCreateUserEvent;
decltype(opencl::clSetUserEventStatus) clSetUserEventStatus;
decltype(opencl::clSetEventCallback) clSetEventCallback;
decltype(opencl::clCreateImage) clCreateImage;
decltype(opencl::clCreateImageWithProperties) clCreateImageWithProperties;
decltype(opencl::clCreateImage2D) clCreateImage2D;
decltype(opencl::clCreateImage3D) clCreateImage3D;
decltype(opencl::clGetImageInfo) clGetImageInfo;
decltype(opencl::clGetSupportedImageFormats) clGetSupportedImageFormats;
decltype(opencl::clEnqueueReadImage) clEnqueueReadImage;
decltype(opencl::clEnqueueWriteImage) clEnqueueWriteImage;
decltype(opencl::clEnqueueMapImage) clEnqueueMapImage;
decltype(opencl::clEnqueueFillImage) clEnqueueFillImage;
decltype(opencl::clEnqueueCopyImage) clEnqueueCopyImage;
decltype(opencl::clEnqueueCopyImageToBuffer) clEnqueueCopyImageToBuffer;
decltype(opencl::clEnqueueCopyBufferToImage) clEnqueueCopyBufferToImage;
decltype(opencl::clCreateKernel) clCreateKernel;
decltype(opencl::clCreateKernelsInProgram) clCreateKernelsInProgram;
decltype(opencl::clCloneKernel) clCloneKernel;
decltype(opencl::clRetainKernel) clRetainKernel;
decltype(opencl::clReleaseKernel) clReleaseKernel;
decltype(opencl::clSetKernelArg) clSetKernelArg;
decltype(opencl::clGetKernelInfo) clGetKernelInfo;
decltype(opencl::clGetKernelArgInfo) clGetKernelArgInfo;
decltype(opencl::clGetKernelWorkGroupInfo) clGetKernelWorkGroupInfo;
decltype(opencl::clGetKernelSubGroupInfo) clGetKernelSubGroupInfo;
decltype(opencl::clEnqueueNDRangeKernel) clEnqueueNDRangeKernel;
decltype(opencl::clEnqueueTask) clEnqueueTask;
decltype(opencl::clCreateBuffer) clCreateBuffer;
decltype(opencl::clCreateBufferWithProperties) clCreateBufferWithProperties;
decltype(opencl::clCreateSubBuffer) clCreateSubBuffer;
decltype(opencl::clRetainMemObject) clRetainMemObject;
decltype(opencl::clReleaseMemObject) clReleaseMemObject;
decltype(opencl::clGetMemObjectInfo) clGetMemObjectInfo;
decltype(opencl::clSetMemObjectDestructorCallback) clSetMemObjectDestructorCallback;
decltype(opencl::clCreateSampler) clCreateSampler;
decltype(opencl::clCreateSamplerWithProperties) clCreateSamplerWithProperties;
decltype(opencl::clRetainSampler) clRetainSampler;
decltype(opencl::clReleaseSampler) clReleaseSampler;
decltype(opencl::clGetSamplerInfo) clGetSamplerInfo;
decltype(opencl::clCreateProgramWithSource) clCreateProgramWithSource;
decltype(opencl::clCreateProgramWithIL) clCreateProgramWithIL;
decltype(opencl::clCreateProgramWithBuiltInKernels) clCreateProgramWithBuiltInKernels;
decltype(opencl::clCreateProgramWithBinary) clCreateProgramWithBinary;
decltype(opencl::clSetProgramSpecializationConstant) clSetProgramSpecializationConstant;
decltype(opencl::clRetainProgram) clRetainProgram;
decltype(opencl::clReleaseProgram) clReleaseProgram;
decltype(opencl::clBuildProgram) clBuildProgram;
decltype(opencl::clCompileProgram) clCompileProgram;
decltype(opencl::clLinkProgram) clLinkProgram;
decltype(opencl::clGetProgramInfo) clGetProgramInfo;
decltype(opencl::clGetProgramBuildInfo) clGetProgramBuildInfo;
decltype(opencl::clCreateCommandQueue) clCreateCommandQueue;
decltype(opencl::clCreateCommandQueueWithProperties) clCreateCommandQueueWithProperties;
decltype(opencl::clRetainCommandQueue) clRetainCommandQueue;
decltype(opencl::clReleaseCommandQueue) clReleaseCommandQueue;
decltype(opencl::clGetCommandQueueInfo) clGetCommandQueueInfo;
decltype(opencl::clFlush) clFlush;
decltype(opencl::clFinish) clFinish;
decltype(opencl::clEnqueueMarkerWithWaitList) clEnqueueMarkerWithWaitList;
decltype(opencl::clEnqueueBarrierWithWaitList) clEnqueueBarrierWithWaitList;
decltype(opencl::clEnqueueMarker) clEnqueueMarker;
decltype(opencl::clEnqueueBarrier) clEnqueueBarrier;
decltype(opencl::clEnqueueWaitForEvents) clEnqueueWaitForEvents;

// What the record of an object does not answer: a server says it.
cl_int ask(const Context& context, cl_context_info parameter, const Wanted& wanted);
cl_int ask(const Queue& queue, cl_command_queue_info parameter, const Wanted& wanted);
cl_int ask(const Memory& memory, cl_mem_info parameter, const Wanted& wanted);
cl_int ask(const Program& program, cl_program_info parameter, const Wanted& wanted);
cl_int ask(const Kernel& kernel, cl_kernel_info parameter, const Wanted& wanted);
cl_int ask(const Event& event, cl_event_info parameter, const Wanted& wanted);
cl_int ask(const Sampler& sampler, cl_sampler_info parameter, const Wanted& wanted);

}  // namespace tendril::client::opencl::spread
