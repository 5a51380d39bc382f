// SPDX-License-Identifier: Apache-2.0
// Arithmetic of elements. See numbers.h.
#include "softnccl/numbers.h"

#include <cmath>
#include <cstring>
#include <type_traits>

namespace tendril::softnccl {
namespace {

struct Format {
  int exponent_bits, mantissa_bits;
  uint16_t largest;   // the largest finite number
  uint16_t overflow;  // what is beyond it
  uint16_t nan;
};

constexpr Format kHalf = {5, 10, 0x7bff, 0x7c00, 0x7fff};
constexpr Format kBfloat = {8, 7, 0x7f7f, 0x7f80, 0x7fff};
constexpr Format kE4m3 = {4, 3, 0x7e, 0x7e, 0x7f};  // has no infinity
constexpr Format kE5m2 = {5, 2, 0x7b, 0x7b, 0x7f};

float decode(const Format& format, uint16_t bits) {
  const int all = format.exponent_bits + format.mantissa_bits;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const unsigned magnitude = bits & ((1u << all) - 1);
  const unsigned mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  float value;
  if (magnitude > format.largest) {
    const bool infinite = &format != &kE4m3 && mantissa == 0;
    value = infinite ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), 1 - bias - format.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<float>(mantissa + (1u << format.mantissa_bits)),
                       exponent - bias - format.mantissa_bits);
  }
  return (bits >> all & 1) != 0 ? -value : value;
}

uint16_t encode(const Format& format, float value) {
  const int all = format.exponent_bits + format.mantissa_bits;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const unsigned sign = std::signbit(value) ? 1u << all : 0;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | format.nan);
  if (std::isinf(value)) return static_cast<uint16_t>(sign | format.overflow);
  int exponent = 0;
  const double size = std::fabs(static_cast<double>(value));
  std::frexp(size, &exponent);
  exponent = size == 0 ? 1 - bias : std::max(exponent - 1, 1 - bias);
  const auto rounded =
      static_cast<uint64_t>(std::nearbyint(std::ldexp(size, format.mantissa_bits - exponent)));
  // A number without its leading one lies below the normal ones. A carry out of the mantissa
  // raises the exponent by itself.
  const uint64_t one = uint64_t{1} << format.mantissa_bits;
  const uint64_t bits =
      rounded < one
          ? rounded
          : (static_cast<uint64_t>(exponent + bias) << format.mantissa_bits) + (rounded - one);
  return static_cast<uint16_t>(sign | (bits > format.largest ? format.overflow : bits));
}

const Format& format_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
      return kHalf;
    case ncclBfloat16:
      return kBfloat;
    case ncclFloat8e4m3:
      return kE4m3;
    default:
      return kE5m2;
  }
}

// An element in memory, and the type that arithmetic is done in.
template <typename T>
struct Plain {
  using Value = T;
  static constexpr size_t kBytes = sizeof(T);
  static T load(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  static void store(char* at, T value) { std::memcpy(at, &value, sizeof value); }
};

template <typename Bits, const Format& kFormat>
struct Small {
  using Value = float;
  static constexpr size_t kBytes = sizeof(Bits);
  static float load(const char* at) { return decode(kFormat, Plain<Bits>::load(at)); }
  static void store(char* at, float value) {
    Plain<Bits>::store(at, static_cast<Bits>(encode(kFormat, value)));
  }
};

// Calls `what` with the element's description.
template <typename What>
void with_type(ncclDataType_t type, What what) {
  switch (type) {
    case ncclInt8:
      return what(Plain<int8_t>());
    case ncclUint8:
      return what(Plain<uint8_t>());
    case ncclInt32:
      return what(Plain<int32_t>());
    case ncclUint32:
      return what(Plain<uint32_t>());
    case ncclInt64:
      return what(Plain<int64_t>());
    case ncclUint64:
      return what(Plain<uint64_t>());
    case ncclFloat16:
      return what(Small<uint16_t, kHalf>());
    case ncclFloat32:
      return what(Plain<float>());
    case ncclFloat64:
      return what(Plain<double>());
    case ncclBfloat16:
      return what(Small<uint16_t, kBfloat>());
    case ncclFloat8e4m3:
      return what(Small<uint8_t, kE4m3>());
    case ncclFloat8e5m2:
      return what(Small<uint8_t, kE5m2>());
    default:
      return;
  }
}

// Integers wrap around.
template <typename T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}

template <typename T>
T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}

template <typename T>
T combined(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::kProduct:
      return multiply(a, b);
    case Reduction::kMaximum:
      return a < b ? b : a;
    case Reduction::kMinimum:
      return b < a ? b : a;
    default:
      return add(a, b);
  }
}

}  // namespace

size_t type_bytes(ncclDataType_t type) {
  size_t bytes = 0;
  with_type(type, [&](auto element) { bytes = element.kBytes; });
  return bytes;
}

void combine(ncclDataType_t type, Reduction reduction, void* into, const void* other,
             size_t count) {
  char* to = static_cast<char*>(into);
  const char* from = static_cast<const char*>(other);
  with_type(type, [&](auto element) {
    for (size_t at = 0; at < count * element.kBytes; at += element.kBytes)
      element.store(to + at, combined(reduction, element.load(to + at), element.load(from + at)));
  });
}

void scale(ncclDataType_t type, void* data, const void* scalar, size_t count) {
  char* at = static_cast<char*>(data);
  with_type(type, [&](auto element) {
    const auto factor = element.load(static_cast<const char*>(scalar));
    for (size_t i = 0; i < count; i++, at += element.kBytes)
      element.store(at, multiply(element.load(at), factor));
  });
}

void prepare_average(ncclDataType_t type, void* data, size_t count, int ranks) {
  with_type(type, [&](auto element) {
    using Value = typename decltype(element)::Value;
    if constexpr (std::is_floating_point_v<Value>) {
      char factor[sizeof(double)];
      element.store(factor, static_cast<Value>(1) / static_cast<Value>(ranks));
      scale(type, data, factor, count);
    }
  });
}

void finish_average(ncclDataType_t type, void* data, size_t count, int ranks) {
  char* at = static_cast<char*>(data);
  with_type(type, [&](auto element) {
    using Value = typename decltype(element)::Value;
    if constexpr (std::is_integral_v<Value>) {
      for (size_t i = 0; i < count; i++, at += element.kBytes) {
        const Value sum = element.load(at);
        // In 64 bits of the same sign: the number of ranks may be more than the type can hold.
        using Wide = std::conditional_t<std::is_signed_v<Value>, int64_t, uint64_t>;
        element.store(at, static_cast<Value>(static_cast<Wide>(sum) / static_cast<Wide>(ranks)));
      }
    }
  });
}

float to_float(ncclDataType_t type, uint16_t bits) { return decode(format_of(type), bits); }

uint16_t from_float(ncclDataType_t type, float value) { return encode(format_of(type), value); }

}  // namespace tendril::softnccl
