// SPDX-License-Identifier: Apache-2.0
// Tokens and key sets of a provider that this test is: what is accepted, and why the rest is not.
#include "identity/json_web_token.h"

#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/rsa.h>

#include "identity/openssl.h"
#include "identity/providers.h"
#include "identity/secrets.h"
#include "identity/web/device_login.h"
#include "identity/web/fetch.h"

namespace tendril::identity {
namespace {

constexpr int64_t kNowS = 1'800'000'000;

std::string number_text(EVP_PKEY* key, const char* name, size_t bytes) {
  BIGNUM* number = nullptr;
  EXPECT_EQ(EVP_PKEY_get_bn_param(key, name, &number), 1);
  std::string raw(bytes != 0 ? bytes : size_t(BN_num_bytes(number)), 0);
  BN_bn2binpad(number, reinterpret_cast<unsigned char*>(&raw[0]), int(raw.size()));
  BN_free(number);
  return base64url(raw);
}

class TokenTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    prepare_openssl();
    rsa_ = EVP_RSA_gen(2048);
    point_ = EVP_EC_gen("P-256");
  }
  static std::string rsa_key(const char* more = "") {
    return R"({"kty":"RSA","kid":"r","n":")" + number_text(rsa_, OSSL_PKEY_PARAM_RSA_N, 0) +
           R"(","e":")" + number_text(rsa_, OSSL_PKEY_PARAM_RSA_E, 0) + "\"" + more + "}";
  }
  static std::string point_key() {
    return R"({"kty":"EC","kid":"e","crv":"P-256","use":"sig","x":")" +
           number_text(point_, OSSL_PKEY_PARAM_EC_PUB_X, 32) + R"(","y":")" +
           number_text(point_, OSSL_PKEY_PARAM_EC_PUB_Y, 32) + "\"}";
  }
  static KeySet keys() {
    return KeySet::read(R"({"keys":[{"kty":"oct","k":"AAAA"},)" + rsa_key() + "," + point_key() +
                        "]}")
        .take();
  }
  static std::string sign(const std::string& header, const std::string& claims, EVP_PKEY* key) {
    const std::string text = base64url(header) + "." + base64url(claims);
    const DigestOwner context(EVP_MD_CTX_new());
    unsigned char out[512];
    size_t bytes = sizeof out;
    EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key);
    EXPECT_EQ(EVP_DigestSign(context.get(), out, &bytes,
                             reinterpret_cast<const unsigned char*>(text.data()), text.size()),
              1);
    std::string signature(reinterpret_cast<char*>(out), bytes);
    if (key == point_) {
      const unsigned char* at = out;
      ECDSA_SIG* const pair = d2i_ECDSA_SIG(nullptr, &at, long(bytes));
      signature.assign(64, 0);
      BN_bn2binpad(ECDSA_SIG_get0_r(pair), reinterpret_cast<unsigned char*>(&signature[0]), 32);
      BN_bn2binpad(ECDSA_SIG_get0_s(pair), reinterpret_cast<unsigned char*>(&signature[32]), 32);
      ECDSA_SIG_free(pair);
    }
    return text + "." + base64url(signature);
  }
  static std::string claims(const std::string& more = "") {
    return R"({"iss":"https://idp","aud":["other","tendril"],"sub":"alice","exp":)" +
           std::to_string(kNowS + 300) + more + "}";
  }
  static std::string refusal(const std::string& token, int64_t now_s = kNowS) {
    Expected expected;
    expected.issuer = "https://idp";
    expected.audience = "tendril";
    return read_signed_token(token, keys(), expected, now_s).status().message();
  }
  static EVP_PKEY *rsa_, *point_;
};
EVP_PKEY* TokenTest::rsa_ = nullptr;
EVP_PKEY* TokenTest::point_ = nullptr;

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST_F(TokenTest, BothKindsOfSignatureAreAccepted) {
  EXPECT_EQ(keys().size(), 2u);
  EXPECT_EQ(refusal(sign(R"({"alg":"RS256","kid":"r"})", claims(), rsa_)), "");
  EXPECT_EQ(refusal(sign(R"({"alg":"ES256","kid":"e"})", claims(), point_)), "");
  EXPECT_EQ(refusal(sign(R"({"alg":"ES256"})", claims(), point_)), "");
}

TEST_F(TokenTest, EachRefusalHasItsOwnText) {
  const std::string good = sign(R"({"alg":"RS256"})", claims(), rsa_);
  EXPECT_PRED2(has, refusal(good, kNowS + 400), "expired");
  EXPECT_EQ(refusal(good, kNowS + 330), "");  // clocks differ
  const auto with = [](const std::string& text) {
    return refusal(sign(R"({"alg":"RS256"})", text, rsa_));
  };
  EXPECT_PRED2(has, with(claims(R"(,"nbf":1800000100)")), "clocks is wrong");
  EXPECT_PRED2(has, with(R"({"iss":"https://idp","aud":"tendril","sub":"a"})"), "no end");
  EXPECT_PRED2(has, with(R"({"iss":"https://idp","aud":"x","sub":"a","exp":1800000100})"),
               "audience");
  EXPECT_PRED2(has, with(R"({"iss":"https://i","aud":"tendril","sub":"a","exp":1800000100})"),
               "issuer");
  EXPECT_PRED2(has, with(R"({"iss":"https://idp","aud":"tendril","exp":1800000100})"),
               "no claim 'sub'");
  EXPECT_PRED2(has, with(R"({"iss":"https://idp","aud":"tendril","sub":7,"exp":1800000100})"),
               "no claim 'sub'");
  EXPECT_PRED2(has, with("[]"), "no signed token");
}

// What attacks on such tokens have used before.
TEST_F(TokenTest, ForgeriesAreRefused) {
  EXPECT_PRED2(has, refusal(base64url(R"({"alg":"none"})") + "." + base64url(claims()) + "."),
               "'none'");
  EXPECT_PRED2(has, refusal(sign(R"({"alg":"HS256"})", claims(), rsa_)), "'HS256'");
  EXPECT_PRED2(has, refusal(sign(R"({"alg":"ES256"})", claims(), rsa_)), "none of the provider");
  EXPECT_PRED2(has, refusal(sign(R"({"alg":"RS256","kid":"other"})", claims(), rsa_)),
               "none of the provider");
  EXPECT_PRED2(has, refusal(sign(R"({"alg":"RS256","crit":["x"]})", claims(), rsa_)), "conditions");
  // ES256 with a signature of zeros (CVE-2022-21449).
  EXPECT_PRED2(has,
               refusal(base64url(R"({"alg":"ES256"})") + "." + base64url(claims()) + "." +
                       base64url(std::string(64, 0))),
               "none of the provider");
  std::string changed = sign(R"({"alg":"RS256"})", claims(), rsa_);
  changed[40] = changed[40] == 'A' ? 'B' : 'A';
  EXPECT_NE(refusal(changed), "");
  for (const char* rubbish : {"", ".", "..", "a.b.c", "....", "e30.e30.e30"})
    EXPECT_NE(refusal(rubbish), "") << rubbish;
  EXPECT_NE(refusal(std::string(1 << 20, 'A')), "");
}

TEST_F(TokenTest, KeySetsAreReadStrictly) {
  for (const char* bad : {"", "{}", "[]", R"({"keys":{}})", R"({"keys":[]})",
                          R"({"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]})",
                          R"({"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]})",
                          R"({"keys":[{"kty":"EC","crv":"P-384","x":"AA","y":"AA"}]})"}) {
    EXPECT_FALSE(KeySet::read(bad).ok()) << bad;
  }
  EXPECT_FALSE(KeySet::read(R"({"keys":[)" + rsa_key(R"(,"use":"enc")") + "]}").ok());
  EXPECT_FALSE(KeySet::read(R"({"keys":[)" + rsa_key(R"(,"alg":"RS512")") + "]}").ok());
  EXPECT_TRUE(KeySet::read(R"({"keys":[)" + rsa_key(R"(,"alg":"RS256")") + "]}").ok());
  // A point that is not on the curve.
  EXPECT_FALSE(KeySet::read(R"({"keys":[{"kty":"EC","crv":"P-256","x":")" +
                            base64url(std::string(32, 1)) + R"(","y":")" +
                            base64url(std::string(32, 2)) + "\"}]}")
                   .ok());
  EXPECT_FALSE(KeySet::read(std::string(100'000, '[')).ok());
}

TEST(Providers, FilesAreReadStrictly) {
  const std::string good =
      "[[provider]]\nissuer = \"https://idp\"\naudience = \"tendril\"\n"
      "keys = \"https://idp/keys\"\n";
  auto read = parse_providers(good + "role = \"operator\"\nlifetime_hours = 1\n", "p");
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), 1u);
  EXPECT_EQ((*read)[0].role, Role::kOperator);
  EXPECT_EQ((*read)[0].lifetime_s, 3600);
  auto groups = parse_providers(
      good + "groups_claim = \"groups\"\n[provider.roles]\nboss = \"admin\"\nops = \"operator\"\n",
      "p");
  ASSERT_TRUE(groups.ok()) << groups.status().message();
  EXPECT_EQ(role_in_groups((*groups)[0], {"ops", "boss", "x"}), Role::kAdmin);
  EXPECT_EQ(role_in_groups((*groups)[0], {"x"}), Role::kUser);
  const auto refusal = [&](const std::string& more) {
    return parse_providers(good + more, "p").status().message();
  };
  EXPECT_PRED2(has, refusal("rôle = 1\n"), "line 5");
  EXPECT_PRED2(has, refusal("role = \"server\"\n"), "p, line 5, column 8: a role must be");
  EXPECT_PRED2(has, refusal("lifetime_hours = 1000\n"), "1 to 72");
  EXPECT_PRED2(has, refusal("tokens = 1\n"), "a provider has issuer");
  EXPECT_PRED2(has, refusal("[provider.roles]\na = \"admin\"\n"), "groups_claim");
  EXPECT_PRED2(has, parse_providers("[[provider]]\n", "p").status().message(), "needs issuer");
  EXPECT_PRED2(has, parse_providers("x = 1\n", "p").status().message(), "only sections");
  EXPECT_FALSE(
      parse_providers("[[provider]]\nkeys = \"http://idp/keys\"\n", "p").ok());  // in clear
}

TEST(Fetch, AddressesAndAnswersAreReadStrictly) {
  EXPECT_TRUE(is_fetchable("https://idp.example.org/keys"));
  EXPECT_TRUE(is_fetchable("https://idp.example.org:8443"));
  EXPECT_TRUE(is_fetchable("http://127.0.0.1:8000/keys"));
  for (const char* bad : {"http://idp/keys", "ftp://x/", "https://", "https://:1/", "https://a b/",
                          "https://a/\r\nX: y", "https://u@h/", "https://h:0/", "https://h:99999/",
                          "http://127.0.0.1.evil/"}) {
    EXPECT_FALSE(is_fetchable(bad)) << bad;
  }
  EXPECT_EQ(read_answer("HTTP/1.0 200 OK\r\nA: b\r\n\r\n{}")->body, "{}");
  EXPECT_EQ(read_answer("HTTP/1.1 404 No\r\n\r\n")->status, 404);
  for (const char* bad : {"", "HTTP/1.0 200 OK\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1."})
    EXPECT_FALSE(read_answer(bad).ok()) << bad;
}

TEST(DeviceLogin, AddressesAreTheProvidersOwn) {
  const std::string document = R"({"issuer":"https://p.org","token_endpoint":"https://p.org/t",)"
                               R"("device_authorization_endpoint":"https://p.org/d"})";
  EXPECT_EQ(read_provider_addresses(document, "https://p.org")->token, "https://p.org/t");
  EXPECT_FALSE(read_provider_addresses(document, "https://q.org").ok());
  const std::string clear = R"({"issuer":"https://p.org","token_endpoint":"http://p.org/t",)"
                            R"("device_authorization_endpoint":"https://p.org/d"})";
  EXPECT_PRED2(has, read_provider_addresses(clear, "https://p.org").status().message(),
               "not https");
  EXPECT_PRED2(has, read_provider_addresses(R"({"issuer":"i"})", "i").status().message(),
               "no device flow");
  for (const char* bad : {"", "[]", "{", "null", R"({"issuer":7})"})
    EXPECT_FALSE(read_provider_addresses(bad, "https://p.org").ok()) << bad;
}

TEST(DeviceLogin, CodesAndTokensAreReadStrictly) {
  auto code = read_device_code(R"({"device_code":"d","user_code":"U","interval":1e9,)"
                               R"("expires_in":-5,"verification_uri":"https://p.org"})");
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(code->every_s, 60);
  EXPECT_EQ(code->expires_s, 1);
  // What a terminal would obey is not shown to it.
  EXPECT_FALSE(read_device_code("{\"device_code\":\"d\",\"user_code\":\"\\u001b[2J\","
                                "\"verification_uri\":\"https://p.org\"}")
                   .ok());
  using State = TokenAnswer::State;
  EXPECT_EQ(read_token_answer(400, R"({"error":"authorization_pending"})")->state, State::kWaits);
  EXPECT_EQ(read_token_answer(400, R"({"error":"slow_down"})")->state, State::kTooFast);
  EXPECT_EQ(read_token_answer(200, R"({"id_token":"a.b.c"})")->token, "a.b.c");
  EXPECT_PRED2(has, read_token_answer(200, R"({"access_token":"a"})").status().message(), "openid");
  EXPECT_FALSE(read_token_answer(500, R"({"id_token":"a.b.c"})").ok());
  EXPECT_FALSE(read_token_answer(400, R"({"error":"expired_token"})").ok());
  EXPECT_FALSE(read_token_answer(200, "<html>").ok());
}

}  // namespace
}  // namespace tendril::identity
