// SPDX-License-Identifier: Apache-2.0
// Divergence, barriers, progress guarantees, calls, warp-wide instructions and printf.
#include <atomic>
#include <thread>

#include "softgpu/ptx/test_gpu.h"

namespace tendril::softgpu {
namespace {

// A kernel with `out` in %q0, the linear thread number in %t and its address in %q1; the body
// leaves its result in %r0.
std::string kernel(const std::string& body, const std::string& before = "") {
  return kHeader + before +
         ".visible .entry k(.param .u64 out, .param .u64 in, .param .u32 n) {\n"
         ".reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %q<16>; .reg .f32 %f<8>; .reg .b32 %t, "
         "%n;\n"
         "ld.param.u64 %q0, [out]; ld.param.u64 %q2, [in]; ld.param.u32 %n, [n];\n"
         "mov.u32 %r30, %ctaid.x; mov.u32 %r31, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %t, %r30, "
         "%r31, %t;\n"
         "mul.wide.u32 %q1, %t, 4; add.u64 %q1, %q0, %q1;\n" +
         body + "\nst.global.u32 [%q1], %r0;\nret;\n}\n";
}

class Flow : public ::testing::Test {
 protected:
  void TearDown() override { set_engine_threads(0); }
  LaunchResult go(const std::string& text, Dim3 grid = {1, 1, 1}, Dim3 block = {32, 1, 1},
                  uint32_t n = 0) {
    EXPECT_TRUE(gpu.load(text)) << gpu.log;
    if (!gpu.program) return {};
    out = gpu.alloc(1 << 20), in = gpu.alloc(1 << 20);
    LaunchResult r = gpu.run("k", grid, block, out, in, n);
    EXPECT_EQ(r.fault, Fault::kNone) << r.message;
    return r;
  }
  uint32_t at(size_t i) { return gpu.at<uint32_t>(out)[i]; }
  TestGpu gpu;
  uint64_t out = 0, in = 0;
};

TEST_F(Flow, NestedLoopsWithDifferentTripCounts) {
  go(kernel("mov.u32 %r0, 0; mov.u32 %r1, 0;\n"
            "OUTER: setp.ge.u32 %p0, %r1, %t; @%p0 bra END; mov.u32 %r2, 0;\n"
            "INNER: setp.ge.u32 %p1, %r2, %r1; @%p1 bra NEXT; add.u32 %r0, %r0, %r2; add.u32 %r2, "
            "%r2, 1; bra INNER;\n"
            "NEXT: add.u32 %r1, %r1, 1; bra OUTER;\nEND:"),
     {2, 1, 1}, {64, 1, 1});
  for (uint32_t t = 0; t < 128; ++t) {
    uint32_t want = 0;
    for (uint32_t i = 0; i < t; ++i)
      for (uint32_t k = 0; k < i; ++k) want += k;
    EXPECT_EQ(at(t), want);
  }
}

TEST_F(Flow, EarlyExitOfSomeLanesDoesNotBlockBarrier) {
  go(kernel("mov.u32 %r0, 1; and.b32 %r1, %t, 1; setp.eq.u32 %p0, %r1, 1; @%p0 exit;\n"
            "bar.sync 0; mov.u32 %r0, 2;"),
     {1, 1, 1}, {96, 1, 1});
  for (uint32_t t = 0; t < 96; ++t) EXPECT_EQ(at(t), t & 1 ? 0 : 2u);
}

TEST_F(Flow, BarrierReachedFromBothSidesOfABranch) {
  LaunchResult r = go(kernel("mov.u32 %r1, buf; shl.b32 %r2, %t, 2; add.u32 %r1, %r1, %r2;\n"
                             "and.b32 %r3, %t, 3; setp.eq.u32 %p0, %r3, 0; @%p0 bra A;\n"
                             "st.shared.u32 [%r1], 7; bar.sync 0; bra J;\n"
                             "A: st.shared.u32 [%r1], %t; bar.sync 0;\n"
                             "J: xor.b32 %r4, %r2, 4; mov.u32 %r5, buf; add.u32 %r5, %r5, %r4; "
                             "ld.shared.u32 %r0, [%r5];",
                             ".shared .align 4 .b8 buf[512];\n"),
                      {1, 1, 1}, {128, 1, 1});
  for (uint32_t t = 0; t < 128; ++t) EXPECT_EQ(at(t), ((t ^ 1) & 3) == 0 ? t ^ 1 : 7u);
  EXPECT_GT(r.thread_instructions, r.warp_instructions);
}

TEST_F(Flow, NamedBarriersProducerAndConsumerWarps) {
  go(kernel("mov.u32 %r1, buf; mov.u32 %r0, 0; setp.ge.u32 %p0, %t, 32; @%p0 bra CONS;\n"
            "shl.b32 %r2, %t, 2; add.u32 %r1, %r1, %r2; mul.lo.u32 %r3, %t, 3; st.shared.u32 "
            "[%r1], %r3; bar.arrive 1, 64; bra E;\n"
            "CONS: bar.sync 1, 64; sub.u32 %r2, %t, 32; shl.b32 %r2, %r2, 2; add.u32 %r1, %r1, "
            "%r2; ld.shared.u32 %r0, [%r1];\nE:",
            ".shared .align 4 .b8 buf[128];\n"),
     {1, 1, 1}, {64, 1, 1});
  for (uint32_t t = 32; t < 64; ++t) EXPECT_EQ(at(t), (t - 32) * 3);
}

TEST_F(Flow, BarrierReduction) {
  go(kernel("setp.lt.u32 %p0, %t, 40; bar.red.popc.u32 %r0, 0, %p0; bar.red.and.pred %p1, 0, %p0; "
            "bar.red.or.pred %p2, 0, !%p0;\n"
            "selp.b32 %r1, 100, 0, %p1; add.u32 %r0, %r0, %r1; selp.b32 %r1, 1000, 0, %p2; add.u32 "
            "%r0, %r0, %r1;"),
     {1, 1, 1}, {96, 1, 1});
  for (uint32_t t = 0; t < 96; ++t) EXPECT_EQ(at(t), 1040u);
}

TEST_F(Flow, SpinLockBetweenLanesOfOneWarp) {
  set_engine_threads(1);
  go(kernel("TRY: atom.global.cas.b32 %r1, [lock], 0, 1; setp.ne.u32 %p0, %r1, 0; @%p0 bra TRY;\n"
            "ld.volatile.global.u32 %r2, [count]; add.u32 %r2, %r2, 1; st.volatile.global.u32 "
            "[count], %r2; mov.u32 %r0, %r2; membar.gl;\n"
            "atom.global.exch.b32 %r3, [lock], 0;",
            ".global .u32 lock;\n.global .u32 count;\n"),
     {3, 1, 1}, {64, 1, 1});
  EXPECT_EQ(*gpu.at<uint32_t>(gpu.global(1)), 192u);
}

TEST_F(Flow, BlocksWaitForLaterBlocks) {
  for (unsigned threads : {1u, 2u}) {
    set_engine_threads(threads);
    gpu.request.cooperative = true;
    go(kernel("setp.ne.u32 %p0, %t, 0; mov.u32 %r31, %tid.x; setp.ne.u32 %p1, %r31, 0; @%p1 bra "
              "SKIP;\n"
              "atom.global.add.u32 %r1, [%q2], 1;\nWAIT: ld.acquire.gpu.global.u32 %r2, [%q2]; "
              "setp.lt.u32 %p2, %r2, %n; @%p2 bra WAIT;\n"
              "SKIP: bar.sync 0; ld.global.u32 %r0, [%q2];"),
       {20, 1, 1}, {64, 1, 1}, 20);
    for (uint32_t t = 0; t < 20 * 64; ++t) EXPECT_EQ(at(t), 20u);
  }
}

TEST_F(Flow, ConsumerBlockSpinsOnProducerBlock) {
  set_engine_threads(1);
  go(kernel("mov.u32 %r1, %ctaid.x; setp.eq.u32 %p0, %r1, 0; @%p0 bra CONS; membar.gl; "
            "st.global.u32 [%q2], 77; mov.u32 %r0, 1; bra E;\n"
            "CONS: ld.volatile.global.u32 %r0, [%q2]; setp.eq.u32 %p1, %r0, 0; @%p1 nanosleep.u32 "
            "100; @%p1 bra CONS;\nE:"),
     {2, 1, 1});
  EXPECT_EQ(at(0), 77u);
}

TEST_F(Flow, ShuffleModesAndInactiveLanes) {
  go(
      kernel("shfl.sync.down.b32 %r1|%p0, %t, 4, 31, -1; shfl.sync.up.b32 %r2|%p1, %t, 4, 0, -1; "
             "shfl.sync.bfly.b32 %r3, %t, 5, 31, -1;\n"
             "shfl.sync.idx.b32 %r4, %t, 3, 0x181f, -1; selp.b32 %r5, 1, 0, %p0; selp.b32 %r6, 2, "
             "0, %p1; add.u32 %r5, %r5, %r6;\n"
             "shl.b32 %r0, %r1, 5; or.b32 %r0, %r0, %r2; shl.b32 %r0, %r0, 5; or.b32 %r0, %r0, "
             "%r3; shl.b32 %r0, %r0, 5; or.b32 %r0, %r0, %r4;\n"
             "shl.b32 %r0, %r0, 2; or.b32 %r0, %r0, %r5;"));
  for (uint32_t t = 0; t < 32; ++t) {
    uint32_t down = t + 4 < 32 ? t + 4 : t, up = t >= 4 ? t - 4 : t,
             p = (t + 4 < 32) | (t >= 4) << 1;
    EXPECT_EQ(at(t), (((down << 5 | up) << 5 | (t ^ 5)) << 5 | (t / 8 * 8 + 3)) << 2 | p);
  }
  go(
      kernel("mov.u32 %r0, 99; setp.lt.u32 %p0, %t, 16; @%p0 bra E; shfl.sync.idx.b32 %r0, %t, 3, "
             "31, 0xffff0000;\nE:"));
  EXPECT_EQ(at(20), 0u);  // lane 3 is not active
  EXPECT_EQ(at(2), 99u);
}

TEST_F(Flow, WarpMeetsAtSyncMaskAfterDivergence) {
  go(
      kernel("mov.u32 %r1, %t; and.b32 %r2, %t, 1; setp.eq.u32 %p0, %r2, 0; @%p0 bra EVEN; add.u32 "
             "%r1, %r1, 100;\n"
             "EVEN: shfl.sync.bfly.b32 %r0, %r1, 1, 31, -1;"));
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(at(t), (t ^ 1) & 1 ? (t ^ 1) + 100 : (t ^ 1));
}

TEST_F(Flow, VotesMatchesAndReductions) {
  go(
      kernel("setp.lt.u32 %p0, %t, 5; vote.sync.ballot.b32 %r0, %p0, -1; vote.sync.all.pred %p1, "
             "%p0, 0x1f; vote.sync.any.pred %p2, %p0, -1;\n"
             "vote.sync.uni.pred %p3, %p0, -1; selp.b32 %r1, 256, 0, %p2; add.u32 %r0, %r0, %r1; "
             "selp.b32 %r1, 512, 0, %p3; add.u32 %r0, %r0, %r1;\n"
             "redux.sync.add.u32 %r2, %t, -1; shl.b32 %r2, %r2, 12; add.u32 %r0, %r0, %r2;"));
  EXPECT_EQ(at(0), 31u + 256 + (496u << 12));
  go(kernel("and.b32 %r1, %t, 3; match.any.sync.b32 %r0, %r1, -1;"));
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(at(t), 0x11111111u << (t & 3));
  go(kernel("and.b32 %r1, %t, 64; match.all.sync.b32 %r0|%p0, %r1, -1; @!%p0 mov.u32 %r0, 5;"));
  EXPECT_EQ(at(3), 0xFFFFFFFFu);
  go(kernel("mov.u32 %r0, 0; setp.ge.u32 %p0, %t, 7; @%p0 bra E; activemask.b32 %r0;\nE:"));
  EXPECT_EQ(at(0), 127u);
}

TEST_F(Flow, BranchTable) {
  go(
      kernel("and.b32 %r1, %t, 3; mov.u32 %r0, 9;\nTAB: .branchtargets L0, L1, L2, L3;\nbrx.idx "
             "%r1, TAB;\n"
             "L0: mov.u32 %r0, 10; bra E;\nL1: mov.u32 %r0, 11; bra E;\nL2: mov.u32 %r0, 12; bra "
             "E;\nL3: mov.u32 %r0, 13;\nE:"));
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(at(t), 10 + (t & 3));
}

const char kFactorial[] =
    ".func (.param .b32 r) fact(.param .b32 x) {\n.reg .b32 %a<4>; .reg .pred %p; ld.param.b32 "
    "%a0, [x]; setp.gt.u32 %p, %a0, 1; @%p bra REC;\n"
    "st.param.b32 [r], 1; ret;\nREC: sub.u32 %a1, %a0, 1;\n{ .param .b32 in; .param .b32 res; "
    "st.param.b32 [in], %a1; call.uni (res), fact, (in);\n"
    "ld.param.b32 %a2, [res]; }\nmul.lo.u32 %a3, %a0, %a2; st.param.b32 [r], %a3; ret; }\n"
    ".func (.reg .b32 r) twice(.reg .b32 x) { add.u32 r, x, x; ret; }\n";

TEST_F(Flow, DirectRecursiveAndIndirectCalls) {
  go(
      kernel("rem.u32 %r1, %t, 11; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call "
             "(b), fact, (a); ld.param.b32 %r0, [b]; }",
             kFactorial));
  uint32_t f[11] = {1};
  for (uint32_t i = 1; i < 11; ++i) f[i] = f[i - 1] * i;
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(at(t), f[t % 11]);
  go(
      kernel("setp.lt.u32 %p0, %t, 9; mov.u64 %q3, twice; @%p0 mov.u64 %q3, inc;\nproto: "
             ".callprototype (.reg .b32 _) _ (.reg .b32 _);\n"
             "call (%r0), %q3, (%t), proto;",
             std::string(kFactorial) +
                 ".func (.reg .b32 r) inc(.reg .b32 x) { add.u32 r, x, 1; ret; }\n"));
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(at(t), t < 9 ? t + 1 : 2 * t);
}

TEST_F(Flow, EndlessRecursionIsAFault) {
  ASSERT_TRUE(gpu.load(kernel("call loop, ();", ".func loop() { call loop, (); ret; }\n")))
      << gpu.log;
  EXPECT_EQ(gpu.run("k", {1, 1, 1}, {32, 1, 1}, gpu.alloc(4096), 0, 0).fault,
            Fault::kIllegalAddress);
}

TEST_F(Flow, Printf) {
  go(
      kernel("{ .local .align 8 .b8 buf[24]; .reg .b64 %x<4>; .param .b64 p0; .param .b64 p1; "
             ".param .b32 res; mov.u64 %x0, buf; cvta.local.u64 %x1, %x0;\n"
             "setp.gt.u32 %p0, %t, 1; @%p0 bra E; st.local.u32 [%x0], %t; st.local.f64 [%x0+8], "
             "0d3FF8000000000000; mov.u64 %x2, fmt; cvta.global.u64 %x3, %x2;\n"
             "st.param.b64 [p0], %x3; st.param.b64 [p1], %x1; call.uni (res), vprintf, (p0, p1); "
             "}\nE: mov.u32 %r0, 0;",
             ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
             ".global .align 1 .b8 fmt[14] = {116, 61, 37, 48, 51, 100, 32, 37, 46, 50, 102, 37, "
             "37, 10};\n.global .u8 end[1] = {0};\n"));
  EXPECT_EQ(gpu.printed, "t=000 1.50%\nt=001 1.50%\n");
}

TEST_F(Flow, StepBudgetAndCancelStopAnEndlessLoop) {
  ASSERT_TRUE(gpu.load(kernel("L: bra L;"))) << gpu.log;
  gpu.request.step_budget = 100000;
  EXPECT_EQ(gpu.run("k", {4, 1, 1}, {64, 1, 1}, gpu.alloc(4096), 0, 0).fault, Fault::kTimeout);
  gpu.request.step_budget = 0;
  std::atomic<bool> cancel{false};
  gpu.request.cancel = &cancel;
  std::thread t([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    cancel = true;
  });
  EXPECT_EQ(gpu.run("k", {4, 1, 1}, {64, 1, 1}, gpu.alloc(4096), 0, 0).fault, Fault::kCancelled);
  t.join();
}

TEST_F(Flow, SpecialRegisters) {
  go(kernel("mov.u32 %r0, %laneid; mov.u32 %r1, %warpid; shl.b32 %r1, %r1, 8; add.u32 %r0, %r0, "
            "%r1; mov.u32 %r1, %nctaid.x; shl.b32 %r1, %r1, 16; add.u32 %r0, %r0, %r1;\n"
            "mad.lo.u32 %r0, %ctaid.x, 16777216, %r0; mov.u32 %r2, %lanemask_lt; popc.b32 %r2, "
            "%r2; setp.ne.u32 %p0, %r2, %laneid; @%p0 trap;"),
     {3, 1, 1}, {64, 1, 1});
  EXPECT_EQ(at(2 * 64 + 35), 3u + (1u << 8) + (3u << 16) + (2u << 24));
}

TEST_F(Flow, ThreeDimensionalBlock) {
  go(kernel("mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r2, "
            "3, %r1; mad.lo.u32 %r4, %r4, 5, %r3;\n"
            "mul.wide.u32 %q1, %r4, 4; add.u64 %q1, %q0, %q1; mad.lo.u32 %r0, %r2, 100, %r3; "
            "mad.lo.u32 %r0, %r1, 10, %r0;"),
     {1, 1, 1}, {5, 3, 4});
  for (uint32_t i = 0; i < 60; ++i) EXPECT_EQ(at(i), i % 5 + i / 5 % 3 * 10 + i / 15 * 100);
}

// The tickets show which block and warp came first. The sum does not.
TEST_F(Flow, ShuffleChangesTheOrderAndNothingElse) {
  const std::string text = kernel(
      "and.b32 %r1, %t, 7; setp.lt.u32 %p0, %r1, 3; @%p0 bra LOW; mul.lo.u32 %r2, %t, 3; bra "
      "JOIN;\n"
      "LOW: add.u32 %r2, %t, 100;\nJOIN: bar.sync 0; atom.global.add.u32 %r3, [%q2], 1; "
      "atom.global.add.u32 %r4, [%q2+4], %r2; mov.u32 %r0, %r3;");
  set_engine_threads(1);
  std::vector<uint32_t> tickets[4];
  uint32_t sums[4];
  const uint64_t seeds[4] = {0, 1, 1, 99};
  for (int k = 0; k < 4; ++k) {
    gpu.request.shuffle_seed = seeds[k];
    go(text, {6, 1, 1}, {96, 1, 1});
    for (uint32_t i = 0; i < 6 * 96; ++i) tickets[k].push_back(at(i));
    sums[k] = gpu.at<uint32_t>(in)[1];
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[3]);
  EXPECT_NE(tickets[0], tickets[1]);
  EXPECT_EQ(tickets[1], tickets[2]) << "the same seed gives the same run";
  EXPECT_NE(tickets[1], tickets[3]);
}

TEST_F(Flow, VectorsAndPredicatesAreParameters) {
  go(
      kernel("mov.u32 %r1, %t; mov.u32 %r2, 5; .reg .v2 .u32 pair; mov.v2.u32 pair, {%r1, %r2};\n"
             "call (%r3, %p1), f, (pair); selp.b32 %r0, %r3, 1000, %p1;",
             ".func (.reg .u32 sum, .reg .pred small) f(.reg .v2 .u32 x) {\n"
             "add.u32 sum, x.x, x.y; setp.lt.u32 small, x.x, 7; ret;\n}\n"));
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(at(t), t < 7 ? t + 5 : 1000u);
}

TEST_F(Flow, RegisterPlusConstantIsAValue) {
  go(kernel("mov.u32 %r1, %t; add.u32 %r0, %r1 + 3, 4;"));
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(at(t), t + 7);
}

// Three warps exchange words through shared memory, four times over one mbarrier.
TEST_F(Flow, AnMbarrierJoinsTheWarpsOfABlock) {
  const std::string body =
      "setp.eq.u32 %p0, %t, 0; mov.u32 %r5, box; mov.u32 %r6, words;\n"
      "@%p0 mbarrier.init.shared.b64 [%r5], 96; bar.sync 0;\n"
      "mov.u32 %r0, %t; mov.u32 %r1, 0;\n"
      "ROUND: shl.b32 %r2, %t, 2; add.u32 %r2, %r2, %r6; st.shared.u32 [%r2], %r0;\n"
      "mbarrier.arrive.shared.b64 %q5, [%r5];\n"
      "FULL: mbarrier.try_wait.shared.b64 %p1, [%r5], %q5; @!%p1 bra FULL;\n"
      "add.u32 %r3, %t, 33; rem.u32 %r3, %r3, 96; shl.b32 %r3, %r3, 2; add.u32 %r3, %r3, %r6;\n"
      "ld.shared.u32 %r0, [%r3];\n"
      "mbarrier.arrive.shared.b64 %q5, [%r5];\n"
      "READ: mbarrier.try_wait.shared.b64 %p1, [%r5], %q5; @!%p1 bra READ;\n"
      "add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 4; @%p2 bra ROUND;";
  const std::string shared = ".shared .align 8 .b64 box; .shared .align 4 .b32 words[96];\n";
  for (uint64_t seed : {0, 5, 77}) {
    gpu.request.shuffle_seed = seed;
    go(kernel(body, shared), {1, 1, 1}, {96, 1, 1});
    for (uint32_t t = 0; t < 96; ++t) EXPECT_EQ(at(t), (t + 4 * 33) % 96) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tendril::softgpu
