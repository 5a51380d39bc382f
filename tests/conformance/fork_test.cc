// SPDX-License-Identifier: Apache-2.0
// fork. A child of an initialised process gets CUDA_ERROR_NOT_INITIALIZED and never hangs; its
// parent is undisturbed. A child of an uninitialised process may start afresh. Every case runs in a
// process of its own, which then forks.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

// Forks, runs `body` in the child and returns its result (-1 if it hung for 20 s or died).
template <typename Body>
int in_fork(Body body) {
  fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);  // only ends a hang
    _exit(body());
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

PROCESS_TEST(ForkProcess, ChildOfInitialisedProcessIsNotInitialised) {
  attach();
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 5, 256));
  EXPECT_EQ(in_fork([] { return static_cast<int>(cuInit(0)); }), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(in_fork([] {
              int count = 0;
              return static_cast<int>(cuDeviceGetCount(&count));
            }),
            CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(in_fork([] {
              CUdeviceptr pointer = 0;
              return static_cast<int>(cuMemAlloc_v2(&pointer, 1024));
            }),
            CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(in_fork([] { return static_cast<int>(cuCtxSynchronize()); }),
            CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 5))
      << "the parent goes on undisturbed";
}

PROCESS_TEST(ForkProcess, ChildThatNeverCallsCudaExitsCleanly) {
  attach();
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 9, 256));
  fflush(nullptr);
  for (int i = 0; i < 3; i++) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(20);
      exit(0);  // runs exit handlers; they must not end the parent's session
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  OK(launch(basic("affine"), {1}, {256}, 0, nullptr, CUdeviceptr{data}, 2u, 1u, 256u));
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 19));
}

PROCESS_TEST(ForkProcess, ChildOfUninitialisedProcessMayStart) {
  const int result = in_fork([] {
    CUdevice dev;
    CUcontext context;
    CUdeviceptr pointer;
    if (cuInit(0) || cuDeviceGet(&dev, 0) || cuDevicePrimaryCtxRetain(&context, dev) ||
        cuCtxSetCurrent(context))
      return 1;
    if (cuMemAlloc_v2(&pointer, 1024) || cuMemsetD32_v2(pointer, 3, 256)) return 2;
    uint32_t word = 0;
    if (cuMemcpyDtoH_v2(&word, pointer, 4) || word != 3) return 3;
    return 0;
  });
  EXPECT_EQ(result, 0);
  attach();  // and so may the parent, afterwards
  Buffer data(1024);
  OK(cuMemsetD32_v2(data, 4, 256));
  EXPECT_EQ(read_words(data, 1)[0], 4u);
}

PROCESS_TEST(ForkProcess, ForkWhileWorkIsPending) {
  attach();
  Stream stream;
  Gate gate;
  Buffer data(1024);
  gate.block(stream);
  OK(cuMemsetD32Async(data, 8, 256, stream));
  EXPECT_EQ(in_fork([] {
              int count = 0;
              return static_cast<int>(cuDeviceGetCount(&count));
            }),
            CUDA_ERROR_NOT_INITIALIZED);
  gate.open();
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(read_words(data, 256), std::vector<uint32_t>(256, 8));
}

TEST(ForkProcess, ExecAfterForkStartsAfresh) {
  if (in_child()) {
    attach();
    Buffer data(64);
    OK(cuMemsetD32_v2(data, 1, 16));
    return;
  }
  attach();
  const ChildResult child = run_child("ForkProcess.ExecAfterForkStartsAfresh");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  OK(cuCtxSynchronize());
}

}  // namespace
}  // namespace tendril::conformance
