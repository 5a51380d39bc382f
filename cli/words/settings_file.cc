// SPDX-License-Identifier: Apache-2.0
// See settings_file.h.
#include "cli/words/settings_file.h"

#include <algorithm>

#include "cli/words/usage.h"
#include "config/toml.h"
#include "view/table.h"

namespace tendril::cli {
namespace {

using base::Code;
using base::Status;

std::string long_name(const OptionShape& option) {
  for (const std::string& name : option.names) {
    if (name.rfind("--", 0) == 0) return name;
  }
  return "";
}

// Empty: it is for the command line only.
std::string key_of(const OptionShape& option) {
  std::string key = long_name(option);
  if (key.empty() || key == "--help" || key == "--help-all" || key == "--config") return "";
  key.erase(0, 2);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

class Reader {
 public:
  Reader(const std::string& path, const CommandShape& command,
         const std::vector<std::string>& given)
      : path_(path), command_(command), given_(given) {}

  base::Result<std::vector<std::string>> read(const toml::table& table) {
    for (const auto& [key, node] : table) {
      const OptionShape* const option = find(std::string(key.str()));
      if (option == nullptr) return unknown(std::string(key.str()), node);
      if (is_given(*option)) continue;
      const Status added = add(*option, std::string(key.str()), node);
      if (!added.ok()) return added;
    }
    return std::move(words_);
  }

 private:
  const OptionShape* find(const std::string& key) const {
    for (const OptionShape& option : command_.options) {
      if (!key.empty() && key_of(option) == key) return &option;
    }
    return nullptr;
  }

  Status wrong(const toml::node& node, const std::string& what) const {
    return Status(Code::kInvalid,
                  base::format("%s, line %u: %s", path_.c_str(),
                               static_cast<unsigned>(node.source().begin.line), what.c_str()));
  }

  Status unknown(const std::string& key, const toml::node& node) const {
    std::vector<std::string> known;
    for (const OptionShape& option : command_.options) {
      if (!key_of(option).empty()) known.push_back(key_of(option));
    }
    const std::string meant = nearest(key, known);
    return wrong(node, "there is no setting '" + base::printable(key, 64) + "'" +
                           (meant.empty() ? "; '" + command_.name + " --help' lists what there is"
                                          : "; did you mean '" + meant + "'?"));
  }

  bool is_given(const OptionShape& option) const {
    return std::any_of(given_.begin(), given_.end(), [&option](const std::string& word) {
      return std::any_of(option.names.begin(), option.names.end(), [&word](const auto& name) {
        const bool glued = name[1] != '-' && word.rfind(name, 0) == 0;  // -sHOST
        return word == name || word.rfind(name + "=", 0) == 0 || glued;
      });
    });
  }

  Status add(const OptionShape& option, const std::string& key, const toml::node& node) {
    if (option.value.empty()) {
      if (!node.is_boolean()) return wrong(node, "'" + key + "' is true or false");
      if (node.as_boolean()->get()) words_.push_back(long_name(option));
      return Status();
    }
    if (const toml::array* const list = node.as_array()) {
      if (!option.repeatable) return wrong(node, "'" + key + "' has one value, not a list");
      for (const toml::node& each : *list) {
        const Status added = add_value(option, key, each);
        if (!added.ok()) return added;
      }
      return Status();
    }
    return add_value(option, key, node);
  }

  Status add_value(const OptionShape& option, const std::string& key, const toml::node& node) {
    std::string value;
    if (node.is_string()) {
      value = node.as_string()->get();
    } else if (node.is_integer()) {
      value = std::to_string(node.as_integer()->get());
    } else if (node.is_floating_point()) {
      value = base::format("%g", node.as_floating_point()->get());
    } else {
      return wrong(node, "the value of '" + key + "' is a text in quotes or a number");
    }
    words_.push_back(long_name(option) + "=" + value);
    return Status();
  }

  const std::string& path_;
  const CommandShape& command_;
  const std::vector<std::string>& given_;
  std::vector<std::string> words_;
};

}  // namespace

base::Result<std::vector<std::string>> settings_words(const std::string& text,
                                                      const std::string& path,
                                                      const CommandShape& command,
                                                      const std::vector<std::string>& given) {
  auto table = config::parse_toml(text, path);
  if (!table.ok()) return table.status();
  return Reader(path, command, given).read(*table);
}

std::string settings_template(const CommandShape& command) {
  std::string text = "# Settings of '" + command.name +
                     "', read with --config. Words of the command come first.\n# 'tendril config "
                     "check " +
                     command.name.substr(command.name.find(' ') + 1) +
                     " FILE' says whether a file can be read.\n";
  for (const OptionShape& option : command.options) {
    const std::string key = key_of(option);
    if (key.empty()) continue;
    std::string lines = view::wrapped("# " + option_text(option), 78, 0);
    for (size_t at = 0; (at = lines.find('\n', at)) != std::string::npos; at += 3)
      lines.replace(at, 1, "\n# ");
    std::string value = option.otherwise;
    const bool number = option.value == "NUMBER";
    if (option.value.empty()) {
      value = "false";
    } else if (!number || value.empty()) {
      if (value.empty())
        value = number ? "1" : option.choices.empty() ? option.value : option.choices[0];
      if (!number) value = "\"" + value + "\"";
      if (option.repeatable) value = "[" + value + "]";
    }
    text += "\n" + lines + "\n#" + key + " = " + value + "\n";
  }
  return text;
}

}  // namespace tendril::cli
