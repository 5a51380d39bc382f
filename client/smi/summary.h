// SPDX-License-Identifier: Apache-2.0
// What `nvidia-smi` prints for people: the table without arguments, the list (-L) and the matrix of
// ways between GPUs (topo -m).
#pragma once

#include <string>
#include <vector>

#include "client/smi/fields.h"

namespace tendril::client::smi {

std::string summary(const std::vector<Gpu>& gpus);
std::string listing(const std::vector<Gpu>& gpus);
std::string topology(const std::vector<Gpu>& gpus);

}  // namespace tendril::client::smi
