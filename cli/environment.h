// SPDX-License-Identifier: Apache-2.0
// Where the client library is, and the variables with which a program finds it. cli/README.md
// states the contract of the variables.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tendril::cli {

// The folder with our libcuda.so.1: TENDRIL_CLIENT_DIR, or its place in an installation or a build,
// relative to this executable.
base::Result<std::string> client_directory();

// `directory` in front of `old` (a list separated by colons), once.
std::string prefixed_path(const std::string& directory, const std::string& old);
// `directory` behind `old`, once: there our nvidia-smi is found where no other is.
std::string suffixed_path(const std::string& old, const std::string& directory);
// What LD_PRELOAD must begin with for a program with several GPUs: our NCCL, because frameworks
// look for their own where LD_LIBRARY_PATH does not reach. On several servers no other works. On
// one it does if a single process has all GPUs; ours is taken if the server lends NCCL. Empty:
// nothing, as for one GPU, and with TENDRIL_NCCL=program.
std::string nccl_to_preload(const std::string& client, size_t servers, bool lends_nccl);

using Variables = std::vector<std::pair<std::string, std::string>>;

// Quoted for a POSIX shell.
std::string shell_quoted(const std::string& text);

}  // namespace tendril::cli
