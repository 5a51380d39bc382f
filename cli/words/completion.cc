// SPDX-License-Identifier: Apache-2.0
// See completion.h.
#include "cli/words/completion.h"

#include <algorithm>

namespace tendril::cli {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// Drops single quotes from descriptions, because the three shells do not escape them in the same
// way.
std::string plain(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(),
                            [](char c) { return c == '\'' || c == ':' || c == '\n'; }),
             text.end());
  return text;
}

std::string bash(const std::vector<CommandShape>& commands) {
  std::vector<std::string> names;
  std::string cases;
  for (const CommandShape& command : commands) {
    names.push_back(command.name);
    cases += "    " + command.name + ") words='" + joined(command.options) + "' ;;\n";
  }
  return "# bash completion for tendril: source this file, or put it where your bash looks for "
         "completions.\n"
         "_tendril() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} words i\n"
         "  if ((COMP_CWORD == 1)); then\n"
         "    mapfile -t COMPREPLY < <(compgen -W '" +
         joined(names) +
         "' -- \"$current\")\n"
         "    return\n"
         "  fi\n"
         "  for ((i = 2; i < COMP_CWORD; i++)); do\n"
         "    if [[ ${COMP_WORDS[i]} == -- ]]; then\n"
         "      mapfile -t COMPREPLY < <(compgen -c -f -- \"$current\")\n"
         "      return\n"
         "    fi\n"
         "  done\n"
         "  case ${COMP_WORDS[1]} in\n" +
         cases +
         "  esac\n"
         "  if [[ $current == -* ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
         "  elif [[ ${COMP_WORDS[1]} == run ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -c -f -- \"$current\")\n"
         "  else\n"
         "    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
         "  fi\n"
         "}\n"
         "complete -F _tendril tendril\n";
}

std::string zsh(const std::vector<CommandShape>& commands) {
  std::string described, cases;
  for (const CommandShape& command : commands) {
    described += "    '" + command.name + ":" + plain(command.description) + "'\n";
    cases += "    " + command.name + ") compadd -- " + joined(command.options) + "; _files ;;\n";
  }
  return "#compdef tendril\n"
         "_tendril() {\n"
         "  local -a commands\n"
         "  commands=(\n" +
         described +
         "  )\n"
         "  if (( CURRENT == 2 )); then\n"
         "    _describe 'command' commands\n"
         "    return\n"
         "  fi\n"
         "  case ${words[2]} in\n" +
         cases +
         "  esac\n"
         "}\n"
         "compdef _tendril tendril\n";
}

std::string fish(const std::vector<CommandShape>& commands) {
  std::string text =
      "# fish completion for tendril\ncomplete -c tendril -n __fish_use_subcommand -f\n";
  for (const CommandShape& command : commands) {
    text += "complete -c tendril -n __fish_use_subcommand -f -a " + command.name + " -d '" +
            plain(command.description) + "'\n";
    for (const std::string& option : command.options) {
      const bool is_long = option.rfind("--", 0) == 0;
      text += "complete -c tendril -n '__fish_seen_subcommand_from " + command.name + "' " +
              (is_long ? "-l " + option.substr(2) : "-s " + option.substr(1)) + "\n";
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<CommandShape>& commands) {
  if (shell == "bash") return bash(commands);
  if (shell == "zsh") return zsh(commands);
  if (shell == "fish") return fish(commands);
  return "";
}

}  // namespace tendril::cli
