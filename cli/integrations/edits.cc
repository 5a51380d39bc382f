// SPDX-License-Identifier: Apache-2.0
// See edits.h.
#include "cli/integrations/edits.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/slices.h"
#include "config/local_sockets.h"
#include "config/pool_settings.h"
#include "config/quantity.h"
#include "config/text.h"
#include "identity/store.h"

namespace tendril::cli {
namespace {

using config::variable;

// Places in the container. The library finds the command as in an installation, ../../bin/tendril.
constexpr char kLibraries[] = "/opt/tendril/lib/tendril";
constexpr char kCommand[] = "/opt/tendril/bin/tendril";
// Where every image's PATH leads. The program needs no library of ours to be found.
constexpr char kSmi[] = "/usr/bin/nvidia-smi";
constexpr char kToken[] = "/run/secrets/tendril-token";
constexpr char kIdentity[] = "/run/secrets/tendril-identity";
constexpr char kOpencl[] = "/opencl";  // below the libraries
constexpr char kNoOpencl[] =
    "Tendril's OpenCL driver is not beside the client library; install it (package "
    "tendril-client), or leave --opencl out";
constexpr char kSockets[] = "/run/tendril-servers/";

std::string absolute(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) != nullptr ? resolved : path;
}

void add_slice_variables(const SliceOptions& slice, const wire::SliceSpec& spec,
                         Variables* variables) {
  if (spec.share_millionths != 0 && !slice.share.empty()) {
    variables->emplace_back("TENDRIL_SLICE", config::format_fraction(spec.share_millionths));
  }
  if (spec.memory_bytes != 0)
    variables->emplace_back("TENDRIL_MEMORY", config::format_size_exactly(spec.memory_bytes));
  if (slice.capped) variables->emplace_back("TENDRIL_CAP", "1");
  if (slice.priority != 0)
    variables->emplace_back("TENDRIL_PRIORITY", std::to_string(slice.priority));
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

bool is_loopback(const session::Endpoint& endpoint) {
  return endpoint.host.rfind("127.", 0) == 0 || endpoint.host == "localhost" ||
         endpoint.host == "::1";
}

// The users' socket of this machine's server with that port. Empty: there is none for this user.
std::string users_socket(uint16_t port) {
  for (const std::string& folder : {config::sockets_of_user(), config::sockets_of_root()}) {
    const std::string path = folder + "/" + std::to_string(port) + "/" + config::kUsersSocket;
    if (!folder.empty() && access(path.c_str(), W_OK) == 0) return path;
  }
  return "";
}

// The servers as the container reaches them. A socket of this machine is mounted, and the loopback
// of this machine is not the container's.
ServerList servers_for_container(const ServerList& servers, ContainerEdits* edits) {
  ServerList seen = servers;
  for (session::Endpoint& endpoint : seen.endpoints) {
    std::string path = endpoint.unix_path;
    if (path.empty() && is_loopback(endpoint)) path = users_socket(endpoint.port);
    if (!path.empty()) {
      const std::string target = kSockets + std::to_string(edits->mounts.size());
      edits->mounts.push_back({absolute(path), target});
      endpoint.text = "unix:" + target;
    } else if (is_loopback(endpoint)) {
      edits->notes.push_back(endpoint.text +
                             " is this machine's own loopback, and its server has no socket for "
                             "users: the container reaches it with --network host only");
    }
  }
  return seen;
}

void warn_of_owner(const std::string& path, const char* instead, ContainerEdits* edits) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || (info.st_mode & S_IROTH) != 0) return;
  const std::string owner =
      info.st_uid == 0 ? "other than root" : "but root and number " + std::to_string(info.st_uid);
  edits->notes.push_back("'" + path + "' is for its owner only, so that no user of the container " +
                         owner + " can read it; " + instead);
}

// How the container's programs prove who they are: the token, or this user's certificates. The
// authority's own key stays here.
void add_credentials(const EnvOptions& options, bool by_value, ContainerEdits* edits) {
  const std::string token = token_path(options.token_file);
  if (by_value && (!token.empty() || !variable("TENDRIL_TOKEN").empty())) return;
  if (!token.empty()) {
    edits->mounts.push_back({token, kToken});
    edits->variables.emplace_back("TENDRIL_TOKEN_FILE", kToken);
    warn_of_owner(token,
                  "start it with 'tendril env --docker ... -- docker run ...', which passes the "
                  "token on",
                  edits);
    return;
  }
  const std::string pools = identity::identity_folder("") + "/pools";
  if (!variable("TENDRIL_TOKEN").empty() || access(pools.c_str(), R_OK | X_OK) != 0) return;
  edits->mounts.push_back({absolute(pools), std::string(kIdentity) + "/pools"});
  edits->variables.emplace_back("TENDRIL_IDENTITY", kIdentity);
  warn_of_owner(pools, "start it as that user (--user)", edits);
}

// Of one server, if it answers.
bool lends_nccl(const EnvOptions& options, const ServerList& servers) {
  if (servers.endpoints.size() != 1) return false;
  auto reached = reach(options);
  if (!reached.ok()) return false;
  const std::vector<ServerView> views = ask_servers(servers.endpoints, reached->connect);
  return all_answer(views) && !views.empty() && !views[0].list.nccl_versions.empty();
}

}  // namespace

std::string nccl_for(const EnvOptions& options, const std::string& client,
                     const ServerList& servers) {
  return nccl_to_preload(client, servers.endpoints.size(),
                         options.slice.count > 1 && lends_nccl(options, servers));
}

base::Status add_opencl(const std::string& client, Variables* variables, std::string* libraries) {
  const std::string folder = client + kOpencl;
  if (access((folder + "/tendril.icd").c_str(), R_OK) != 0)
    return base::Status(base::Code::kNotFound, kNoOpencl);
  variables->emplace_back("OCL_ICD_VENDORS", folder);
  *libraries = folder + ":" + *libraries;
  return base::Status();
}

std::string token_path(const std::string& token_file) {
  if (!token_file.empty()) return absolute(token_file);
  if (!variable("TENDRIL_TOKEN").empty() || variable("TENDRIL_TOKEN_FILE").empty()) return "";
  return absolute(variable("TENDRIL_TOKEN_FILE"));
}

base::Result<Variables> attach_variables(const EnvOptions& options, const ServerList& servers) {
  const bool counted = options.slice.count == 0 && servers.source == "--server";
  const size_t gpus = counted ? servers.endpoints.size() : std::max(options.slice.count, 1u);
  auto spec = slice_spec(options.slice);
  if (!spec.ok()) return spec.status();
  Variables variables = {{"TENDRIL_SERVERS", servers_text(servers.endpoints)},
                         {"TENDRIL_GPUS", std::to_string(gpus)}};
  add_slice_variables(options.slice, *spec, &variables);
  const base::Status asked = add_pool_variables(options.pool, &variables);
  if (!asked.ok()) return asked;
  return variables;
}

base::Result<ContainerEdits> container_edits(const EnvOptions& options, bool by_value) {
  auto client = client_directory();
  if (!client.ok()) return client.status();
  auto servers = resolve_servers(options.servers);
  if (!servers.ok()) return servers.status();
  ContainerEdits edits;
  edits.mounts = {{*client, kLibraries}, {absolute("/proc/self/exe"), kCommand}};
  const std::string smi = *client + "/bin/nvidia-smi";
  if (access(smi.c_str(), X_OK) == 0) edits.mounts.push_back({smi, kSmi});
  auto variables = attach_variables(options, servers_for_container(*servers, &edits));
  if (!variables.ok()) return variables.status();
  // Preloaded, because LD_LIBRARY_PATH is the image's own, and its loader's cache knows nothing of
  // what is mounted. Triton looks for a folder to link with.
  const std::string nccl = nccl_for(options, *client, *servers);
  std::string preloaded = nccl.empty() ? "" : kLibraries + nccl.substr(client->size()) + ":";
  for (const char* const library : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    preloaded += std::string(preloaded.empty() || preloaded.back() == ':' ? "" : ":") + kLibraries +
                 "/" + library;
  }
  edits.variables = {{"LD_PRELOAD", preloaded}, {"TRITON_LIBCUDA_PATH", kLibraries}};
  edits.variables.insert(edits.variables.end(), variables->begin(), variables->end());
  if (options.opencl) {
    const std::string folder = std::string(kOpencl) + "/container";
    if (access((*client + "/opencl/container/tendril.icd").c_str(), R_OK) != 0)
      return base::Status(base::Code::kNotFound, kNoOpencl);
    edits.variables.emplace_back("OCL_ICD_VENDORS", kLibraries + folder);
  }
  add_credentials(options, by_value, &edits);
  return edits;
}

}  // namespace tendril::cli
