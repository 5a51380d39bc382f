// SPDX-License-Identifier: Apache-2.0
// See variables.h.
#include "worker/nccl/variables.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "api/nccl/variables.h"
#include "wire/assignment.h"

namespace tendril::worker::nccl {
namespace {

bool may_be_chosen(const std::string& name) {
  return std::any_of(std::begin(api::nccl::kVariables), std::end(api::nccl::kVariables),
                     [&name](const char* allowed) { return name == allowed; });
}

bool is_printable(const std::string& value) {
  return std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

Variables allowed_variables(const uint8_t* bytes, uint64_t count) {
  Variables allowed;
  if (count > api::nccl::kVariablesBytesMax) return allowed;
  const std::string all(reinterpret_cast<const char*>(bytes), count);
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\0', begin), all.size());
    const std::string line = all.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    std::string name = line.substr(0, equals), value = line.substr(equals + 1);
    if (may_be_chosen(name) && value.size() <= api::nccl::kVariableBytesMax && is_printable(value))
      allowed.emplace_back(std::move(name), std::move(value));
  }
  return allowed;
}

Variables own_variables(const uint8_t* server_id, uid_t user) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string host;
  for (uint32_t i = 0; i < wire::kServerIdBytes; ++i) {
    host += kDigits[server_id[i] >> 4];
    host += kDigits[server_id[i] & 15];
  }
  // NCCL's service for observers listens on ports that nobody asked for.
  return {{"NCCL_HOSTID", host + "-" + std::to_string(user)}, {"NCCL_RAS_ENABLE", "0"}};
}

void set_variables(const Variables& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 0);
}

}  // namespace tendril::worker::nccl
