// SPDX-License-Identifier: Apache-2.0
// What the operator hears of --data-interface, and what other servers do.
#include "daemon/passages/data_interfaces.h"

#include <gtest/gtest.h>

namespace tendril::daemon {
namespace {

transport::LocalAddress on(const char* interface, const char* text) {
  transport::LocalAddress address;
  address.interface = interface;
  address.text = text;
  return address;
}
std::vector<transport::Listener> listening(const std::vector<std::string>& texts) {
  std::vector<transport::Listener> all;
  for (const std::string& text : texts) {
    all.emplace_back();
    all.back().text = text;
    if (text[0] != '@') all.back().port = 7433;
  }
  return all;
}
const std::vector<transport::LocalAddress> kTwo = {on("eth4", "10.1.0.5"), on("eth5", "fd00::5")};

TEST(DataInterfaces, AnInterfaceWithoutAnAddressIsNamed) {
  EXPECT_TRUE(check_data_interfaces({"eth4", "eth5"}, kTwo).ok());
  const base::Status lacking = check_data_interfaces({"eth4", "eth6"}, kTwo);
  EXPECT_EQ(lacking.code(), base::Code::kUnavailable);
  EXPECT_NE(lacking.message().find("names 'eth6', which has no IP address"), std::string::npos);
}

TEST(DataInterfaces, OthersHearTheFirstAddressOnWhichTheServerListens) {
  EXPECT_EQ(data_endpoint(kTwo, listening({"@tendril", "0.0.0.0:7433"})), "10.1.0.5:7433");
  EXPECT_EQ(data_endpoint(kTwo, listening({"192.0.2.7:7433", "[::]:7433"})), "[fd00::5]:7433");
  EXPECT_EQ(data_endpoint(kTwo, listening({"10.1.0.5:7433"})), "10.1.0.5:7433");
  EXPECT_EQ(data_endpoint(kTwo, listening({"192.0.2.7:7433", "127.0.0.1:7433"})), "");
  EXPECT_EQ(data_endpoint({}, listening({"0.0.0.0:7433"})), "");
}

}  // namespace
}  // namespace tendril::daemon
