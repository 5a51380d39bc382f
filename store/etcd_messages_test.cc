// SPDX-License-Identifier: Apache-2.0
// What etcd's gateway is asked and answers, with answers as etcd 3.4.23 gave them.
#include "store/etcd_messages.h"

#include <gtest/gtest.h>

namespace tendril::store::etcd {

using base::Code;

TEST(EtcdMessages, EndsOfPrefixes) {
  EXPECT_EQ(prefix_end("a/"), "a0");
  EXPECT_EQ(prefix_end("a\xff\xff"), "b");
  EXPECT_EQ(prefix_end("\xff"), std::string(1, '\0'));
}

TEST(EtcdMessages, Lists) {
  const auto page = read_range(
      R"({"header":{"cluster_id":"14841639068965178418","member_id":"10276657743932975437",)"
      R"("revision":"7","raft_term":"2"},"kvs":[{"key":"YQ==","create_revision":"6",)"
      R"("mod_revision":"7","version":"2","value":"MQ=="},{"key":"Yg==","create_revision":"5",)"
      R"("mod_revision":"5","version":"1","lease":"7587886"}],"more":true,"count":"3"})");
  ASSERT_TRUE(page.ok()) << page.status().message();
  EXPECT_TRUE(page.value().more);
  ASSERT_EQ(page.value().found.size(), 2u);
  EXPECT_EQ(page.value().found[0].value, "1");
  EXPECT_EQ(page.value().found[0].created, 6u);
  EXPECT_EQ(page.value().found[0].modified, 7u);
  EXPECT_EQ(page.value().found[1].lease, 7587886u);
  EXPECT_EQ(page.value().found[1].value, "");
  EXPECT_TRUE(read_range("{}")->found.empty());
  for (const char* bad :
       {"", "[]", "1", "{\"kvs\":1}", "{\"kvs\":[1]}", "{\"kvs\":[{}]}",
        "{\"kvs\":[{\"key\":\"Y\"}]}", "{\"kvs\":[{\"key\":\"YQ==\",\"lease\":-1}]}"})
    EXPECT_EQ(read_range(bad).status().code(), Code::kInvalid) << bad;
}

TEST(EtcdMessages, Transactions) {
  const auto done =
      read_txn(R"({"header":{"revision":"8"},"succeeded":true,"responses":[{"response_put":{}}]})");
  ASSERT_TRUE(done.ok());
  EXPECT_TRUE(done.value().succeeded);
  EXPECT_EQ(done.value().revision, 8u);
  const auto refused =
      read_txn(R"({"header":{"revision":"8"},"responses":[{"response_range":{"kvs":[{"key":"YQ==",)"
               R"("create_revision":"6"}]}},{"response_range":{}}]})");
  ASSERT_TRUE(refused.ok());
  EXPECT_FALSE(refused.value().succeeded);
  ASSERT_EQ(refused.value().ranges.size(), 2u);
  EXPECT_EQ(refused.value().ranges[0]->created, 6u);
  EXPECT_FALSE(refused.value().ranges[1].has_value());
  EXPECT_FALSE(read_txn("{}").ok());
  EXPECT_FALSE(read_txn(R"({"header":{"revision":"8"},"responses":{}})").ok());
}

TEST(EtcdMessages, LeasesTokensAndRefusals) {
  EXPECT_EQ(*read_keepalive(R"({"result":{"header":{},"ID":"7","TTL":"10"}})"), 10u);
  EXPECT_EQ(*read_keepalive(R"({"result":{"header":{},"ID":"7"}})"), 0u);
  EXPECT_FALSE(read_keepalive("{}").ok());
  EXPECT_EQ(*read_token(R"({"header":{},"token":"a.b"})"), "a.b");
  EXPECT_FALSE(read_token(R"({"token":"a\r\nX: y"})").ok());
  EXPECT_FALSE(read_token("{}").ok());
  const Refusal refusal = read_refusal(
      503, R"({"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14})");
  EXPECT_EQ(refusal.code, 14);
  EXPECT_EQ(refusal.message, "etcdserver: no leader");
  EXPECT_EQ(read_refusal(500, R"({"error":{"grpc_code":14,"message":"x"}})").code, 14);
  EXPECT_EQ(read_refusal(502, "<html>").message, "status 502 of a web server");
}

}  // namespace tendril::store::etcd
