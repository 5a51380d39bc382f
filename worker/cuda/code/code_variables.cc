// SPDX-License-Identifier: Apache-2.0
// See code_variables.h. Of PTX only declarations at module scope are read: words, brackets, braces.
#include "worker/cuda/code/code_variables.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "api/cuda/code_image.h"
#include "worker/cuda/code/packed_code.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 62;  // sums saturate at this; no GPU has so much

uint64_t sum(uint64_t a, uint64_t b) {
  return a > kBytesMax - std::min(b, kBytesMax) ? kBytesMax : a + b;
}

uint64_t product(uint64_t a, uint64_t b) { return b != 0 && a > kBytesMax / b ? kBytesMax : a * b; }

// The next word, number or single character; empty at the end.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  std::string_view next() {
    skip_blanks();
    if (at_ == text_.size()) return {};
    const size_t begin = at_;
    if (text_[at_] == '"') {
      const size_t end = text_.find('"', at_ + 1);
      at_ = end == std::string_view::npos ? text_.size() : end + 1;
    } else if (!is_word(text_[at_])) {
      ++at_;
    } else {
      while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

 private:
  static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '$' || c == '%';
  }
  void skip_blanks() {
    for (; at_ < text_.size(); ++at_) {
      const std::string_view rest = text_.substr(at_, 2);
      if (rest == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (rest == "/*") {
        const size_t end = text_.find("*/", at_ + 2);
        at_ = end == std::string_view::npos ? text_.size() : end + 1;
      } else if (static_cast<unsigned char>(text_[at_]) > ' ') {
        return;
      }
      if (at_ == text_.size()) return;
    }
  }
  std::string_view text_;
  size_t at_ = 0;
};

uint64_t number(std::string_view word) {
  uint64_t value = 0;
  const bool hexadecimal = word.substr(0, 2) == "0x" || word.substr(0, 2) == "0X";
  for (const char c : hexadecimal ? word.substr(2) : word) {
    const char low = static_cast<char>(c | 32);
    int digit = -1;
    if (c >= '0' && c <= '9')
      digit = c - '0';
    else if (hexadecimal && low >= 'a' && low <= 'f')
      digit = low - 'a' + 10;
    if (digit < 0) break;
    value = sum(product(value, hexadecimal ? 16 : 10), static_cast<uint64_t>(digit));
  }
  return value;
}

// Bytes of an element, from the width at the end of its type: .b8, .f16x2, .b128. 0: not a type of
// data.
uint64_t element_bytes(std::string_view type) {
  if (type.size() < 3 || type[0] != '.' || std::strchr("busf", type[1]) == nullptr) return 0;
  const size_t digits = type.find_first_of("0123456789");
  const uint64_t bits = digits == std::string_view::npos ? 0 : number(type.substr(digits));
  const bool pair = type.size() > 2 && type.substr(type.size() - 2) == "x2";
  return bits > 128 ? 0 : bits / 8 * (pair ? 2 : 1);
}

// One statement at module scope, up to its semicolon. Functions are skipped.
class Declarations {
 public:
  uint64_t bytes_of(std::string_view text) {
    Words words(text);
    for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
      if (word == "{" && !counts()) {
        skip_braces(&words);  // a function's body, or a section
        *this = Declarations(total_);
      } else if (word == ";") {
        finish();
        *this = Declarations(total_);
      } else {
        take(word, &words);
      }
    }
    return total_;
  }
  explicit Declarations(uint64_t total = 0) : total_(total) {}

 private:
  bool counts() const { return variable_ && !function_; }

  void take(std::string_view word, Words* words) {
    if (word == ".global" || word == ".const") {
      variable_ = true;
    } else if (word == ".extern") {
      elsewhere_ = true;
    } else if (word == ".func" || word == ".entry") {
      function_ = true;
    } else if (!counts()) {
      return;
    } else if (word == ".v2" || word == ".v4") {
      vector_ = word == ".v2" ? 2 : 4;
    } else if (word == "[") {
      const std::string_view length = words->next();
      if (length == "]")
        open_ended_ = true;
      else
        elements_ = product(elements_, number(length));
    } else if (word == "{") {
      const uint64_t listed = list(words);
      if (open_ended_) elements_ = product(elements_, listed);
      open_ended_ = false;
    } else if (word == ",") {
      finish();
      elements_ = 1;
    } else if (element_ == 0) {
      element_ = element_bytes(word);
    }
  }
  void finish() {
    if (counts() && !elsewhere_)
      total_ = sum(total_, product(product(element_, vector_), elements_));
  }
  // Counts the values at the outer level of an initialiser. The opening brace has been read.
  static uint64_t list(Words* words) {
    uint64_t count = 0, depth = 1;
    bool any = false;
    while (depth != 0) {
      const std::string_view word = words->next();
      if (word.empty()) break;
      if (word == "{")
        ++depth;
      else if (word == "}")
        --depth;
      else if (word == "," && depth == 1)
        ++count;
      any |= depth != 0;
    }
    return any ? count + 1 : 0;
  }
  static void skip_braces(Words* words) {
    for (uint64_t depth = 1; depth != 0;) {
      const std::string_view word = words->next();
      if (word.empty()) return;
      if (word == "{") ++depth;
      if (word == "}") --depth;
    }
  }

  uint64_t total_;
  uint64_t element_ = 0, vector_ = 1, elements_ = 1;
  bool variable_ = false, function_ = false, elsewhere_ = false, open_ended_ = false;
};

uint64_t bytes_of_ptx(const uint8_t* text, uint64_t bytes) {
  const char* begin = reinterpret_cast<const char*>(text);
  return Declarations().bytes_of({begin, strnlen(begin, bytes)});
}

// Adds up the sections with variables that the loader puts into the GPU's memory. `bytes`: the
// length that api::elf_bytes has checked.
uint64_t bytes_of_cubin(const uint8_t* at, uint64_t bytes) {
  constexpr uint64_t kSection = 64;
  if (api::elf_bytes(at, bytes) == 0) return 0;
  const uint64_t sections_at = api::code_read<uint64_t>(at + 40);
  const uint64_t step = api::code_read<uint16_t>(at + 58);
  uint64_t count = api::code_read<uint16_t>(at + 60), names = api::code_read<uint16_t>(at + 62);
  if (sections_at == 0 || step < kSection || !api::code_within(sections_at, step, bytes)) return 0;
  if (count == 0) count = api::code_read<uint64_t>(at + sections_at + 32);
  if (names == 0xffff) names = api::code_read<uint32_t>(at + sections_at + 40);
  if (count > bytes / step || !api::code_within(sections_at, count * step, bytes) || names >= count)
    return 0;
  const uint8_t* table = at + sections_at;
  const uint64_t names_at = api::code_read<uint64_t>(table + names * step + 24);
  const uint64_t names_bytes = api::code_read<uint64_t>(table + names * step + 32);
  if (!api::code_within(names_at, names_bytes, bytes)) return 0;
  const std::string_view all_names(reinterpret_cast<const char*>(at + names_at), names_bytes);
  uint64_t total = 0;
  for (uint64_t i = 1; i < count; ++i) {
    const uint32_t name_at = api::code_read<uint32_t>(table + i * step);
    if (name_at >= names_bytes) continue;
    const std::string_view name = all_names.substr(name_at);
    if (name.substr(0, 10) != ".nv.global" && name.substr(0, 13) != ".nv.constant3") continue;
    total = sum(total, api::code_read<uint64_t>(table + i * step + 32));
  }
  return total;
}

CodeVariables of_container(const uint8_t* at, uint64_t bytes) {
  CodeVariables found;
  const auto head = api::code_read<api::CodeContainer>(at);
  for (uint64_t place = head.header_bytes; place < bytes;) {
    const uint64_t left = bytes - place;
    if (left < api::kEntryBytesMin) return found;
    api::CodeEntry entry{};
    std::memcpy(&entry, at + place, std::min<uint64_t>(left, sizeof entry));
    if (entry.header_bytes < api::kEntryBytesMin ||
        !api::code_within(entry.header_bytes, entry.payload_bytes, left))
      return found;
    const uint8_t* payload = at + place + entry.header_bytes;
    uint64_t code_bytes = entry.payload_bytes;
    std::vector<uint8_t> unpacked;
    Unpacked told = Unpacked::kYes;
    if (entry.stored_bytes != 0) {
      told = unpack_code(entry, payload, &unpacked);
      payload = unpacked.data(), code_bytes = unpacked.size();
    }
    const bool known = told == Unpacked::kYes;
    // A driver might read what is malformed here. So no slice has room for it.
    uint64_t declared = told == Unpacked::kBad ? kBytesMax : 0;
    if (known && entry.kind == api::kEntryPtx) declared = bytes_of_ptx(payload, code_bytes);
    if (known && entry.kind == api::kEntryCubin) declared = bytes_of_cubin(payload, code_bytes);
    found.bytes = std::max(found.bytes, declared);
    found.all &= told != Unpacked::kUnknown;
    place += entry.header_bytes + entry.payload_bytes;
  }
  return found;
}

}  // namespace

CodeVariables code_variables(const uint8_t* image, uint64_t bytes) {
  const api::CodeImage code = api::code_image(image, bytes);
  CodeVariables found;
  if (code.kind == api::CodeKind::kPtx) found.bytes = bytes_of_ptx(code.data, code.bytes);
  if (code.kind == api::CodeKind::kCubin) found.bytes = bytes_of_cubin(code.data, code.bytes);
  if (code.kind == api::CodeKind::kContainer) found = of_container(code.data, code.bytes);
  return found;
}

}  // namespace tendril::worker::cuda
