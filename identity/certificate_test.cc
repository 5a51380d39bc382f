// SPDX-License-Identifier: Apache-2.0
// Names, digests and certificates: what is read back, and each way in which a certificate is
// refused.
#include "identity/certificate.h"

#include <gtest/gtest.h>

#include "identity/secrets.h"
#include "identity/test_pool.h"

namespace tendril::identity {
namespace {

std::string refusal_of(const OwnIdentity& own, const Certificate& authority, Purpose purpose,
                       int64_t now_s) {
  return judge(own.certificate, authority, purpose, now_s, "it").status().message();
}

TEST(Name, IsReadBackAndStrict) {
  const Name name{"lab", Role::kUser, "alice@example.org"};
  EXPECT_EQ(name.uri(), "spiffe://lab/user/alice@example.org");
  ASSERT_TRUE(read_name(name.uri()).ok());
  EXPECT_EQ(read_name(name.uri()).value(), name);
  for (const char* bad :
       {"", "spiffe://", "spiffe://lab", "spiffe://lab/user", "spiffe://lab/user/",
        "spiffe://lab/boss/alice", "spiffe://lab/user/a/b", "spiffe://LAB/user/a",
        "http://lab/user/a", "spiffe://lab/user/.a", "spiffe://lab/user/a b",
        "spiffe://lab//user/a", "spiffe://lab/user/\xc3\xa4"}) {
    EXPECT_FALSE(read_name(bad).ok()) << bad;
  }
  EXPECT_FALSE(read_name("spiffe://lab/user/" + std::string(65, 'a')).ok());
  EXPECT_EQ(as_pool("GPU_1.Example"), "gpu_1.example");
  EXPECT_EQ(as_name("..J\xc3\xb6rg K"), "J--rg-K");
}

TEST(Secrets, Base64UrlIsStrict) {
  std::string raw;
  for (const std::string text : {"", "f", "fo", "foo", "foob", "fooba", "foobar"}) {
    ASSERT_TRUE(read_base64url(base64url(text), &raw));
    EXPECT_EQ(raw, text);
  }
  EXPECT_EQ(base64url(std::string("\xfb\xff", 2)), "-_8");
  for (const char* bad : {"A", "AB=", "A+BC", "-_9", "AAAAA"})
    EXPECT_FALSE(read_base64url(bad, &raw)) << bad;
}

// RFC 5869 has no salt of ours; this value was computed with Python's hmac.
TEST(Secrets, KeyFromSecretDependsOnBoth) {
  EXPECT_EQ(key_from_secret("a", "x").size(), kDigestBytes);
  EXPECT_NE(key_from_secret("a", "x"), key_from_secret("b", "x"));
  EXPECT_NE(key_from_secret("a", "x"), key_from_secret("a", "y"));
}

TEST(Certificate, CarriesItsNameAndTimes) {
  const TestPool pool("lab");
  const OwnIdentity alice = pool.issue_to(Role::kUser, "alice", 3 * kDayS);
  EXPECT_EQ(alice.facts.name, (Name{"lab", Role::kUser, "alice"}));
  EXPECT_EQ(alice.facts.begins_s, kTestNowS - kBackdateS);
  EXPECT_EQ(alice.facts.ends_s, kTestNowS + 3 * kDayS);
  EXPECT_EQ(alice.facts.serial.size(), 32u);
  EXPECT_GT(alice.facts.renewal_s(), kTestNowS + kDayS);
  const Certificate again = read_certificate(certificate_text(alice.certificate)).take();
  EXPECT_EQ(read_facts(again)->serial, alice.facts.serial);
  const Key key = read_key(key_text(alice.key).take()).take();
  EXPECT_TRUE(is_key_of(key, again));
  EXPECT_FALSE(is_key_of(pool.key, again));
  EXPECT_EQ(authority_pool(pool.authority).take(), "lab");
  EXPECT_FALSE(authority_pool(alice.certificate).ok());
}

TEST(Certificate, EachRefusalHasItsOwnText) {
  const TestPool pool("lab"), other("lab");
  const OwnIdentity alice = pool.issue_to(Role::kUser, "alice");
  const OwnIdentity server = pool.issue_to(Role::kServer, "gpu1");
  EXPECT_EQ(refusal_of(alice, pool.authority, Purpose::kClient, kTestNowS), "");
  EXPECT_EQ(refusal_of(server, pool.authority, Purpose::kServer, kTestNowS), "");
  EXPECT_EQ(refusal_of(server, pool.authority, Purpose::kClient, kTestNowS), "");
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_PRED2(has, refusal_of(alice, pool.authority, Purpose::kClient, kTestNowS + 2 * kDayS),
               "expired");
  EXPECT_PRED2(has, refusal_of(alice, pool.authority, Purpose::kClient, kTestNowS - kDayS),
               "set the clock");
  // The same name of the pool does not help: the key decides.
  EXPECT_PRED2(has, refusal_of(alice, other.authority, Purpose::kClient, kTestNowS), "foreign");
  EXPECT_PRED2(has, refusal_of(alice, pool.authority, Purpose::kServer, kTestNowS), "purpose");
}

// Often the pool is called as the host.
TEST(Certificate, TheNameOfThePoolIsFree) {
  const TestPool pool("gpu1");
  const OwnIdentity server = pool.issue_to(Role::kServer, "gpu1");
  EXPECT_EQ(refusal_of(server, pool.authority, Purpose::kServer, kTestNowS), "");
}

TEST(Certificate, AnIssuedOneIssuesNothing) {
  const TestPool pool("lab");
  const OwnIdentity alice = pool.issue_to(Role::kUser, "alice");
  EXPECT_FALSE(issue(alice.certificate, alice.key, make_request(make_key().take()).take(),
                     Grant{Name{"lab", Role::kAdmin, "mallory"}, kTestNowS, kDayS})
                   .ok());
}

TEST(Certificate, RequestsAreJudged) {
  const TestPool pool("lab");
  const Grant grant{Name{"lab", Role::kUser, "alice"}, kTestNowS, kDayS};
  std::string request = make_request(make_key().take()).take();
  EXPECT_TRUE(issue(pool.authority, pool.key, request, grant).ok());
  EXPECT_FALSE(issue(pool.authority, pool.key, request + "x", grant).ok());
  EXPECT_FALSE(issue(pool.authority, pool.key, "", grant).ok());
  EXPECT_FALSE(issue(pool.authority, pool.key, std::string(5000, 'a'), grant).ok());
  request[request.size() - 3] ^= 1;  // the signature
  EXPECT_FALSE(issue(pool.authority, pool.key, request, grant).ok());
}

TEST(Certificate, NoneOutlivesItsAuthority) {
  const TestPool pool("lab");
  const int64_t late_s = kTestNowS + kAuthorityLifetimeS - 100;
  const OwnIdentity alice = pool.issue_to(Role::kUser, "alice", kDayS, late_s);
  EXPECT_EQ(alice.facts.ends_s, kTestNowS + kAuthorityLifetimeS);
}

}  // namespace
}  // namespace tendril::identity
