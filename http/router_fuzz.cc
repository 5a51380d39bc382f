// SPDX-License-Identifier: Apache-2.0
// Any bytes as a request. Whatever comes, there is one whole answer, and a handler only sees a
// request that keeps the promises of router.h.
#include <cstdint>

#include "base/check.h"
#include "http/router.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tendril;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  http::Request request;
  http::Response problem;
  if (http::parse_request(text, &request, &problem)) {
    TENDRIL_CHECK(!request.path.empty() && request.path[0] == '/');
    TENDRIL_CHECK(request.path.find('\0') == std::string::npos);
    TENDRIL_CHECK(request.headers.size() <= http::kHeadersMax);
    TENDRIL_CHECK(!request.method.empty());
  } else {
    TENDRIL_CHECK(problem.status == 400 || problem.status == 431);
  }
  http::Router router;
  router.add("GET", "/metrics", [](const http::Request&) { return http::Response(); });
  const std::string answer = router.answer(text);
  TENDRIL_CHECK(answer.compare(0, 9, "HTTP/1.0 ") == 0);
  // Without the token no handler sees anything.
  bool reached = false;
  http::Router closed;
  closed.require_token("a token that is not in the corpus");
  closed.add("GET", "/metrics", [&](const http::Request&) {
    reached = true;
    return http::Response();
  });
  const std::string refused = closed.answer(text);
  TENDRIL_CHECK(refused.compare(0, 9, "HTTP/1.0 ") == 0);
  TENDRIL_CHECK(!reached || text.find("a token that") != std::string_view::npos);
  return 0;
}
