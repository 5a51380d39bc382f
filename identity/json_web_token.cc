// SPDX-License-Identifier: Apache-2.0
// See json_web_token.h. The JSON parser runs without exceptions and without recursion, and every
// value's type is looked at before it is used.
#include "identity/json_web_token.h"

#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/param_build.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "identity/certificate.h"
#include "identity/openssl.h"
#include "identity/secrets.h"

namespace tendril::identity {

using base::Code;
using base::Result;
using base::Status;
using Json = nlohmann::json;

namespace {

constexpr size_t kPointBytes = 32;  // a coordinate of P-256, or half of a signature
constexpr size_t kModulusBytesMin = 256, kModulusBytesMax = 1024;
constexpr size_t kTextMax = 512, kGroupsMax = 256;
constexpr double kSecondsMax = 1e12;

using BuilderOwner = std::unique_ptr<OSSL_PARAM_BLD, Freed<OSSL_PARAM_BLD_free>>;
using ParamsOwner = std::unique_ptr<OSSL_PARAM, Freed<OSSL_PARAM_free>>;
using NumberOwner = std::unique_ptr<BIGNUM, Freed<BN_free>>;
using SignatureOwner = std::unique_ptr<ECDSA_SIG, Freed<ECDSA_SIG_free>>;

Status wrong(const std::string& why) {
  return Status(Code::kRefused, "the provider's token is not accepted: " + why);
}

// The text of a member; empty if it is missing, no text or too long.
std::string text_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return std::string();
  const std::string& text = found->get_ref<const std::string&>();
  return text.size() <= kTextMax ? text : std::string();
}

std::string bytes_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  std::string bytes;
  if (found == object.end() || !found->is_string() ||
      !read_base64url(found->get_ref<const std::string&>(), &bytes)) {
    return std::string();
  }
  return bytes;
}

const unsigned char* raw(const std::string& bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

std::shared_ptr<EVP_PKEY> key_from(const char* kind, OSSL_PARAM* params) {
  const KeyContextOwner context(EVP_PKEY_CTX_new_from_name(nullptr, kind, nullptr));
  EVP_PKEY* key = nullptr;
  if (context == nullptr || params == nullptr || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, params) != 1) {
    return nullptr;
  }
  return std::shared_ptr<EVP_PKEY>(key, EVP_PKEY_free);
}

std::shared_ptr<EVP_PKEY> rsa_key(const Json& object) {
  const std::string modulus = bytes_in(object, "n"), exponent = bytes_in(object, "e");
  if (modulus.size() < kModulusBytesMin || modulus.size() > kModulusBytesMax || exponent.empty() ||
      exponent.size() > 4) {
    return nullptr;
  }
  const NumberOwner n(BN_bin2bn(raw(modulus), int(modulus.size()), nullptr));
  const NumberOwner e(BN_bin2bn(raw(exponent), int(exponent.size()), nullptr));
  const BuilderOwner builder(OSSL_PARAM_BLD_new());
  if (n == nullptr || e == nullptr || builder == nullptr || BN_is_odd(e.get()) == 0 ||
      BN_is_one(e.get()) == 1 || BN_num_bits(n.get()) < int(kModulusBytesMin * 8) ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) != 1 ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) != 1) {
    return nullptr;
  }
  const ParamsOwner params(OSSL_PARAM_BLD_to_param(builder.get()));
  return key_from("RSA", params.get());
}

std::shared_ptr<EVP_PKEY> point_key(const Json& object) {
  const std::string x = bytes_in(object, "x"), y = bytes_in(object, "y");
  if (text_in(object, "crv") != "P-256" || x.size() != kPointBytes || y.size() != kPointBytes)
    return nullptr;
  const std::string point = "\x04" + x + y;
  const BuilderOwner builder(OSSL_PARAM_BLD_new());
  if (builder == nullptr ||
      OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) !=
          1 ||
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                       point.size()) != 1) {
    return nullptr;
  }
  const ParamsOwner params(OSSL_PARAM_BLD_to_param(builder.get()));
  return key_from("EC", params.get());
}

// r and s as OpenSSL wants them. Empty: malformed.
std::string der_signature(const std::string& pair) {
  if (pair.size() != 2 * kPointBytes) return std::string();
  NumberOwner r(BN_bin2bn(raw(pair), kPointBytes, nullptr));
  NumberOwner s(BN_bin2bn(raw(pair) + kPointBytes, kPointBytes, nullptr));
  const SignatureOwner signature(ECDSA_SIG_new());
  if (r == nullptr || s == nullptr || signature == nullptr ||
      ECDSA_SIG_set0(signature.get(), r.get(), s.get()) != 1) {
    return std::string();
  }
  (void)r.release();
  (void)s.release();
  unsigned char* der = nullptr;
  const int bytes = i2d_ECDSA_SIG(signature.get(), &der);
  if (bytes <= 0) return std::string();
  std::string out(reinterpret_cast<const char*>(der), size_t(bytes));
  OPENSSL_free(der);
  return out;
}

bool is_signed(const std::string& what, const std::string& signature, EVP_PKEY* key) {
  const DigestOwner context(EVP_MD_CTX_new());
  const bool good = context != nullptr &&
                    EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key) == 1 &&
                    EVP_DigestVerify(context.get(), raw(signature), signature.size(), raw(what),
                                     what.size()) == 1;
  ERR_clear_error();
  return good;
}

struct Parts {
  Json header, claims;
  std::string signed_text, signature;
};

Result<Parts> take_apart(const std::string& token) {
  const Status malformed = wrong("it is no signed token (JWT)");
  if (token.size() > kSignedTokenBytesMax) return malformed;
  const size_t first = token.find('.');
  const size_t second = first == std::string::npos ? first : token.find('.', first + 1);
  if (second == std::string::npos) return malformed;
  Parts parts;
  std::string header, claims;
  if (!read_base64url(token.substr(0, first), &header) ||
      !read_base64url(token.substr(first + 1, second - first - 1), &claims) ||
      !read_base64url(token.substr(second + 1), &parts.signature)) {
    return malformed;
  }
  parts.header = Json::parse(header, nullptr, false);
  parts.claims = Json::parse(claims, nullptr, false);
  if (!parts.header.is_object() || !parts.claims.is_object()) return malformed;
  parts.signed_text = token.substr(0, second);
  return parts;
}

bool seconds_in(const Json& claims, const char* name, int64_t* seconds) {
  const auto found = claims.find(name);
  if (found == claims.end() || !found->is_number()) return false;
  const double value = found->get<double>();
  if (!(value >= 0 && value < kSecondsMax)) return false;
  *seconds = int64_t(value);
  return true;
}

// A text, or a list of texts.
std::vector<std::string> texts_in(const Json& claims, const std::string& name) {
  std::vector<std::string> texts;
  const auto found = claims.find(name);
  if (found == claims.end()) return texts;
  if (found->is_string()) texts.push_back(found->get<std::string>());
  if (!found->is_array()) return texts;
  for (const Json& each : *found) {
    if (each.is_string() && texts.size() < kGroupsMax) texts.push_back(each.get<std::string>());
  }
  return texts;
}

bool has(const std::vector<std::string>& texts, const std::string& text) {
  for (const std::string& each : texts) {
    if (each == text) return true;
  }
  return false;
}

Status check_times(const Json& claims, int64_t now_s, int64_t* ends_s) {
  int64_t begins_s = 0;
  if (!seconds_in(claims, "exp", ends_s)) return wrong("it has no end (exp)");
  if (now_s >= *ends_s + kProviderSkewS) {
    return wrong("it has expired: it ended at " + time_text(*ends_s) +
                 ", and this server's clock says " + time_text(now_s));
  }
  for (const char* name : {"nbf", "iat"}) {
    if (claims.contains(name) && !seconds_in(claims, name, &begins_s))
      return wrong(std::string("its ") + name + " is no time");
    if (seconds_in(claims, name, &begins_s) && now_s + kProviderSkewS < begins_s) {
      return wrong("it begins at " + time_text(begins_s) + ", and this server's clock says " +
                   time_text(now_s) + ": one of the clocks is wrong");
    }
  }
  return Status();
}

}  // namespace

Result<KeySet> KeySet::read(const std::string& text) {
  prepare_openssl();
  const Status bad(Code::kInvalid, "that is no key set (JWKS) with an RS256 or ES256 key");
  if (text.size() > kKeySetBytesMax) return bad;
  const Json whole = Json::parse(text, nullptr, false);
  if (!whole.is_object() || !whole.contains("keys") || !whole["keys"].is_array()) return bad;
  KeySet set;
  for (const Json& object : whole["keys"]) {
    if (set.keys_.size() >= kKeysMax) break;
    if (!object.is_object()) continue;
    const std::string use = text_in(object, "use"), kind = text_in(object, "kty");
    if (!use.empty() && use != "sig") continue;
    Entry entry;
    entry.id = text_in(object, "kid");
    entry.algorithm = kind == "RSA" ? "RS256" : "ES256";
    const std::string algorithm = text_in(object, "alg");
    if (!algorithm.empty() && algorithm != entry.algorithm) continue;
    if (kind == "RSA") entry.key = rsa_key(object);
    if (kind == "EC") entry.key = point_key(object);
    ERR_clear_error();
    if (entry.key != nullptr) set.keys_.push_back(std::move(entry));
  }
  if (set.keys_.empty()) return bad;
  return set;
}

Status check_signature(const std::string& token, const KeySet& keys) {
  Result<Parts> parts = take_apart(token);
  if (!parts.ok()) return parts.status();
  const std::string algorithm = text_in(parts->header, "alg"), id = text_in(parts->header, "kid");
  if (algorithm != "RS256" && algorithm != "ES256") {
    return wrong("it is signed with '" + base::printable(algorithm, 32) +
                 "', and RS256 and ES256 are accepted");
  }
  if (parts->header.contains("crit")) return wrong("its header has conditions that are not known");
  const std::string signature =
      algorithm == "ES256" ? der_signature(parts->signature) : parts->signature;
  for (const KeySet::Entry& entry : keys.keys_) {
    if (entry.algorithm != algorithm || (!id.empty() && !entry.id.empty() && entry.id != id))
      continue;
    if (is_signed(parts->signed_text, signature, entry.key.get())) return Status();
  }
  return wrong("none of the provider's keys has signed it");
}

Result<std::string> claimed_issuer(const std::string& token) {
  Result<Parts> parts = take_apart(token);
  if (!parts.ok()) return parts.status();
  return text_in(parts->claims, "iss");
}

Result<Claims> read_signed_token(const std::string& token, const KeySet& keys,
                                 const Expected& expected, int64_t now_s) {
  const Status signature = check_signature(token, keys);
  if (!signature.ok()) return signature;
  Result<Parts> parts = take_apart(token);
  if (!parts.ok()) return parts.status();
  const Json& claims = parts->claims;
  const std::string issuer = text_in(claims, "iss");
  if (issuer.empty() || issuer != expected.issuer)
    return wrong("its issuer is '" + base::printable(issuer) + "', not '" + expected.issuer + "'");
  if (!has(texts_in(claims, "aud"), expected.audience))
    return wrong("it is not meant for this pool: its audience is not '" + expected.audience + "'");
  Claims found;
  const Status times = check_times(claims, now_s, &found.ends_s);
  if (!times.ok()) return times;
  found.name = text_in(claims, expected.name_claim.c_str());
  if (found.name.empty()) return wrong("it has no claim '" + expected.name_claim + "'");
  if (!expected.groups_claim.empty()) found.groups = texts_in(claims, expected.groups_claim);
  return found;
}

}  // namespace tendril::identity
