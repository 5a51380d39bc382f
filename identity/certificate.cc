// SPDX-License-Identifier: Apache-2.0
// See certificate.h.
#include "identity/certificate.h"

#include <openssl/ec.h>
#include <time.h>

#include <algorithm>

#include "base/text.h"
#include "identity/openssl.h"
#include "identity/secrets.h"

namespace tendril::identity {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr int kSerialBytes = 16;
// No name has a blank. Otherwise a server that is called as its pool would look self-signed.
constexpr char kAuthoritySuffix[] = " authority";

struct NamesDeleter {
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};
struct StoreDeleter {
  void operator()(X509_STORE_CTX* context) const { X509_STORE_CTX_free(context); }
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
};

Certificate owned(X509* certificate) { return Certificate(certificate, X509_free); }
Key owned(EVP_PKEY* key) { return Key(key, EVP_PKEY_free); }

std::string contents(BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  return bytes > 0 ? std::string(data, size_t(bytes)) : std::string();
}

// P-256, and nothing else.
bool is_our_kind(EVP_PKEY* key) {
  char group[32] = {};
  size_t bytes = 0;
  return key != nullptr && EVP_PKEY_get_base_id(key) == EVP_PKEY_EC &&
         EVP_PKEY_get_group_name(key, group, sizeof group, &bytes) == 1 &&
         (std::string(group) == "prime256v1" || std::string(group) == "P-256");
}

using RequestOwner = std::unique_ptr<X509_REQ, Freed<X509_REQ_free>>;

// A peer's request, if it is whole and signed with its own key. Otherwise null.
RequestOwner sound_request(const std::string& request) {
  if (request.size() > kRequestBytesMax) return nullptr;
  const auto* at = reinterpret_cast<const unsigned char*>(request.data());
  const unsigned char* const end = at + request.size();
  RequestOwner asked(d2i_X509_REQ(nullptr, &at, long(request.size())));
  EVP_PKEY* const key = asked != nullptr ? X509_REQ_get0_pubkey(asked.get()) : nullptr;
  const bool sound = at == end && is_our_kind(key) && X509_REQ_verify(asked.get(), key) == 1;
  ERR_clear_error();
  return sound ? std::move(asked) : nullptr;
}

bool set_serial(X509* certificate) {
  unsigned char raw[kSerialBytes];
  if (!base::random_bytes(raw, sizeof raw)) return false;
  raw[0] = (raw[0] & 0x7f) | 0x40;  // positive, and always of the same length
  BIGNUM* const number = BN_bin2bn(raw, sizeof raw, nullptr);
  const bool set = number != nullptr &&
                   BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  return set;
}

bool set_common_name(X509_NAME* into, const std::string& text) {
  return X509_NAME_add_entry_by_txt(into, "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(text.data()),
                                    int(text.size()), -1, 0) == 1;
}

// `value` is a constant of ours, never a peer's text.
bool add_extension(X509* certificate, X509* authority, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, authority, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
  const bool added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

bool push_name(GENERAL_NAMES* names, int kind, const std::string& value) {
  GENERAL_NAME* const name = GENERAL_NAME_new();
  ASN1_IA5STRING* const text = ASN1_IA5STRING_new();
  if (name == nullptr || text == nullptr ||
      ASN1_STRING_set(text, value.data(), int(value.size())) != 1) {
    return false;
  }
  GENERAL_NAME_set0_value(name, kind, text);
  return sk_GENERAL_NAME_push(names, name) > 0;
}

// A server is also named as monitors look for it: they know nothing of our names.
bool is_host_name(const std::string& name) {
  return name.find_first_of("_@+") == std::string::npos;
}

bool add_names(X509* certificate, const std::string& uri, const std::string& host) {
  const std::unique_ptr<GENERAL_NAMES, NamesDeleter> names(GENERAL_NAMES_new());
  if (names == nullptr || !push_name(names.get(), GEN_URI, uri) ||
      (!host.empty() && is_host_name(host) && !push_name(names.get(), GEN_DNS, host))) {
    return false;
  }
  return X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 1, 0) == 1;
}

bool set_times(X509* certificate, int64_t begins_s, int64_t ends_s) {
  return ASN1_TIME_set(X509_getm_notBefore(certificate), begins_s) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), ends_s) != nullptr;
}

int64_t seconds_of(const ASN1_TIME* time) {
  tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return 0;
  return timegm(&parts);
}

// The one URI of a certificate.
Result<std::string> uri_of(X509* certificate) {
  const Status bad(Code::kInvalid, "the certificate carries no name of Tendril's form");
  const std::unique_ptr<GENERAL_NAMES, NamesDeleter> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  if (names == nullptr) return bad;
  std::string uri;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    if (!uri.empty()) return bad;
    const ASN1_IA5STRING* const text = name->d.uniformResourceIdentifier;
    uri.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
               size_t(ASN1_STRING_length(text)));
  }
  if (uri.empty()) return bad;
  return uri;
}

Status foreign(X509* certificate, const Certificate& authority, const std::string& whose) {
  const Result<std::string> own = authority_pool(authority);
  const Result<std::string> uri = uri_of(certificate);
  return Status(Code::kMismatch,
                whose + " is foreign: it names " +
                    (uri.ok() ? "'" + base::printable(uri.value()) + "'" : "nobody") +
                    " and was not issued by the authority of the pool '" +
                    (own.ok() ? own.value() : "?") + "'");
}

Status wrong_time(const Facts& facts, int64_t now_s, const std::string& whose) {
  const std::string clock = "this machine's clock says " + time_text(now_s);
  if (now_s < facts.begins_s) {
    return Status(Code::kRefused, whose + " begins at " + time_text(facts.begins_s) + ", and " +
                                      clock + ": set the clock that is wrong");
  }
  return Status(Code::kRefused, whose + " has expired: it ended at " + time_text(facts.ends_s) +
                                    ", and " + clock +
                                    "; join or log in again, or set the clock if it is wrong");
}

}  // namespace

int64_t wall_clock_s() { return ::time(nullptr); }

std::string time_text(int64_t at_s) {
  const time_t at = at_s;
  tm parts = {};
  char text[64] = {};
  gmtime_r(&at, &parts);
  strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

Result<Key> make_key() {
  prepare_openssl();
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  if (key == nullptr) return openssl_status("making a key");
  return owned(key);
}

Result<std::string> key_text(const Key& key) {
  const BioOwner bio(BIO_new(BIO_s_secmem()));
  if (bio == nullptr || PEM_write_bio_PKCS8PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0,
                                                      nullptr, nullptr) != 1) {
    return openssl_status("writing a key");
  }
  return contents(bio.get());
}

Result<Key> read_key(const std::string& text) {
  prepare_openssl();
  const BioOwner bio(BIO_new_mem_buf(text.data(), int(text.size())));
  // A password is never asked for on the terminal.
  char none[] = "";
  Key key = owned(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, none));
  if (key == nullptr) return openssl_status("reading a private key");
  if (!is_our_kind(key.get())) return Status(Code::kInvalid, "the private key is not of P-256");
  return key;
}

Result<std::string> make_request(const Key& key) {
  const RequestOwner request(X509_REQ_new());
  unsigned char* der = nullptr;
  if (request == nullptr || X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) <= 0) {
    return openssl_status("making a request for a certificate");
  }
  const int bytes = i2d_X509_REQ(request.get(), &der);
  if (bytes <= 0) return openssl_status("writing a request for a certificate");
  std::string out(reinterpret_cast<const char*>(der), size_t(bytes));
  OPENSSL_free(der);
  return out;
}

std::string certificate_text(const Certificate& certificate) {
  const BioOwner bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || PEM_write_bio_X509(bio.get(), certificate.get()) != 1) return std::string();
  return contents(bio.get());
}

Result<Certificate> read_certificate(const std::string& text) {
  prepare_openssl();
  if (text.size() > kCertificateBytesMax)
    return Status(Code::kInvalid, "the certificate is too large");
  const BioOwner bio(BIO_new_mem_buf(text.data(), int(text.size())));
  Certificate certificate = owned(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) return openssl_status("reading a certificate");
  return certificate;
}

Result<Certificate> make_authority(const Key& key, const std::string& pool, int64_t now_s) {
  Status fits = check_pool(pool);
  if (!fits.ok()) return fits;
  const Certificate made = owned(X509_new());
  X509* const x = made.get();
  const bool good = x != nullptr && X509_set_version(x, X509_VERSION_3) == 1 && set_serial(x) &&
                    set_common_name(X509_get_subject_name(x), pool + kAuthoritySuffix) &&
                    X509_set_issuer_name(x, X509_get_subject_name(x)) == 1 &&
                    set_times(x, now_s - kBackdateS, now_s + kAuthorityLifetimeS) &&
                    X509_set_pubkey(x, key.get()) == 1 &&
                    add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
                    add_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
                    add_extension(x, x, NID_subject_key_identifier, "hash") &&
                    add_names(x, "spiffe://" + pool, std::string()) &&
                    X509_sign(x, key.get(), EVP_sha256()) > 0;
  if (!good) return openssl_status("making the authority's certificate");
  return made;
}

Result<Certificate> issue(const Certificate& authority, const Key& authority_key,
                          const std::string& request, const Grant& grant) {
  const RequestOwner asked = sound_request(request);
  if (asked == nullptr) {
    return Status(
        Code::kInvalid,
        "the request for a certificate is malformed, or too large, or its key is not of P-256");
  }
  EVP_PKEY* const key = X509_REQ_get0_pubkey(asked.get());
  Result<std::string> pool = authority_pool(authority);
  if (!pool.ok()) return pool.status();
  if (grant.name.pool != *pool)
    return Status(Code::kInternal, "the authority of '" + *pool + "' names its own pool only");
  const Certificate made = owned(X509_new());
  X509 *const x = made.get(), *const ca = authority.get();
  const int64_t lifetime_s = std::clamp<int64_t>(grant.lifetime_s, 1, kLifetimeMaxS);
  const int64_t ends_s = std::min(grant.now_s + lifetime_s, seconds_of(X509_get0_notAfter(ca)));
  const bool server = grant.name.role == Role::kServer;
  const char* const uses = server ? "serverAuth,clientAuth" : "clientAuth";
  const bool good = x != nullptr && X509_set_version(x, X509_VERSION_3) == 1 && set_serial(x) &&
                    set_common_name(X509_get_subject_name(x), grant.name.name) &&
                    X509_set_issuer_name(x, X509_get_subject_name(ca)) == 1 &&
                    set_times(x, grant.now_s - kBackdateS, ends_s) &&
                    X509_set_pubkey(x, key) == 1 &&
                    add_extension(x, ca, NID_basic_constraints, "critical,CA:FALSE") &&
                    add_extension(x, ca, NID_key_usage, "critical,digitalSignature") &&
                    add_extension(x, ca, NID_ext_key_usage, uses) &&
                    add_extension(x, ca, NID_authority_key_identifier, "keyid") &&
                    add_names(x, grant.name.uri(), server ? grant.name.name : std::string()) &&
                    X509_sign(x, authority_key.get(), EVP_sha256()) > 0;
  if (!good) return openssl_status("making a certificate for " + grant.name.text());
  return made;
}

Result<Facts> read_facts(const Certificate& certificate) {
  Result<std::string> uri = uri_of(certificate.get());
  if (!uri.ok()) return uri.status();
  Result<Name> name = read_name(*uri);
  if (!name.ok()) return name.status();
  Facts facts;
  facts.name = name.take();
  const ASN1_INTEGER* const serial = X509_get0_serialNumber(certificate.get());
  facts.serial = base::hex(ASN1_STRING_get0_data(serial), size_t(ASN1_STRING_length(serial)));
  facts.begins_s = seconds_of(X509_get0_notBefore(certificate.get()));
  facts.ends_s = seconds_of(X509_get0_notAfter(certificate.get()));
  return facts;
}

Result<std::string> authority_pool(const Certificate& certificate) {
  Result<std::string> uri = uri_of(certificate.get());
  if (!uri.ok()) return uri.status();
  const std::string scheme = "spiffe://";
  if (uri->rfind(scheme, 0) == 0 && check_pool(uri->substr(scheme.size())).ok())
    return uri->substr(scheme.size());
  return Status(Code::kInvalid, "the certificate is not an authority's: it names '" +
                                    base::printable(*uri) + "', not a pool");
}

std::string pin_of(const Certificate& authority) {
  unsigned char* der = nullptr;
  const int bytes = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(authority.get()), &der);
  if (bytes <= 0) return std::string();
  const std::string text(reinterpret_cast<const char*>(der), size_t(bytes));
  OPENSSL_free(der);
  return base64url(digest(text));
}

bool is_request_of(const std::string& request, const Certificate& certificate) {
  const RequestOwner asked = sound_request(request);
  return asked != nullptr &&
         EVP_PKEY_eq(X509_REQ_get0_pubkey(asked.get()), X509_get0_pubkey(certificate.get())) == 1;
}

bool is_key_of(const Key& key, const Certificate& certificate) {
  const bool same = X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  return same;
}

Result<Facts> judge(const Certificate& certificate, const Certificate& authority, Purpose purpose,
                    int64_t now_s, const std::string& whose) {
  const std::unique_ptr<X509_STORE, StoreDeleter> store(X509_STORE_new());
  const std::unique_ptr<X509_STORE_CTX, StoreDeleter> context(X509_STORE_CTX_new());
  if (store == nullptr || context == nullptr ||
      X509_STORE_add_cert(store.get(), authority.get()) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), certificate.get(), nullptr) != 1) {
    return openssl_status("judging a certificate");
  }
  X509_VERIFY_PARAM* const asked = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_time(asked, now_s);
  X509_VERIFY_PARAM_set_purpose(
      asked, purpose == Purpose::kServer ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT);
  X509_VERIFY_PARAM_set_depth(asked, 1);
  const bool good = X509_verify_cert(context.get()) == 1;
  const int why = X509_STORE_CTX_get_error(context.get());
  ERR_clear_error();
  Result<Facts> facts = read_facts(certificate);
  if (!good) {
    const bool time = why == X509_V_ERR_CERT_HAS_EXPIRED || why == X509_V_ERR_CERT_NOT_YET_VALID;
    if (time && facts.ok() && (now_s < facts->begins_s || now_s >= facts->ends_s))
      return wrong_time(*facts, now_s, whose);
    if (time || why == X509_V_ERR_INVALID_PURPOSE || why == X509_V_ERR_INVALID_CA) {
      return Status(Code::kRefused,
                    whose + " is not good for this: " + X509_verify_cert_error_string(why));
    }
    return foreign(certificate.get(), authority, whose);
  }
  if (!facts.ok()) return Status(Code::kRefused, whose + ": " + facts.status().message());
  Result<std::string> pool = authority_pool(authority);
  if (!pool.ok() || facts->name.pool != *pool) return foreign(certificate.get(), authority, whose);
  const bool server = facts->name.role == Role::kServer;
  if (purpose == Purpose::kServer && !server) {
    return Status(Code::kRefused, whose + " is that of " + facts->name.text() +
                                      ", who is no server: somebody stands in for the server");
  }
  return facts;
}

}  // namespace tendril::identity
