// SPDX-License-Identifier: Apache-2.0
// OpenSSL's objects with owners, and its errors as text. Private to identity/: no other room
// includes OpenSSL. Any thread.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::identity {

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
inline void free_bio(BIO* bio) { BIO_free(bio); }
using BioOwner = std::unique_ptr<BIO, Freed<free_bio>>;
using DigestOwner = std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>>;
using KeyContextOwner = std::unique_ptr<EVP_PKEY_CTX, Freed<EVP_PKEY_CTX_free>>;
using SessionOwner = std::unique_ptr<SSL_SESSION, Freed<SSL_SESSION_free>>;
using SslOwner = std::unique_ptr<SSL, Freed<SSL_free>>;
using SslContextOwner = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;

// Call it before anything else of OpenSSL. It reads no configuration file of the system, because
// ours is linked statically and may be of another version, and installs no exit handler.
void prepare_openssl();

// `doing` failed: the text of OpenSSL's first error. Empties its queue.
base::Status openssl_status(const std::string& doing);

}  // namespace tendril::identity
