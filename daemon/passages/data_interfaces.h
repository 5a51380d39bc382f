// SPDX-License-Identifier: Apache-2.0
// The network interfaces that the operator named for traffic between servers (--data-interface): of
// which addresses copies between GPUs come, and where other servers find this one. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/local_addresses.h"

namespace tendril::daemon {

// kUnavailable: one of them has no address among `addresses`, which are those of all of them.
base::Status check_data_interfaces(const std::vector<std::string>& interfaces,
                                   const std::vector<transport::LocalAddress>& addresses);
// "10.1.0.5:7433": the first of these addresses on which the server listens. Empty: on none.
std::string data_endpoint(const std::vector<transport::LocalAddress>& addresses,
                          const std::vector<transport::Listener>& listeners);

}  // namespace tendril::daemon
