// SPDX-License-Identifier: Apache-2.0
// `tendril env --docker`: container_edits as options of `docker run` or `podman run`.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/integrations/edits.h"

namespace tendril::cli {

// Prints the options, or runs the container's command with them (options.program). Returns the
// exit status.
int docker_options(const EnvOptions& options);

// The options as words. kInvalid: a path that they cannot say.
base::Result<std::vector<std::string>> docker_words(const ContainerEdits& edits);
// `program` with the options behind its word `run` or `create`. Empty: it has neither.
std::vector<std::string> with_docker_words(const std::vector<std::string>& program,
                                           const std::vector<std::string>& words);

}  // namespace tendril::cli
