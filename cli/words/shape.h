// SPDX-License-Identifier: Apache-2.0
// What there is to write on the command line, as data. main.cc makes it from the parser. Help, the
// pages of the manual and the completion scripts are made from it, so that they cannot differ.
#pragma once

#include <string>
#include <vector>

namespace tendril::cli {

struct OptionShape {
  std::vector<std::string> names;  // "-n", "--gpus"; of an argument its one name, without dashes
  std::string value;               // "FILE"; empty: it takes none
  std::vector<std::string> choices;
  std::string description;
  std::string otherwise;  // what holds without it; empty: the description says so, or nothing
  bool repeatable = false;
};

struct CommandShape {
  std::string name;  // "tendril pool apply"
  std::string description;
  std::vector<OptionShape> options, arguments;
  std::vector<CommandShape> commands;
  bool runs_a_program = false;  // its last words are those of a program
};

// The last word of its name.
std::string last_word(const CommandShape& command);
// "tendril run [OPTIONS] [--] PROGRAM [ARGUMENT...]"
std::string usage_text(const CommandShape& command);
// "-n, --gpus N"
std::string option_head(const OptionShape& option);
// Its description, with what holds otherwise.
std::string option_text(const OptionShape& option);
// The help of a command, in lines of at most `width` characters.
std::string help_text(const CommandShape& command, size_t width);

}  // namespace tendril::cli
