// SPDX-License-Identifier: Apache-2.0
// ResponseReader: answers in any pieces, and what is no answer.
#include "http/response_reader.h"

#include <gtest/gtest.h>

namespace tendril::http {

using base::Code;

namespace {

// Reads the text in pieces of `bytes`.
base::Status read(ResponseReader* reader, std::string_view text, size_t bytes) {
  for (; !text.empty(); text.remove_prefix(std::min(bytes, text.size()))) {
    const base::Status done = reader->take(text.substr(0, bytes));
    if (!done.ok()) return done;
  }
  return base::Status();
}

}  // namespace

TEST(ResponseReader, ReadsAnswersHoweverTheyCome) {
  const std::string length = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX: y\r\n\r\nhello";
  const std::string chunks =
      "HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: z\r\n\r\n";
  for (size_t bytes = 1; bytes < 100; ++bytes) {
    ResponseReader one(100), two(100);
    EXPECT_TRUE(read(&one, length, bytes).ok());
    ASSERT_TRUE(one.is_whole() && one.keeps_connection());
    EXPECT_EQ(one.status(), 200);
    EXPECT_EQ(one.body(), "hello");
    const base::Status done = read(&two, chunks, bytes);
    EXPECT_TRUE(done.ok()) << done.message();
    ASSERT_TRUE(two.is_whole() && two.keeps_connection());
    EXPECT_EQ(two.status(), 503);
    EXPECT_EQ(two.body(), "hello");
  }
}

TEST(ResponseReader, KnowsWhenTheConnectionIsOver) {
  ResponseReader open(100);
  EXPECT_TRUE(open.take("HTTP/1.0 200 OK\n\nhel").ok());
  EXPECT_TRUE(open.take("lo").ok());
  EXPECT_FALSE(open.is_whole());
  EXPECT_TRUE(open.end().ok());
  EXPECT_EQ(open.body(), "hello");
  EXPECT_FALSE(open.keeps_connection());
  ResponseReader close(100);
  EXPECT_TRUE(close.take("HTTP/1.1 204 None\r\nConnection: Close\r\n\r\n").ok());
  EXPECT_TRUE(close.is_whole());
  EXPECT_FALSE(close.keeps_connection());
  ResponseReader announced(100);
  EXPECT_TRUE(announced.take("HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 200 OK\r\n").ok());
  EXPECT_TRUE(announced.take("Content-Length: 0\r\n\r\n").ok());
  EXPECT_TRUE(announced.is_whole());
  ResponseReader half(100);
  EXPECT_TRUE(half.take("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel").ok());
  EXPECT_EQ(half.end().code(), Code::kClosed);
}

TEST(ResponseReader, RefusesWhatIsNoAnswer) {
  for (const char* bad :
       {"HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 99 Low\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "hello\r\n",
        "HTTP/1.1 200 OK\r\nno name\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab"}) {
    ResponseReader reader(100);
    EXPECT_EQ(reader.take(bad).code(), Code::kInvalid) << bad;
  }
}

TEST(ResponseReader, IsBounded) {
  ResponseReader head(100);
  EXPECT_EQ(head.take("HTTP/1.1 200 OK\r\nX: " + std::string(20'000, 'x')).code(), Code::kInvalid);
  ResponseReader length(100);
  EXPECT_EQ(length.take("HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n").code(), Code::kExhausted);
  ResponseReader open(100);
  EXPECT_EQ(open.take("HTTP/1.1 200 OK\r\n\r\n" + std::string(101, 'x')).code(), Code::kExhausted);
  ResponseReader chunks(100);
  EXPECT_EQ(chunks
                .take("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" +
                      std::string(101, 'x'))
                .code(),
            Code::kExhausted);
}

}  // namespace tendril::http
