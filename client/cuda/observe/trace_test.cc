// SPDX-License-Identifier: Apache-2.0
// The trace prints what a call read or wrote and nothing else, and survives pointers that lead
// nowhere.
#include "client/cuda/observe/trace.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <functional>
#include <string>

namespace tendril::client::cuda {
namespace {

std::string line_of(CUresult result, const std::function<void(Trace&)>& fill) {
  testing::internal::CaptureStderr();
  {
    Trace t("cuCall", result);
    fill(t);
  }
  return testing::internal::GetCapturedStderr();
}

TEST(Trace, NamesArgumentsAndResult) {
  CUdeviceptr address = 0x3000;
  const auto fill = [&](Trace& t) {
    t.out("dptr", &address);
    t.value("bytesize", size_t{64});
    t.flags("flags", 3);
  };
  EXPECT_EQ(line_of(CUDA_SUCCESS, fill),
            "tendril trace: cuCall(*dptr=0x3000, bytesize=64, flags=0x3) -> CUDA_SUCCESS\n");
}

TEST(Trace, LinesHaveTheTimeWhereThatIsAskedFor) {
  ASSERT_EQ(setenv("TENDRIL_TRACE", "time", 1), 0);
  EXPECT_TRUE(trace_start());
  const double before = static_cast<double>(time(nullptr));
  const std::string line = line_of(CUDA_SUCCESS, [](Trace&) {});
  double told = 0;
  char rest[64] = "";
  EXPECT_EQ(sscanf(line.c_str(), "tendril trace: %lf %63[^\n]", &told, rest), 2) << line;
  EXPECT_STREQ(rest, "cuCall() -> CUDA_SUCCESS");
  EXPECT_GE(told, before);
  EXPECT_LE(told, before + 60);
  ASSERT_EQ(setenv("TENDRIL_TRACE", "1", 1), 0);
  EXPECT_TRUE(trace_start());
  EXPECT_EQ(line_of(CUDA_SUCCESS, [](Trace&) {}), "tendril trace: cuCall() -> CUDA_SUCCESS\n");
  ASSERT_EQ(unsetenv("TENDRIL_TRACE"), 0);
  EXPECT_FALSE(trace_start());
}

TEST(Trace, WhatAFailedCallDidNotWriteIsNotPrinted) {
  CUdeviceptr stale = 0x1234;
  const std::string line =
      line_of(CUDA_ERROR_OUT_OF_MEMORY, [&](Trace& t) { t.out("dptr", &stale); });
  EXPECT_EQ(line.find("0x1234"), std::string::npos);
  EXPECT_NE(line.find("(dptr=0x"), std::string::npos);
  EXPECT_NE(line.find(" -> CUDA_ERROR_OUT_OF_MEMORY\n"), std::string::npos);
}

TEST(Trace, UnknownResultsKeepTheirNumber) {
  EXPECT_EQ(line_of(static_cast<CUresult>(998), [](Trace&) {}), "tendril trace: cuCall() -> 998\n");
}

TEST(Trace, PointersThatLeadNowhereArePrintedAsNumbers) {
  const auto* nowhere = reinterpret_cast<const CUmemAllocationProp*>(uint64_t{0x10});
  errno = 7;
  const std::string line = line_of(CUDA_ERROR_INVALID_VALUE, [&](Trace& t) {
    t.in("prop", nowhere);
    t.in("list", reinterpret_cast<const size_t*>(uint64_t{0x18}), uint64_t{5});
    t.string("name", reinterpret_cast<const char*>(uint64_t{0x20}));
    t.string("none", nullptr);
  });
  EXPECT_EQ(line,
            "tendril trace: cuCall(prop=0x10, list=0x18, name=0x20, none=0x0) -> "
            "CUDA_ERROR_INVALID_VALUE\n");
  EXPECT_EQ(errno, 7);
}

TEST(Trace, StringsMayEndWhereMemoryEnds) {
  constexpr size_t kPage = 4096;
  void* memory =
      mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* pages = static_cast<char*>(memory);
  ASSERT_EQ(mprotect(pages + kPage, kPage, PROT_NONE), 0);
  char* name = pages + kPage - 7;
  memcpy(name, "kernel", 7);
  const auto line = [&] {
    return line_of(CUDA_SUCCESS, [&](Trace& t) { t.string("name", name); });
  };
  EXPECT_EQ(line(), "tendril trace: cuCall(name=\"kernel\") -> CUDA_SUCCESS\n");
  name[6] = 's';  // unfinished: the driver would crash; the trace shows what is there
  EXPECT_EQ(line(), "tendril trace: cuCall(name=\"kernels\") -> CUDA_SUCCESS\n");
  munmap(pages, 2 * kPage);
}

TEST(Trace, ArraysAndStringsThatCallsHandOut) {
  const CUjit_option options[2] = {CU_JIT_MAX_REGISTERS, CU_JIT_WALL_TIME};
  const char* name = "scale";
  EXPECT_EQ(
      line_of(CUDA_SUCCESS,
              [&](Trace& t) {
                t.in("options", options, uint64_t{2});
                t.out("name", &name);
              }),
      "tendril trace: cuCall(options=[CU_JIT_MAX_REGISTERS, CU_JIT_WALL_TIME], name=\"scale\") -> "
      "CUDA_SUCCESS\n");
}

}  // namespace
}  // namespace tendril::client::cuda
