// SPDX-License-Identifier: Apache-2.0
// See options.h.
#include "client/smi/options.h"

#include <cerrno>
#include <cstdlib>

#include "base/text.h"
#include "client/smi/fields.h"
#include "client/smi/log.h"
#include "client/smi/processes.h"

namespace tendril::client::smi {
namespace {

enum class Key {
  kIds,
  kFile,
  kLoop,
  kLoopMs,
  kXml,
  kDtd,
  kDisplay,
  kFormat,
  kQueryGpu,
  kQueryProcesses,
  kQueryAccounted,
  kAction,
  kChange,  // what a slice's user may not do
};

struct Option {
  const char* brief;  // "-i"; "": none
  const char* full;   // "--id"
  Key key;
  bool has_value = false;
  bool may_lack_value = false;
  Action action = Action::kSummary;
};

constexpr Option kOptions[] = {
    {"-i", "--id", Key::kIds, true},
    {"-f", "--filename", Key::kFile, true},
    {"-l", "--loop", Key::kLoop, true, true},
    {"-lms", "--loop-ms", Key::kLoopMs, true},
    {"-x", "--xml-format", Key::kXml},
    {"", "--dtd", Key::kDtd},
    {"-d", "--display", Key::kDisplay, true},
    {"", "--format", Key::kFormat, true},
    {"", "--query-gpu", Key::kQueryGpu, true},
    {"", "--query-compute-apps", Key::kQueryProcesses, true},
    {"", "--query-accounted-apps", Key::kQueryAccounted, true},
    {"-L", "--list-gpus", Key::kAction, false, false, Action::kList},
    {"-B", "--list-excluded-gpus", Key::kAction, false, false, Action::kExcluded},
    {"-q", "--query", Key::kAction, false, false, Action::kLog},
    {"-h", "--help", Key::kAction, false, false, Action::kHelp},
    {"", "--help-query-gpu", Key::kAction, false, false, Action::kHelpQueryGpu},
    {"", "--help-query-compute-apps", Key::kAction, false, false, Action::kHelpQueryProcesses},
    {"", "--version", Key::kAction, false, false, Action::kVersion},
    {"-pm", "--persistence-mode", Key::kChange, true},
    {"-e", "--ecc-config", Key::kChange, true},
    {"-p", "--reset-ecc-errors", Key::kChange, true},
    {"-c", "--compute-mode", Key::kChange, true},
    {"-r", "--gpu-reset", Key::kChange},
    {"-mig", "--multi-instance-gpu", Key::kChange, true},
    {"-pl", "--power-limit", Key::kChange, true},
    {"-lgc", "--lock-gpu-clocks", Key::kChange, true},
    {"-rgc", "--reset-gpu-clocks", Key::kChange},
    {"-lmc", "--lock-memory-clocks", Key::kChange, true},
    {"-rmc", "--reset-memory-clocks", Key::kChange},
    {"-ac", "--applications-clocks", Key::kChange, true},
    {"-rac", "--reset-applications-clocks", Key::kChange},
    {"-am", "--accounting-mode", Key::kChange, true},
    {"-caa", "--clear-accounted-apps", Key::kChange},
    {"-gtt", "--gpu-target-temp", Key::kChange, true},
};

// What other first words the vendor's tool has.
constexpr const char* kCommands[] = {
    "dmon",       "daemon",          "replay",          "pmon",           "nvlink", "drain",
    "clocks",     "encodersessions", "fbcsessions",     "vgpu",           "mig",    "boost-slider",
    "power-hint", "conf-compute",    "power-smoothing", "power-profiles", "c2c"};

bool refuse(Refusal* refusal, int status, std::string text) {
  *refusal = {std::move(text), status};
  return false;
}

bool unknown(Refusal* refusal, const std::string& word) {
  return refuse(refusal, kUnknownOption,
                "ERROR: Option " + base::printable(word) +
                    " is not recognized. Please run 'nvidia-smi -h'.\n\n");
}

// The option of `word`, and what stands behind its '='.
const Option* option_of(const std::string& word, std::string* value, bool* has_value) {
  const size_t sign = word.find('=');
  const std::string name = word.substr(0, sign);
  *has_value = sign != std::string::npos;
  *value = *has_value ? word.substr(sign + 1) : "";
  for (const Option& option : kOptions)
    if (name == option.full || (*option.brief != 0 && name == option.brief)) return &option;
  return nullptr;
}

bool read_loop(const std::string& value, uint64_t unit_ms, Options* options, Refusal* refusal) {
  char* end = nullptr;
  errno = 0;
  const unsigned long long number = strtoull(value.c_str(), &end, 10);
  // As the vendor's: a word that is no number means five seconds.
  const bool good = !value.empty() && *end == 0 && errno == 0 && number < 1'000'000'000;
  options->loop_ms = good ? number * unit_ms : 5000;
  return options->loop_ms != 0 ||
         refuse(refusal, kWrongUsage,
                "Provided [-l(ms) | --loop(-ms)=] value is incorrect. Loop frequency must be "
                "greater than 0.\n\n");
}

bool read_format(const std::string& value, Options* options, Refusal* refusal) {
  for (const std::string& word : base::split_at_commas(value)) {
    if (word == "noheader")
      options->header = false;
    else if (word == "nounits")
      options->units = false;
    else if (word != "csv" && !word.empty())
      return refuse(refusal, kWrongUsage, "Format modifier is not recognized.\n");
  }
  return true;
}

bool read_fields(const std::string& value, Action action, Options* options, Refusal* refusal) {
  options->action = action;
  options->fields = value.empty() ? std::vector<std::string>() : base::split_at_commas(value);
  for (const std::string& field : options->fields) {
    const bool known = action == Action::kQueryGpu ? find_field(field) != nullptr
                                                   : find_process_field(field) != nullptr;
    if (!known)
      return refuse(refusal, kWrongUsage,
                    "Field \"" + base::printable(field) + "\" is not a valid field to query.\n\n");
  }
  return true;
}

bool read_displays(const std::string& value, Options* options, Refusal* refusal) {
  options->displays = base::split_at_commas(value);
  for (const std::string& word : options->displays)
    if (!is_display(word))
      return refuse(refusal, kWrongUsage, "Failed to parse --display/-d flags\n");
  return true;
}

// What was asked for besides the action.
struct Seen {
  std::string ids, xml, format;  // the words, as they were written
};

bool take(const Option& option, const std::string& word, const std::string& value, Options* options,
          Seen* seen, Refusal* refusal) {
  switch (option.key) {
    case Key::kIds:
      seen->ids = word;
      options->ids = base::split_at_commas(value);
      return !value.empty() ||
             refuse(refusal, kUnknownOption, "Failed to parse device string on command line\n");
    case Key::kFile:
      options->file = value;
      return true;
    case Key::kLoop:
      return read_loop(value, 1000, options, refusal);
    case Key::kLoopMs:
      return read_loop(value, 1, options, refusal);
    case Key::kXml:
      options->xml = true;
      seen->xml = word;
      return true;
    case Key::kDtd:
      return true;  // the vendor's definition is not ours to give
    case Key::kDisplay:
      return read_displays(value, options, refusal);
    case Key::kFormat:
      seen->format = word;
      return read_format(value, options, refusal);
    case Key::kQueryGpu:
      return read_fields(value, Action::kQueryGpu, options, refusal);
    case Key::kQueryProcesses:
      return read_fields(value, Action::kQueryProcesses, options, refusal);
    case Key::kQueryAccounted:
      return refuse(refusal, kWrongUsage,
                    "Tendril keeps no accounts of processes here; 'tendril report' shows a pool's "
                    "history.\n");
    case Key::kAction:
      options->action = option.action;
      return true;
    case Key::kChange:
      return refuse(refusal, kNoPermission,
                    base::printable(word) +
                        " would change the GPU, which belongs to its server: only the server's "
                        "administrator can do that there.\n");
  }
  return true;
}

// What does not go together.
bool check(const Options& options, const Seen& seen, Refusal* refusal) {
  const bool queries =
      options.action == Action::kQueryGpu || options.action == Action::kQueryProcesses;
  if (!seen.format.empty() && !queries) return unknown(refusal, seen.format);
  if (options.xml && options.action != Action::kLog)
    return refuse(refusal, kWrongUsage,
                  "Invalid combination of input arguments. Specify -q/--query and "
                  "-x/--xml-format to run an XML query.  Please run 'nvidia-smi -h' for help.\n\n");
  if (!options.displays.empty() && options.action != Action::kLog)
    return refuse(refusal, kWrongUsage,
                  "Invalid combination of input arguments. Specify -q/--query and -d/--display to "
                  "run a filtered query.  Please run 'nvidia-smi -h' for help.\n\n");
  if (!seen.ids.empty() && options.action == Action::kList)
    return refuse(refusal, kWrongUsage,
                  "ERROR: Option " + base::printable(seen.ids) +
                      " is not valid for this command. Please run 'nvidia-smi -h' for help.\n\n");
  return true;
}

bool parse_command(const std::vector<std::string>& words, Options* options, Refusal* refusal) {
  if (words[0] == "topo") {
    options->action = Action::kTopology;
    const bool matrix = words.size() == 2 && (words[1] == "-m" || words[1] == "--matrix");
    return matrix || refuse(refusal, kWrongUsage,
                            "Tendril's nvidia-smi answers 'nvidia-smi topo -m' only.\n");
  }
  for (const char* const command : kCommands)
    if (words[0] == command)
      return refuse(refusal, kWrongUsage,
                    "Tendril's nvidia-smi does not have '" + words[0] +
                        "'; 'tendril top' and 'tendril smi' show what GPUs do.\n");
  return unknown(refusal, words[0]);
}

}  // namespace

bool parse(const std::vector<std::string>& words, Options* options, Refusal* refusal) {
  if (!words.empty() && words[0].rfind('-', 0) != 0) return parse_command(words, options, refusal);
  Seen seen;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string value;
    bool has_value = false;
    const Option* const option = option_of(words[i], &value, &has_value);
    if (option == nullptr || (has_value && !option->has_value)) return unknown(refusal, words[i]);
    const std::string& word = words[i];
    if (option->has_value && !has_value) {
      const bool follows =
          i + 1 < words.size() && (!option->may_lack_value || words[i + 1].rfind('-', 0) != 0);
      if (!follows && !option->may_lack_value)
        return refuse(refusal, kWrongUsage,
                      "ERROR: Option " + word + " needs a value. Please run 'nvidia-smi -h'.\n\n");
      if (follows) value = words[++i];
    }
    if (!take(*option, word, value, options, &seen, refusal)) return false;
  }
  return check(*options, seen, refusal);
}

}  // namespace tendril::client::smi
