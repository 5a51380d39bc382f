// SPDX-License-Identifier: Apache-2.0
// See variables.h.
#include "worker/nccl/variables.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "api/nccl/variables.h"
#include "base/text.h"
#include "wire/assignment.h"

namespace tendril::worker::nccl {

using transport::rdma::PortState;

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

Variables network_variables(const char* lent, bool forbidden, const char* sockets,
                            const std::vector<PortState>& ports) {
  const Variables none = {{"NCCL_IB_DISABLE", "1"}};
  if (lent == nullptr || strcmp(lent, "none") == 0 || forbidden) return none;
  const bool named = sockets != nullptr && sockets[0] == '=';
  const std::vector<std::string> interfaces =
      named ? base::split_at_commas(sockets + 1) : std::vector<std::string>();
  std::vector<const PortState*> usable;
  for (const PortState& port : ports) {
    const bool on_data_network =
        !named || port.interface.empty() ||
        std::find(interfaces.begin(), interfaces.end(), port.interface) != interfaces.end();
    if (port.active && on_data_network && transport::rdma::names_port(lent, port.card, port.port))
      usable.push_back(&port);
  }
  const auto slower = [](const PortState* one, const PortState* other) {
    return one->megabits_per_second < other->megabits_per_second;
  };
  const auto fastest = std::max_element(usable.begin(), usable.end(), slower);
  if (fastest == usable.end()) return none;
  // Ranks whose cards are of two kinds do not meet.
  std::string cards;
  for (const PortState* port : usable) {
    if (port->ethernet == (*fastest)->ethernet) cards += (cards.empty() ? "=" : ",") + port->name();
  }
  return {{"NCCL_IB_HCA", cards}};
}

void set_variables(const Variables& variables, bool over_operators) {
  for (const auto& [name, value] : variables)
    setenv(name.c_str(), value.c_str(), over_operators ? 1 : 0);
}

}  // namespace tendril::worker::nccl
