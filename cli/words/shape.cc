// SPDX-License-Identifier: Apache-2.0
// See shape.h.
#include "cli/words/shape.h"

#include <algorithm>

#include "view/table.h"

namespace tendril::cli {
namespace {

constexpr size_t kIndent = 2, kColumn = 28;

// Two columns. A long head has a line of its own.
std::string two_columns(const std::string& head, const std::string& text, size_t width) {
  std::string line = std::string(kIndent, ' ') + head;
  if (text.empty()) return line + "\n";
  if (line.size() + 2 > kColumn) line += "\n" + std::string(kColumn, ' ');
  const size_t last = line.size() - (line.rfind('\n') == std::string::npos ? 0 : line.rfind('\n'));
  if (line.find('\n') == std::string::npos && last < kColumn) line.append(kColumn - last, ' ');
  const std::string lines = view::wrapped(text, width - kColumn, 0);
  for (const char c : lines) {
    line += c;
    if (c == '\n') line.append(kColumn, ' ');
  }
  return line + "\n";
}

}  // namespace

std::string last_word(const CommandShape& command) {
  return command.name.substr(command.name.rfind(' ') + 1);
}

std::string usage_text(const CommandShape& command) {
  std::string text = command.name;
  if (!command.options.empty()) text += " [OPTIONS]";
  for (const OptionShape& argument : command.arguments)
    text += " " + (argument.value.empty() ? argument.names[0] : argument.value);
  if (!command.commands.empty()) text += " COMMAND";
  if (command.runs_a_program) text += " [--] PROGRAM [ARGUMENT...]";
  return text;
}

std::string option_head(const OptionShape& option) {
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "" : ", ") + name;
  return option.value.empty() ? text : text + " " + option.value;
}

std::string option_text(const OptionShape& option) {
  if (option.otherwise.empty()) return option.description;
  return option.description + " (default: " + option.otherwise + ")";
}

std::string help_text(const CommandShape& command, size_t width) {
  std::string text = view::wrapped(command.description, width, 0) + "\n\n";
  text += view::wrapped("Usage: " + usage_text(command), width, 7) + "\n";
  if (!command.arguments.empty()) {
    text += "\nArguments:\n";
    for (const OptionShape& argument : command.arguments)
      text += two_columns(argument.value.empty() ? argument.names[0] : argument.value,
                          argument.description, width);
  }
  if (!command.options.empty()) {
    text += "\nOptions:\n";
    for (const OptionShape& option : command.options)
      text += two_columns(option_head(option), option_text(option), width);
  }
  if (!command.commands.empty()) {
    text += "\nCommands:\n";
    for (const CommandShape& each : command.commands)
      text += two_columns(last_word(each), each.description, width);
    text += "\n" +
            view::wrapped("'" + command.name + " COMMAND --help' says more of each.", width, 0) +
            "\n";
  }
  return text;
}

}  // namespace tendril::cli
