// SPDX-License-Identifier: Apache-2.0
// `tendril env`: prints the variables with which a program attaches without `tendril run`, from any
// launcher or a container without rights. The program itself takes its lease when it starts, and
// gives it back when it ends. The command contacts no server and writes nothing, so it works with a
// read-only configuration.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/environment.h"
#include "cli/servers.h"
#include "cli/slices.h"
#include "config/pool_settings.h"
#include "config/quantity.h"
#include "view/json.h"

namespace tendril::cli {
namespace {

constexpr const char* kContainerLibrary = "/opt/tendril/lib";
constexpr const char* kContainerToken = "/run/secrets/tendril-token";

std::string variable(const char* name) {
  const char* const value = getenv(name);
  return value != nullptr ? value : "";
}

std::string absolute(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) != nullptr ? resolved : path;
}

// The path of the token, wherever it was named. Empty if only its value is known, or there is none.
std::string token_path(const EnvOptions& options) {
  if (!options.token_file.empty()) return absolute(options.token_file);
  if (!variable("TENDRIL_TOKEN").empty() || variable("TENDRIL_TOKEN_FILE").empty()) return "";
  return absolute(variable("TENDRIL_TOKEN_FILE"));
}

base::Result<Variables> slice_variables(const SliceOptions& slice, const std::string& servers) {
  auto spec = slice_spec(slice);
  if (!spec.ok()) return spec.status();
  Variables variables = {{"TENDRIL_SERVERS", servers},
                         {"TENDRIL_GPUS", std::to_string(slice.count)}};
  if (spec->share_millionths != 0 && !slice.share.empty()) {
    variables.emplace_back("TENDRIL_SLICE", config::format_fraction(spec->share_millionths));
  }
  if (spec->memory_bytes != 0)
    variables.emplace_back("TENDRIL_MEMORY", config::format_size_exactly(spec->memory_bytes));
  if (slice.capped) variables.emplace_back("TENDRIL_CAP", "1");
  if (slice.priority != 0)
    variables.emplace_back("TENDRIL_PRIORITY", std::to_string(slice.priority));
  return variables;
}

base::Status add_pool_variables(const PoolOptions& options, Variables* variables) {
  auto settings = pool_settings(options);
  if (!settings.ok()) return settings.status();
  const wire::PoolWish& wish = settings->wish;
  const auto add = [variables](const char* name, const std::string& value) {
    if (!value.empty()) variables->emplace_back(name, value);
  };
  add("TENDRIL_FILTER", wish.filter);
  add("TENDRIL_CLASS", wish.user_class);
  add("TENDRIL_ACCOUNT", wish.account);
  add("TENDRIL_LAYOUT", wish.layout == wire::Layout::kAny ? "" : config::layout_name(wish.layout));
  add("TENDRIL_MAX", wish.longest_s == 0 ? "" : std::to_string(wish.longest_s) + "s");
  add("TENDRIL_WAIT",
      settings->wait_s == config::kWaitsForEver ? "" : std::to_string(settings->wait_s) + "s");
  return base::Status();
}

void print_docker(const Variables& variables, const std::string& client, const std::string& token,
                  const ServerList& servers) {
  std::string line = "-v " + shell_quoted(client) + ":" + kContainerLibrary +
                     ":ro -e LD_LIBRARY_PATH=" + kContainerLibrary;
  for (const auto& [name, value] : variables) line += " -e " + name + "=" + shell_quoted(value);
  if (!token.empty()) {
    line += " -v " + shell_quoted(token) + ":" + kContainerToken +
            ":ro -e TENDRIL_TOKEN_FILE=" + kContainerToken;
  } else if (!variable("TENDRIL_TOKEN").empty()) {
    line += " -e TENDRIL_TOKEN";  // docker takes the value from its own environment
  }
  printf("%s\n", line.c_str());
  for (const session::Endpoint& endpoint : servers.endpoints) {
    if (endpoint.host.rfind("127.", 0) != 0 && endpoint.host != "localhost" &&
        endpoint.host != "::1")
      continue;
    fprintf(stderr,
            "tendril: %s is this machine's own loopback: the container reaches it with --network "
            "host only\n",
            endpoint.text.c_str());
  }
}

// Of one server, if it answers.
bool lends_nccl(const EnvOptions& options, const ServerList& servers) {
  if (servers.endpoints.size() != 1) return false;
  auto reached = reach(options);
  if (!reached.ok()) return false;
  const std::vector<ServerView> views = ask_servers(servers.endpoints, reached->connect);
  return all_answer(views) && !views.empty() && !views[0].list.nccl_versions.empty();
}

void print_shell(const Variables& variables, const std::string& client) {
  printf("export LD_LIBRARY_PATH=%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n",
         shell_quoted(client).c_str());
  for (const auto& [name, value] : variables)
    printf("export %s=%s\n", name.c_str(), shell_quoted(value).c_str());
}

}  // namespace

int print_environment(const EnvOptions& options) {
  auto client = client_directory();
  if (!client.ok()) return complain(kFailed, client.status());
  auto servers = resolve_servers(options.servers);
  if (!servers.ok()) return complain(kFailed, servers.status());
  SliceOptions slice = options.slice;
  if (slice.count == 0) {
    slice.count =
        servers->source == "--server" ? static_cast<uint32_t>(servers->endpoints.size()) : 1;
  }
  auto variables = slice_variables(slice, servers_text(servers->endpoints));
  if (!variables.ok()) return complain(kFailed, variables.status());
  const base::Status asked = add_pool_variables(options.pool, &*variables);
  if (!asked.ok()) return complain(kUsage, asked);
  const std::string token = token_path(options);
  const std::string nccl = nccl_to_preload(*client, servers->endpoints.size(),
                                           slice.count > 1 && lends_nccl(options, *servers));
  if (options.docker) {
    // The client's folder has another place in the container.
    if (!nccl.empty())
      variables->emplace_back("LD_PRELOAD", kContainerLibrary + nccl.substr(client->size()));
    print_docker(*variables, *client, token, *servers);
    return 0;
  }
  if (!token.empty()) variables->emplace_back("TENDRIL_TOKEN_FILE", token);
  if (!nccl.empty())
    variables->emplace_back("LD_PRELOAD", prefixed_path(nccl, variable("LD_PRELOAD")));
  if (options.show_token && token.empty() && !variable("TENDRIL_TOKEN").empty()) {
    variables->emplace_back("TENDRIL_TOKEN", variable("TENDRIL_TOKEN"));
  }
  if (options.json) {
    variables->emplace(variables->begin(), "LD_LIBRARY_PATH",
                       prefixed_path(*client, variable("LD_LIBRARY_PATH")));
    printf("%s\n", view::variables_json(*variables).c_str());
  } else {
    print_shell(*variables, *client);
  }
  return 0;
}

}  // namespace tendril::cli
