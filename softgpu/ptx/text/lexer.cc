// SPDX-License-Identifier: Apache-2.0
// See lexer.h. Numbers follow the PTX grammar: decimal, 0x, 0b, octal, an optional U, decimal
// floats, and the exact hexadecimal forms 0fXXXXXXXX and 0dXXXXXXXXXXXXXXXX.
#include "softgpu/ptx/text/lexer.h"

#include <cstdlib>
#include <cstring>

namespace tendril::softgpu {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_word(char c) { return is_alpha(c) || is_digit(c) || c == '_' || c == '$'; }
int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void Lexer::skip_blank() {
  while (pos_ < text_.size()) {
    char c = text_[pos_];
    if (c == '\n') {
      ++line_, ++pos_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
      ++pos_;
    } else if (c == '/' && pos_ + 1 < text_.size() && text_[pos_ + 1] == '/') {
      while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
    } else if (c == '/' && pos_ + 1 < text_.size() && text_[pos_ + 1] == '*') {
      pos_ += 2;
      while (pos_ + 1 < text_.size() && !(text_[pos_] == '*' && text_[pos_ + 1] == '/')) {
        if (text_[pos_] == '\n') ++line_;
        ++pos_;
      }
      pos_ = pos_ + 2 < text_.size() ? pos_ + 2 : text_.size();
    } else {
      return;
    }
  }
}

Token Lexer::decimal_float(Token t) {
  // strtod needs a terminated copy. No sensible literal is longer than this.
  char buffer[64];
  size_t start = pos_, n = 0;
  while (pos_ < text_.size() && n + 1 < sizeof buffer) {
    char c = text_[pos_];
    bool sign = (c == '+' || c == '-') && n > 0 && (buffer[n - 1] == 'e' || buffer[n - 1] == 'E');
    if (!is_digit(c) && c != '.' && c != 'e' && c != 'E' && !sign) break;
    buffer[n++] = c;
    ++pos_;
  }
  buffer[n] = 0;
  double v = std::strtod(buffer, nullptr);
  std::memcpy(&t.bits, &v, 8);
  t.kind = Token::Kind::kFloat;
  t.text = text_.substr(start, pos_ - start);
  return t;
}

Token Lexer::number(Token t) {
  size_t start = pos_;
  auto at = [&](size_t i) { return i < text_.size() ? text_[i] : '\0'; };
  char second = at(pos_) == '0' ? at(pos_ + 1) : '\0';
  if (second == 'f' || second == 'F' || second == 'd' || second == 'D') {
    unsigned digits = second == 'f' || second == 'F' ? 8 : 16;
    uint64_t v = 0;
    pos_ += 2;
    unsigned n = 0;
    for (; n < digits && hex_value(at(pos_)) >= 0; ++n, ++pos_) v = v * 16 + hex_value(at(pos_));
    t.kind = n == digits ? Token::Kind::kFloat : Token::Kind::kPunct;
    t.text = text_.substr(start, pos_ - start);
    t.bits = v;
    if (digits == 8) {
      float f;
      t.raw = static_cast<uint32_t>(v);
      std::memcpy(&f, &t.raw, 4);
      double d = f;
      std::memcpy(&t.bits, &d, 8);
      t.is_single = true;
    }
    return t;
  }
  uint64_t v = 0;
  if (second == 'x' || second == 'X') {
    for (pos_ += 2; hex_value(at(pos_)) >= 0; ++pos_) v = v * 16 + hex_value(at(pos_));
  } else if ((second == 'b' || second == 'B') && (at(pos_ + 2) == '0' || at(pos_ + 2) == '1')) {
    for (pos_ += 2; at(pos_) == '0' || at(pos_) == '1'; ++pos_) v = v * 2 + (at(pos_) - '0');
  } else {
    size_t p = pos_;
    while (is_digit(at(p))) ++p;
    if (at(p) == '.' ? is_digit(at(p + 1)) || !is_alpha(at(p + 1)) : at(p) == 'e' || at(p) == 'E')
      return decimal_float(t);
    unsigned base = second >= '0' && second <= '7' ? 8 : 10;
    for (; is_digit(at(pos_)); ++pos_) v = v * base + (at(pos_) - '0');
  }
  if (at(pos_) == 'U' || at(pos_) == 'u') ++pos_;
  t.kind = Token::Kind::kInt;
  t.bits = v;
  t.text = text_.substr(start, pos_ - start);
  return t;
}

Token Lexer::next() {
  skip_blank();
  Token t;
  t.line = line_;
  if (pos_ >= text_.size()) return t;
  size_t start = pos_;
  char c = text_[pos_];
  if (is_digit(c)) return number(t);
  bool next_word = pos_ + 1 < text_.size() && is_word(text_[pos_ + 1]);
  if (is_alpha(c) || c == '_' || c == '$' ||
      ((c == '%' || c == '.') && next_word && !(c == '.' && is_digit(text_[pos_ + 1])))) {
    ++pos_;
    while (pos_ < text_.size() && is_word(text_[pos_])) ++pos_;
    t.kind = c == '.' ? Token::Kind::kDirective : Token::Kind::kIdent;
    t.text = text_.substr(start, pos_ - start);
    return t;
  }
  if (c == '.' && next_word) return decimal_float(t);
  if (c == '"') {
    for (++pos_; pos_ < text_.size() && text_[pos_] != '"' && text_[pos_] != '\n'; ++pos_) {
    }
    t.kind = Token::Kind::kString;
    t.text = text_.substr(start + 1, pos_ - start - 1);
    if (pos_ < text_.size() && text_[pos_] == '"') ++pos_;
    return t;
  }
  ++pos_;
  t.kind = Token::Kind::kPunct;
  t.punct = c;
  t.text = text_.substr(start, 1);
  return t;
}

std::string_view Lexer::extend_opcode(const Token& head) {
  size_t start = static_cast<size_t>(head.text.data() - text_.data());
  while (pos_ < text_.size() &&
         (is_word(text_[pos_]) || text_[pos_] == '.' || text_[pos_] == ':')) {
    if (text_[pos_] == ':' && !(pos_ + 1 < text_.size() && text_[pos_ + 1] == ':') &&
        text_[pos_ - 1] != ':')
      break;
    ++pos_;
  }
  return text_.substr(start, pos_ - start);
}

}  // namespace tendril::softgpu
