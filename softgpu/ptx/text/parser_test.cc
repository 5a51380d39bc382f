// SPDX-License-Identifier: Apache-2.0
// What the parser accepts, and what it must refuse with a line number instead of crashing.
#include "softgpu/ptx/test_gpu.h"

namespace tendril::softgpu {
namespace {

std::string error_of(const std::string& text) {
  std::string log;
  auto p = parse_program(text, &log);
  return p ? "" : log;
}
std::string in_kernel(const std::string& body) {
  return std::string(kHeader) + ".visible .entry k() {\n.reg .b32 %r<4>; .reg .pred %p<2>;\n" +
         body + "\n}\n";
}

TEST(Parser, DescribesKernelsAndGlobals) {
  std::string log;
  auto p =
      parse_program(std::string(kHeader) +
                        "//\n.file 1 \"x.cu\"\n.global .align 8 .b8 big[100000];\n.weak .const "
                        ".u32 w = 5;\n.visible .entry one(.param .u8 a, .param .u64 .ptr .global "
                        ".align 16 b, .param .align 4 .b8 s[10])\n"
                        ".maxntid 128, 2, 1\n.minnctapersm 2\n{\n.loc 1 2 3\n.local .align 4 .b8 "
                        "l[12];\n.pragma \"nounroll\";\nret;\n}\n.visible .entry two() { exit; }\n",
                    &log);
  ASSERT_TRUE(p) << log;
  EXPECT_EQ(p->ptx_version(), 78u);
  EXPECT_EQ(p->target_sm(), 80u);
  ASSERT_EQ(p->kernels().size(), 2u);
  const KernelInfo& k = p->kernels()[0];
  EXPECT_EQ(k.name, "one");
  ASSERT_EQ(k.params.size(), 3u);
  EXPECT_EQ(k.params[1].offset, 8u);
  EXPECT_EQ(k.params[2].offset, 16u);
  EXPECT_EQ(k.params[2].size, 10u);
  EXPECT_EQ(k.param_bytes, 26u);
  EXPECT_EQ(k.local_bytes, 12u);
  EXPECT_EQ(k.max_threads_per_block, 256u);
  EXPECT_GE(k.registers, 1u);
  ASSERT_EQ(p->globals().size(), 2u);
  EXPECT_EQ(p->globals()[0].size, 100000u);
  EXPECT_EQ(p->globals()[1].space, GlobalInfo::Space::kConst);
}

TEST(Parser, RefusesWithLineNumbers) {
  EXPECT_NE(error_of("").find("version"), std::string::npos);
  EXPECT_NE(error_of(".version 7.0\n.target sm_70\n?"), "");
  EXPECT_NE(error_of(in_kernel("add.u32 %r0, %r1, %r9;")).find("line 6"), std::string::npos);
  for (const char* body :
       {"add.u32 %r0, %r1", "ld.global.u32 %r0, [%r1;", "@%r0 bra X;", "bra X; }",
        "{ mov.u32 %r0, {%r1, %r2;", "L: L:", ".reg .bogus %x;", ".reg .b32;",
        "mov.u32 %r0, %nope;", "mov.u32 %r0, %tid.q;", ".local .b8 x[9999999999];",
        "mov.u32 %r0, ;", "@ ;", ".shared .b32 s = 5;"})
    EXPECT_NE(error_of(in_kernel(body)).find("line "), std::string::npos) << body;
  EXPECT_NE(error_of(std::string(kHeader) + ".global .u32 x[2] = {1,2,3};"), "");
  EXPECT_NE(error_of(std::string(kHeader) + ".global .u64 x = nothing;"), "");
  EXPECT_NE(error_of(std::string(kHeader) + ".visible .entry k("), "");
  EXPECT_NE(
      error_of(std::string(kHeader) + ".visible .entry k() { ret; } .visible .entry k() { ret; }"),
      "");
}

TEST(Parser, HostileTextIsBounded) {
  EXPECT_NE(error_of(in_kernel(std::string(100000, '{'))), "");
  EXPECT_NE(error_of(in_kernel("mov.u32 %r0, " + std::string(100000, '(') + "1;")), "");
  EXPECT_NE(error_of(in_kernel("mov.u32 %r0, " + std::string(100000, '-') + "1;")), "");
  EXPECT_NE(error_of(in_kernel("mov.u32 %r0, " + std::string(100000, '!') + "%p0;")), "");
  EXPECT_NE(error_of(in_kernel("mov.u32 " + std::string(100000, '[') + "1;")), "");
  EXPECT_NE(error_of(in_kernel("mov" + std::string(100000, '.') + "u32 %r0, 1;")), "");
  EXPECT_NE(error_of(std::string(kHeader) + ".global .b8 x[2] = " + std::string(100000, '{')), "");
  EXPECT_NE(error_of(std::string(kHeader) + ".global .b8 x[4000000000][4000000000][4000000000];"),
            "");
  EXPECT_NE(error_of(std::string(kHeader) + ".global .b8 x[4000000000] = {1};"), "");
  EXPECT_EQ(error_of(in_kernel(".reg .b32 %big<1000000000>; mov.u32 %big999999999, 1; ret;")), "");
  // Found by the fuzzer: a parameter that is a register, and instructions without operands.
  EXPECT_NE(error_of(std::string(kHeader) + ".visible .entry k(.u64 in) { ret; }"), "");
  EXPECT_NE(error_of(std::string(kHeader) + ".func f(.param .pred p) { ret; }"), "");
  for (const char* bare :
       {"atom.global.add.u32;", "ld.u32;", "mma.sync;", "cvt.u32.u32;", "red.global.add.u32;"}) {
    auto p = parse_program(in_kernel(bare), nullptr);
    ASSERT_TRUE(p) << bare;
    EXPECT_NE(p->decode(0), "") << bare;
  }
  EXPECT_NE(error_of(std::string("\xFF\x00\x80", 3)), "");
}

TEST(Parser, UnsupportedInstructionsAreLazyAndNamed) {
  std::string log;
  auto p = parse_program(in_kernel("sust.b.2d.b32.trap [%r0, {%r1, %r2}], {%r3};\nret;") +
                             ".visible .entry fine() { ret; }\n",
                         &log);
  ASSERT_TRUE(p) << log;
  EXPECT_EQ(p->decode(1), "");
  EXPECT_NE(p->decode(0).find("line 6: unsupported instruction 'sust.b.2d.b32.trap'"),
            std::string::npos)
      << p->decode(0);
  for (const char* body :
       {"add.bogus.u32 %r0, %r1, %r2;", "add.u32 %r0, %r1;", "bra NOWHERE;", "call nothing, ();",
        "add.u64 %r0, %r1, %r2;", "setp.xx.u32 %p0, %r1, %r2;", "cvt.u32.u64 %r0, %r1;",
        "ld.global.v4.u32 {%r0, %r1}, [%r2];", "mov.b64 {%r0, %r1, %r2}, %r3;",
        "shfl.sync.sideways.b32 %r0, %r1, 1, 31, -1;"}) {
    auto q = parse_program(in_kernel(body), &log);
    ASSERT_TRUE(q) << body << log;
    EXPECT_NE(q->decode(0).find("line 6"), std::string::npos) << body << " -> " << q->decode(0);
  }
}

// On hardware video instructions depart from the ISA. What was not measured there is refused, not
// invented.
TEST(Parser, VideoVariantsNeverMeasuredAreRefused) {
  for (const char* body :
       {"vadd.u32.u32.u32.sat %r0, %r1, %r2;", "vmin.u32.u32.u32.max %r0, %r1, %r2, %r3;",
        "vadd.s32.s32.s32 %r0.b1, %r1, %r2, %r3;", "vshl.u32.u32.u32.clamp.min %r0, %r1, %r2, %r3;",
        "vset.u32.u32.lt %r0.h1, %r1, %r2, %r3;", "vmad.s32.s32.s32.shr7 %r0, -%r1, %r2, %r3;",
        "vadd2.s32.s32.s32.sat.add %r0, %r1, %r2, %r3;"}) {
    auto p = parse_program(in_kernel(body), nullptr);
    ASSERT_TRUE(p) << body;
    const std::string opcode(body, std::string_view(body).find(' '));
    EXPECT_NE(p->decode(0).find("line 6: never measured on hardware: '" + opcode + "'"),
              std::string::npos)
        << body << " -> " << p->decode(0);
  }
  for (const char* body :
       {"vadd.u32.u32.u32 %r0, %r1, %r2;", "vadd.s32.u32.u32.sat %r0.h1, %r1, %r2, %r3;"}) {
    auto p = parse_program(in_kernel(body), nullptr);
    ASSERT_TRUE(p) << body;
    EXPECT_EQ(p->decode(0), "") << body;
  }
}

TEST(Parser, ScopesShadowRegistersAndLabels) {
  TestGpu gpu;
  ASSERT_TRUE(gpu.load(std::string(kHeader) +
                       ".visible .entry k(.param .u64 out) { .reg .b32 %x; .reg .b64 %q; "
                       "ld.param.u64 %q, [out]; mov.u32 %x, 1;\n"
                       "{ .reg .b32 %x; mov.u32 %x, 5; bra L; mov.u32 %x, 6; L: st.global.u32 "
                       "[%q], %x; }\n{ bra L; L: st.global.u32 [%q+4], %x; }\nret; }"))
      << gpu.log;
  uint64_t out = gpu.alloc(64);
  EXPECT_EQ(gpu.run("k", {1, 1, 1}, {1, 1, 1}, out).fault, Fault::kNone);
  EXPECT_EQ(gpu.at<uint32_t>(out)[0], 5u);
  EXPECT_EQ(gpu.at<uint32_t>(out)[1], 1u);
}

}  // namespace
}  // namespace tendril::softgpu
