// SPDX-License-Identifier: Apache-2.0
// mma.sync against a plain matrix product, and ldmatrix. The fragment layouts are written out as in
// the ISA's tables.
#include <cmath>
#include <functional>

#include "softgpu/ptx/test_gpu.h"

namespace tendril::softgpu {
namespace {

// Loads `na`, `nb`, `nc` words per lane from `in`, runs one mma and stores the result's words.
std::string kernel(const std::string& op, int na, int nb, int nc) {
  std::string t =
      std::string(kHeader) +
      ".visible .entry k(.param .u64 out, .param .u64 in) {\n.reg .b32 %a<8>; .reg .b32 %b<8>; "
      ".reg .b32 "
      "%c<8>; .reg .b32 %t; .reg .b64 %q<4>;\nld.param.u64 %q0, [out]; ld.param.u64 %q1, [in]; "
      "mov.u32 "
      "%t, %tid.x; mul.wide.u32 %q2, %t, 64; add.u64 %q0, %q0, %q2; add.u64 %q1, %q1, %q2;\n";
  auto group = [](char c, int n) {
    std::string s = "{";
    for (int i = 0; i < n; ++i) s += (i ? ", %" : "%") + std::string(1, c) + std::to_string(i);
    return s + "}";
  };
  int at = 0;
  for (auto [c, n] : {std::pair<char, int>{'a', na}, {'b', nb}, {'c', nc}})
    for (int i = 0; i < n; ++i, ++at)
      t += std::string("ld.global.b32 %") + c + std::to_string(i) + ", [%q1+" +
           std::to_string(4 * at) + "];\n";
  t += op + " " + group('c', nc) + ", " + group('a', na) + ", " + group('b', nb) + ", " +
       group('c', nc) + ";\n";
  for (int i = 0; i < nc; ++i)
    t += "st.global.b32 [%q0+" + std::to_string(4 * i) + "], %c" + std::to_string(i) + ";\n";
  return t + "ret;\n}\n";
}

class Matrix : public ::testing::Test {
 protected:
  void prepare(const std::string& text) {
    ASSERT_TRUE(gpu.load(text)) << gpu.log;
    out = gpu.alloc(4096), in = gpu.alloc(4096);
  }
  void run() {
    LaunchResult r = gpu.run("k", {1, 1, 1}, {32, 1, 1}, out, in);
    ASSERT_EQ(r.fault, Fault::kNone) << r.message;
  }
  uint8_t* lane_in(int lane) { return gpu.host(in) + 64 * lane; }
  uint8_t* lane_out(int lane) { return gpu.host(out) + 64 * lane; }
  TestGpu gpu;
  uint64_t out = 0, in = 0;
};

uint16_t half_of_int(int v) {  // exact for small integers
  if (!v) return 0;
  int a = std::abs(v), e = 31 - __builtin_clz(static_cast<unsigned>(a));
  return static_cast<uint16_t>((v < 0 ? 0x8000 : 0) | (e + 15) << 10 | ((a << (10 - e)) & 0x3FF));
}
int value_a(int row, int col) { return (row * 7 + col * 3) % 11 - 5; }
int value_b(int row, int col) { return (row * 5 + col * 2) % 13 - 6; }
int value_c(int row, int col) { return row * 8 + col; }
int product(int row, int col, int k) {
  int s = value_c(row, col);
  for (int i = 0; i < k; ++i) s += value_a(row, i) * value_b(i, col);
  return s;
}

TEST_F(Matrix, HalfSixteenBySixteen) {
  prepare(kernel("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 4, 2, 4));
  for (int lane = 0; lane < 32; ++lane) {
    int g = lane >> 2, t = lane % 4;
    uint16_t h[12];
    for (int i = 0; i < 8; ++i)
      h[i] = half_of_int(
          value_a(i < 2 || (i >= 4 && i < 6) ? g : g + 8, t * 2 + (i & 1) + (i >= 4 ? 8 : 0)));
    for (int i = 0; i < 4; ++i)
      h[8 + i] = half_of_int(value_b(t * 2 + (i & 1) + (i >= 2 ? 8 : 0), g));
    float c[4];
    for (int i = 0; i < 4; ++i)
      c[i] = static_cast<float>(value_c(i < 2 ? g : g + 8, t * 2 + (i & 1)));
    std::memcpy(lane_in(lane), h, 24);
    std::memcpy(lane_in(lane) + 24, c, 16);
  }
  run();
  for (int lane = 0; lane < 32; ++lane) {
    float d[4];
    std::memcpy(d, lane_out(lane), 16);
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(d[i], product(i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1), 16));
  }
}

TEST_F(Matrix, TensorFloatAndBytes) {
  prepare(kernel("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2, 4));
  for (int lane = 0; lane < 32; ++lane) {
    int g = lane >> 2, t = lane % 4;
    float f[10];
    for (int i = 0; i < 4; ++i)
      f[i] = static_cast<float>(value_a(i & 1 ? g + 8 : g, i < 2 ? t : t + 4));
    for (int i = 0; i < 2; ++i) f[4 + i] = static_cast<float>(value_b(i ? t + 4 : t, g));
    for (int i = 0; i < 4; ++i)
      f[6 + i] = static_cast<float>(value_c(i < 2 ? g : g + 8, t * 2 + (i & 1)));
    std::memcpy(lane_in(lane), f, 40);
  }
  run();
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      float d;
      std::memcpy(&d, lane_out(lane) + 4 * i, 4);
      EXPECT_EQ(d, product(i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1), 8));
    }
  prepare(kernel("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 4, 2, 4));
  for (int lane = 0; lane < 32; ++lane) {
    int g = lane >> 2, t = lane % 4;
    int8_t b[24];
    for (int i = 0; i < 16; ++i)
      b[i] = static_cast<int8_t>(
          value_a(i < 4 || (i >= 8 && i < 12) ? g : g + 8, t * 4 + (i & 3) + (i >= 8 ? 16 : 0)));
    for (int i = 0; i < 8; ++i)
      b[16 + i] = static_cast<int8_t>(value_b(t * 4 + (i & 3) + (i >= 4 ? 16 : 0), g));
    std::memcpy(lane_in(lane), b, 24);
    for (int i = 0; i < 4; ++i) {
      int32_t c = value_c(i < 2 ? g : g + 8, t * 2 + (i & 1));
      std::memcpy(lane_in(lane) + 24 + 4 * i, &c, 4);
    }
  }
  run();
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      int32_t d;
      std::memcpy(&d, lane_out(lane) + 4 * i, 4);
      EXPECT_EQ(d, product(i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1), 32));
    }
}

TEST_F(Matrix, LoadMatrixPlainAndTransposed) {
  for (bool trans : {false, true}) {
    // Row r of the four matrices is eight halves, numbered 8 * r upwards.
    prepare(
        std::string(kHeader) +
        ".visible .entry k(.param .u64 out, .param .u64 in) {\n.shared .align 16 .b8 s[512];\n"
        ".reg .b32 %r<8>; .reg .b64 %q<4>; .reg .b16 %h; .reg .pred %p;\n"
        "ld.param.u64 %q0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %q1, %r0, 64; add.u64 %q0, "
        "%q0, %q1;\n"
        "mov.u32 %r1, s; shl.b32 %r2, %r0, 4; add.u32 %r1, %r1, %r2; shl.b32 %r3, %r0, 3; mov.u32 "
        "%r4, 0;\n"
        "L: shl.b32 %r5, %r4, 1; add.u32 %r5, %r5, %r1; cvt.u16.u32 %h, %r3; st.shared.u16 [%r5], "
        "%h;\n"
        "add.u32 %r3, %r3, 1; add.u32 %r4, %r4, 1; setp.lt.u32 %p, %r4, 8; @%p bra L; bar.sync 0;\n"
        "ldmatrix.sync.aligned.m8n8.x4" +
        (trans ? ".trans" : "") +
        ".shared.b16 {%r2, %r3, %r4, %r5}, [%r1];\nst.global.v4.b32 [%q0], {%r2, %r3, %r4, %r5}; "
        "ret; }\n");
    run();
    for (int lane = 0; lane < 32; ++lane)
      for (int k = 0; k < 8; ++k) {
        uint16_t v;
        std::memcpy(&v, lane_out(lane) + 2 * k, 2);
        int row = lane / 4, col = lane % 4 * 2 + (k & 1);
        EXPECT_EQ(v, k / 2 * 64 + (trans ? col * 8 + row : row * 8 + col));
      }
  }
}

}  // namespace
}  // namespace tendril::softgpu
