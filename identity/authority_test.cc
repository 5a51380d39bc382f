// SPDX-License-Identifier: Apache-2.0
// What an authority remembers between commands: tokens, certificates, and what was taken back.
#include "identity/authority.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "identity/files.h"
#include "identity/test_pool.h"

namespace tendril::identity {
namespace {

class AuthorityTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = files_.path() + "/authority";
    authority_ = Authority::create(folder_, "lab", kTestNowS).take();
    request_ = make_request(make_key().take()).take();
  }
  base::Result<Issued> enroll(const JoinToken& token, const std::string& wished = "",
                              int64_t now_s = kTestNowS) {
    return authority_->enroll(token.id, token.secret, wished, request_, now_s);
  }
  std::string refusal(const base::Result<Issued>& result) {
    EXPECT_FALSE(result.ok());
    return result.status().message();
  }
  TestFolder files_;
  std::string folder_, request_;
  std::unique_ptr<Authority> authority_;
};

TEST_F(AuthorityTest, KeepsItsFilesToItself) {
  struct stat facts;
  ASSERT_EQ(stat(folder_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
  ASSERT_EQ(stat((folder_ + "/key.pem").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_FALSE(Authority::create(folder_, "lab", kTestNowS).ok());
  const auto again = Authority::open(folder_);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again.value()->pin(), authority_->pin());
  chmod((folder_ + "/key.pem").c_str(), 0644);
  EXPECT_NE(Authority::open(folder_).status().message().find("chmod 600"), std::string::npos);
}

TEST_F(AuthorityTest, ATokenWorksOnce) {
  const JoinToken token = authority_->invite({Role::kUser, "alice"}, kTestNowS).take();
  const auto read = read_join_token(token.text());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().pin, authority_->pin());
  // Neither the secret nor the whole token is in the folder.
  const std::string kept = read_file(folder_ + "/tokens", Secrecy::kSecret).take();
  EXPECT_EQ(kept.find(token.secret), std::string::npos);
  auto made = enroll(token, "mallory");
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->facts.name, (Name{"lab", Role::kUser, "alice"}));
  EXPECT_EQ(made->facts.ends_s, kTestNowS + kUserLifetimeS);
  EXPECT_NE(refusal(enroll(token)).find("used already"), std::string::npos);
}

TEST_F(AuthorityTest, WrongAndLateTokensAreToldApart) {
  const JoinToken token = authority_->invite({Role::kUser, "alice", 60}, kTestNowS).take();
  JoinToken wrong = token;
  wrong.secret = std::string(32, '0');
  EXPECT_NE(refusal(enroll(wrong)).find("is wrong"), std::string::npos);
  wrong.id = "0123456789";
  EXPECT_NE(refusal(enroll(wrong)).find("no such join token"), std::string::npos);
  EXPECT_NE(refusal(enroll(token, "", kTestNowS + 61)).find("expired"), std::string::npos);
  EXPECT_TRUE(enroll(token).ok());  // a wrong guess does not use it up
  for (const char* bad : {"", "a.b.c", "0123456789", "0123456789.0.A"})
    EXPECT_FALSE(read_join_token(bad).ok());
}

TEST_F(AuthorityTest, AnOpenInvitationGivesFreeNamesOnly) {
  authority_->invite({Role::kUser, "alice"}, kTestNowS).take();
  ASSERT_TRUE(enroll(authority_->invite({Role::kAdmin, "root"}, kTestNowS).take()).ok());
  const JoinToken open = authority_->invite({}, kTestNowS).take();
  EXPECT_NE(refusal(enroll(open, "root")).find("taken"), std::string::npos);
  EXPECT_FALSE(enroll(open, "no/name").ok());
  EXPECT_TRUE(enroll(open, "bob").ok());
  EXPECT_FALSE(authority_->invite({Role::kAdmin, ""}, kTestNowS).ok());
}

TEST_F(AuthorityTest, RenewsWhatItIssuedUntilItIsTakenBack) {
  auto made = enroll(authority_->invite({Role::kUser, "alice"}, kTestNowS).take());
  ASSERT_TRUE(made.ok());
  auto renewed = authority_->renew(made->facts, request_, kTestNowS + 20 * kDayS);
  ASSERT_TRUE(renewed.ok()) << renewed.status().message();
  EXPECT_EQ(renewed->facts.name, made->facts.name);
  EXPECT_EQ(renewed->facts.ends_s, kTestNowS + 50 * kDayS);
  EXPECT_EQ(authority_->revoke("user/alice", kTestNowS).take(), 2u);
  EXPECT_TRUE(authority_->denied(kTestNowS)->has(made->facts.serial));
  EXPECT_NE(refusal(authority_->renew(renewed->facts, request_, kTestNowS)).find("taken back"),
            std::string::npos);
  EXPECT_EQ(authority_->revoke("nobody", kTestNowS).status().code(), base::Code::kNotFound);
  // The name may come again.
  const JoinToken next = authority_->invite({Role::kUser, "alice"}, kTestNowS).take();
  auto again = enroll(next);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(authority_->denied(kTestNowS)->has(again->facts.serial));
  // What expired long ago leaves the list.
  EXPECT_EQ(authority_->denied(kTestNowS + 100 * kDayS)->size(), 0u);
}

TEST_F(AuthorityTest, WhatHasJustEndedIsTakenBackToo) {
  auto made = enroll(authority_->invite({Role::kUser, "alice"}, kTestNowS).take());
  ASSERT_TRUE(made.ok());
  const int64_t soon_s = made->facts.ends_s + kGraceMaxS, late_s = soon_s + 1;
  EXPECT_EQ(authority_->issued(soon_s)->size(), 0u);
  EXPECT_FALSE(authority_->revoke("alice", late_s).ok());
  // Others come meanwhile, and the file is written again.
  ASSERT_TRUE(enroll(authority_->invite({Role::kUser, "bob"}, soon_s).take(), "", soon_s).ok());
  EXPECT_EQ(authority_->revoke("alice", soon_s).take(), 1u);
  EXPECT_TRUE(authority_->denied(soon_s)->has(made->facts.serial));
}

TEST_F(AuthorityTest, RevokingTakesBackInvitations) {
  const JoinToken token = authority_->invite({Role::kUser, "alice"}, kTestNowS).take();
  EXPECT_EQ(authority_->revoke("alice", kTestNowS).take(), 1u);
  EXPECT_NE(refusal(enroll(token)).find("no such"), std::string::npos);
}

TEST_F(AuthorityTest, AProvidersCertificateIsNotRenewed) {
  auto made = authority_->grant(Name{"lab", Role::kUser, "pod"}, 3600, Authority::By::kProvider,
                                request_, kTestNowS);
  ASSERT_TRUE(made.ok());
  EXPECT_NE(refusal(authority_->renew(made->facts, request_, kTestNowS)).find("tendril login"),
            std::string::npos);
}

TEST_F(AuthorityTest, DamagedFilesAreNamed) {
  ASSERT_TRUE(write_file(folder_ + "/issued", "rubbish\n", Secrecy::kSecret).ok());
  EXPECT_NE(authority_->issued(kTestNowS).status().message().find("/issued"), std::string::npos);
}

TEST(DenyList, IsReadStrictly) {
  EXPECT_TRUE(DenyList::read("").ok());
  auto list = DenyList::read("0123456789abcdef 100\n");
  ASSERT_TRUE(list.ok());
  EXPECT_TRUE(list->has("0123456789abcdef"));
  EXPECT_EQ(DenyList::read(list->text()).take(), *list);
  for (const char* bad : {"x 1", "0123456789abcdef", "0123456789abcdef -1", "0123456789ABCDEF 1"})
    EXPECT_FALSE(DenyList::read(bad).ok()) << bad;
}

TEST(Store, KeepsOneIdentityOfEachPoolAndRole) {
  TestFolder files;
  const TestPool lab("lab"), home("home");
  EXPECT_TRUE(load_identities(files.path())->empty());
  OwnIdentity alice = lab.issue_to(Role::kUser, "alice");
  alice.issuer = "gpu1:7433";
  ASSERT_TRUE(save_identity(files.path(), alice).ok());
  ASSERT_TRUE(save_identity(files.path(), home.issue_to(Role::kUser, "al")).ok());
  ASSERT_TRUE(save_identity(files.path(), lab.issue_to(Role::kServer, "gpu1")).ok());
  ASSERT_TRUE(save_identity(files.path(), lab.issue_to(Role::kServer, "gpu2")).ok());
  auto all = load_identities(files.path());
  ASSERT_TRUE(all.ok()) << all.status().message();
  ASSERT_EQ(all->size(), 3u);
  EXPECT_EQ((*all)[0].facts.name.pool, "home");
  EXPECT_EQ((*all)[1].facts.name.name, "gpu2");
  EXPECT_EQ((*all)[2].issuer, "gpu1:7433");
  chmod((files.path() + "/pools/lab/user/key.pem").c_str(), 0640);
  EXPECT_FALSE(load_identities(files.path()).ok());
}

}  // namespace
}  // namespace tendril::identity
