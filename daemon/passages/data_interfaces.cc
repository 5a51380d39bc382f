// SPDX-License-Identifier: Apache-2.0
// See data_interfaces.h.
#include "daemon/passages/data_interfaces.h"

#include <algorithm>

#include "base/text.h"

namespace tendril::daemon {

using base::Code;
using base::Status;
using transport::Listener;
using transport::LocalAddress;

Status check_data_interfaces(const std::vector<std::string>& interfaces,
                             const std::vector<LocalAddress>& addresses) {
  for (const std::string& each : interfaces) {
    const bool has_one =
        std::any_of(addresses.begin(), addresses.end(),
                    [&](const LocalAddress& address) { return address.interface == each; });
    if (has_one) continue;
    return Status(Code::kUnavailable,
                  "--data-interface names '" + base::printable(each, 64) +
                      "', which has no IP address that other servers could reach; give it one "
                      "('ip address' lists them), or name another interface");
  }
  return Status();
}

std::string data_endpoint(const std::vector<LocalAddress>& addresses,
                          const std::vector<Listener>& listeners) {
  for (const LocalAddress& address : addresses) {
    const bool six = address.text.find(':') != std::string::npos;
    const std::string host = six ? "[" + address.text + "]" : address.text;
    for (const Listener& listener : listeners) {
      if (listener.port == 0) continue;
      const std::string on = listener.text.substr(0, listener.text.rfind(':'));
      if (on == host || on == (six ? "[::]" : "0.0.0.0"))
        return host + ":" + std::to_string(listener.port);
    }
  }
  return "";
}

}  // namespace tendril::daemon
