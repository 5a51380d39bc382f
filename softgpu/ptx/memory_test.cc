// SPDX-License-Identifier: Apache-2.0
// State spaces, vectors, atomics, initialisers and every way to fault.
#include "softgpu/ptx/test_gpu.h"

namespace tendril::softgpu {
namespace {

std::string kernel(const std::string& body, const std::string& before = "") {
  return kHeader + before +
         ".visible .entry k(.param .u64 out, .param .u64 in) {\n.reg .pred %p<4>; .reg .b16 %h<8>; "
         ".reg .b32 %r<16>; .reg .b64 %q<16>; .reg .f32 %f<8>; .reg .f64 %d<4>;\n"
         "ld.param.u64 %q0, [out]; ld.param.u64 %q1, [in]; mov.u32 %r0, %tid.x; mul.wide.u32 %q2, "
         "%r0, 4; add.u64 %q3, %q0, %q2; add.u64 %q4, %q1, %q2;\n" +
         body + "\nret;\n}\n";
}

class Mem : public ::testing::Test {
 protected:
  LaunchResult go(const std::string& text, Dim3 block = {32, 1, 1}) {
    EXPECT_TRUE(gpu.load(text)) << gpu.log;
    if (!gpu.program) return {};
    out = gpu.alloc(1 << 16), in = gpu.alloc(1 << 16);
    for (int i = 0; i < 1 << 14; ++i)
      gpu.at<uint32_t>(in)[i] = 0x01020384u * static_cast<uint32_t>(i + 1);
    return gpu.run("k", {1, 1, 1}, block, out, in);
  }
  void fine(const std::string& text, Dim3 block = {32, 1, 1}) {
    LaunchResult r = go(text, block);
    ASSERT_EQ(r.fault, Fault::kNone) << r.message;
  }
  uint32_t at(size_t i) { return gpu.at<uint32_t>(out)[i]; }
  uint32_t input(size_t i) { return gpu.at<uint32_t>(in)[i]; }
  TestGpu gpu;
  uint64_t out = 0, in = 0;
};

TEST_F(Mem, NarrowLoadsExtend) {
  fine(
      kernel("mul.wide.u32 %q5, %r0, 1; add.u64 %q5, %q1, %q5; ld.global.s8 %r1, [%q5]; "
             "ld.global.u8 %r2, [%q5]; sub.s32 %r3, %r2, %r1; st.global.u32 [%q3], %r3;"));
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(at(i), gpu.at<uint8_t>(in)[i] & 0x80 ? 256u : 0u);
}

TEST_F(Mem, VectorsAndGather) {
  fine(
      kernel("mul.wide.u32 %q5, %r0, 16; add.u64 %q5, %q1, %q5; ld.global.v4.u32 {%r1, %r2, %r3, "
             "%r4}, [%q5]; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4;\n"
             "xor.b32 %r5, %r0, 13; mul.wide.u32 %q6, %r5, 8; add.u64 %q6, %q0, %q6; "
             "st.global.v2.u32 [%q6], {%r1, %r0};"));
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(at(2 * (i ^ 13)),
              input(4 * i) + input(4 * i + 1) + input(4 * i + 2) + input(4 * i + 3));
    EXPECT_EQ(at(2 * (i ^ 13) + 1), i);
  }
}

TEST_F(Mem, GenericWindows) {
  fine(
      kernel(".shared .align 4 .b32 s[32]; .local .align 4 .b32 l[4]; cvta.shared.u64 %q5, sp; "
             "mov.u64 %q5, s; cvta.shared.u64 %q5, %q5; add.u64 %q5, %q5, %q2; st.u32 [%q5], %r0;\n"
             "mov.u64 %q6, l; cvta.local.u64 %q6, %q6; st.u32 [%q6+4], %r0; isspacep.shared %p0, "
             "%q5; isspacep.local %p1, %q6; isspacep.global %p2, %q3;\n"
             "and.b32 %r2, %r0, 1; setp.eq.u32 %p3, %r2, 1; selp.b64 %q7, %q5, %q4, %p3; ld.u32 "
             "%r1, [%q7]; ld.u32 %r4, [%q6+4]; add.u32 %r1, %r1, %r4;\n"
             "selp.b32 %r3, 1, 0, %p0; selp.b32 %r5, 1, 0, %p1; and.b32 %r3, %r3, %r5; selp.b32 "
             "%r5, 1, 0, %p2; and.b32 %r3, %r3, %r5; add.u32 %r1, %r1, %r3; st.u32 [%q3], %r1;",
             ".shared .b32 sp;\n"));
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(at(i), (i & 1 ? i : input(i)) + i + 1);
}

TEST_F(Mem, DynamicSharedFollowsStatic) {
  ASSERT_TRUE(gpu.load(
      kernel(".shared .align 4 .b8 fixed[20]; mov.u32 %r1, dyn; mov.u32 %r2, fixed; st.global.u32 "
             "[%q0], %r1; mov.u32 %r3, %dynamic_smem_size; st.global.u32 [%q0+4], %r3;\n"
             "shl.b32 %r4, %r0, 2; add.u32 %r4, %r4, %r1; st.shared.u32 [%r4], %r0;",
             ".extern .shared .align 16 .b8 dyn[];\n")))
      << gpu.log;
  EXPECT_EQ(gpu.program->kernels()[0].static_shared_bytes, 20u);
  gpu.request.dynamic_shared_bytes = 128;
  out = gpu.alloc(4096);
  EXPECT_EQ(gpu.run("k", {1, 1, 1}, {32, 1, 1}, out, out).fault, Fault::kNone);
  EXPECT_EQ(at(0), 32u);
  EXPECT_EQ(at(1), 128u);
  gpu.request.dynamic_shared_bytes = 64;
  EXPECT_EQ(gpu.run("k", {1, 1, 1}, {32, 1, 1}, out, out).fault, Fault::kIllegalAddress);
}

TEST_F(Mem, InitialisersAndRelocations) {
  fine(kernel(
      "ld.global.u64 %q5, [ptr]; ld.global.u32 %r1, [%q5]; st.global.u32 [%q0], %r1; ld.const.f32 "
      "%f0, [c+4]; st.global.f32 [%q0+4], %f0; ld.global.u16 %r2, [tab+6]; st.global.u32 [%q0+8], "
      "%r2;\n"
      "ld.global.f64 %d0, [dbl]; st.global.f64 [%q0+16], %d0; ld.global.u8 %r3, [grid+5]; "
      "st.global.u32 [%q0+24], %r3;",
      ".global .align 4 .u32 arr[4] = {1, 2, 0x33, 4};\n.global .u64 ptr = generic(arr)+8;\n.const "
      ".f32 c[2] = {0f3F800000, -2.5};\n.global .u16 tab[] = {1, 2, 3, 4};\n"
      ".global .f64 dbl = 0d4000000000000000;\n.global .u8 grid[2][3] = {{1, 2}, {4, 5, 6}};\n"));
  EXPECT_EQ(at(0), 0x33u);
  EXPECT_EQ(*gpu.at<float>(out + 4), -2.5f);
  EXPECT_EQ(at(2), 4u);
  EXPECT_EQ(*gpu.at<double>(out + 16), 2.0);
  EXPECT_EQ(at(6), 6u);
}

struct AtomCase {
  const char* text;
  uint32_t start, result;
};
class Atoms : public Mem, public ::testing::WithParamInterface<AtomCase> {};
TEST_P(Atoms, WholeWarpOnOneAddress) {
  for (const char* space : {"global", "shared"}) {
    std::string op = GetParam().text, where = space == std::string("global") ? "[%q0]" : "[cell]";
    op.replace(op.find("SPACE"), 5, space);
    op.replace(op.find("ADDR"), 4, where);
    fine(kernel("setp.eq.u32 %p0, %r0, 0; @%p0 st." + std::string(space) + ".u32 " + where + ", " +
                    std::to_string(GetParam().start) + "; bar.sync 0; add.u32 %r5, %r0, 1;\n" + op +
                    "\nbar.sync 0; ld." + space + ".u32 %r2, " + where +
                    "; st.global.u32 [%q0+8], %r2;",
                ".shared .align 8 .b8 cell[8];\n"));
    EXPECT_EQ(at(2), GetParam().result) << op;
  }
}
INSTANTIATE_TEST_SUITE_P(
    Table, Atoms,
    ::testing::Values(AtomCase{"atom.SPACE.add.u32 %r1, ADDR, %r5;", 5, 5 + 528},
                      AtomCase{"red.SPACE.max.s32 ADDR, %r5;", 0xFFFFFFFF, 32},
                      AtomCase{"atom.SPACE.max.u32 %r1, ADDR, %r5;", 0xFFFFFFFF, 0xFFFFFFFF},
                      AtomCase{"atom.SPACE.min.s32 %r1, ADDR, %r5;", 0xFFFFFFFE, 0xFFFFFFFE},
                      AtomCase{"atom.SPACE.inc.u32 %r1, ADDR, 9;", 8, 0},
                      AtomCase{"atom.SPACE.dec.u32 %r1, ADDR, 9;", 3, 1},
                      AtomCase{"atom.SPACE.and.b32 %r1, ADDR, %r5;", 0xFF, 0},
                      AtomCase{"red.SPACE.or.b32 ADDR, %r5;", 0, 63},
                      AtomCase{"atom.SPACE.xor.b32 %r1, ADDR, %r5;", 0, 32},
                      AtomCase{"atom.SPACE.exch.b32 %r1, ADDR, %r5;", 0, 32},
                      AtomCase{"atom.SPACE.cas.b32 %r1, ADDR, %r0, %r5;", 0, 32},
                      AtomCase{"cvt.rn.f32.u32 %f0, %r5; atom.SPACE.add.f32 %f1, ADDR, %f0;", 0,
                               0x44040000},
                      AtomCase{"atom.SPACE.add.noftz.f16x2 %r1, ADDR, 0x40003C00;", 0, 0x54005000},
                      AtomCase{"cvt.u64.u32 %q9, %r5; red.SPACE.add.u64 ADDR, %q9;", 0, 528}));

struct FaultCase {
  const char* name;
  const char* body;
  Fault fault;
};
class Faults : public Mem, public ::testing::WithParamInterface<FaultCase> {};
TEST_P(Faults, IsReported) {
  LaunchResult r = go(kernel(GetParam().body,
                             ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 "
                             "l, .param .b64 n, .param .b64 c);\n"));
  EXPECT_EQ(static_cast<int>(r.fault), static_cast<int>(GetParam().fault)) << r.message;
  EXPECT_NE(r.message.find("'k'"), std::string::npos) << r.message;
}
INSTANTIATE_TEST_SUITE_P(
    Table, Faults,
    ::testing::Values(
        FaultCase{"null", "mov.u64 %q5, 0; ld.global.u32 %r1, [%q5];", Fault::kIllegalAddress},
        FaultCase{"host", "mov.u64 %q5, 0x7fff00000000; st.global.u32 [%q5], 1;",
                  Fault::kIllegalAddress},
        FaultCase{"one_lane",
                  "setp.eq.u32 %p0, %r0, 17; @%p0 mov.u64 %q4, 64; ld.global.u32 %r1, [%q4];",
                  Fault::kIllegalAddress},
        FaultCase{"misaligned", "ld.global.u32 %r1, [%q4+2];", Fault::kMisaligned},
        FaultCase{"misaligned_vector", "ld.global.v2.u32 {%r1, %r2}, [%q1+4];", Fault::kMisaligned},
        FaultCase{"misaligned_atomic", "red.global.add.u32 [%q1+1], 1;", Fault::kMisaligned},
        FaultCase{"shared", "st.shared.u32 [4096], 1;", Fault::kIllegalAddress},
        FaultCase{"local", "mov.u64 %q5, 1048576; st.local.u32 [%q5], 1;", Fault::kIllegalAddress},
        FaultCase{"window", "mov.u64 %q5, 0x5E00000000100000; ld.u32 %r1, [%q5];",
                  Fault::kIllegalAddress},
        FaultCase{"trap", "trap;", Fault::kTrap},
        FaultCase{"brkpt", "@%p0 bra E; brkpt; E:", Fault::kTrap},
        FaultCase{"bad_call", "mov.u64 %q5, 4660; pr: .callprototype _ (); call %q5, (), pr;",
                  Fault::kIllegalInstruction},
        FaultCase{"assert",
                  "{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; "
                  "st.param.b64 [a], 0; st.param.b64 [b], 0; st.param.b32 [c], 7; st.param.b64 "
                  "[d], 0; st.param.b64 [e], 1; call.uni __assertfail, (a,b,c,d,e); }",
                  Fault::kAssert},
        FaultCase{"unsupported", "wgmma.fence.sync.aligned;", Fault::kUnsupported}),
    [](const ::testing::TestParamInfo<FaultCase>& i) { return std::string(i.param.name); });

TEST_F(Mem, InvalidPageAndCounters) {
  LaunchResult r = go(kernel("ld.global.u32 %r1, [%q4]; st.global.u32 [%q3], %r1;"));
  EXPECT_EQ(r.bytes_read, 128u);
  EXPECT_EQ(r.bytes_written, 128u);
  gpu.pages()[0] = 0;
  EXPECT_EQ(gpu.run("k", {1, 1, 1}, {32, 1, 1}, out, in).fault, Fault::kIllegalAddress);
  gpu.pages()[0] = 1;
  EXPECT_EQ(gpu.run("k", {1, 1, 1}, {32, 1, 1}, out, in).fault, Fault::kNone);
}

TEST_F(Mem, AsyncCopyToShared) {
  fine(kernel(
      ".shared .align 16 .b8 s[512]; mov.u32 %r1, s; shl.b32 %r2, %r0, 4; add.u32 %r1, %r1, %r2; "
      "mul.wide.u32 %q5, %r0, 16; add.u64 %q5, %q1, %q5;\n"
      "cp.async.cg.shared.global.L2::128B [%r1], [%q5], 16; cp.async.commit_group; "
      "cp.async.wait_group 0; bar.sync 0; ld.shared.u32 %r3, [%r1+12]; st.global.u32 [%q3], %r3;"));
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(at(i), input(4 * i + 3));
}

// The program was given two blocks. What lies between and behind them does not belong to it.
TEST_F(Mem, ExactCheckNamesTheAllocation) {
  ASSERT_TRUE(gpu.load(kernel("ld.global.u32 %r1, [%q4]; st.global.u32 [%q3], %r1;"))) << gpu.log;
  out = gpu.alloc(4096), in = gpu.alloc(4096);
  gpu.view().blocks = {{out, 128}, {in, 100}};
  EXPECT_EQ(gpu.run("k", {1, 1, 1}, {32, 1, 1}, out, in).fault, Fault::kNone);
  gpu.view().exact = true;
  EXPECT_EQ(gpu.run("k", {1, 1, 1}, {25, 1, 1}, out, in).fault, Fault::kNone);
  LaunchResult r = gpu.run("k", {1, 1, 1}, {32, 1, 1}, out, in);
  EXPECT_EQ(r.fault, Fault::kIllegalAddress);
  EXPECT_EQ(r.fault_address, in + 100);
  EXPECT_NE(r.message.find("0 bytes past the end of the allocation of 100 bytes"),
            std::string::npos)
      << r.message;
  EXPECT_NE(r.message.find("in 'k'"), std::string::npos) << r.message;
  EXPECT_NE(r.message.find("thread (25,0,0)"), std::string::npos) << r.message;
  gpu.view().blocks = {{out, 128}};
  gpu.view().freed = {{in, 100}};
  r = gpu.run("k", {1, 1, 1}, {1, 1, 1}, out, in);
  EXPECT_NE(r.message.find("in memory that was freed"), std::string::npos) << r.message;
  gpu.view().freed.clear();
  r = gpu.run("k", {1, 1, 1}, {1, 1, 1}, in, out);
  EXPECT_EQ(r.fault, Fault::kIllegalAddress) << "a store is checked too";
}

TEST_F(Mem, DeviceHeap) {
  const char* text =
      "{ .param .b64 size; .param .b64 block; st.param.b64 [size], 64; call (block), malloc, "
      "(size); ld.param.b64 %q5, [block]; }\n"
      "setp.eq.u64 %p0, %q5, 0; @%p0 bra NONE; st.u32 [%q5], %r0; ld.u32 %r1, [%q5]; add.u32 %r1, "
      "%r1, 1; st.global.u32 [%q3], %r1;\n"
      "setp.eq.u32 %p1, %r0, 5; @%p1 bra NONE;\n"
      "{ .param .b64 block; st.param.b64 [block], %q5; call free, (block); }\nNONE:";
  const char* functions =
      ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n";
  ASSERT_TRUE(gpu.load(kernel(text, functions))) << gpu.log;
  EXPECT_TRUE(gpu.program->kernels()[0].uses_heap);
  out = gpu.alloc(4096), in = gpu.alloc(4096);
  EXPECT_EQ(gpu.run("k", {1, 1, 1}, {32, 1, 1}, out, in).fault, Fault::kNone);
  EXPECT_EQ(at(3), 0u) << "without a heap malloc fails";
  const uint64_t base = gpu.alloc(1024);
  DeviceHeap heap(base, 1024);
  gpu.request.heap = &heap;
  EXPECT_EQ(gpu.run("k", {1, 1, 1}, {32, 1, 1}, out, in).fault, Fault::kNone);
  uint32_t served = 0;
  for (uint32_t i = 0; i < 32; ++i) served += at(i) == i + 1;
  EXPECT_EQ(served, 16u) << "a kilobyte holds sixteen blocks";
  EXPECT_EQ(heap.allocate(960), 0u) << "thread 5 kept its block";
  EXPECT_NE(heap.allocate(512), 0u) << "neighbours that were freed are one again";
  EXPECT_FALSE(heap.release(base + 8));
}

TEST_F(Mem, FreeOfSomethingElseIsATrap) {
  DeviceHeap heap(kArenaBase, 64);
  gpu.request.heap = &heap;
  LaunchResult r = go(kernel("{ .param .b64 p; st.param.b64 [p], %q0; call free, (p); }",
                             ".extern .func free(.param .b64 p);\n"));
  EXPECT_EQ(r.fault, Fault::kTrap);
}

}  // namespace
}  // namespace tendril::softgpu
