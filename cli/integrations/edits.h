// SPDX-License-Identifier: Apache-2.0
// What a container needs so that the programs in it attach: variables, and files of this machine
// that are mounted. `env --docker` writes it as options of docker run, `cdi generate` for every
// runtime that reads CDI. Nothing here writes a file.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/servers.h"

namespace tendril::cli {

// The variables of cli/README.md that say which servers and slices: those that `options` names.
base::Result<Variables> attach_variables(const EnvOptions& options, const ServerList& servers);
// As nccl_to_preload. For several GPUs of one server it asks that server whether it lends NCCL.
std::string nccl_for(const EnvOptions& options, const std::string& client,
                     const ServerList& servers);
// For programs of OpenCL: the variable by which loaders find the driver beside the library
// `client`, and its folder in front of `libraries`. kNotFound: it is not there.
base::Status add_opencl(const std::string& client, Variables* variables, std::string* libraries);
// The path of the servers' token, wherever it was named. Empty: only its value is known, or there
// is none.
std::string token_path(const std::string& token_file);

struct Mount {  // read-only
  std::string source, target;
};

struct ContainerEdits {
  Variables variables;
  std::vector<Mount> mounts;
  std::vector<std::string> notes;  // for the user: what may not work, and what to do then
};
// `by_value`: the container's launcher passes the token's value on, so its file is not needed.
// kInvalid: wrong usage.
base::Result<ContainerEdits> container_edits(const EnvOptions& options, bool by_value);

}  // namespace tendril::cli
