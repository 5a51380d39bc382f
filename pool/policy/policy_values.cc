// SPDX-License-Identifier: Apache-2.0
// See policy_values.h.
#include "pool/policy/policy_values.h"

#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "config/quantity.h"
#include "pool/filter/nearest.h"

namespace tendril::pool {
namespace {

using base::Code;
using base::Status;

constexpr double kGpusMax = 1e6;
constexpr int64_t kCountMax = 1'000'000;
constexpr double kFactorMax = 1e6;

bool is_none(const toml::node& node) {
  const std::optional<std::string> text = node.value_exact<std::string>();
  return text && *text == "none";
}

}  // namespace

bool is_name(const std::string& name) {
  if (name.empty() || name.size() > 64) return false;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && c != '_' && c != '-' && c != '.' && c != '@') return false;
  }
  return true;
}

void PolicyValues::fail(const toml::source_position& where, const std::string& why) {
  if (!ok()) return;
  status_ = Status(Code::kInvalid, base::format("%s, line %u, column %u: %s", path_.c_str(),
                                                static_cast<unsigned>(where.line),
                                                static_cast<unsigned>(where.column), why.c_str()));
}

void PolicyValues::expected(const std::string& key, const toml::node& node,
                            const std::string& what) {
  fail(node, "'" + base::printable(key, 64) + "' must be " + what);
}

void PolicyValues::unknown(const std::string& key, const toml::node& node,
                           const std::string& wanted, const std::vector<std::string>& names,
                           const char* table_name) {
  if (!ok()) return;
  fail(node, "'" + key + "' names '" + wanted + "', but no [[" + table_name + "]] has this name" +
                 (names.empty() ? "" : "; there are " + base::printable(joined(names), 400)) +
                 did_you_mean(wanted, names));
}

void PolicyValues::fail_inside(const std::string& key, const toml::node& node,
                               const Status& error) {
  const std::string& message = error.message();
  toml::source_position where = node.source().begin;
  const std::string value = node.value_exact<std::string>().value_or("");
  // Without line breaks and escapes a column in the text is one in the file.
  const toml::source_position end = node.source().end;
  const bool plain = where.line == end.line && end.column == where.column + value.size() + 2;
  size_t skip = 0;
  if (plain && message.rfind("column ", 0) == 0) {
    char* rest = nullptr;
    const unsigned long column = strtoul(message.c_str() + 7, &rest, 10);
    where.column += static_cast<toml::source_index>(column);
    skip = static_cast<size_t>(rest - message.c_str()) + 2;  // ": "
  }
  fail(where, "in '" + key + "': " + message.substr(std::min(skip, message.size())));
}

void PolicyValues::keys(const std::string& where, const toml::table& table,
                        const std::vector<std::string>& known, const ReadKey& read) {
  for (auto&& [key, node] : table) {
    if (!ok()) return;
    const std::string text(key.str());
    if (read(text, node) || !ok()) continue;
    fail(key.source().begin, "unknown key '" + base::printable(text, 64) + "' in " + where +
                                 "; the keys are " + joined(known) + did_you_mean(text, known));
  }
}

const toml::table* PolicyValues::table(const std::string& key, const toml::node& node) {
  if (node.is_table()) return node.as_table();
  expected(key, node, "a table");
  return nullptr;
}

std::vector<const toml::table*> PolicyValues::tables(const std::string& key, const toml::node& node,
                                                     size_t most) {
  std::vector<const toml::table*> found;
  if (!node.is_array_of_tables() && !(node.is_array() && node.as_array()->empty())) {
    expected(key, node, "tables, each under a line [[" + key + "]]");
    return found;
  }
  for (const toml::node& one : *node.as_array()) {
    if (found.size() == most) {
      fail(one, base::format("there are at most %zu [[%s]]", most, key.c_str()));
      break;
    }
    found.push_back(one.as_table());
  }
  return found;
}

std::string PolicyValues::name(const std::string& key, const toml::node& node) {
  const std::string found = node.value_exact<std::string>().value_or("");
  if (!is_name(found))
    expected(key, node, "a name of up to 64 letters, digits and - _ . @, in quotation marks");
  return found;
}

std::string PolicyValues::text(const std::string& key, const toml::node& node,
                               const std::string& what) {
  const std::optional<std::string> found = node.value_exact<std::string>();
  if (!found || found->empty() || found->size() > 4096) expected(key, node, what);
  return found.value_or("");
}

std::vector<std::string> PolicyValues::texts(const std::string& key, const toml::node& node,
                                             const std::string& what) {
  std::vector<std::string> found;
  if (node.is_string()) return {text(key, node, what)};
  if (!node.is_array() || node.as_array()->empty() || node.as_array()->size() > 64) {
    expected(key, node, what);
    return found;
  }
  for (const toml::node& one : *node.as_array()) found.push_back(text(key, one, what));
  return found;
}

bool PolicyValues::flag(const std::string& key, const toml::node& node) {
  const std::optional<bool> value = node.value_exact<bool>();
  if (!value) expected(key, node, "true or false");
  return value.value_or(false);
}

int32_t PolicyValues::whole(const std::string& key, const toml::node& node, int32_t least,
                            int32_t most) {
  const std::optional<int64_t> value = node.value_exact<int64_t>();
  if (value && *value >= least && *value <= most) return static_cast<int32_t>(*value);
  expected(key, node, base::format("a whole number from %d to %d", least, most));
  return 0;
}

uint64_t PolicyValues::count(const std::string& key, const toml::node& node) {
  if (is_none(node)) return kUnlimited;
  const std::optional<int64_t> value = node.value_exact<int64_t>();
  if (value && *value >= 0 && *value <= kCountMax) return static_cast<uint64_t>(*value);
  expected(key, node, "a whole number from 0 to 1000000, or \"none\"");
  return 0;
}

double PolicyValues::factor(const std::string& key, const toml::node& node) {
  const std::optional<double> value = node.value<double>();
  if (node.is_number() && value && *value >= 0 && *value <= kFactorMax) return *value;
  expected(key, node, "a number from 0 to 1000000, as in 2 or 0.5");
  return 0;
}

uint64_t PolicyValues::seconds(const std::string& key, const toml::node& node, bool may_be_none) {
  if (may_be_none && is_none(node)) return kUnlimited;
  const std::optional<std::string> text = node.value_exact<std::string>();
  const auto parsed = config::parse_duration(text.value_or(""));
  // A bare number is refused: nobody knows its unit when reading it.
  const bool unit = text && !text->empty() && (text->back() < '0' || text->back() > '9');
  if (unit && text->size() < 32 && parsed.ok()) return parsed.value();
  expected(key, node,
           std::string("a time, as in \"90s\", \"15m\", \"12h\" or \"7d\"") +
               (may_be_none ? ", or \"none\"" : ""));
  return 0;
}

uint64_t PolicyValues::gpus(const std::string& key, const toml::node& node, bool may_be_none) {
  if (may_be_none && is_none(node)) return kUnlimited;
  const std::optional<double> number = node.value<double>();
  if (node.is_number() && number && *number >= 0 && *number <= kGpusMax)
    return static_cast<uint64_t>(std::llround(*number * config::kWholeGpu));
  const std::string text = node.value_exact<std::string>().value_or("");
  const auto fraction = config::parse_fraction(text.size() < 32 ? text : "");
  if (fraction.ok()) return fraction.value();
  expected(key, node,
           std::string("a number of GPUs, as in 4, 0.5 or \"1/3\"") +
               (may_be_none ? ", or \"none\"" : ""));
  return 0;
}

AmountRules PolicyValues::amounts(const std::string& key, const toml::node& node,
                                  const std::vector<GpuClass>& gpu_classes, bool may_be_none) {
  AmountRules found;
  if (!node.is_table()) {
    if (gpu_classes.size() == 1) {
      found[0] = gpus(key, node, may_be_none);
    } else {
      expected(key, node, "GPUs by class, as in { " + gpu_classes[0].name + " = 4 }");
    }
    return found;
  }
  std::vector<std::string> names;
  for (const GpuClass& gpu_class : gpu_classes) names.push_back(gpu_class.name);
  keys("'" + key + "', which has GPUs by class", *node.as_table(), names,
       [&](const std::string& name, const toml::node& value) {
         for (size_t i = 0; i < names.size(); ++i) {
           if (names[i] != name) continue;
           found[static_cast<uint32_t>(i)] = gpus(key + "." + name, value, may_be_none);
           return true;
         }
         return false;
       });
  return found;
}

PerUserRules PolicyValues::per_user(const std::string& key, const toml::node& node) {
  PerUserRules rules;
  const toml::table* const limits = table(key, node);
  if (limits == nullptr) return rules;
  keys("'" + key + "'", *limits, {"gpus", "leases", "pending"},
       [&](const std::string& name, const toml::node& value) {
         const std::string whole = key + "." + name;
         if (name == "gpus") {
           rules.gpus = gpus(whole, value, true);
         } else if (name == "leases") {
           rules.leases = count(whole, value);
         } else if (name == "pending") {
           rules.pending = count(whole, value);
         } else {
           return false;
         }
         return true;
       });
  return rules;
}

std::vector<Action> PolicyValues::actions(const std::string& key, const toml::node& node,
                                          bool must_free) {
  static constexpr Action kActions[] = {Action::kWarn, Action::kShrink,  Action::kPause,
                                        Action::kPark, Action::kRequeue, Action::kEnd};
  const char* const what =
      "a list of warn, shrink, pause, park, requeue and end, as in [\"warn\", \"end\"]";
  std::vector<Action> found;
  if (!node.is_array() || node.as_array()->empty()) {
    expected(key, node, what);
    return found;
  }
  for (const toml::node& one : *node.as_array()) {
    const std::string text = one.value_exact<std::string>().value_or("");
    const Action* action = nullptr;
    for (const Action& candidate : kActions) {
      if (text == action_name(candidate)) action = &candidate;
    }
    if (action == nullptr) {
      expected(key, one, what);
      return found;
    }
    for (const Action before : found) {
      if (before == *action) fail(one, "'" + text + "' is in the list already");
    }
    if (*action == Action::kWarn && !found.empty()) fail(one, "'warn' must be the first");
    if (!found.empty() && found.back() == Action::kEnd) fail(one, "nothing comes after 'end'");
    if (!found.empty() && found.back() == Action::kPark)
      fail(one, "nothing comes after 'park': a parked lease holds nothing that others need");
    found.push_back(*action);
  }
  if (must_free && found.back() == Action::kPark)
    expected(key, node, "a list without \"park\", which is for leases that are idle");
  else if (must_free && found.back() != Action::kEnd && found.back() != Action::kRequeue)
    expected(key, node,
             "a list that ends with \"requeue\" or \"end\", because nothing else frees GPUs");
  return found;
}

Filter PolicyValues::filter(const std::string& key, const toml::node& node,
                            Filter::Subject subject) {
  const std::optional<std::string> text = node.value_exact<std::string>();
  if (!text) {
    expected(key, node,
             subject == Filter::Subject::kGpu
                 ? "a filter for GPUs in quotation marks, as in 'memory >= 40G'"
                 : "a filter for users in quotation marks, as in 'group = students'");
    return Filter();
  }
  auto parsed = Filter::parse(*text, subject);
  if (!parsed.ok()) {
    fail_inside(key, node, parsed.status());
    return Filter();
  }
  return parsed.take();
}

When PolicyValues::when(const std::string& key, const toml::node& node) {
  const std::optional<std::string> text = node.value_exact<std::string>();
  if (!text) {
    expected(key, node, "a time in quotation marks, as in \"Mon-Fri 08:00-18:00\"");
    return When();
  }
  auto parsed = When::parse(*text);
  if (!parsed.ok()) {
    fail_inside(key, node, parsed.status());
    return When();
  }
  return parsed.take();
}

}  // namespace tendril::pool
