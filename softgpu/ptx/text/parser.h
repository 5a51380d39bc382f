// SPDX-License-Identifier: Apache-2.0
// Recursive-descent parser from PTX text to ast.h. program.cc calls it at module load, on the
// loading thread. It resolves registers, variables and special registers. Labels and later
// functions stay names until decoding. The text comes from the network, so every recursion has a
// depth limit and the text's length bounds every allocation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "softgpu/ptx/text/ast.h"
#include "softgpu/ptx/text/lexer.h"

namespace tendril::softgpu {

int special_register(std::string_view name, std::string_view member);  // -1 when unknown

class Parser {
 public:
  explicit Parser(Module& module) : m_(module), lex_(module.text) {}
  bool parse();
  const std::string& error() const { return error_; }

 private:
  struct Symbol {
    Variable* var = nullptr;
    uint32_t reg = ~0u;
  };
  struct Scope {
    std::unordered_map<std::string_view, Symbol> names, groups;  // groups: %r<N>
    uint32_t id = 0;
  };
  struct Declaration {  // the words before a name
    Space space = Space::kReg;
    Type type = Type::kNone;
    uint8_t vec = 1;
    uint32_t align = 0;
    bool is_extern = false, opaque = false, managed = false;
  };

  bool fail(const std::string& what);
  void advance() { tok_ = lex_.next(); }
  bool is_punct(char c) const { return tok_.kind == Token::Kind::kPunct && tok_.punct == c; }
  bool is_directive(std::string_view d) const {
    return tok_.kind == Token::Kind::kDirective && tok_.text == d;
  }
  bool take_punct(char c);
  bool expect(char c);
  void skip_line(uint32_t line);
  bool skip_braces();
  bool skip_to_semicolon();

  bool module_item();
  bool header_item(bool* handled);
  bool function(bool entry, bool is_extern);
  bool parameter_list(Function& f, std::vector<const Variable*>& out);
  bool performance_directives(Function& f);
  bool body(Function& f);
  bool statement(Function& f);
  bool directive_statement(Function& f);
  bool declare(Function* f, bool is_extern);
  bool declaration_words(Declaration& d);
  bool declare_name(Function* f, const Declaration& d);
  bool array_dimensions(Variable& v, std::vector<uint64_t>& dims);
  bool place(Function* f, Variable& v);
  bool initialiser(Variable& v, std::vector<uint64_t>& dims);
  bool initial_list(Variable& v, GlobalInfo& g, const std::vector<uint64_t>& dims, size_t level,
                    uint64_t& at);
  bool initial_value(Variable& v, GlobalInfo& g, uint64_t at);
  bool initial_symbol(Variable& v, GlobalInfo& g, uint64_t at);
  bool const_expr(uint64_t* out, int min_precedence, int depth);
  bool const_primary(uint64_t* out, int depth);

  bool instruction(Function& f);
  bool operand_list(Function& f, std::string_view opcode);
  bool operand(Function& f, Operand& o, int depth, bool call);
  bool address_operand(Function& f, Operand& o, int depth);
  bool group_operand(Function& f, Operand& o, char close, int depth, bool call);
  bool name_operand(Function& f, Operand& o);
  bool symbol_suffix(Operand& o);
  bool number_operand(Operand& o);
  bool resolve(Function& f, std::string_view name, Operand& o);
  Symbol* find_symbol(Function& f, std::string_view name);
  uint32_t add_register(Function& f, Type t, uint32_t count);
  void note_use(Function& f, const Operand& o);

  Module& m_;
  Lexer lex_;
  Token tok_;
  std::string error_;
  std::vector<Scope> scopes_;
  std::unordered_set<const Variable*> shared_seen_;
  std::unordered_set<uint32_t> functions_seen_;
  uint64_t constant_bytes_ = 0;
};

}  // namespace tendril::softgpu
