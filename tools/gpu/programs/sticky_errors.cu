// SPDX-License-Identifier: Apache-2.0
// What a program sees after an error. Each kind has a process of its own, which is this program
// again. It prints the error where it appears and what every later call says, so stickiness is
// compared too. The first process works beside them, and after each.
#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cassert>

#include "check.h"

namespace {

__global__ void poke(uint32_t* where) { where[threadIdx.x] = 1; }
__global__ void asserts(int value) { assert(value == 5); }
__global__ void traps() { __trap(); }
__global__ void misaligned(char* where) { *reinterpret_cast<volatile uint64_t*>(where + 1) = 1; }
__global__ void shared_outside(uint32_t* out, size_t at) {
  extern __shared__ uint32_t tile[];
  volatile uint32_t* far = tile;
  far[at] = 1;
  out[0] = far[at];
}
__global__ void speaks() { printf("kernel speaks before it fails\n"); }

void say(const char* what, cudaError_t error) {
  std::printf("  %s: %d %s\n", what, error, cudaGetErrorName(error));
  std::fflush(stdout);
}

// Every kind of later call, twice.
void look() {
  uint32_t* block = nullptr;
  cudaStream_t stream;
  for (int again = 0; again < 2; again++) {
    say("synchronize", cudaDeviceSynchronize());
    say("peek", cudaPeekAtLastError());
    say("last error", cudaGetLastError());
    say("allocate", cudaMalloc(&block, 1 << 20));
    say("make a stream", cudaStreamCreate(&stream));
    poke<<<1, 32>>>(block);
    say("launch", cudaGetLastError());
    uint32_t word = 0;
    say("copy", cudaMemcpy(&word, block, 4, cudaMemcpyDeviceToHost));
    std::printf("  driver: %d\n", cuCtxSynchronize());
  }
  say("reset", cudaDeviceReset());
  say("allocate after it", cudaMalloc(&block, 1 << 20));
}

void raise(const char* kind) {
  uint32_t* block = nullptr;
  CHECK(cudaMalloc(&block, 1 << 20));
  const auto is = [kind](const char* name) { return strcmp(kind, name) == 0; };
  if (is("illegal address")) poke<<<1, 32>>>(reinterpret_cast<uint32_t*>(0x7ull << 44));
  if (is("null pointer")) poke<<<1, 32>>>(nullptr);
  if (is("assert")) asserts<<<1, 2>>>(4);
  if (is("trap")) traps<<<1, 1>>>();
  if (is("misaligned")) misaligned<<<1, 1>>>(reinterpret_cast<char*>(block));
  if (is("shared memory")) shared_outside<<<1, 1>>>(block, size_t{1} << 28);
  if (is("printf, then trap")) {
    speaks<<<1, 1>>>();
    traps<<<1, 1>>>();
  }
  if (is("too many threads")) poke<<<1, 4096>>>(block);
  if (is("empty grid")) poke<<<0, 32>>>(block);
  if (is("too much shared memory")) shared_outside<<<1, 1, 1 << 20>>>(block, 0);
  if (is("out of memory")) say("itself", cudaMalloc(&block, size_t{1} << 50));
  if (is("no such device")) say("itself", cudaSetDevice(99));
  if (is("bad pointer freed")) say("itself", cudaFree(reinterpret_cast<void*>(0x1234500000)));
  if (is("bad copy"))
    say("itself",
        cudaMemcpy(reinterpret_cast<void*>(0x7ull << 44), block, 4, cudaMemcpyDeviceToDevice));
  if (is("missing image")) {
    CUmodule module;
    const char* const text = ".version 8.6\n.target sm_999\n.address_size 64\n";
    std::printf("  itself: %d\n", cuModuleLoadData(&module, text));
    const uint64_t nothing[16] = {};
    std::printf("  nothing at all: %d\n", cuModuleLoadData(&module, nothing));
  }
  if (is("missing kernel")) {
    CUmodule module;
    CUfunction function;
    CHECK(cuModuleLoadData(&module,
                           ".version 8.0\n.target sm_80\n.address_size 64\n"
                           ".visible .entry here() { ret; }"));
    std::printf("  itself: %d\n", cuModuleGetFunction(&function, module, "elsewhere"));
  }
  say("at once", cudaGetLastError());
}

const char* const kKinds[] = {"illegal address",
                              "null pointer",
                              "assert",
                              "trap",
                              "misaligned",
                              "shared memory",
                              "printf, then trap",
                              "too many threads",
                              "empty grid",
                              "too much shared memory",
                              "out of memory",
                              "no such device",
                              "bad pointer freed",
                              "bad copy",
                              "missing image",
                              "missing kernel"};

// This process's own work, which nobody else's error may touch.
bool still_works(uint32_t* block) {
  uint32_t word = 0;
  poke<<<1, 32>>>(block);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&word, block + 7, 4, cudaMemcpyDeviceToHost));
  CHECK(cudaMemset(block, 0, 4096));
  return word == 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) {
    raise(argv[1]);
    look();
    return 0;
  }
  uint32_t* block;
  bool good = true;
  CHECK(cudaMalloc(&block, 1 << 20));
  for (const char* kind : kKinds) {
    std::printf("%s\n", kind);
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      execl("/proc/self/exe", "sticky_errors", kind, nullptr);
      _exit(126);
    }
    int status = 0;
    waitpid(child, &status, 0);
    const bool works = still_works(block);
    std::printf("  ended with %d; beside it %s\n",
                WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                works ? "all is well" : "something BROKE");
    good = good && works && WIFEXITED(status);
  }
  return finish(good);
}
