// SPDX-License-Identifier: Apache-2.0
// See parser_shape.h.
#include "cli/words/parser_shape.h"

namespace tendril::cli {
namespace {

// Type and checks of an option stand in one text: "HOST[:PORT]", "UINT:UINT in [1 - 64]",
// "TEXT:{auto,off}".
void take_value(const std::string& type, OptionShape* shape) {
  const size_t set = type.find(":{");
  if (set != std::string::npos) {
    std::string word;
    for (size_t at = set + 2; at < type.size(); ++at) {
      if (type[at] == ',' || type[at] == '}') {
        shape->choices.push_back(word);
        shape->value += (shape->value.empty() ? "" : "|") + word;
        word.clear();
      } else {
        word += type[at];
      }
    }
    return;
  }
  const std::string kind = type.substr(0, type.find(':'));
  const bool number = kind == "UINT" || kind == "INT" || kind == "FLOAT";
  shape->value = number ? "NUMBER" : type;
}

OptionShape shape_of(const CLI::Option& option) {
  OptionShape shape;
  if (option.get_positional()) {
    shape.names = {option.get_name(true)};
  } else {
    for (const std::string& name : option.get_snames()) shape.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) shape.names.push_back("--" + name);
  }
  if (option.get_items_expected_max() != 0) take_value(option.get_type_name(), &shape);
  if (option.get_positional() && (shape.value == "TEXT" || shape.value == "NUMBER")) {
    shape.value = shape.names[0];
    for (char& c : shape.value) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  }
  shape.description = option.get_description();
  shape.otherwise = option.get_default_str();
  shape.repeatable = option.get_expected_max() > 1;
  return shape;
}

}  // namespace

CommandShape shape_of(const CLI::App& command) {
  CommandShape shape;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent())
    shape.name = app->get_name() + (shape.name.empty() ? "" : " " + shape.name);
  shape.description = command.get_description();
  shape.runs_a_program = command.get_prefix_command();
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    (option->get_positional() ? shape.arguments : shape.options).push_back(shape_of(*option));
  }
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_group().empty()) shape.commands.push_back(shape_of(*sub));
  }
  return shape;
}

}  // namespace tendril::cli
