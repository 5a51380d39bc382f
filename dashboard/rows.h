// SPDX-License-Identifier: Apache-2.0
// Rows of the model as JSON objects (web/openapi.json has their fields). Text may hold anything;
// what is no UTF-8 is replaced. Pure.
#pragma once

#include <string>

#include "dashboard/model.h"

namespace tendril::dashboard {

std::string head_json(const HeadRow& row);
std::string server_json(const ServerRow& row);
std::string server_info_json(const ServerRow& row);
// `named`: with the names of people, programs and hosts.
std::string lease_json(const LeaseRow& row, bool named);
std::string request_json(const RequestRow& row, bool named);
std::string account_json(const AccountRow& row);
// A JSON string with its quotes.
std::string json_text(const std::string& text);

}  // namespace tendril::dashboard
