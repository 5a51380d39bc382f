// SPDX-License-Identifier: Apache-2.0
// See completion.h.
#include "cli/words/completion.h"

#include <algorithm>
#include <functional>

namespace tendril::cli {
namespace {

// What may stand for a value.
enum class Values { kNone, kFiles, kServers, kLeases, kChoices };

Values values_of(const OptionShape& option) {
  if (!option.choices.empty()) return Values::kChoices;
  if (option.value.rfind("HOST[", 0) == 0) return Values::kServers;
  for (const char* word : {"FILE", "FOLDER", "LIBRARY", "PATH", "BEFORE"}) {
    if (option.value.find(word) != std::string::npos) return Values::kFiles;
  }
  const bool argument = option.names[0][0] != '-';
  return argument && option.names[0] == "lease" ? Values::kLeases : Values::kNone;
}

std::string joined_by(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// A shell's words that give the values, with `known` in front of what servers know.
std::string source_of(const OptionShape& option) {
  switch (values_of(option)) {
    case Values::kChoices:
      return "words " + joined_by(option.choices, " ");
    case Values::kServers:
      return "known servers";
    case Values::kLeases:
      return "known leases";
    case Values::kFiles:
      return "files";
    case Values::kNone:
      break;
  }
  return "nothing";
}

// "run", "pool apply"; empty: `tendril` itself.
std::string path_of(const CommandShape& command) {
  const size_t blank = command.name.find(' ');
  return blank == std::string::npos ? "" : command.name.substr(blank + 1);
}

void each_command(const CommandShape& command,
                  const std::function<void(const CommandShape&)>& visit) {
  visit(command);
  for (const CommandShape& below : command.commands) each_command(below, visit);
}

std::vector<std::string> first_words(const CommandShape& command) {
  std::vector<std::string> words;
  for (const CommandShape& below : command.commands) words.push_back(last_word(below));
  return words;
}

// The parts that bash and zsh share, as `case` branches: which words name a command, what follows
// an option, and what else a command takes.
struct Branches {
  std::string paths, values, rest;
};

Branches branches_of(const CommandShape& all) {
  Branches out;
  std::vector<std::string> paths;
  each_command(all, [&](const CommandShape& command) {
    const std::string path = path_of(command);
    if (!path.empty()) paths.push_back("'" + path + "'");
    std::vector<std::string> names;
    for (const OptionShape& option : command.options) {
      names.insert(names.end(), option.names.begin(), option.names.end());
      if (option.value.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names)
        patterns.push_back("'" + path + ":" + name + "'");
      out.values += "    " + joined_by(patterns, "|") + ") _tendril_" + source_of(option) + " ;;\n";
    }
    std::string rest = "words " + joined_by(first_words(command), " ");
    if (command.runs_a_program) {
      rest = "programs";
    } else if (!command.arguments.empty()) {
      rest = source_of(command.arguments[0]);
    } else if (command.commands.empty()) {
      rest = "nothing";
    }
    out.rest += "    '" + path + "') options='" + joined_by(names, " ") + "'; rest=(_tendril_" +
                rest + ") ;;\n";
  });
  out.paths = joined_by(paths, "|");
  return out;
}

std::string bash(const CommandShape& all) {
  const Branches branches = branches_of(all);
  return R"sh(# bash completion for tendril: source it, or put it where bash looks.
_tendril_words() { mapfile -t COMPREPLY < <(compgen -W "$*" -- "$current"); }
_tendril_known() {
  mapfile -t COMPREPLY < <(compgen -W "$(tendril known "$1" 2>/dev/null | cut -f1)" -- "$current")
}
_tendril_files() { mapfile -t COMPREPLY < <(compgen -f -- "$current"); }
_tendril_programs() { mapfile -t COMPREPLY < <(compgen -c -f -- "$current"); }
_tendril_nothing() { COMPREPLY=(); }
_tendril() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local path= next options= i
  local -a rest=(_tendril_nothing)
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      _tendril_programs
      return
    fi
    next=${path:+$path }${COMP_WORDS[i]}
    case $next in
    )sh" +
         branches.paths +
         R"sh() path=$next ;;
    esac
  done
  case $path:$before in
)sh" + branches.values +
         R"sh(    *)
      case $path in
)sh" + branches.rest +
         R"sh(      esac
      if [[ $current == -* ]]; then
        _tendril_words $options
      else
        "${rest[@]}"
      fi
      ;;
  esac
}
complete -F _tendril tendril
)sh";
}

std::string zsh(const CommandShape& all) {
  const Branches branches = branches_of(all);
  return R"sh(#compdef tendril
# zsh completion for tendril: put it as _tendril into a folder of your fpath.
_tendril_words() { compadd -- "$@" }
_tendril_known() { compadd -- ${(f)"$(tendril known $1 2>/dev/null | cut -f1)"} }
_tendril_files() { _files }
_tendril_programs() { _command_names -e; _files }
_tendril_nothing() { _message 'no more words' }
_tendril() {
  local current=${words[CURRENT]} before=${words[CURRENT-1]}
  local tendril_path= next options= i
  local -a rest=(_tendril_nothing)
  for ((i = 2; i < CURRENT; i++)); do
    if [[ ${words[i]} == -- ]]; then
      _tendril_programs
      return
    fi
    next=${tendril_path:+$tendril_path }${words[i]}
    case $next in
    )sh" +
         branches.paths +
         R"sh() tendril_path=$next ;;
    esac
  done
  case $tendril_path:$before in
)sh" + branches.values +
         R"sh(    *)
      case $tendril_path in
)sh" + branches.rest +
         R"sh(      esac
      if [[ $current == -* ]]; then
        _tendril_words ${=options}
      else
        "${rest[@]}"
      fi
      ;;
  esac
}
if [[ $funcstack[1] == _tendril ]]; then
  _tendril "$@"
else
  compdef _tendril tendril
fi
)sh";
}

// Without what a shell would take for more than text.
std::string without_quotes(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(),
                            [](char c) { return c == '\'' || c == '\\' || c == '\n'; }),
             text.end());
  return text;
}

std::string fish_values(const OptionShape& option) {
  switch (values_of(option)) {
    case Values::kChoices:
      return " -x -a '" + joined_by(option.choices, " ") + "'";
    case Values::kServers:
      return " -x -a '(tendril known servers 2>/dev/null)'";
    case Values::kLeases:
      return " -x -a '(tendril known leases 2>/dev/null)'";
    case Values::kFiles:
      return " -r -F";
    case Values::kNone:
      break;
  }
  return option.value.empty() ? "" : " -x";
}

std::string fish(const CommandShape& all) {
  std::string text = R"sh(# fish completion for tendril: put it into ~/.config/fish/completions.
function __tendril_at
    set -l words (commandline -opc)[2..]
    set -l named (string match -v -- '-*' $words)
    test "$named[1..$argv[1]]" = "$argv[2..]"
end
complete -c tendril -f
)sh";
  each_command(all, [&](const CommandShape& command) {
    const std::string path = path_of(command);
    const auto depth = std::count(path.begin(), path.end(), ' ') + (path.empty() ? 0 : 1);
    const std::string where = path.empty() ? "__fish_use_subcommand"
                                           : "__tendril_at " + std::to_string(depth) + " " + path;
    const std::string head = "complete -c tendril -n '" + where + "'";
    for (const CommandShape& below : command.commands)
      text +=
          head + " -f -a " + last_word(below) + " -d '" + without_quotes(below.description) + "'\n";
    for (const OptionShape& option : command.options) {
      text += head;
      for (const std::string& name : option.names)
        text += name[1] == '-' ? " -l " + name.substr(2) : " -s " + name.substr(1);
      text += fish_values(option) + " -d '" + without_quotes(option.description) + "'\n";
    }
    if (!command.arguments.empty()) text += head + fish_values(command.arguments[0]) + "\n";
    if (command.runs_a_program) text += head + " -F -a '(__fish_complete_command)'\n";
  });
  return text;
}

}  // namespace

std::string completion_script(const std::string& shell, const CommandShape& all) {
  if (shell == "bash") return bash(all);
  if (shell == "zsh") return zsh(all);
  if (shell == "fish") return fish(all);
  return "";
}

}  // namespace tendril::cli
