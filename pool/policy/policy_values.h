// SPDX-License-Identifier: Apache-2.0
// Reads single values of a policy file, and keeps the first error with its line and column. Used by
// policy_file.cc and rules_reader.cc only, because it includes the TOML library.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/toml.h"
#include "pool/filter/filter.h"
#include "pool/policy/calendar.h"
#include "pool/policy/policy_rules.h"

namespace tendril::pool {

// Up to 64 letters, digits and - _ . @
bool is_name(const std::string& name);

class PolicyValues {
 public:
  // Reads the value of one key. False: there is no such key.
  using ReadKey = std::function<bool(const std::string& key, const toml::node& node)>;

  explicit PolicyValues(std::string path) : path_(std::move(path)) {}

  bool ok() const { return status_.ok(); }
  const base::Status& status() const { return status_; }
  void fail(const toml::source_position& where, const std::string& why);
  void fail(const toml::node& node, const std::string& why) { fail(node.source().begin, why); }
  void expected(const std::string& key, const toml::node& node, const std::string& what);

  // Each key of a table, until the first error. A key that `read` does not know is an error, with
  // the known ones and the nearest of them.
  void keys(const std::string& where, const toml::table& table,
            const std::vector<std::string>& known, const ReadKey& read);

  const toml::table* table(const std::string& key, const toml::node& node);
  // The tables of [[key]].
  std::vector<const toml::table*> tables(const std::string& key, const toml::node& node,
                                         size_t most);

  std::string name(const std::string& key, const toml::node& node);
  std::string text(const std::string& key, const toml::node& node, const std::string& what);
  std::vector<std::string> texts(const std::string& key, const toml::node& node,
                                 const std::string& what);
  bool flag(const std::string& key, const toml::node& node);
  int32_t whole(const std::string& key, const toml::node& node, int32_t least, int32_t most);
  uint64_t count(const std::string& key, const toml::node& node);
  double factor(const std::string& key, const toml::node& node);
  // "90s", "8h"; "none" if `may_be_none`.
  uint64_t seconds(const std::string& key, const toml::node& node, bool may_be_none);
  uint64_t gpus(const std::string& key, const toml::node& node, bool may_be_none);
  // { top = 4 }, by position.
  AmountRules amounts(const std::string& key, const toml::node& node,
                      const std::vector<GpuClass>& gpu_classes, bool may_be_none);
  PerUserRules per_user(const std::string& key, const toml::node& node);
  std::vector<Action> actions(const std::string& key, const toml::node& node, bool must_free);
  Filter filter(const std::string& key, const toml::node& node, Filter::Subject subject);
  When when(const std::string& key, const toml::node& node);

  // The position of a name among records that have names.
  template <typename Records>
  uint32_t position(const std::string& key, const toml::node& node, const Records& records,
                    const char* table_name) {
    const std::string wanted = name(key, node);
    std::vector<std::string> names;
    for (size_t i = 0; ok() && i < records.size(); ++i) {
      if (records[i].name == wanted) return static_cast<uint32_t>(i);
      names.push_back(records[i].name);
    }
    unknown(key, node, wanted, names, table_name);
    return 0;
  }
  template <typename Records>
  std::vector<uint32_t> positions(const std::string& key, const toml::node& node,
                                  const Records& records, const char* table_name) {
    std::vector<uint32_t> found;
    if (!node.is_array()) {
      expected(key, node, "a list of names, as in [\"one\", \"two\"]");
      return found;
    }
    for (const toml::node& one : *node.as_array()) {
      const uint32_t number = position(key, one, records, table_name);
      for (const uint32_t before : found) {
        if (ok() && before == number) fail(one, "this name is in the list already");
      }
      if (ok()) found.push_back(number);
    }
    return found;
  }

 private:
  void unknown(const std::string& key, const toml::node& node, const std::string& wanted,
               const std::vector<std::string>& names, const char* table_name);
  // An error of the text in a string: the column is counted from its first letter.
  void fail_inside(const std::string& key, const toml::node& node, const base::Status& error);

  const std::string path_;
  base::Status status_;
};

}  // namespace tendril::pool
