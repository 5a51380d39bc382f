// SPDX-License-Identifier: Apache-2.0
// What the command line says of words that it does not know: one line, with the nearest word that
// it knows. main.cc calls it when the parser has refused. Pure: it reads the words and the
// commands.
#pragma once

#include <string>
#include <vector>

namespace tendril::cli {

// A command with the commands and options below it. main.cc makes these from the parser, which is
// also where help comes from.
struct KnownCommand {
  std::string name;  // "tendril run"
  std::vector<std::string> commands, options;
};

// The word in `known` that is nearest to `word`. Empty if none is near: more than one change in a
// word of up to four letters, two in one of up to eight, three in a longer one, where two letters
// that changed places are one change. A beginning of a known word is near, too.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

// "unknown option '--parts' of 'tendril run'; did you mean '--part'?"
std::string unknown_word(const KnownCommand& command, const std::string& word);

}  // namespace tendril::cli
