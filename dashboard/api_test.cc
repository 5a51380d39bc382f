// SPDX-License-Identifier: Apache-2.0
// What a request says of who asks and where it came from, and how files and errors are answered.
#include "dashboard/api.h"

#include <gtest/gtest.h>

namespace tendril::dashboard {
namespace {

http::Request with(const std::string& name, const std::string& value) {
  http::Request request;
  request.headers = {{name, value}};
  return request;
}

TEST(Api, OnlyThisHostsNamesAreLoopback) {
  for (const char* const own : {"localhost", "localhost:7480", "127.0.0.1:7480", "127.8.9.1",
                                "[::1]:7480", "pool.localhost:1"})
    EXPECT_TRUE(is_loopback_name(own)) << own;
  for (const char* const other :
       {"", "evil.example", "127.0.0.1.evil.example", "127.evil.example", "localhost.evil.example",
        "xlocalhost", "10.0.0.1", "[::2]:7480", "0.0.0.0", "1270.0.0.1"})
    EXPECT_FALSE(is_loopback_name(other)) << other;
}

TEST(Api, SecretsAreFoundInTheirHeaders) {
  EXPECT_EQ(bearer_of(with("authorization", "Bearer abc")), "abc");
  EXPECT_EQ(bearer_of(with("authorization", "Basic abc")), "");
  EXPECT_EQ(bearer_of(with("authorization", "Bearer")), "");
  const std::string own = std::string(kCookie) + "=abc";
  EXPECT_EQ(cookie_of(with("cookie", own)), "abc");
  EXPECT_EQ(cookie_of(with("cookie", "a=b;  " + own + "; c=d")), "abc");
  EXPECT_EQ(cookie_of(with("cookie", "x" + own)), "");
  for (const char* const odd : {"", ";", "=", ";;=;", "tendril_session"})
    EXPECT_EQ(cookie_of(with("cookie", odd)), "") << odd;
}

TEST(Api, ARouteReadsNoMoreThanItNeeds) {
  http::Request request;
  request.path = "/api/v1/policy/dry-run";
  EXPECT_EQ(body_bytes_of_route(request), size_t{512} << 10);
  request.path = "/api/v1/leases/7/release";
  EXPECT_EQ(body_bytes_of_route(request), 4096u);
  request.path = "/app.js";
  EXPECT_EQ(body_bytes_of_route(request), 0u);
}

TEST(Api, FilesComePackedAndOnce) {
  const File* const page = find_file("/");
  ASSERT_NE(page, nullptr);
  http::Request request = with("accept-encoding", "br, gzip");
  request.method = "GET";
  const http::Response packed = file_response(*page, request);
  EXPECT_EQ(packed.body, page->packed);
  EXPECT_EQ(file_response(*page, http::Request()).body, page->plain);
  const http::Response again = file_response(*page, with("if-none-match", page->tag));
  EXPECT_EQ(again.status, 304);
  EXPECT_TRUE(again.body.empty());
  EXPECT_EQ(find_file("/../api.cc"), nullptr);
  EXPECT_EQ(find_file("/files.h"), nullptr);
}

TEST(Api, LongAnswersArePacked) {
  const std::string text(100'000, 'x');
  const http::Response packed = packed_response(with("accept-encoding", "gzip"), text);
  EXPECT_LT(packed.body.size(), 2'000u);
  EXPECT_EQ(packed.body.substr(0, 2), "\x1f\x8b");
  EXPECT_EQ(packed.headers.back().second, "gzip");
  EXPECT_EQ(packed_response(http::Request(), text).body, text);
  EXPECT_EQ(packed_response(with("accept-encoding", "gzip"), "{}").body, "{}");
}

TEST(Api, ErrorsAreJsonWhateverTheySay) {
  const http::Response refused =
      problem(base::Status(base::Code::kRefused, "\"<b>\x1b\xff (rule: role)"));
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(refused.body,
            "{\"error\":\"\\\"<b>\\u001b\xef\xbf\xbd (rule: role)\",\"code\":"
            "\"refused\"}\n");
  EXPECT_EQ(problem(base::Status(base::Code::kUnsupported, "")).status, 501);
  EXPECT_EQ(problem(base::Status(base::Code::kExhausted, "")).status, 429);
  EXPECT_EQ(problem(base::Status(base::Code::kUnavailable, "")).status, 503);
}

}  // namespace
}  // namespace tendril::dashboard
