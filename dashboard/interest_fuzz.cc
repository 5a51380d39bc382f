// SPDX-License-Identifier: Apache-2.0
// Any bytes as the query of a stream, as a header, or as a host's name. What is read keeps the
// limits of interest.h, and what is answered is JSON.
#include <cstdint>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "dashboard/api.h"
#include "dashboard/interest.h"
#include "dashboard/test_picture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tendril;
  const std::string text(reinterpret_cast<const char*>(data), size);
  auto pairs = dashboard::parse_query(text);
  auto interest = dashboard::parse_interest(text, "now");
  TENDRIL_CHECK(pairs.ok() || !interest.ok());
  static const dashboard::Model* const kModel = [] {
    auto* const model = new dashboard::Model;
    model->take(dashboard::small_pool());
    return model;
  }();
  if (interest.ok()) {
    uint64_t servers = 0;
    for (const auto& [from, to] : interest->window) {
      TENDRIL_CHECK(from <= to);
      servers += uint64_t(to) - from + 1;
    }
    TENDRIL_CHECK(servers <= dashboard::kWindowMax);
    TENDRIL_CHECK(interest->window.size() <= dashboard::kRangesMax);
    const std::string changes =
        dashboard::changes_json(*kModel, *interest, {text, false}, interest->since, size % 2 == 0);
    TENDRIL_CHECK(nlohmann::json::accept("{" + changes + "}"));
  }
  if (pairs.ok()) {
    for (const auto& [name, value] : *pairs)
      TENDRIL_CHECK(nlohmann::json::accept(dashboard::problem(400, "invalid", value).body));
  }
  http::Request request;
  request.path = text;
  request.headers = {{"cookie", text}, {"authorization", text}};
  TENDRIL_CHECK(dashboard::cookie_of(request).size() <= size);
  TENDRIL_CHECK(dashboard::bearer_of(request).size() <= size);
  TENDRIL_CHECK(dashboard::body_bytes_of_route(request) <= size_t{512} << 10);
  (void)dashboard::is_loopback_name(text);
  return 0;
}
