// SPDX-License-Identifier: Apache-2.0
// Handles that share memory and events between processes: not offered (each client has a worker of
// its own), and said so in the driver's codes; the device attribute says the same. A program's own
// mistakes get the codes they would get on a GPU.
#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  Range range;
  if (pHandle == nullptr || !process()->ranges.find(dptr, &range) ||
      range.kind != RangeKind::kDevice)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Event* e = process()->events.find(Kind::kEvent, handle_value(event));
  if (e == nullptr || (e->flags & CU_EVENT_INTERPROCESS) == 0) return CUDA_ERROR_INVALID_HANDLE;
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle, unsigned int Flags) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  if (pdptr == nullptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  return phEvent == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr) {
  Context* c = nullptr;
  TENDRIL_TRY(require_context(&c));
  return CUDA_ERROR_INVALID_VALUE;  // nothing was ever opened
}

}  // namespace tendril::client::cuda
