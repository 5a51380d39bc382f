// SPDX-License-Identifier: Apache-2.0
// Requests that are understood, requests that are refused, and bytes that are no requests at all.
#include "http/router.h"

#include <gtest/gtest.h>

#include <random>

namespace tendril::http {
namespace {

Router sample() {
  Router router;
  router.add("GET", "/metrics", [](const Request&) {
    return Response{200, "text/plain; version=0.0.4", "the text"};
  });
  router.add("GET", "/echo", [](const Request& request) {
    return Response{200, "text/plain", request.query + "|" + std::string(request.header("x-a"))};
  });
  router.add("POST", "/echo", [](const Request&) { return Response{503, "text/plain", ""}; });
  return router;
}

std::string status(const std::string& request) { return sample().answer(request).substr(9, 3); }

std::string body(const std::string& request) {
  const std::string answer = sample().answer(request);
  return answer.substr(answer.find("\r\n\r\n") + 4);
}

TEST(Router, MethodAndPathFindTheHandler) {
  EXPECT_EQ(status("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), "200");
  EXPECT_EQ(status("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), "200");
  EXPECT_EQ(status("GET /%6detrics HTTP/1.0\n\n"), "200");
  EXPECT_EQ(status("POST /echo HTTP/1.0\r\n\r\n"), "503");
  EXPECT_EQ(body("GET /echo?a=%20b HTTP/1.0\r\nX-A: \t one two \r\n\r\n"), "a=%20b|one two");
}

TEST(Router, ThePathIsComparedAsAWhole) {
  for (const char* path : {"/", "/metricsandmore", "/metrics/", "/../metrics", "//metrics",
                           "/METRICS", "/metrics%20", "/?/metrics"}) {
    EXPECT_EQ(status(std::string("GET ") + path + " HTTP/1.0\r\n\r\n"), "404") << path;
  }
  EXPECT_EQ(status("POST /metrics HTTP/1.0\r\n\r\n"), "405");
  EXPECT_EQ(status("get /metrics HTTP/1.0\r\n\r\n"), "405");
}

TEST(Router, WhatIsNoRequestReachesNoHandler) {
  for (const char* text :
       {"", "\r\n\r\n", "GET", "GET /metrics\r\n\r\n", "GET  HTTP/1.0\r\n\r\n",
        "GET metrics HTTP/1.0\r\n\r\n", "GET http://x/metrics HTTP/1.0\r\n\r\n",
        "GET /a b HTTP/1.0\r\n\r\n", "GET /metrics HTTQ/1.0\r\n\r\n",
        "G T /metrics HTTP/1.0\r\n\r\n", "GET /metrics%0 HTTP/1.0\r\n\r\n",
        "GET /metrics%00 HTTP/1.0\r\n\r\n", "GET /%zz HTTP/1.0\r\n\r\n",
        "GET /%0d%0aX: HTTP/1.0\r\n\r\n", "GET /metrics HTTP/1.0\r\nno colon\r\n\r\n",
        "GET /metrics HTTP/1.0\r\n: empty\r\n\r\n", "GET /metrics HTTP/1.0\r\nna me: x\r\n\r\n",
        "GET /\x80 HTTP/1.0\r\n\r\n"}) {
    EXPECT_EQ(status(text), "400") << text;
  }
  EXPECT_EQ(status(std::string("GET /metrics\0 HTTP/1.0\r\n\r\n", 27)), "400");
}

TEST(Router, EverythingHasALimit) {
  EXPECT_EQ(status("GET /" + std::string(5000, 'a') + " HTTP/1.0\r\n\r\n"), "431");
  std::string headers;
  for (size_t i = 0; i < kHeadersMax; ++i) headers += "a: b\r\n";
  EXPECT_EQ(status("GET /metrics HTTP/1.0\r\n" + headers + "\r\n"), "200");
  EXPECT_EQ(status("GET /metrics HTTP/1.0\r\n" + headers + "c: d\r\n\r\n"), "431");
}

TEST(Router, TheAnswerIsWholeAndSaysItsLength) {
  EXPECT_EQ(sample().answer("GET /metrics HTTP/1.0\r\n\r\n"),
            "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 8\r\nConnection: close\r\n\r\nthe text");
}

TEST(Router, AnswersWhoeverSaysTheTokenOnly) {
  Router router = sample();
  router.require_token("sixteen letters!");
  const auto answer = [&](const std::string& path, const std::string& header) {
    return router.answer("GET " + path + " HTTP/1.0\r\n" + header + "\r\n");
  };
  for (const char* header :
       {"", "Authorization: Bearer\r\n", "Authorization: Bearer sixteen letters?\r\n",
        "Authorization: sixteen letters!\r\n", "Authorization: Basic sixteen letters!\r\n",
        "Authorization: Bearer sixteen letters!!\r\n", "X: Bearer sixteen letters!\r\n"}) {
    const std::string refused = answer("/metrics", header);
    EXPECT_EQ(refused.substr(9, 3), "401") << header;
    EXPECT_NE(refused.find("\r\nWWW-Authenticate: Bearer\r\n"), std::string::npos);
    EXPECT_EQ(refused.find("the text"), std::string::npos);
    EXPECT_EQ(answer("/none", header).substr(9, 3), "401");  // nor what there is
  }
  const char* const right = "authorization:  Bearer sixteen letters!\r\n";
  EXPECT_EQ(answer("/metrics", right).substr(9, 3), "200");
  EXPECT_EQ(answer("/none", right).substr(9, 3), "404");
}

// Requests with bytes changed, cut and repeated at random: the answer is always a whole one.
TEST(Router, DamagedRequestsGetAnAnswer) {
  const Router router = sample();
  const std::string good = "GET /metrics?a=%41 HTTP/1.1\r\nHost: here\r\nX-A: b\r\n\r\n";
  std::mt19937 random(9433);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = good.substr(0, random() % (good.size() + 1));
    for (unsigned change = random() % 4; change != 0 && !text.empty(); --change)
      text[random() % text.size()] = static_cast<char>(random());
    if (random() % 8 == 0) text += text;
    const std::string answer = router.answer(text);
    ASSERT_EQ(answer.compare(0, 9, "HTTP/1.0 "), 0) << text;
    ASSERT_NE(answer.find("\r\n\r\n"), std::string::npos);
  }
}

}  // namespace
}  // namespace tendril::http
