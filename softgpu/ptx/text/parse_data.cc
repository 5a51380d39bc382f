// SPDX-License-Identifier: Apache-2.0
// Initialisers and constant expressions of parser.h.
#include <algorithm>
#include <cstring>

#include "softgpu/ptx/handlers/numeric.h"
#include "softgpu/ptx/text/parser.h"

namespace tendril::softgpu {
namespace {

constexpr int kMaxExprDepth = 48;
// An initialised variable is stored in full. Its size must stay in proportion to what a real module
// carries.
constexpr uint64_t kMaxInitialisedBytes = 64u << 20;

}  // namespace

uint64_t literal_bits(const Operand& o, Type t) {
  if (o.kind != Operand::Kind::kFloat) return o.value;
  double v;
  std::memcpy(&v, &o.value, 8);
  switch (t) {
    case Type::kF64:
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
      return o.value;
    case Type::kF16:
    case Type::kB16:
    case Type::kU16:
      return narrow_double(v, 10, 5, kRoundNearest);
    case Type::kF16x2:
      return narrow_double(v, 10, 5, kRoundNearest) * 0x10001u;
    case Type::kBF16:
      return narrow_double(v, 7, 8, kRoundNearest);
    case Type::kBF16x2:
      return narrow_double(v, 7, 8, kRoundNearest) * 0x10001u;
    default:
      return o.count ? o.pred_id : narrow_double(v, 23, 8, kRoundNearest);
  }
}

bool Parser::initialiser(Variable& v, std::vector<uint64_t>& dims) {
  uint64_t element = static_cast<uint64_t>(type_bytes(v.type)) * v.vec;
  size_t pos = lex_.position();
  if (v.is_array && !dims.empty() && v.bytes == 0) {  // `x[] = {...}`: count the elements first
    uint64_t n = 1;
    for (size_t i = pos; i < m_.text.size() && m_.text[i] != '}' && m_.text[i] != ';'; ++i)
      n += m_.text[i] == ',';
    dims[0] = n;
    v.bytes = element;
    for (uint64_t d : dims) {
      if (d && v.bytes > kMaxInitialisedBytes / d) return fail("initialised variable is too large");
      v.bytes *= d;
    }
  }
  constant_bytes_ += v.bytes;
  if (v.bytes > kMaxInitialisedBytes || constant_bytes_ > 4 * kMaxInitialisedBytes)
    return fail("initialised variable is too large");
  v.global_index = static_cast<uint32_t>(m_.globals.size());
  GlobalInfo g;
  g.name = v.name,
  g.space = v.space == Space::kConst ? GlobalInfo::Space::kConst : GlobalInfo::Space::kGlobal;
  g.size = v.bytes, g.align = v.align;
  g.bytes.assign(v.bytes, 0);
  uint64_t at = 0;
  if (is_punct('{')) {
    if (!initial_list(v, g, dims, 0, at)) return false;
  } else if (!initial_value(v, g, 0)) {
    return false;
  }
  m_.globals.push_back(std::move(g));
  return true;
}

bool Parser::initial_list(Variable& v, GlobalInfo& g, const std::vector<uint64_t>& dims,
                          size_t level, uint64_t& at) {
  if (level > dims.size() + 1) return fail("initialiser is nested too deeply");
  uint64_t element = type_bytes(v.type);
  uint64_t stride = element * v.vec;
  for (size_t i = level + 1; i < dims.size(); ++i) stride *= dims[i];
  advance();  // '{'
  uint64_t start = at;
  bool nested = false;
  while (!is_punct('}')) {
    if (is_punct('{')) {
      uint64_t inner = start;
      nested = true;
      if (!initial_list(v, g, dims, level + 1, inner)) return false;
      start += stride;
      at = start;
    } else {
      if (at + element > g.bytes.size())
        return fail("too many initialisers for '" + std::string(v.name) + "'");
      if (!initial_value(v, g, at)) return false;
      at += element;
    }
    if (!take_punct(',')) break;
  }
  (void)nested;
  return expect('}');
}

bool Parser::initial_symbol(Variable& v, GlobalInfo& g, uint64_t at) {
  bool generic = tok_.text == "generic";
  if (generic) {
    advance();
    if (!expect('(')) return false;
  }
  std::string_view name = tok_.text;
  if (tok_.kind != Token::Kind::kIdent) return fail("syntax error in initialiser");
  advance();
  if (generic && !expect(')')) return false;
  int64_t addend = 0;
  while (is_punct('+') || is_punct('-')) {
    bool minus = is_punct('-');
    uint64_t n = 0;
    advance();
    if (!const_expr(&n, 9, 0)) return false;
    addend = static_cast<int64_t>(static_cast<uint64_t>(addend) + (minus ? 0 - n : n));
  }
  if (type_bytes(v.type) != 8)
    return fail("the address of '" + std::string(name) + "' needs a 64-bit initialiser");
  if (auto fn = m_.function_index.find(name); fn != m_.function_index.end()) {
    uint64_t value = kFunctionWindow + 16ull * fn->second;
    m_.function_address_in_data = true;
    std::memcpy(&g.bytes[at], &value, 8);
    return true;
  }
  auto it = m_.symbols.find(name);
  if (it == m_.symbols.end())
    return fail("unknown symbol '" + std::string(name.substr(0, 60)) + "' in initialiser");
  g.relocations.push_back({at, std::string(name), addend});
  return true;
}

bool Parser::initial_value(Variable& v, GlobalInfo& g, uint64_t at) {
  uint32_t size = type_bytes(v.type);
  if (at + size > g.bytes.size())
    return fail("too many initialisers for '" + std::string(v.name) + "'");
  if (tok_.kind == Token::Kind::kIdent) return initial_symbol(v, g, at);
  Operand o;
  if (!number_operand(o)) return false;
  uint64_t bits = o.value;
  if (o.kind == Operand::Kind::kFloat || is_float(v.type)) {
    bits = literal_bits(o, v.type);
  }
  std::memcpy(&g.bytes[at], &bits, std::min<uint32_t>(size, 8));
  return true;
}

// Precedence climbing. Values have 64 bits and wrap around. Division and shifts cannot trap.
bool Parser::const_expr(uint64_t* out, int min_precedence, int depth) {
  if (depth > kMaxExprDepth) return fail("constant expression is nested too deeply");
  if (!const_primary(out, depth + 1)) return false;
  while (tok_.kind == Token::Kind::kPunct) {
    char c = tok_.punct;
    int p = c == '*' || c == '/' || c == '%' ? 10
            : c == '+' || c == '-'           ? 9
            : c == '<' || c == '>'           ? 8
            : c == '&'                       ? 5
            : c == '^'                       ? 4
            : c == '|'                       ? 3
                                             : -1;
    if (p < min_precedence || p < 0) return true;
    if (min_precedence == 9 && p == 9)
      return true;  // in an address the caller handles each + and -
    advance();
    if (c == '<' || c == '>') {
      if (!is_punct(c)) return fail("only << and >> are known in constant expressions");
      advance();
    }
    uint64_t r = 0;
    if (!const_expr(&r, p + 1, depth + 1)) return false;
    int64_t a = static_cast<int64_t>(*out), b = static_cast<int64_t>(r);
    switch (c) {
      case '*':
        *out *= r;
        break;
      case '/':
        *out = b == 0 ? 0 : b == -1 ? 0 - *out : static_cast<uint64_t>(a / b);
        break;
      case '%':
        *out = b == 0 || b == -1 ? 0 : static_cast<uint64_t>(a % b);
        break;
      case '+':
        *out += r;
        break;
      case '-':
        *out -= r;
        break;
      case '<':
        *out = r > 63 ? 0 : *out << r;
        break;
      case '>':
        *out = r > 63 ? 0 : *out >> r;
        break;
      case '&':
        *out &= r;
        break;
      case '^':
        *out ^= r;
        break;
      default:
        *out |= r;
        break;
    }
  }
  return true;
}

bool Parser::const_primary(uint64_t* out, int depth) {
  if (depth > kMaxExprDepth) return fail("constant expression is nested too deeply");
  if (take_punct('-')) {
    if (!const_primary(out, depth + 1)) return false;
    *out = 0 - *out;
    return true;
  }
  if (take_punct('+')) return const_primary(out, depth + 1);
  if (take_punct('~')) {
    if (!const_primary(out, depth + 1)) return false;
    *out = ~*out;
    return true;
  }
  if (take_punct('!')) {
    if (!const_primary(out, depth + 1)) return false;
    *out = *out == 0;
    return true;
  }
  if (take_punct('(')) {
    if (is_directive(".s64") || is_directive(".u64")) {
      advance();
      return expect(')') && const_primary(out, depth + 1);
    }
    return const_expr(out, 0, depth + 1) && expect(')');
  }
  if (tok_.kind == Token::Kind::kIdent && tok_.text == "WARP_SZ") {
    *out = 32;
    advance();
    return true;
  }
  if (tok_.kind != Token::Kind::kInt)
    return fail("syntax error: expected a number, found '" + std::string(tok_.text.substr(0, 40)) +
                "'");
  *out = tok_.bits;
  advance();
  return true;
}

}  // namespace tendril::softgpu
