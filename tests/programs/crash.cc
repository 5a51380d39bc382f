// SPDX-License-Identifier: Apache-2.0
// Writes to an illegal address and shows what the driver reports then and afterwards. PASS means
// that the error was reported and is sticky.
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

const char* name_of(CUresult result) {
  const char* name = "unknown code";
  cuGetErrorName(result, &name);
  return name;
}

}  // namespace

int main() {
  program::use_device(0);
  CUfunction write_at = program::load(kKernelsPtx, "write_at");
  CUdeviceptr before, after = 0;
  CHECK(cuMemAlloc(&before, 4096));
  CHECK(program::launch(write_at, 1, 1, nullptr, CUdeviceptr{0}, 1u));
  const CUresult first = cuCtxSynchronize();
  const CUresult second = cuMemAlloc(&after, 4096);
  const CUresult third = cuMemFree(before);
  std::printf("crash: synchronise %s, allocate %s, free %s\n", name_of(first), name_of(second),
              name_of(third));
  return program::finish(first == CUDA_ERROR_ILLEGAL_ADDRESS && second == first && third == first);
}
