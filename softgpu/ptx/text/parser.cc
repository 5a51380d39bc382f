// SPDX-License-Identifier: Apache-2.0
// Module level, functions and declarations. Statements and operands are in parse_body.cc,
// initialisers in parse_data.cc.
#include "softgpu/ptx/text/parser.h"

#include <algorithm>
#include <array>

namespace tendril::softgpu {
namespace {

constexpr uint64_t kMaxVariableBytes = 1ull << 40;

struct TypeName {
  std::string_view name;
  Type type;
  uint8_t bytes;
};
constexpr TypeName kTypes[] = {
    {"pred", Type::kPred, 4},   {"b8", Type::kB8, 1},         {"b16", Type::kB16, 2},
    {"b32", Type::kB32, 4},     {"b64", Type::kB64, 8},       {"b128", Type::kB128, 16},
    {"u8", Type::kU8, 1},       {"u16", Type::kU16, 2},       {"u32", Type::kU32, 4},
    {"u64", Type::kU64, 8},     {"s8", Type::kS8, 1},         {"s16", Type::kS16, 2},
    {"s32", Type::kS32, 4},     {"s64", Type::kS64, 8},       {"f16", Type::kF16, 2},
    {"f16x2", Type::kF16x2, 4}, {"bf16", Type::kBF16, 2},     {"bf16x2", Type::kBF16x2, 4},
    {"tf32", Type::kTF32, 4},   {"f32", Type::kF32, 4},       {"f64", Type::kF64, 8},
    {"u16x2", Type::kU16x2, 4}, {"s16x2", Type::kS16x2, 4},   {"e4m3", Type::kE4M3, 1},
    {"e5m2", Type::kE5M2, 1},   {"e4m3x2", Type::kE4M3x2, 2}, {"e5m2x2", Type::kE5M2x2, 2},
};

uint64_t align_up(uint64_t v, uint64_t a) { return (v + a - 1) / a * a; }

}  // namespace

uint32_t type_bytes(Type t) {
  for (const TypeName& n : kTypes)
    if (n.type == t) return n.bytes;
  return 0;
}

Type type_from_name(std::string_view name) {
  for (const TypeName& n : kTypes)
    if (n.name == name) return n.type;
  return Type::kNone;
}

bool Parser::fail(const std::string& what) {
  if (error_.empty()) error_ = "line " + std::to_string(tok_.line) + ": " + what;
  return false;
}

bool Parser::take_punct(char c) {
  if (!is_punct(c)) return false;
  advance();
  return true;
}

bool Parser::expect(char c) {
  if (take_punct(c)) return true;
  std::string found(tok_.kind == Token::Kind::kEnd ? "end of file"
                                                   : std::string(tok_.text.substr(0, 40)));
  return fail(std::string("syntax error: expected '") + c + "', found '" + found + "'");
}

void Parser::skip_line(uint32_t line) {
  while (tok_.kind != Token::Kind::kEnd && tok_.line == line) advance();
}

bool Parser::skip_braces() {
  if (!expect('{')) return false;
  for (int depth = 1; depth > 0;) {
    if (tok_.kind == Token::Kind::kEnd) return fail("syntax error: '{' is never closed");
    if (is_punct('{')) ++depth;
    if (is_punct('}')) --depth;
    advance();
  }
  return true;
}

bool Parser::skip_to_semicolon() {
  while (tok_.kind != Token::Kind::kEnd && !is_punct(';')) advance();
  return expect(';');
}

bool Parser::parse() {
  advance();
  while (tok_.kind != Token::Kind::kEnd)
    if (!module_item()) return false;
  if (!m_.version) return fail("missing .version directive");
  if (!m_.target) return fail("missing .target directive");
  return true;
}

bool Parser::header_item(bool* handled) {
  *handled = true;
  if (is_directive(".version")) {
    advance();
    size_t dot = tok_.text.find('.');
    if (tok_.kind != Token::Kind::kFloat || dot == std::string_view::npos ||
        dot + 1 >= tok_.text.size())
      return fail("syntax error: .version needs a number like 7.0");
    m_.version = 0;
    for (char c : tok_.text.substr(0, dot))
      m_.version = std::min(m_.version * 10 + (c - '0'), 1000u);
    m_.version = m_.version * 10 + (tok_.text[dot + 1] - '0');
    advance();
    return true;
  }
  if (is_directive(".target")) {
    do {
      advance();
      if (tok_.kind != Token::Kind::kIdent)
        return fail("syntax error: .target needs a name like sm_70");
      if (tok_.text.substr(0, 3) == "sm_") {
        uint32_t sm = 0;
        for (char c : tok_.text.substr(3))
          if (c >= '0' && c <= '9') sm = std::min(sm * 10 + (c - '0'), 10000u);
        m_.target = sm;
      }
      advance();
    } while (is_punct(','));
    return true;
  }
  if (is_directive(".address_size")) {
    advance();
    if (tok_.kind != Token::Kind::kInt || (tok_.bits != 32 && tok_.bits != 64))
      return fail("syntax error: .address_size must be 32 or 64");
    m_.address_bytes = static_cast<uint32_t>(tok_.bits / 8);
    advance();
    return true;
  }
  *handled = false;
  return true;
}

bool Parser::module_item() {
  if (take_punct(';')) return true;
  uint32_t line = tok_.line;
  bool handled = false;
  if (!header_item(&handled)) return false;
  if (handled) return true;
  if (is_directive(".file") || is_directive(".loc") ||
      is_punct('@')) {  // '@' begins the DWARF lines of old compilers
    skip_line(line);
    return true;
  }
  if (is_directive(".section")) {
    while (tok_.kind != Token::Kind::kEnd && !is_punct('{')) advance();
    return skip_braces();
  }
  if (is_directive(".pragma") || is_directive(".alias")) return skip_to_semicolon();
  bool is_extern = false;
  while (is_directive(".visible") || is_directive(".extern") || is_directive(".weak") ||
         is_directive(".common") || is_directive(".internal")) {
    is_extern |= tok_.text == ".extern";
    advance();
  }
  if (is_directive(".entry") || is_directive(".func")) {
    bool entry = tok_.text == ".entry";
    advance();
    return function(entry, is_extern);
  }
  if (tok_.kind == Token::Kind::kDirective) return declare(nullptr, is_extern);
  return fail("syntax error: unexpected '" + std::string(tok_.text.substr(0, 40)) +
              "' at module level");
}

bool Parser::parameter_list(Function& f, std::vector<const Variable*>& out) {
  if (!expect('(')) return false;
  if (take_punct(')')) return true;
  uint64_t offset = 0;
  do {
    Declaration d;
    if (!declaration_words(d)) return false;
    if (d.type == Type::kNone && !d.opaque) return fail("syntax error: parameter without type");
    if (d.space != Space::kParam && (f.is_entry || d.space != Space::kReg || d.opaque))
      return fail("syntax error: parameter that is not .param");
    if (d.type == Type::kPred && d.space != Space::kReg)
      return fail("a predicate can only be passed in a register");
    Variable& v = m_.variables.emplace_back();
    v.name = tok_.text, v.line = tok_.line, v.space = d.space,
    v.type = d.opaque ? Type::kB64 : d.type, v.vec = d.vec;
    v.align = d.align ? d.align : type_bytes(v.type) * v.vec;
    v.bytes = static_cast<uint64_t>(type_bytes(v.type)) * v.vec;
    if (tok_.kind != Token::Kind::kIdent) return fail("syntax error: parameter without name");
    advance();
    std::vector<uint64_t> dims;
    if (!array_dimensions(v, dims)) return false;
    if (v.bytes > 32764) return fail("parameter is larger than 32764 bytes");
    v.is_kernel_param = f.is_entry;
    if (f.is_entry) {
      offset = align_up(offset, v.align);
      v.offset = static_cast<uint32_t>(offset);
      offset += v.bytes;
      if (offset > 65536) return fail("too many parameter bytes");
    } else if (v.space == Space::kReg) {
      v.reg_base = add_register(f, v.type, v.vec);
    } else if (!place(&f, v)) {
      return false;
    }
    scopes_.back().names[v.name] = {&v, v.reg_base};
    out.push_back(&v);
  } while (take_punct(','));
  return expect(')');
}

bool Parser::performance_directives(Function& f) {
  while (tok_.kind == Token::Kind::kDirective) {
    bool limit = tok_.text == ".maxntid" || tok_.text == ".reqntid";
    if (tok_.text == ".pragma") {
      if (!skip_to_semicolon()) return false;
      continue;
    }
    f.noreturn |= tok_.text == ".noreturn";
    uint64_t product = 1;
    advance();
    while (tok_.kind == Token::Kind::kInt) {
      product = std::min<uint64_t>(product * std::min<uint64_t>(tok_.bits, 1u << 20), 1u << 20);
      advance();
      if (!take_punct(',')) break;
    }
    if (limit) f.max_threads = static_cast<uint32_t>(product);
  }
  return true;
}

bool Parser::function(bool entry, bool is_extern) {
  scopes_.clear();
  scopes_.emplace_back();
  Function parsed;
  parsed.is_entry = entry, parsed.is_extern = is_extern, parsed.line = tok_.line;
  if (is_punct('(') && !parameter_list(parsed, parsed.returns)) return false;
  if (tok_.kind != Token::Kind::kIdent) return fail("syntax error: function without name");
  parsed.name = tok_.text;
  advance();
  if (is_punct('(') && !parameter_list(parsed, parsed.params)) return false;
  if (!performance_directives(parsed)) return false;
  bool defined = is_punct('{');
  auto [it, fresh] =
      m_.function_index.try_emplace(parsed.name, static_cast<uint32_t>(m_.functions.size()));
  if (fresh) m_.functions.emplace_back();
  Function& f = m_.functions[it->second];
  if (!fresh && f.has_body && defined)
    return fail("function '" + std::string(parsed.name) + "' is defined twice");
  parsed.index = it->second;
  if (!defined) {
    if (fresh) f = std::move(parsed);
    return expect(';');
  }
  f = std::move(parsed);
  f.has_body = true;
  shared_seen_.clear();
  functions_seen_.clear();
  f.scope_parent.push_back(~0u);
  return body(f);
}

bool Parser::declaration_words(Declaration& d) {
  for (; tok_.kind == Token::Kind::kDirective; advance()) {
    std::string_view w = tok_.text.substr(1);
    if (w == "reg")
      d.space = Space::kReg;
    else if (w == "local")
      d.space = Space::kLocal;
    else if (w == "shared")
      d.space =
          d.type == Type::kNone ? Space::kShared : d.space;  // after the type it qualifies .ptr
    else if (w == "global")
      d.space = d.type == Type::kNone ? Space::kGlobal : d.space;
    else if (w == "const")
      d.space = d.type == Type::kNone ? Space::kConst : d.space;
    else if (w == "param")
      d.space = Space::kParam;
    else if (w == "v2")
      d.vec = 2;
    else if (w == "v4")
      d.vec = 4;
    else if (w == "texref" || w == "samplerref" || w == "surfref" || w == "tex")
      d.opaque = true;
    else if (w == "ptr" || w == "managed" || w == "volatile" || w == "unified")
      continue;
    else if (w == "attribute") {
      do {
        advance();
        d.managed |= is_directive(".managed");
      } while (tok_.kind != Token::Kind::kEnd && !is_punct(')') && !is_punct(';'));
    } else if (w == "align") {
      advance();
      if (tok_.kind != Token::Kind::kInt || !tok_.bits || tok_.bits > 4096 ||
          (tok_.bits & (tok_.bits - 1)))
        return fail("bad .align");
      // After .ptr the alignment belongs to what it points to and says nothing about the parameter.
      if (d.type == Type::kNone || d.type == Type::kB8 || d.type == Type::kU8)
        d.align = static_cast<uint32_t>(tok_.bits);
    } else if (Type t = type_from_name(w); t != Type::kNone) {
      d.type = t;
    } else {
      return fail("unknown directive '" + std::string(tok_.text.substr(0, 40)) + "'");
    }
  }
  return true;
}

bool Parser::declare(Function* f, bool is_extern) {
  Declaration d;
  d.is_extern = is_extern;
  if (!declaration_words(d)) return false;
  if (d.type == Type::kNone && !d.opaque) return fail("syntax error: declaration without type");
  if (d.opaque) d.type = Type::kB64, d.space = Space::kGlobal;
  do {
    if (!declare_name(f, d)) return false;
  } while (take_punct(','));
  return expect(';');
}

bool Parser::array_dimensions(Variable& v, std::vector<uint64_t>& dims) {
  while (take_punct('[')) {
    uint64_t n = 0;
    v.is_array = true;
    if (!is_punct(']') && !const_expr(&n, 0, 0)) return false;
    if (!expect(']')) return false;
    if (dims.size() >= 8) return fail("too many array dimensions");
    if (n && v.bytes > kMaxVariableBytes / n) return fail("variable is too large");
    v.bytes *= n;
    dims.push_back(n);
  }
  return true;
}

bool Parser::declare_name(Function* f, const Declaration& d) {
  if (tok_.kind != Token::Kind::kIdent)
    return fail("syntax error: expected a name, found '" + std::string(tok_.text.substr(0, 40)) +
                "'");
  Variable& v = m_.variables.emplace_back();
  v.name = tok_.text, v.line = tok_.line, v.space = d.space, v.type = d.type, v.vec = d.vec,
  v.is_extern = d.is_extern;
  v.bytes = static_cast<uint64_t>(type_bytes(d.type)) * d.vec;
  v.align = std::max<uint32_t>(d.align ? d.align : static_cast<uint32_t>(v.bytes), 1);
  advance();
  if (d.space == Space::kReg) {
    if (!f) return fail("registers cannot be declared at module level");
    if (take_punct('<')) {
      uint64_t n = 0;
      if (!const_expr(&n, 9, 0) || !expect('>')) return false;
      v.reg_count = static_cast<uint32_t>(std::min<uint64_t>(n, 1u << 30));
      if (!v.reg_count) v.reg_count = 1;
    } else {
      v.reg_base = add_register(*f, d.type, d.vec);
    }
    (v.reg_count ? scopes_.back().groups : scopes_.back().names)[v.name] = {&v, v.reg_base};
    return true;
  }
  std::vector<uint64_t> dims;
  if (!array_dimensions(v, dims)) return false;
  bool module_data = v.space == Space::kGlobal || v.space == Space::kConst;
  if (take_punct('=')) {
    if (!module_data) return fail("only .global and .const variables can have an initialiser");
    if (!initialiser(v, dims)) return false;
  } else if (module_data && !v.is_extern) {
    v.global_index = static_cast<uint32_t>(m_.globals.size());
    GlobalInfo& g = m_.globals.emplace_back();
    g.name = v.name,
    g.space = v.space == Space::kConst ? GlobalInfo::Space::kConst : GlobalInfo::Space::kGlobal;
    g.size = v.bytes, g.align = v.align;
  }
  if (v.global_index < m_.globals.size() && v.space == Space::kGlobal)
    m_.globals[v.global_index].managed = d.managed;
  if (f)
    scopes_.back().names[v.name] = {&v, ~0u};
  else if (auto [it, fresh] = m_.symbols.try_emplace(v.name, &v); !fresh && !v.is_extern)
    it->second = &v;
  return place(f, v);
}

// Gives function-scope variables their place in the thread's local block or in the frame's
// parameter block.
bool Parser::place(Function* f, Variable& v) {
  if (!f || (v.space != Space::kLocal && v.space != Space::kParam)) return true;
  uint32_t& top = v.space == Space::kLocal ? f->local_bytes : f->param_bytes;
  uint64_t at = align_up(top, v.align);
  if (at + v.bytes > (512u << 10)) return fail("more than 512 KiB of thread-local variables");
  v.offset = static_cast<uint32_t>(at);
  top = static_cast<uint32_t>(at + v.bytes);
  return true;
}

uint32_t Parser::add_register(Function& f, Type t, uint32_t count) {
  uint32_t id = static_cast<uint32_t>(f.registers.size());
  for (uint32_t i = 0; i < count; ++i) f.registers.push_back({t});
  return id;
}

}  // namespace tendril::softgpu
