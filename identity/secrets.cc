// SPDX-License-Identifier: Apache-2.0
// See secrets.h and openssl.h.
#include "identity/secrets.h"

#include <openssl/kdf.h>
#include <openssl/sha.h>

#include "base/text.h"
#include "identity/openssl.h"

namespace tendril::identity {

using base::Code;
using base::Status;

namespace {
constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

int letter_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '-') return 62;
  return c == '_' ? 63 : -1;
}
}  // namespace

void prepare_openssl() {
  static const bool done =
      OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr) == 1;
  (void)done;
}

Status openssl_status(const std::string& doing) {
  const unsigned long error = ERR_get_error();
  const char* const why = error != 0 ? ERR_reason_error_string(error) : nullptr;
  ERR_clear_error();
  return Status(Code::kInternal, doing + ": " + (why != nullptr ? why : "OpenSSL gives no reason"));
}

std::string digest(const std::string& bytes) {
  unsigned char out[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), out);
  return std::string(reinterpret_cast<const char*>(out), sizeof out);
}

std::string key_from_secret(const std::string& secret, const std::string& label) {
  prepare_openssl();
  unsigned char out[kDigestBytes];
  size_t bytes = sizeof out;
  const KeyContextOwner context(EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr));
  const bool made = context != nullptr && EVP_PKEY_derive_init(context.get()) == 1 &&
                    EVP_PKEY_CTX_set_hkdf_md(context.get(), EVP_sha256()) == 1 &&
                    EVP_PKEY_CTX_set1_hkdf_salt(
                        context.get(), reinterpret_cast<const unsigned char*>("tendril"), 7) == 1 &&
                    EVP_PKEY_CTX_set1_hkdf_key(
                        context.get(), reinterpret_cast<const unsigned char*>(secret.data()),
                        int(secret.size())) == 1 &&
                    EVP_PKEY_CTX_add1_hkdf_info(
                        context.get(), reinterpret_cast<const unsigned char*>(label.data()),
                        int(label.size())) == 1 &&
                    EVP_PKEY_derive(context.get(), out, &bytes) == 1;
  if (!made) return std::string();
  return std::string(reinterpret_cast<const char*>(out), bytes);
}

std::string base64url(const std::string& bytes) {
  std::string out;
  uint32_t held = 0;
  int bits = 0;
  for (const char c : bytes) {
    held = (held << 8) | static_cast<unsigned char>(c);
    for (bits += 8; bits >= 6; bits -= 6) out += kAlphabet[(held >> (bits - 6)) & 63];
  }
  if (bits > 0) out += kAlphabet[(held << (6 - bits)) & 63];
  return out;
}

bool read_base64url(const std::string& text, std::string* bytes) {
  bytes->clear();
  if (text.size() % 4 == 1) return false;
  uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    const int value = letter_value(c);
    if (value < 0) return false;
    held = (held << 6) | uint32_t(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    *bytes += char((held >> bits) & 255);
  }
  return (held & ((1u << bits) - 1)) == 0;
}

base::Result<std::string> random_hex(size_t bytes) {
  std::string raw(bytes, 0);
  if (!base::random_bytes(&raw[0], raw.size())) {
    return Status(Code::kExhausted,
                  "the kernel gives no random bytes; try again when the machine has some");
  }
  return base::hex(raw.data(), raw.size());
}

}  // namespace tendril::identity
