// SPDX-License-Identifier: Apache-2.0
// Keys (P-256), requests for certificates, and certificates: making, reading and judging them. Time
// is passed in. Requests and certificates of peers are hostile input. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "identity/name.h"

struct evp_pkey_st;
struct x509_st;

namespace tendril::identity {

using Key = std::shared_ptr<evp_pkey_st>;
using Certificate = std::shared_ptr<x509_st>;

inline constexpr int64_t kDayS = 86'400;
inline constexpr int64_t kAuthorityLifetimeS = 3650 * kDayS;
inline constexpr int64_t kServerLifetimeS = 365 * kDayS, kUserLifetimeS = 30 * kDayS;
inline constexpr int64_t kLifetimeMaxS = 398 * kDayS;
// A certificate begins this much earlier, because clocks differ.
inline constexpr int64_t kBackdateS = 300;
inline constexpr size_t kRequestBytesMax = 4096, kCertificateBytesMax = 8192;

int64_t wall_clock_s();
// "2026-11-23 15:30:05 UTC"
std::string time_text(int64_t at_s);

base::Result<Key> make_key();
base::Result<std::string> key_text(const Key& key);  // PEM
base::Result<Key> read_key(const std::string& text);

// A request for a certificate: the public key, signed by its private half (DER). What else it says
// is ignored by `issue`.
base::Result<std::string> make_request(const Key& key);

std::string certificate_text(const Certificate& certificate);  // PEM
base::Result<Certificate> read_certificate(const std::string& text);

base::Result<Certificate> make_authority(const Key& key, const std::string& pool, int64_t now_s);

struct Grant {
  Name name;
  int64_t now_s = 0, lifetime_s = 0;
};
// A certificate for the key of `request`. Never outlives the authority's.
base::Result<Certificate> issue(const Certificate& authority, const Key& authority_key,
                                const std::string& request, const Grant& grant);

struct Facts {
  Name name;           // not of an authority
  std::string serial;  // lower-case hexadecimal
  int64_t begins_s = 0, ends_s = 0;

  // When it should be replaced: two thirds of its life have passed.
  int64_t renewal_s() const { return begins_s + (ends_s - begins_s) / 3 * 2; }
};
base::Result<Facts> read_facts(const Certificate& certificate);
// The pool of an authority's certificate.
base::Result<std::string> authority_pool(const Certificate& certificate);
// The digest of an authority's public key as text, which join tokens carry.
std::string pin_of(const Certificate& authority);
// Whether a request is signed by the key that the certificate is for.
bool is_request_of(const std::string& request, const Certificate& certificate);
bool is_key_of(const Key& key, const Certificate& certificate);

// What a certificate is shown for.
enum class Purpose : uint8_t { kServer, kClient };
// Whether `certificate` is one of this authority's, for that purpose, at this time. Each cause has
// its own message, which begins with `whose` ("the server's certificate"). kMismatch: it is
// foreign.
base::Result<Facts> judge(const Certificate& certificate, const Certificate& authority,
                          Purpose purpose, int64_t now_s, const std::string& whose);

}  // namespace tendril::identity
