// SPDX-License-Identifier: Apache-2.0
// See pattern.h. A pattern becomes steps; a walk through a text is in a set of steps at once.
#include "pool/filter/pattern.h"

#include <algorithm>

#include "base/text.h"

namespace tendril::pool {
namespace {

using base::Code;
using base::Status;

constexpr int kDepthMax = 32;
constexpr size_t kStepsMax = 3 * kPatternBytesMax;  // a sign makes two at most

uint8_t folded(char letter) {
  const auto byte = static_cast<uint8_t>(letter);
  return byte >= 'A' && byte <= 'Z' ? static_cast<uint8_t>(byte + 32) : byte;
}

// The parts between | of a pattern without other signs that mean something; else nothing.
std::vector<std::string> plain_words(const std::string& text) {
  if (text.find_first_of("\\.[](){}*+?^$") != std::string::npos) return {};
  std::vector<std::string> words(1);
  for (const char letter : text) {
    if (letter == '|') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(folded(letter));
    }
  }
  return words;
}

bool found_at(const std::string& text, size_t at, const std::string& word) {
  for (size_t i = 0; i < word.size(); ++i) {
    if (static_cast<char>(folded(text[at + i])) != word[i]) return false;
  }
  return true;
}

}  // namespace

// Builds the steps. A part that is built has loose ends, which are joined to what follows it.
class PatternReader {
 public:
  explicit PatternReader(const std::string& text) : text_(text) {}

  base::Result<Pattern> read() {
    const uint32_t last = add({Pattern::What::kFound, 0, 0, 0});
    const Piece whole = alternatives(0);
    if (status_.ok() && at_ < text_.size()) fail("a '(' before this ')'");
    if (!status_.ok()) return status_;
    join(whole, last);
    pattern_.start_ = whole.first;
    return std::move(pattern_);
  }

 private:
  // A built part: where it begins, and the fields that must lead to what follows.
  struct Exit {
    uint32_t step;
    bool other;
  };
  struct Piece {
    uint32_t first = 0;
    std::vector<Exit> exits;
  };

  void fail(const std::string& expected) {
    if (!status_.ok()) return;
    status_ = Status(Code::kInvalid, base::format("at position %zu of the pattern: expected %s",
                                                  at_ + 1, expected.c_str()));
  }
  uint32_t add(Pattern::Step step) {
    pattern_.steps_.push_back(step);
    return static_cast<uint32_t>(pattern_.steps_.size() - 1);
  }
  void join(const Piece& piece, uint32_t to) {
    for (const Exit& exit : piece.exits) {
      Pattern::Step& step = pattern_.steps_[exit.step];
      (exit.other ? step.other : step.next) = to;
    }
  }
  bool more() const { return status_.ok() && at_ < text_.size(); }

  Piece alternatives(int depth) {
    Piece found = sequence(depth);
    while (more() && text_[at_] == '|') {
      ++at_;
      const Piece second = sequence(depth);
      const uint32_t both = add({Pattern::What::kBoth, found.first, second.first, 0});
      found.first = both;
      found.exits.insert(found.exits.end(), second.exits.begin(), second.exits.end());
    }
    return found;
  }

  // A step that does nothing but go on: both ways lead to the same place.
  Piece nothing() {
    const uint32_t step = add({Pattern::What::kBoth, 0, 0, 0});
    return {step, {{step, false}, {step, true}}};
  }

  Piece sequence(int depth) {
    Piece found = nothing();
    while (more() && text_[at_] != '|' && text_[at_] != ')') {
      Piece next = repeated(depth);
      join(found, next.first);
      found.exits = std::move(next.exits);
    }
    return found;
  }

  Piece repeated(int depth) {
    Piece found = single(depth);
    while (more() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?')) {
      const char sign = text_[at_++];
      const uint32_t both = add({Pattern::What::kBoth, found.first, 0, 0});
      if (sign == '?') {
        found.first = both;
        found.exits.push_back({both, true});
        continue;
      }
      join(found, both);
      if (sign == '*') found.first = both;
      found.exits = {{both, true}};
    }
    return found;
  }

  Piece one(Pattern::Step step) {
    const uint32_t number = add(step);
    return {number, {{number, false}}};
  }
  Piece one_of(const Pattern::Letters& letters) {
    pattern_.sets_.push_back(letters);
    return one({Pattern::What::kOneOf, 0, 0, static_cast<uint32_t>(pattern_.sets_.size() - 1)});
  }

  Piece single(int depth) {
    Pattern::Letters letters;
    const char sign = text_[at_];
    switch (sign) {
      case '(': {
        if (depth >= kDepthMax) {
          fail("at most 32 parentheses inside each other");
          return nothing();
        }
        ++at_;
        Piece inner = alternatives(depth + 1);
        if (!status_.ok()) return inner;
        if (at_ >= text_.size()) fail("a ')'");
        ++at_;
        return inner;
      }
      case '[':
        return set();
      case '^':
        ++at_;
        return one({Pattern::What::kBegin, 0, 0, 0});
      case '$':
        ++at_;
        return one({Pattern::What::kEnd, 0, 0, 0});
      case '.':
        ++at_;
        return one_of(letters.set());
      case '*':
      case '+':
      case '?':
        fail(
            "something to repeat before this sign; write a backslash before a sign that means "
            "itself");
        return nothing();
      case '{':
        fail("no counts; write the part as often as it may occur");
        return nothing();
      default:
        letters.set(folded(letter()));
        return one_of(letters);
    }
  }

  // A letter that means itself, or a backslash and one.
  char letter() {
    const bool escaped = text_[at_] == '\\';
    if (escaped) ++at_;
    if (at_ >= text_.size()) {
      fail("a sign after the backslash");
      return 0;
    }
    const char found = text_[at_];
    const bool named = (found >= 'a' && found <= 'z') || (found >= 'A' && found <= 'Z') ||
                       (found >= '0' && found <= '9');
    if (named && escaped) fail("no letter or digit after a backslash; write [0-9] for digits");
    ++at_;
    return found;
  }

  Piece set() {
    Pattern::Letters letters;
    ++at_;
    const bool except = at_ < text_.size() && text_[at_] == '^';
    if (except) ++at_;
    bool any = false;
    while (more() && (text_[at_] != ']' || !any)) {
      any = true;
      const uint8_t from = folded(letter());
      uint8_t to = from;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        to = folded(letter());
      }
      if (to < from) fail("the larger end of a range last");
      for (unsigned value = from; value <= to; ++value) letters.set(value);
    }
    if (status_.ok() && at_ >= text_.size()) fail("a ']'");
    ++at_;
    return one_of(except ? ~letters : letters);
  }

  const std::string& text_;
  size_t at_ = 0;
  Status status_;
  Pattern pattern_;
};

base::Result<Pattern> Pattern::parse(const std::string& text) {
  if (text.size() > kPatternBytesMax)
    return Status(Code::kInvalid, "a pattern has at most 256 signs");
  base::Result<Pattern> pattern = PatternReader(text).read();
  if (!pattern.ok()) return pattern;
  if (pattern->steps_.size() > kStepsMax)
    return Status(Code::kInvalid, "the pattern has too many parts");
  pattern->words_ = plain_words(text);
  return pattern;
}

// The steps that a walk is in. Each step is entered at most once for a letter, so the lists cannot
// grow over the number of steps.
class Pattern::Walk {
 public:
  explicit Walk(const Pattern& pattern) : pattern_(pattern) {
    std::fill_n(entered_.begin(), pattern.steps_.size(), uint16_t{0});
  }

  // True: the end of the pattern was reached.
  bool enter(uint32_t first, uint16_t round, bool at_begin, bool at_end) {
    size_t open = 0;
    open_[open++] = first;
    while (open > 0) {
      const uint32_t number = open_[--open];
      if (entered_[number] == round) continue;
      entered_[number] = round;
      const Step& step = pattern_.steps_[number];
      switch (step.what) {
        case What::kFound:
          return true;
        case What::kBoth:
          open_[open++] = step.next;
          open_[open++] = step.other;
          break;
        case What::kBegin:
          if (at_begin) open_[open++] = step.next;
          break;
        case What::kEnd:
          if (at_end) open_[open++] = step.next;
          break;
        case What::kOneOf:
          waiting[waiting_count++] = number;
          break;
      }
    }
    return false;
  }

  std::array<uint32_t, kStepsMax> waiting;
  size_t waiting_count = 0;

 private:
  const Pattern& pattern_;
  std::array<uint16_t, kStepsMax> entered_;
  // Each entered step adds one more than it takes.
  std::array<uint32_t, kStepsMax + 2> open_;
};

bool Pattern::found_in(const std::string& text) const {
  const size_t length = std::min(text.size(), kPatternTextMax);
  if (!words_.empty()) {
    for (const std::string& word : words_) {
      for (size_t at = 0; at + word.size() <= length; ++at) {
        if (found_at(text, at, word)) return true;
      }
    }
    return false;
  }
  Walk walk(*this);
  std::array<uint32_t, kStepsMax> before;
  size_t before_count = 0;
  for (size_t at = 0;; ++at) {
    const auto round = static_cast<uint16_t>(at + 1);
    const bool at_end = at == length;
    walk.waiting_count = 0;
    // What the letter before allows, and a new start here.
    for (size_t i = 0; i < before_count; ++i) {
      const Step& step = steps_[before[i]];
      if (!sets_[step.set].test(folded(text[at - 1]))) continue;
      if (walk.enter(step.next, round, false, at_end)) return true;
    }
    if (walk.enter(start_, round, at == 0, at_end)) return true;
    if (at_end) return false;
    before_count = walk.waiting_count;
    std::copy_n(walk.waiting.begin(), before_count, before.begin());
  }
}

}  // namespace tendril::pool
