// SPDX-License-Identifier: Apache-2.0
// Function bodies of parser.h: scopes, labels, instructions and operands.
#include <algorithm>
#include <cstring>

#include "softgpu/ptx/text/parser.h"

namespace tendril::softgpu {
namespace {

constexpr size_t kMaxScopeDepth = 200;
constexpr int kMaxOperandDepth = 8;

struct SpecialName {
  std::string_view name;
  uint8_t first;
  bool has_member;
};
constexpr SpecialName kSpecials[] = {
    {"%tid", kTidX, true},
    {"%ntid", kNtidX, true},
    {"%ctaid", kCtaidX, true},
    {"%nctaid", kNctaidX, true},
    {"%laneid", kLaneid, false},
    {"%warpid", kWarpid, false},
    {"%nwarpid", kNwarpid, false},
    {"%smid", kSmid, false},
    {"%nsmid", kNsmid, false},
    {"%gridid", kGridid, false},
    {"%clock", kClock, false},
    {"%clock_hi", kClockHi, false},
    {"%clock64", kClock64, false},
    {"%globaltimer", kGlobaltimer, false},
    {"%globaltimer_lo", kGlobaltimerLo, false},
    {"%globaltimer_hi", kGlobaltimerHi, false},
    {"%lanemask_eq", kLanemaskEq, false},
    {"%lanemask_le", kLanemaskLe, false},
    {"%lanemask_lt", kLanemaskLt, false},
    {"%lanemask_ge", kLanemaskGe, false},
    {"%lanemask_gt", kLanemaskGt, false},
    {"%dynamic_smem_size", kDynamicSmem, false},
    {"%total_smem_size", kTotalSmem, false},
    {"%aggr_smem_size", kTotalSmem, false},
    {"%reserved_smem_offset_begin", kReservedSmemBegin, false},
    {"%reserved_smem_offset_end", kReservedSmemBegin, false},
    {"%cluster_ctarank", kZeroSpecial, false},
    {"%cluster_nctarank", kOneSpecial, false},
    {"WARP_SZ", kWarpSize, false},
};

bool all_digits(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

int special_register(std::string_view name, std::string_view member) {
  for (const SpecialName& s : kSpecials) {
    if (s.name != name) continue;
    if (!s.has_member) return member.empty() ? s.first : -1;
    size_t k =
        member.size() == 1 ? std::string_view("xyzw").find(member[0]) : std::string_view::npos;
    return k == std::string_view::npos ? -1 : static_cast<int>(s.first + k);
  }
  // A launch without cluster dimensions has clusters of one block.
  if (name == "%cluster_ctaid" || name == "%clusterid") return kZeroSpecial;
  if (name == "%cluster_nctaid" || name == "%nclusterid") return kOneSpecial;
  if (name.substr(0, 7) == "%envreg" && all_digits(name.substr(7)) && name.size() <= 9) {
    int n = name.size() == 8 ? name[7] - '0' : (name[7] - '0') * 10 + name[8] - '0';
    return n < 32 ? kEnvreg0 + n : -1;
  }
  if (name.size() == 4 && name.substr(0, 3) == "%pm" && name[3] >= '0' && name[3] <= '7')
    return kPm0 + name[3] - '0';
  return -1;
}

bool Parser::body(Function& f) {
  scopes_.back().id = 0;
  advance();  // '{'
  while (true) {
    if (tok_.kind == Token::Kind::kEnd) return fail("syntax error: function body is never closed");
    if (take_punct('}')) {
      if (scopes_.size() == 1) return true;
      scopes_.pop_back();
    } else if (take_punct('{')) {
      if (scopes_.size() >= kMaxScopeDepth) return fail("scopes are nested too deeply");
      uint32_t id = static_cast<uint32_t>(f.scope_parent.size());
      f.scope_parent.push_back(scopes_.back().id);
      scopes_.emplace_back().id = id;
    } else if (!statement(f)) {
      return false;
    }
  }
}

bool Parser::directive_statement(Function& f) {
  if (is_directive(".loc") || is_directive(".file")) {
    skip_line(tok_.line);
    return true;
  }
  if (is_directive(".pragma") || is_directive(".callprototype") || is_directive(".calltargets"))
    return skip_to_semicolon();
  if (is_directive(".section")) {
    while (tok_.kind != Token::Kind::kEnd && !is_punct('{')) advance();
    return skip_braces();
  }
  bool is_extern = false;
  while (is_directive(".extern") || is_directive(".visible")) {
    is_extern |= is_directive(".extern");
    advance();
  }
  return declare(&f, is_extern);
}

bool Parser::statement(Function& f) {
  if (take_punct(';')) return true;
  if (tok_.kind == Token::Kind::kDirective) return directive_statement(f);
  if (is_punct('@')) {
    advance();
    if (is_punct('@')) {  // '@@DWARF' line
      skip_line(tok_.line);
      return true;
    }
    bool negated = take_punct('!');
    Operand guard;
    if (tok_.kind != Token::Kind::kIdent)
      return fail("syntax error: expected a predicate after '@'");
    if (!resolve(f, tok_.text, guard)) return false;
    if (guard.kind != Operand::Kind::kReg || f.registers[guard.id].type != Type::kPred)
      return fail("'" + std::string(tok_.text.substr(0, 40)) + "' is not a predicate register");
    advance();
    if (tok_.kind != Token::Kind::kIdent) return fail("syntax error: expected an instruction");
    if (!instruction(f)) return false;
    f.code.back().pred = guard.id, f.code.back().pred_negated = negated;
    return true;
  }
  if (tok_.kind != Token::Kind::kIdent)
    return fail("syntax error: unexpected '" + std::string(tok_.text.substr(0, 40)) + "'");
  // A label needs a look at the next token, and an opcode must not be split at its dots. So the
  // place is remembered.
  Token head = tok_;
  size_t pos = lex_.position();
  uint32_t line = lex_.line();
  advance();
  if (is_punct(':')) {
    advance();
    std::string key = std::to_string(scopes_.back().id) + ":" + std::string(head.text);
    if (is_directive(".branchtargets")) {
      BranchTable& table = f.tables[key];
      do {
        advance();
        if (tok_.kind != Token::Kind::kIdent) return fail("syntax error: expected a label");
        table.labels.push_back(tok_.text);
        advance();
      } while (is_punct(','));
      return expect(';');
    }
    if (is_directive(".callprototype") || is_directive(".calltargets")) return skip_to_semicolon();
    if (!f.labels.try_emplace(key, static_cast<uint32_t>(f.code.size())).second)
      return fail("label '" + std::string(head.text.substr(0, 60)) + "' is defined twice");
    return true;
  }
  lex_.seek(pos, line);
  tok_ = head;
  return instruction(f);
}

bool Parser::instruction(Function& f) {
  Instruction i;
  i.line = tok_.line;
  i.scope = scopes_.back().id;
  i.opcode = lex_.extend_opcode(tok_);
  if (i.opcode.size() > 120) return fail("opcode is too long");
  i.first = static_cast<uint32_t>(f.operands.size());
  advance();
  if (!is_punct(';') && !operand_list(f, i.opcode)) return false;
  i.count = static_cast<uint32_t>(f.operands.size()) - i.first;
  f.code.push_back(i);
  return expect(';');
}

bool Parser::operand_list(Function& f, std::string_view opcode) {
  bool call = opcode.substr(0, 4) == "call";
  do {
    Operand o;
    if (!operand(f, o, 0, call)) return false;
    f.operands.push_back(o);
  } while (take_punct(','));
  return true;
}

bool Parser::group_operand(Function& f, Operand& o, char close, int depth, bool call) {
  advance();
  std::vector<Operand> list;
  if (!is_punct(close)) {
    do {
      Operand e;
      if (!operand(f, e, depth + 1, call)) return false;
      list.push_back(e);
    } while (take_punct(','));
  }
  o.kind = Operand::Kind::kVector;
  o.id = static_cast<uint32_t>(f.elements.size());
  o.count = static_cast<uint32_t>(list.size());
  f.elements.insert(f.elements.end(), list.begin(), list.end());
  return expect(close);
}

bool Parser::operand(Function& f, Operand& o, int depth, bool call) {
  if (depth > kMaxOperandDepth) return fail("operands are nested too deeply");
  if (is_punct('[')) return address_operand(f, o, depth);
  if (is_punct('{')) return group_operand(f, o, '}', depth, call);
  if (is_punct('(') && call) return group_operand(f, o, ')', depth, call);
  if (take_punct('!')) {
    if (!operand(f, o, depth + 1, call)) return false;
    o.negated = !o.negated;
    return true;
  }
  if (tok_.kind == Token::Kind::kIdent) return name_operand(f, o);
  if (is_punct('-')) {
    const size_t pos = lex_.position();
    const uint32_t line = lex_.line();
    const Token sign = tok_;
    advance();
    if (tok_.kind == Token::Kind::kIdent && find_symbol(f, tok_.text)) {
      o.minus = true;
      return name_operand(f, o);
    }
    lex_.seek(pos, line), tok_ = sign;
  }
  return number_operand(o);
}

bool Parser::number_operand(Operand& o) {
  bool minus = false;
  if (is_punct('-')) {
    size_t pos = lex_.position();
    uint32_t line = lex_.line();
    Token sign = tok_;
    advance();
    minus = tok_.kind == Token::Kind::kFloat;
    if (!minus) lex_.seek(pos, line), tok_ = sign;
  }
  if (tok_.kind == Token::Kind::kFloat) {
    o.kind = Operand::Kind::kFloat;
    o.value = tok_.bits ^ (minus ? 1ull << 63 : 0);
    o.count = tok_.is_single;
    o.pred_id = tok_.is_single ? tok_.raw ^ (minus ? 1u << 31 : 0)
                               : ~0u;  // exact bits: a double would lose NaN payloads
    advance();
    return true;
  }
  o.kind = Operand::Kind::kInt;
  return const_expr(&o.value, 0, 0);
}

bool Parser::address_operand(Function& f, Operand& o, int depth) {
  advance();
  if (!operand(f, o, depth + 1, false)) return false;
  std::vector<Operand> more;  // textures: [image, {coordinates}]
  while (take_punct(',')) {
    more.emplace_back();
    if (more.size() > 4 || !operand(f, more.back(), depth + 1, false)) return false;
  }
  o.inside = static_cast<uint32_t>(f.elements.size());
  o.inside_count = static_cast<uint32_t>(more.size());
  f.elements.insert(f.elements.end(), more.begin(), more.end());
  if (o.kind == Operand::Kind::kInt) o.offset = static_cast<int64_t>(o.value);
  o.address = true;
  return expect(']');
}

bool Parser::symbol_suffix(Operand& o) {
  while (is_punct('+') || is_punct('-') || is_punct('[')) {
    char c = tok_.punct;
    uint64_t n = 0;
    advance();
    if (!const_expr(&n, 9, 0)) return false;
    if (c == '[') {
      if (!expect(']')) return false;
      if (o.var) n *= type_bytes(o.var->type) * o.var->vec;
    }
    o.offset = static_cast<int64_t>(static_cast<uint64_t>(o.offset) + (c == '-' ? 0 - n : n));
  }
  return true;
}

bool Parser::name_operand(Function& f, Operand& o) {
  std::string_view name = tok_.text;
  if (name == "_") {
    o.kind = Operand::Kind::kSink;
    advance();
  } else {
    if (!resolve(f, name, o)) return false;
  }
  if (o.kind != Operand::Kind::kSink && tok_.text == name && tok_.kind == Token::Kind::kIdent)
    advance();
  if (o.kind == Operand::Kind::kReg && tok_.kind == Token::Kind::kDirective) {
    o.selector = tok_.text.substr(1);
    advance();
  }
  if (o.kind == Operand::Kind::kReg || o.kind == Operand::Kind::kSink) {
    if (take_punct('|')) {
      Operand second;
      if (tok_.kind != Token::Kind::kIdent || tok_.text == "_") {
        advance();
        return true;
      }
      if (!resolve(f, tok_.text, second)) return false;
      if (second.kind != Operand::Kind::kReg) return fail("expected a register after '|'");
      o.pred_id = second.id;
      advance();
      return true;
    }
  }
  if (!symbol_suffix(o)) return false;
  note_use(f, o);
  return true;
}

Parser::Symbol* Parser::find_symbol(Function& f, std::string_view name) {
  for (size_t i = scopes_.size(); i-- > 0;)
    if (auto it = scopes_[i].names.find(name); it != scopes_[i].names.end()) return &it->second;
  // %r<100> declares %r0 to %r99. A register comes to life at its first use, so a huge count costs
  // nothing.
  size_t stem = name.size();
  while (stem > 1 && name[stem - 1] >= '0' && name[stem - 1] <= '9' && name.size() - stem < 9) {
    --stem;
    bool canonical = name[stem] != '0' || stem + 1 == name.size();
    for (size_t i = scopes_.size(); canonical && i-- > 0;) {
      auto it = scopes_[i].groups.find(name.substr(0, stem));
      if (it == scopes_[i].groups.end()) continue;
      uint32_t n = 0;
      for (char c : name.substr(stem)) n = n * 10 + (c - '0');
      if (n >= it->second.var->reg_count) continue;
      Variable* v = it->second.var;
      Symbol s{v, add_register(f, v->type, v->vec)};
      return &(scopes_[i].names[name] = s);
    }
  }
  return nullptr;
}

bool Parser::resolve(Function& f, std::string_view name, Operand& o) {
  o.name = name;
  if (Symbol* s = find_symbol(f, name)) {
    o.var = s->var;
    if (s->var->space != Space::kReg) {
      o.kind = Operand::Kind::kVar;
      return true;
    }
    o.kind = Operand::Kind::kReg;
    o.id = s->reg;
    o.var = nullptr;
    if (s->var->vec > 1) {
      size_t pos = lex_.position();
      uint32_t line = lex_.line();
      Token t = lex_.next();
      size_t k = t.kind == Token::Kind::kDirective && t.text.size() == 2
                     ? std::string_view("xyzwrgba").find(t.text[1])
                     : std::string_view::npos;
      if (k != std::string_view::npos) {
        o.id += static_cast<uint32_t>(k & 3) % s->var->vec;
      } else {
        lex_.seek(pos, line);
        o.kind = Operand::Kind::kVector;
        o.count = s->var->vec;
        o.id = static_cast<uint32_t>(f.elements.size());
        for (uint32_t i = 0; i < o.count; ++i) {
          Operand e;
          e.kind = Operand::Kind::kReg, e.id = s->reg + i;
          f.elements.push_back(e);
        }
      }
    }
    return true;
  }
  if (name[0] == '%' || name == "WARP_SZ") {
    size_t pos = lex_.position();
    uint32_t line = lex_.line();
    Token t = lex_.next();
    std::string_view member =
        t.kind == Token::Kind::kDirective ? t.text.substr(1) : std::string_view();
    if (member.empty()) lex_.seek(pos, line);
    int s = special_register(name, member);
    if (s < 0) return fail("unknown symbol '" + std::string(name.substr(0, 60)) + "'");
    o.kind = Operand::Kind::kSpecial;
    o.special = static_cast<uint8_t>(s);
    return true;
  }
  if (auto it = m_.symbols.find(name); it != m_.symbols.end()) {
    o.kind = Operand::Kind::kVar;
    o.var = it->second;
  } else if (auto fn = m_.function_index.find(name); fn != m_.function_index.end()) {
    o.kind = Operand::Kind::kFunction;
    o.id = fn->second;
  } else {
    o.kind = Operand::Kind::kName;
  }
  return true;
}

void Parser::note_use(Function& f, const Operand& o) {
  if (o.kind == Operand::Kind::kVar && o.var->space == Space::kShared &&
      shared_seen_.insert(o.var).second)
    f.shared_used.push_back(o.var);
  if (o.kind == Operand::Kind::kFunction && functions_seen_.insert(o.id).second)
    f.functions_used.push_back(o.id);
}

}  // namespace tendril::softgpu
