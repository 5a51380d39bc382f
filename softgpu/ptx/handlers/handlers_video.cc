// SPDX-License-Identifier: Apache-2.0
// Video instructions: scalar ones (vadd, vmad, vset, ...), which pick bytes or halves of their
// operands, and the SIMD forms on two halves or four bytes. They are rare today, so they run lane
// by lane and exist once for all instruction sets. An H200 emulates them and departs from the ISA's
// text. This follows what was measured. It refuses what was not measured and may depart.
#include <algorithm>
#include <cstring>

#include "softgpu/ptx/decode/decoder.h"
#include "softgpu/ptx/handlers/lanes.h"

namespace tendril::softgpu {
namespace {

enum class Video : uint8_t { kAdd, kSub, kAbsdiff, kMin, kMax, kShl, kShr, kAvrg, kSet, kMad };
enum class Second : uint8_t { kNone, kAdd, kMin, kMax };

// Everything about one video instruction. Stored in Op::list as words.
struct Plan {
  Video kind = Video::kAdd;
  Second second = Second::kNone;
  Cmp cmp = Cmp::kEq;
  uint8_t parts = 1;  // 1 scalar, 2 halves, 4 bytes
  bool d_signed = false, a_signed = false, b_signed = false, sat = false, wrap = false,
       merge = false;
  bool negate_product = false, negate_c = false, plus_one = false;
  uint8_t scale = 0;       // vmad: bits to shift right
  uint8_t select[3] = {};  // scalar d, a, b: 0 all, 1..4 byte, 5..6 half
  uint8_t lanes_a[4] = {}, lanes_b[4] = {};
  uint8_t mask = 0;  // SIMD: result lanes written
};
constexpr uint8_t kByte2 = 3, kHalf1 = 6;  // of Plan::select
constexpr size_t kPlanWords = (sizeof(Plan) + 3) / 4;

int64_t field(uint32_t v, unsigned shift, unsigned bits, bool is_signed) {
  const uint32_t part = bits == 32 ? v : v >> shift & ((1u << bits) - 1);
  if (!is_signed || bits == 0) return part;
  return static_cast<int32_t>(part << (32 - bits)) >> (32 - bits);
}
unsigned select_bits(uint8_t s) { return s == 0 ? 32 : s < 5 ? 8 : 16; }
unsigned select_shift(uint8_t s) { return s == 0 ? 0 : s < 5 ? 8u * (s - 1) : 16u * (s - 5); }
int64_t pick(uint32_t v, uint8_t s, bool is_signed) {
  return field(v, select_shift(s), select_bits(s), is_signed);
}

int64_t limit(int64_t v, unsigned bits, bool is_signed) {
  const int64_t top = is_signed ? (1ll << (bits - 1)) - 1 : (1ll << bits) - 1,
                bottom = is_signed ? -(1ll << (bits - 1)) : 0;
  return std::clamp(v, bottom, top);
}

bool related(Cmp c, int64_t a, int64_t b) {
  switch (c) {
    case Cmp::kEq:
      return a == b;
    case Cmp::kNe:
      return a != b;
    case Cmp::kLt:
      return a < b;
    case Cmp::kLe:
      return a <= b;
    case Cmp::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

int64_t compute(const Plan& p, int64_t a, int64_t b) {
  const int64_t count = p.wrap ? b & 31 : std::min<int64_t>(b, 32);
  switch (p.kind) {
    case Video::kAdd:
      return a + b;
    case Video::kSub:
      return a - b;
    case Video::kAbsdiff:
      return a > b ? a - b : b - a;
    case Video::kMin:
      return std::min(a, b);
    case Video::kMax:
      return std::max(a, b);
    case Video::kShl:
      return static_cast<int64_t>(static_cast<uint64_t>(a) << count);
    case Video::kShr:
      return a >> count;
    case Video::kAvrg:  // rounded away from zero at the half
      return a + b >= 0 ? (a + b + 1) >> 1 : (a + b) >> 1;
    default:
      return related(p.cmp, a, b);
  }
}

// Whether the first result is less than c. Sums and differences have 32 bits by then; other results
// are exact. If the comparison has no sign, a negative first result is the greatest.
bool below(const Plan& p, int64_t v, uint32_t c) {
  if (p.kind == Video::kAdd || p.kind == Video::kSub) v = static_cast<int32_t>(v);
  return p.d_signed ? v < static_cast<int32_t>(c) : v >= 0 && v < static_cast<int64_t>(c);
}

uint32_t second_operation(const Plan& p, int64_t v, uint32_t c) {
  const uint32_t word = static_cast<uint32_t>(v);
  switch (p.second) {
    case Second::kAdd:
      return word + c;
    case Second::kMin:
      return below(p, v, c) ? word : c;
    case Second::kMax:
      return below(p, v, c) ? c : word;
    default:
      return word;
  }
}

// Into a part of d; the rest comes from c. Saturated, any value outside becomes the greatest,
// negative ones too. The upper half takes the upper half of the result, not the lower.
uint32_t merged(const Plan& p, int64_t v, uint32_t c) {
  const unsigned bits = select_bits(p.select[0]), shift = select_shift(p.select[0]);
  const int64_t top = (1ll << (bits - p.d_signed)) - 1;
  if (p.sat && (v < 0 || v > top)) v = top;
  const uint32_t word = static_cast<uint32_t>(v), mask = ((1u << bits) - 1) << shift;
  return (c & ~mask) | ((bits == 16 ? word : word << shift) & mask);
}

// Saturated to 32 bits without a sign, a result is not negative. A result that is too large is cut.
uint32_t scalar(const Plan& p, uint32_t a, uint32_t b, uint32_t c) {
  int64_t v = compute(p, pick(a, p.select[1], p.a_signed), pick(b, p.select[2], p.b_signed));
  if (p.merge) return merged(p, v, c);
  if (p.sat) v = p.d_signed ? limit(v, 32, true) : std::max<int64_t>(v, 0);
  return second_operation(p, v, c);
}

// All operands have signs here, whatever their types say. A negative result that is saturated
// without a sign is zero. If it was shifted, it is the greatest number: the shift moves no signs
// in.
uint32_t multiply_add(const Plan& p, uint32_t a, uint32_t b, uint32_t c) {
  const int64_t x = static_cast<int32_t>(pick(a, p.select[1], p.a_signed)),
                y = static_cast<int32_t>(pick(b, p.select[2], p.b_signed)),
                z = static_cast<int32_t>(c), product = p.negate_product ? -(x * y) : x * y;
  const int64_t sum = product + (p.negate_c ? -z : z) + p.plus_one, v = sum >> p.scale;
  if (!p.sat) return static_cast<uint32_t>(v);
  if (!p.d_signed && v < 0 && p.scale) return ~0u;
  return static_cast<uint32_t>(limit(v, 32, p.d_signed));
}

uint32_t simd(const Plan& p, uint32_t a, uint32_t b, uint32_t c) {
  const unsigned bits = 32u / p.parts;
  const uint32_t ones = (1u << bits) - 1;
  auto lane = [&](uint8_t s, bool is_signed) {
    return field(s < p.parts ? a : b, bits * (s % p.parts), bits, is_signed);
  };
  uint32_t d = c;  // .add sums results that are not cut to their lanes
  for (unsigned i = 0; i < p.parts; ++i) {
    if (!(p.mask >> i & 1)) continue;
    int64_t v = compute(p, lane(p.lanes_a[i], p.a_signed), lane(p.lanes_b[i], p.b_signed));
    if (p.sat) v = limit(v, bits, p.d_signed);
    if (p.second == Second::kAdd)
      d += static_cast<uint32_t>(v);
    else
      d = (d & ~(ones << bits * i)) | (static_cast<uint32_t>(v) & ones) << bits * i;
  }
  return d;
}

Event run_video(const Op& op, Warp& w, uint32_t m) {
  Plan p;
  std::memcpy(static_cast<void*>(&p), op.list, sizeof p);
  uint32_t* d = lanes<uint32_t>(w, op.d);
  const uint32_t *a = lanes<uint32_t>(w, op.a), *b = lanes<uint32_t>(w, op.b),
                 *c = lanes<uint32_t>(w, op.c);
  each_active(m, [&](int i) {
    d[i] = p.parts > 1             ? simd(p, a[i], b[i], c[i])
           : p.kind == Video::kMad ? multiply_add(p, a[i], b[i], c[i])
                                   : scalar(p, a[i], b[i], c[i]);
  });
  return Event::kNext;
}

bool parse_select(std::string_view text, uint8_t* out) {
  if (text.empty()) return true;
  static constexpr std::string_view kNames[] = {"b0", "b1", "b2", "b3", "h0", "h1"};
  for (uint8_t i = 0; i < 6; ++i)
    if (kNames[i] == text) return *out = static_cast<uint8_t>(i + 1), true;
  return false;
}

// `.b7531` or `.h32`: the most significant lane comes first.
bool parse_lanes(std::string_view text, uint8_t parts, uint8_t* out) {
  if (text.empty()) return true;
  if (text.size() != parts + 1u || text[0] != (parts == 2 ? 'h' : 'b')) return false;
  for (uint8_t i = 0; i < parts; ++i) {
    const char c = text[parts - i];
    if (c < '0' || c >= '0' + 2 * parts) return false;
    out[i] = static_cast<uint8_t>(c - '0');
  }
  return true;
}
bool parse_mask(std::string_view text, uint8_t parts, uint8_t* out) {
  *out = static_cast<uint8_t>((1u << parts) - 1);
  if (text.empty()) return true;
  if (text.size() < 2 || text[0] != (parts == 2 ? 'h' : 'b')) return false;
  *out = 0;
  for (char c : text.substr(1)) {
    if (c < '0' || c >= '0' + parts) return false;
    *out = static_cast<uint8_t>(*out | 1u << (c - '0'));
  }
  return true;
}

bool kind_of(std::string_view stem, Video* kind) {
  static constexpr std::pair<std::string_view, Video> kNames[] = {
      {"vadd", Video::kAdd}, {"vsub", Video::kSub},   {"vabsdiff", Video::kAbsdiff},
      {"vmin", Video::kMin}, {"vmax", Video::kMax},   {"vshl", Video::kShl},
      {"vshr", Video::kShr}, {"vavrg", Video::kAvrg}, {"vset", Video::kSet},
      {"vmad", Video::kMad}};
  for (auto [name, v] : kNames)
    if (name == stem) return *kind = v, true;
  return false;
}

bool word_type(Type t, bool* is_signed_type) {
  *is_signed_type = t == Type::kS32;
  return t == Type::kS32 || t == Type::kU32;
}

// Variants that were not measured on an H200 (tests/ptx/video.py asks for the others) and whose
// like depart from the ISA.
bool measured(const Plan& p) {
  if (p.parts > 1) return !(p.sat && p.second == Second::kAdd);
  if (p.kind == Video::kMad) return !((p.negate_product || p.negate_c) && (p.sat || p.scale));
  if (p.select[0] && !p.merge) return false;
  const bool limits = p.second == Second::kMin || p.second == Second::kMax;
  if (!p.sat && !p.merge && !limits) return true;
  const bool types = p.d_signed ? p.a_signed == p.b_signed : p.a_signed && !p.b_signed;
  const bool place = p.select[0] == kByte2 || p.select[0] == kHalf1;
  return p.kind <= Video::kMax && types && (!p.merge || place);
}

}  // namespace

bool Decoder::op_video() {
  Plan p;
  std::string_view stem = parts_[0];
  if (stem.back() == '2' || stem.back() == '4')
    p.parts = static_cast<uint8_t>(stem.back() - '0'), stem.remove_suffix(1);
  if (!kind_of(stem, &p.kind)) return unsupported();
  const bool set = p.kind == Video::kSet, mad = p.kind == Video::kMad;
  if (!set && !word_type(next_type(), &p.d_signed)) return unsupported();
  if (!word_type(next_type(), &p.a_signed) || !word_type(next_type(), &p.b_signed))
    return unsupported();
  static constexpr std::pair<std::string_view, Cmp> kCompare[] = {
      {"eq", Cmp::kEq}, {"ne", Cmp::kNe}, {"lt", Cmp::kLt},
      {"le", Cmp::kLe}, {"gt", Cmp::kGt}, {"ge", Cmp::kGe}};
  for (auto [name, cmp] : kCompare)
    if (set && has(name)) p.cmp = cmp;
  p.sat = has("sat");
  if (p.kind == Video::kShl || p.kind == Video::kShr) p.wrap = has("wrap"), has("clamp");
  p.second = has("add")   ? Second::kAdd
             : has("min") ? Second::kMin
             : has("max") ? Second::kMax
                          : Second::kNone;
  if (mad) p.plus_one = has("po"), p.scale = has("shr7") ? 7 : has("shr15") ? 15 : 0;
  if (!need(p.parts > 1 || mad ? 4 : 3, 4)) return false;
  if (p.parts > 1) {
    for (uint8_t i = 0; i < p.parts; ++i)
      p.lanes_a[i] = i, p.lanes_b[i] = static_cast<uint8_t>(p.parts + i);
    if (!parse_mask(at(0).selector, p.parts, &p.mask) ||
        !parse_lanes(at(1).selector, p.parts, p.lanes_a) ||
        !parse_lanes(at(2).selector, p.parts, p.lanes_b))
      return fail("bad selector in '" + std::string(current_->opcode) + "'");
  } else {
    for (uint32_t i = 0; i < 3; ++i)
      if (!parse_select(at(i).selector, &p.select[i]))
        return fail("bad selector in '" + std::string(current_->opcode) + "'");
    p.merge = !mad && count() == 4 && p.second == Second::kNone;
    p.negate_product = at(1).minus != at(2).minus, p.negate_c = count() == 4 && at(3).minus;
  }
  if (!measured(p))
    return fail("never measured on hardware: '" + std::string(current_->opcode) +
                "' with these operands");
  Op op = make(&run_video);
  std::vector<uint32_t> words(kPlanWords);
  std::memcpy(words.data(), &p, sizeof p);
  op.list = keep_list(std::move(words)).data();
  op.d = dest(at(0), 4), op.a = source(at(1), Type::kB32), op.b = source(at(2), Type::kB32);
  if (count() == 4) op.c = source(at(3), Type::kB32);
  return emit_checked(op);
}

}  // namespace tendril::softgpu
