// SPDX-License-Identifier: Apache-2.0
// `tendril env`: prints the variables with which a program attaches without `tendril run`, from any
// launcher or a container without rights. The program itself takes its lease when it starts, and
// gives it back when it ends. The command writes nothing, so it works with a read-only
// configuration.
#include <stdio.h>

#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/environment.h"
#include "cli/integrations/docker.h"
#include "cli/integrations/edits.h"
#include "config/text.h"
#include "view/json.h"

namespace tendril::cli {
namespace {

using config::variable;

void print_shell(const Variables& variables, const std::string& libraries,
                 const std::string& programs) {
  printf("export LD_LIBRARY_PATH=%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n",
         shell_quoted(libraries).c_str());
  printf("export PATH=\"$PATH\":%s\n", shell_quoted(programs).c_str());
  for (const auto& [name, value] : variables)
    printf("export %s=%s\n", name.c_str(), shell_quoted(value).c_str());
}

}  // namespace

int print_environment(const EnvOptions& options) {
  if (options.docker) return docker_options(options);
  if (!options.program.empty())
    return complain(kUsage, "words after '--' are a container's command, which needs --docker");
  auto client = client_directory();
  if (!client.ok()) return complain(kFailed, client.status());
  auto servers = resolve_servers(options.servers);
  if (!servers.ok()) return complain(kFailed, servers.status());
  auto variables = attach_variables(options, *servers);
  if (!variables.ok()) return complain(kUsage, variables.status());
  const std::string token = token_path(options.token_file);
  const std::string nccl = nccl_for(options, *client, *servers);
  if (!token.empty()) variables->emplace_back("TENDRIL_TOKEN_FILE", token);
  if (!nccl.empty())
    variables->emplace_back("LD_PRELOAD", prefixed_path(nccl, variable("LD_PRELOAD")));
  if (options.show_token && token.empty() && !variable("TENDRIL_TOKEN").empty()) {
    variables->emplace_back("TENDRIL_TOKEN", variable("TENDRIL_TOKEN"));
  }
  std::string libraries = *client;
  if (options.opencl) {
    const base::Status there = add_opencl(*client, &*variables, &libraries);
    if (!there.ok()) return complain(kFailed, there);
  }
  if (options.json) {
    variables->emplace(variables->begin(), "LD_LIBRARY_PATH",
                       prefixed_path(libraries, variable("LD_LIBRARY_PATH")));
    printf("%s\n", view::variables_json(*variables).c_str());
  } else {
    print_shell(*variables, libraries, *client + "/bin");
  }
  return 0;
}

}  // namespace tendril::cli
