// SPDX-License-Identifier: Apache-2.0
// Addresses of stores: what they say, and what is wrong with those that say nothing.
#include "store/open.h"

#include <gtest/gtest.h>

#include <fstream>

#include "store/testing/folder.h"

namespace tendril::store {

using base::Code;

TEST(Open, ReadsAddressesOfEtcd) {
  const auto plain = parse_etcd("etcd://a,b:7,[::1]:8,[::2]");
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain.value().members,
            (std::vector<std::string>{"a:2379", "b:7", "[::1]:8", "[::2]:2379"}));
  EXPECT_EQ(plain.value().prefix, "tendril");
  EXPECT_FALSE(plain.value().secure);
  const Folder folder;
  std::ofstream(folder / "word") << "s3cret\n";
  const auto whole =
      parse_etcd("etcds://a/pools/one?ca=/etc/ca.pem&user=root&password-file=" + (folder / "word"));
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_TRUE(whole.value().secure);
  EXPECT_EQ(whole.value().prefix, "pools/one");
  EXPECT_EQ(whole.value().ca_file, "/etc/ca.pem");
  EXPECT_EQ(whole.value().user, "root");
  EXPECT_EQ(whole.value().password, "s3cret");
}

TEST(Open, SaysWhatIsWrong) {
  const auto has = [](const std::string& address, const char* text) {
    const auto opened = open_store(address);
    EXPECT_FALSE(opened.ok()) << address;
    EXPECT_EQ(opened.status().code(), Code::kInvalid) << address;
    EXPECT_NE(opened.status().message().find(text), std::string::npos) << opened.status().message();
  };
  has("", "write sqlite:PATH or etcd://");
  has("postgres://a", "write sqlite:PATH or etcd://");
  has("sqlite:", "path");
  has("etcd://", "name a member");
  has("etcd://a?b=c", "there is no 'b'");
  has("etcd://a?ca=/x", "etcds://");
  has("etcd://a?user", "NAME=VALUE");
  has("etcd://a b:1", "is no member");
  has("etcd://a:0", "is no member");
  has("etcd://a?user=b", "belong together");
  const Folder folder;
  std::ofstream(folder / "word") << "s3cret";
  has("etcd://gpu7?user=b&password-file=" + (folder / "word"), "inside TLS only");
  EXPECT_FALSE(open_store("etcd://a?user=b&password-file=" + (folder / "none")).ok());
  EXPECT_TRUE(open_store("etcd://127.0.0.1?user=b&password-file=" + (folder / "word")).ok());
  EXPECT_TRUE(open_store("sqlite:" + (folder / "pool.db")).ok());
}

}  // namespace tendril::store
