// SPDX-License-Identifier: Apache-2.0
// See ops_harness.h.
#include "softgpu/ptx/ops_harness.h"

#include <cstdio>

namespace tendril::softgpu {
namespace {

std::string kernel_text(const OpCase& c) {
  std::string t = kHeader;
  t += ".visible .entry k(.param .u64 out, .param .u64 in, .param .u32 n) {\n.reg .pred "
       "%p<3>;\n.reg .b32 %r<8>; .reg .b64 %q<8>;\n";
  const char* names[] = {"%a", "%b", "%c"};
  auto reg = [&](const char* name, unsigned w) {
    t += ".reg .b" + std::to_string(w * 8) + " " + name + ";\n";
  };
  reg("%d", c.d);
  for (int i = 0; i < 3; ++i)
    if (c.widths[i]) reg(names[i], c.widths[i]);
  t += "ld.param.u64 %q0, [out]; ld.param.u64 %q1, [in]; ld.param.u32 %r0, [n];\n"
       "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, "
       "%r2, %r3;\n"
       "setp.ge.u32 %p1, %r1, %r0; @%p1 bra DONE;\n"
       "mul.wide.u32 %q2, %r1, 24; add.u64 %q1, %q1, %q2; mul.wide.u32 %q2, %r1, 8; add.u64 %q0, "
       "%q0, %q2;\n";
  for (int i = 0; i < 3; ++i)
    if (c.widths[i])
      t += "ld.global.b" + std::to_string(c.widths[i] * 8) + " " + names[i] + ", [%q1+" +
           std::to_string(8 * i) + "];\n";
  t += "mov.b" + std::to_string(c.d * 8) + " %d, 0;\n" + c.text + "\n";
  if (c.pred) t += "selp.b32 %d, 1, 0, %p;\n";
  t += "st.global.b" + std::to_string(c.d * 8) + " [%q0], %d;\nDONE: ret;\n}\n";
  if (c.pred) t.replace(t.find(".reg .pred"), 10, ".reg .pred %p;\n.reg .pred");
  return t;
}

// NaN results must have the canonical bits where hardware defines them (f32, halves); any NaN will
// do for f64.
bool matches(const OpCase& c, uint64_t got, uint64_t want) {
  if (c.f32) {
    float g, w;
    std::memcpy(&g, &got, 4), std::memcpy(&w, &want, 4);
    if (w != w) return static_cast<uint32_t>(got) == 0x7FFFFFFF;
    if (c.tolerance && g == g && !std::isinf(w))
      return std::fabs(g - w) <= c.tolerance * std::fmax(1.0, std::fabs(static_cast<double>(w)));
  }
  if (c.f64) {
    double g, w;
    std::memcpy(&g, &got, 8), std::memcpy(&w, &want, 8);
    if (w != w) return g != g;
    if (c.tolerance && g == g && !std::isinf(w))
      return std::fabs(g - w) <= c.tolerance * std::fmax(1.0, std::fabs(w));
  }
  return got == want;
}

}  // namespace

void check_op(const OpCase& c) {
  TestGpu gpu;
  ASSERT_TRUE(gpu.load(kernel_text(c))) << gpu.log << "\n" << kernel_text(c);
  std::vector<uint64_t> in[3];
  for (int i = 0; i < 3; ++i) in[i] = c.in[i].empty() ? std::vector<uint64_t>{0} : c.in[i];
  uint32_t n = static_cast<uint32_t>(in[0].size() * in[1].size() * in[2].size());
  uint64_t out = gpu.alloc(n * 8), input = gpu.alloc(n * 24);
  uint64_t* p = gpu.at<uint64_t>(input);
  for (uint64_t a : in[0])
    for (uint64_t b : in[1])
      for (uint64_t v : in[2]) *p++ = a, *p++ = b, *p++ = v;
  LaunchResult r = gpu.run("k", {(n + 63) / 64, 1, 1}, {64, 1, 1}, out, input, n);
  ASSERT_EQ(r.fault, Fault::kNone) << r.message;
  int shown = 0;
  for (uint32_t i = 0; i < n && shown < 4; ++i) {
    const uint64_t* operands = gpu.at<uint64_t>(input) + 3 * i;
    uint64_t want = c.model(operands), got = *gpu.at<uint64_t>(out + 8 * i);
    if (c.d < 8) want &= (1ull << c.d * 8) - 1, got &= (1ull << c.d * 8) - 1;
    if (matches(c, got, want)) continue;
    ++shown;
    char text[256];
    std::snprintf(text, sizeof text, "a=%llx b=%llx c=%llx got %llx want %llx",
                  static_cast<unsigned long long>(operands[0]),
                  static_cast<unsigned long long>(operands[1]),
                  static_cast<unsigned long long>(operands[2]),
                  static_cast<unsigned long long>(got), static_cast<unsigned long long>(want));
    ADD_FAILURE() << c.text << "  " << text;
  }
}

}  // namespace tendril::softgpu
