// SPDX-License-Identifier: Apache-2.0
// The language of filters: `model ~ "H100|H200" and memory >= 80G and not label.room = cellar`. The
// text comes from users, so it is bounded, and looking at facts takes time in proportion to the
// text. README.md has the language. Pure; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "pool/filter/facts.h"

namespace tendril::pool {

inline constexpr size_t kFilterBytesMax = 4096;

class FilterTree;

class Filter {
 public:
  enum class Subject : uint8_t { kGpu, kUser };

  // Matches everything.
  Filter() = default;

  // kInvalid: the message names the column, from 1, and what was expected there. Only facts of the
  // subject may be named. A text without anything but blanks matches everything.
  static base::Result<Filter> parse(const std::string& text, Subject subject = Subject::kGpu);

  // A filter of another subject matches nothing.
  bool matches(const GpuFacts& facts) const;
  bool matches(const UserFacts& facts) const;
  // Whether it matches with these tenants or with others.
  bool could_match(const GpuFacts& facts) const;

  // True: it looks at what changes with every lease (tenants), so an answer must not be kept.
  bool looks_at_load() const;
  bool matches_everything() const { return tree_ == nullptr; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::shared_ptr<const FilterTree> tree_;  // null: matches everything
};

}  // namespace tendril::pool
