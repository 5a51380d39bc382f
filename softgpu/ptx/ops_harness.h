// SPDX-License-Identifier: Apache-2.0
// Runs one instruction over the cross product of extreme operands and compares every lane with a
// host model given as a lambda. The model's signature chooses register widths and operand pools:
// int32_t(int32_t, int32_t) is a two-operand 32-bit instruction.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "softgpu/ptx/test_gpu.h"

namespace tendril::softgpu {

struct Half {
  uint16_t v;
};
struct Brain {
  uint16_t v;
};
struct Count {  // shift amounts and bit positions
  uint32_t v;
};

template <class T>
std::vector<T> pool() {
  if constexpr (std::is_same_v<T, Count>) {
    return {{0}, {1}, {7}, {15}, {16}, {31}, {32}, {33}, {63}, {64}, {200}, {0xFFFFFFFF}};
  } else if constexpr (std::is_same_v<T, float>) {
    float inf = std::numeric_limits<float>::infinity();
    return {0.0f,          -0.0f,           1.0f,          -1.5f,          3.1415927f, 1e-40f,
            -1e-45f,       1.17549435e-38f, 3.4028235e38f, -3.4028235e38f, inf,        -inf,
            std::nanf(""), 16777217.0f,     0.33333334f,   -2147483648.0f};
  } else if constexpr (std::is_same_v<T, double>) {
    double inf = std::numeric_limits<double>::infinity();
    return {0.0,
            -0.0,
            1.0,
            -1.5,
            3.141592653589793,
            1e-310,
            -5e-324,
            2.2250738585072014e-308,
            1.7976931348623157e308,
            inf,
            -inf,
            std::nan(""),
            9007199254740993.0,
            0.1,
            -4294967296.5,
            65519.99};
  } else if constexpr (std::is_same_v<T, Half>) {
    return {{0},      {0x8000}, {0x3C00}, {0xBE00}, {0x0001}, {0x83FF}, {0x0400},
            {0x7BFF}, {0x7C00}, {0xFC00}, {0x7E00}, {0x3555}, {0x4248}, {0x1400}};
  } else if constexpr (std::is_same_v<T, Brain>) {
    return {{0},      {0x8000}, {0x3F80}, {0xBFC0}, {0x0001}, {0x807F}, {0x0080},
            {0x7F7F}, {0x7F80}, {0xFF80}, {0x7FC0}, {0x3EAB}, {0x4049}, {0x3300}};
  } else {
    using U = std::make_unsigned_t<T>;
    constexpr U top = U(1) << (sizeof(T) * 8 - 1);
    std::vector<T> v;
    for (U u : {U(0), U(1), U(2), U(~U(0)), U(~U(1)), top, U(top - 1), U(top + 1), U(7), U(100),
                U(0x5A), U(0x123456789ABCDEFull), U(0xFEDCBA9876543210ull)})
      v.push_back(static_cast<T>(u));
    return v;
  }
}

template <class T>
constexpr unsigned width() {
  return std::is_same_v<T, bool>                               ? 4
         : std::is_same_v<T, Half> || std::is_same_v<T, Brain> ? 2
                                                               : static_cast<unsigned>(sizeof(T));
}

template <class T>
uint64_t to_bits(T v) {
  uint64_t r = 0;
  std::memcpy(&r, &v, sizeof v);
  return r;
}

struct OpCase {
  std::string text;  // "add.s32 %d, %a, %b;"
  unsigned d = 0, widths[3] = {};
  bool pred = false, f32 = false, f64 = false, half = false;
  double tolerance = 0;
  std::vector<uint64_t> in[3];
  std::function<uint64_t(const uint64_t*)> model;
};

// op<int32_t(int32_t, int32_t)>("add.s32", lambda) with operands in order, or a full text
// containing %d.
template <class D, class... A>
struct Signature {};
template <class D, class... A, class F, size_t... I>
OpCase build(Signature<D, A...>, std::string text, F f, double tolerance,
             std::index_sequence<I...>) {
  OpCase c;
  if (text.find('%') == std::string::npos) {
    const char* names[] = {"%a", "%b", "%c"};
    text += std::is_same_v<D, bool> ? " %p" : " %d";
    for (size_t i = 0; i < sizeof...(A); ++i) text += std::string(", ") + names[i];
    text += ";";
  }
  c.text = text, c.d = width<D>(), c.pred = std::is_same_v<D, bool>, c.tolerance = tolerance;
  c.f32 = std::is_same_v<D, float>, c.f64 = std::is_same_v<D, double>,
  c.half = std::is_same_v<D, Half> || std::is_same_v<D, Brain>;
  ((c.widths[I] = width<A>()), ...);
  (([&] {
     for (A v : pool<A>()) c.in[I].push_back(to_bits(v));
   }()),
   ...);
  c.model = [f](const uint64_t* bits) {
    auto get = [&](auto tag, size_t i) {
      decltype(tag) v;
      std::memcpy(&v, bits + i, sizeof v);
      return v;
    };
    D r = static_cast<D>(f(get(A{}, I)...));
    return to_bits(r);
  };
  return c;
}
template <class S>
struct Parse;
template <class D, class... A>
struct Parse<D(A...)> {
  using Sig = Signature<D, A...>;
  using Index = std::index_sequence_for<A...>;
};
template <class S, class F>
OpCase op(std::string text, F f, double tolerance = 0) {
  return build(typename Parse<S>::Sig{}, std::move(text), f, tolerance, typename Parse<S>::Index{});
}

void check_op(const OpCase& c);

}  // namespace tendril::softgpu
