// SPDX-License-Identifier: Apache-2.0
// See manual.h.
#include "cli/words/manual.h"

#include <algorithm>

namespace tendril::cli {
namespace {

// Text of roff: nothing in it is a request or an escape.
std::string roff(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool begins = i == 0 || text[i - 1] == '\n';
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string bold(const std::string& text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + roff(text) + "\\fR"; }

std::string tagged(const std::string& head, const std::string& text) {
  return ".TP\n" + head + "\n" + roff(text) + "\n";
}

std::string options_text(const CommandShape& command) {
  std::string text;
  for (const OptionShape& argument : command.arguments)
    text += tagged(italic(argument.value.empty() ? argument.names[0] : argument.value),
                   argument.description);
  for (const OptionShape& option : command.options) {
    std::string head;
    for (const std::string& name : option.names) head += (head.empty() ? "" : ", ") + bold(name);
    if (!option.value.empty()) head += " " + italic(option.value);
    text += tagged(head, option_text(option));
  }
  return text;
}

std::string page_name(const CommandShape& command) {
  std::string name = command.name;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string synopsis(const CommandShape& command) {
  const std::string whole = usage_text(command);
  return bold(command.name) + roff(whole.substr(command.name.size()));
}

std::string page_head(const CommandShape& command, const std::string& version,
                      const std::string& what) {
  std::string title = page_name(command);
  for (char& c : title) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return ".\\\" Written by `tendril manual` from the command line's own description.\n.TH " +
         title + " 1 \"\" \"tendril " + version + "\" \"Tendril\"\n.SH NAME\n" +
         roff(page_name(command)) + " \\- " + roff(what) + "\n.SH SYNOPSIS\n" + synopsis(command) +
         "\n";
}

std::string exit_section(const CommandShape& command) {
  std::string text = ".SH EXIT STATUS\n";
  for (const auto& [status, meaning] : exit_statuses(command))
    text += tagged(bold(status), meaning);
  return text;
}

const char kEnvironment[] = R"(.SH ENVIRONMENT
.TP
\fBTENDRIL_SERVERS\fR
The servers to ask, with commas between them, where no \fB\-\-server\fR names one.
.TP
\fBTENDRIL_TOKEN_FILE\fR, \fBTENDRIL_TOKEN\fR
The file with the servers' token, or the token.
.TP
\fBTENDRIL_CLIENT_DIR\fR
The folder with Tendril's libcuda.so.1, if it is not beside this program.
.TP
\fBTENDRIL_LOG\fR
off, error, warning, info or debug: what the client library says on stderr.
.PP
docs/operating.md lists the rest.
.SH FILES
.TP
\fI~/.config/tendril/servers.conf\fR, \fI/etc/tendril/servers.conf\fR
The servers to ask, one a line, where neither an option nor a variable names one.
)";

std::string overview(const CommandShape& all, const std::string& version) {
  std::string text =
      page_head(all, version, "attach CUDA programs to slices of GPUs in the network");
  text += ".SH DESCRIPTION\n" + roff(all.description) +
          "\n.SH EXAMPLES\n.nf\ntendril serve\ntendril run \\-n 2 \\-p 0.5 \\-\\- python train.py\n"
          "tendril ls\n.fi\n.SH OPTIONS\n" +
          options_text(all) + ".SH COMMANDS\n";
  std::string others;
  for (const CommandShape& command : all.commands) {
    text += tagged(bold(last_word(command)), command.description);
    others += ".BR " + roff(page_name(command)) + " (1)\n";
  }
  text += exit_section(all) + kEnvironment + ".SH SEE ALSO\n";
  return text + others;
}

std::string page_of(const CommandShape& command, const std::string& version) {
  std::string what = command.description;
  if (!what.empty() && what[0] >= 'A' && what[0] <= 'Z') what[0] = static_cast<char>(what[0] + 32);
  std::string text = page_head(command, version, what);
  text += ".SH DESCRIPTION\n" + roff(command.description) + ".\n";
  if (!command.options.empty() || !command.arguments.empty())
    text += ".SH OPTIONS\n" + options_text(command);
  if (!command.commands.empty()) text += ".SH COMMANDS\n";
  for (const CommandShape& each : command.commands) {
    text += ".SS " + roff(last_word(each)) + "\n" + synopsis(each) + "\n.PP\n" +
            roff(each.description) + ".\n" + options_text(each);
  }
  return text + exit_section(command) + ".SH SEE ALSO\n.BR tendril (1)\n";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> exit_statuses(const CommandShape& command) {
  if (command.runs_a_program) {
    return {{"0 to 124", "The program's own status."},
            {"128 and more", "128 and the number of the signal that ended the program."},
            {"125", "There is no lease, so the program was not started."},
            {"126", "The program cannot be executed."},
            {"127", "There is no such program."},
            {"2", "The words of the command are wrong, and nothing was done."}};
  }
  return {{"0", "Done."},
          {"1", "Failed, or one of several servers failed; what the others said is shown."},
          {"2", "The words of the command are wrong, and nothing was done."}};
}

std::vector<ManualPage> manual_pages(const CommandShape& all, const std::string& version) {
  std::vector<ManualPage> pages = {{page_name(all) + ".1", overview(all, version)}};
  for (const CommandShape& command : all.commands)
    pages.push_back({page_name(command) + ".1", page_of(command, version)});
  return pages;
}

}  // namespace tendril::cli
