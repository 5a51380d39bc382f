// SPDX-License-Identifier: Apache-2.0
// Splits PTX text into tokens for parser.cc. Works on any bytes: an unexpected byte becomes a
// one-character token, which the parser refuses. Never allocates.
#pragma once

#include <cstdint>
#include <string_view>

namespace tendril::softgpu {

// In a namespace of its own: the driver half has a class of this name, and both are linked into one
// library.
inline namespace ptx {
struct Token {
  enum class Kind : uint8_t { kEnd, kIdent, kDirective, kInt, kFloat, kString, kPunct };
  Kind kind = Kind::kEnd;
  bool is_single =
      false;  // 0f form: `bits` is the exact value as a double's bits, `raw` the 32 bits
  char punct = 0;
  uint32_t line = 0;
  uint32_t raw = 0;
  uint64_t bits = 0;  // integer value, or bits of a double
  std::string_view text;
};
}  // namespace ptx

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  Token next();
  // The rest of an opcode after its first identifier: every ".suffix" that follows directly.
  // Returns the whole opcode.
  std::string_view extend_opcode(const Token& head);
  size_t position() const { return pos_; }
  void seek(size_t pos, uint32_t line) { pos_ = pos, line_ = line; }
  uint32_t line() const { return line_; }

 private:
  void skip_blank();
  Token number(Token t);
  Token decimal_float(Token t);

  std::string_view text_;
  size_t pos_ = 0;
  uint32_t line_ = 1;
};

}  // namespace tendril::softgpu
