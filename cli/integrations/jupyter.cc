// SPDX-License-Identifier: Apache-2.0
// `tendril jupyter install`: writes a kernel's description, with which notebooks of Jupyter and VS
// Code have a slice of a network GPU. The kernel is the user's own Python with the variables of
// `tendril env`, so it takes its slice at the first GPU call and gives it back when it ends.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/environment.h"
#include "cli/integrations/edits.h"
#include "cli/integrations/kernel_text.h"
#include "config/text.h"
#include "daemon/child_process.h"

namespace tendril::cli {
namespace {

using base::Code;
using base::Status;
using config::variable;
using Json = nlohmann::ordered_json;

constexpr int kPythonMaxMs = 60'000;

// The Python of the environment that this command is in, else the first of PATH.
std::string usual_python() {
  char self[PATH_MAX] = {};
  const ssize_t got = readlink("/proc/self/exe", self, sizeof self - 1);
  const std::string path = got > 0 ? std::string(self, static_cast<size_t>(got)) : "";
  const std::string beside = path.substr(0, path.rfind('/')) + "/python3";
  if (access(beside.c_str(), X_OK) == 0 && path.rfind("/usr/", 0) != 0) return beside;
  return "python3";
}

// Its absolute name. Fails with what to do if it cannot run a kernel.
base::Result<std::string> checked_python(const std::string& python) {
  auto said = daemon::run_child("/usr/bin/env",
                                {python, "-c", "import sys, ipykernel; print(sys.executable)"},
                                kPythonMaxMs, daemon::ChildEnvironment::kWhole);
  if (!said.ok()) return said.status();
  if (said->wait_status != 0) {
    return Status(
        Code::kNotFound,
        "'" + python + "' does not run notebooks: " +
            config::trimmed(said->text.substr(said->text.rfind('\n', said->text.size() - 2) + 1)) +
            "; install ipykernel there, or name another one with "
            "--python");
  }
  return config::trimmed(said->text);
}

std::string kernels_folder(const JupyterOptions& options) {
  std::string data = variable("JUPYTER_DATA_DIR");
  if (!options.prefix.empty()) {
    data = options.prefix + "/share/jupyter";
  } else if (data.empty()) {
    const std::string share = variable("XDG_DATA_HOME");
    data = (share.empty() ? variable("HOME") + "/.local/share" : share) + "/jupyter";
  }
  return data + "/kernels";
}

Status make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (mkdir(part.c_str(), 0755) != 0 && errno != EEXIST)
      return base::errno_status(Code::kUnavailable, ("cannot make '" + part + "'").c_str(), errno);
    if (at == std::string::npos) return {};
  }
}

Status write_text(const std::string& path, const std::string& text) {
  FILE* const file = fopen(path.c_str(), "we");
  const bool written = file != nullptr && fputs(text.c_str(), file) >= 0;
  if ((file != nullptr && fclose(file) != 0) || !written)
    return base::errno_status(Code::kUnavailable, ("cannot write '" + path + "'").c_str(), errno);
  return {};
}

base::Result<std::string> description(const JupyterOptions& options, const std::string& python,
                                      const std::string& folder) {
  auto client = client_directory();
  if (!client.ok()) return client.status();
  auto servers = resolve_servers(options.servers);
  if (!servers.ok()) return servers.status();
  auto variables = attach_variables(options, *servers);
  if (!variables.ok()) return variables.status();
  char self[PATH_MAX] = "tendril";
  if (realpath("/proc/self/exe", self) == nullptr) return Status(Code::kInternal, "no /proc");
  // Jupyter puts the value that it has for the second part.
  std::string libraries = *client;
  if (options.opencl) {
    const Status there = add_opencl(*client, &*variables, &libraries);
    if (!there.ok()) return there;
  }
  Json environment = {{"LD_LIBRARY_PATH", libraries + ":${LD_LIBRARY_PATH}"},
                      {"PATH", "${PATH}:" + *client + "/bin"},
                      {"TENDRIL_COMMAND", self}};
  for (const auto& [name, value] : *variables) environment[name] = value;
  const std::string token = token_path(options.token_file);
  if (!token.empty()) environment["TENDRIL_TOKEN_FILE"] = token;
  const std::string nccl = nccl_for(options, *client, *servers);
  if (!nccl.empty()) environment["LD_PRELOAD"] = nccl;
  std::string slice = options.slice.share;
  if (slice.empty()) slice = options.slice.memory.empty() ? "1" : options.slice.memory;
  // Debuggers of notebooks miss breakpoints with frozen modules. Older Pythons ignore the option.
  const Json all = {
      {"argv", {python, "-Xfrozen_modules=off", folder + "/kernel.py", "-f", "{connection_file}"}},
      {"display_name", options.display_name.empty() ? "Python 3 with " + slice + " of a network GPU"
                                                    : options.display_name},
      {"language", "python"},
      {"metadata", {{"debugger", true}}},
      {"env", environment}};
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool is_kernel_name(const std::string& name) {
  return !name.empty() &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_.") == std::string::npos;
}

}  // namespace

int install_kernel(const JupyterOptions& options) {
  if (!is_kernel_name(options.name)) {
    return complain(kUsage,
                    "a kernel's name has small letters, digits, '-', '_' and '.' only; "
                    "--display-name is what people read");
  }
  if (options.prefix.empty() && variable("HOME").empty() && variable("JUPYTER_DATA_DIR").empty())
    return complain(kUsage, "there is no HOME to write to; say where with --prefix");
  auto python = checked_python(options.python.empty() ? usual_python() : options.python);
  if (!python.ok()) return complain(kFailed, python.status());
  const std::string folder = kernels_folder(options) + "/" + options.name;
  Status done = make_folders(folder);
  char resolved[PATH_MAX];
  if (done.ok() && realpath(folder.c_str(), resolved) == nullptr)
    done = base::errno_status(Code::kUnavailable, ("cannot use '" + folder + "'").c_str(), errno);
  if (!done.ok()) return complain(kFailed, done);
  auto text = description(options, *python, resolved);
  if (!text.ok()) return complain(kFailed, text.status());
  done = write_text(std::string(resolved) + "/kernel.py", kKernelText);
  if (done.ok()) done = write_text(std::string(resolved) + "/kernel.json", *text);
  if (!done.ok()) return complain(kFailed, done);
  printf(
      "wrote %s: choose that kernel in Jupyter or VS Code.\n"
      "A notebook takes its slice at its first GPU call and gives it back when its kernel ends;\n"
      "%%gpu says what it has. 'jupyter kernelspec remove %s' takes this back.\n",
      resolved, options.name.c_str());
  return 0;
}

}  // namespace tendril::cli
