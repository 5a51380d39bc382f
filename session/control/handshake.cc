// SPDX-License-Identifier: Apache-2.0
// See handshake.h. The names of the Noise specification: chain_ is ck, hash_ is h, number_ is n.
#include "session/control/handshake.h"

#include <cstring>

#include "base/text.h"

namespace tendril::session {

using base::Code;
using base::Result;
using base::Status;
using transport::CurveBytes;
using transport::Digest;
using transport::kAeadNonceBytes;
using transport::kAeadTagBytes;
using transport::kCurveBytes;
using transport::view_of;

namespace {

constexpr std::string_view kProtocolName = "Noise_NNpsk0_25519_AESGCM_SHA256";
static_assert(kProtocolName.size() == transport::kDigestBytes);

struct Outputs {
  Digest first, second, third;
};

// The HKDF of the specification: HMAC in a chain.
Outputs derive(const Digest& chain, std::string_view secret) {
  Digest temporary = transport::hmac_sha256(view_of(chain), {secret});
  Outputs out;
  out.first = transport::hmac_sha256(view_of(temporary), {"\x01"});
  out.second = transport::hmac_sha256(view_of(temporary), {view_of(out.first), "\x02"});
  out.third = transport::hmac_sha256(view_of(temporary), {view_of(out.second), "\x03"});
  transport::wipe(temporary.data(), temporary.size());
  return out;
}

// Four zeros and the number, most significant byte first.
void put_nonce(uint64_t number, uint8_t* nonce) {
  std::memset(nonce, 0, kAeadNonceBytes);
  for (size_t i = 0; i < 8; ++i) nonce[kAeadNonceBytes - 1 - i] = uint8_t(number >> (8 * i));
}

Status does_not_fit() {
  return Status(Code::kRefused,
                "the handshake does not fit: it was made with another secret, for "
                "another connection, or was changed on the way");
}

}  // namespace

Handshake::Handshake(const Digest& shared_secret, std::string_view prologue) {
  std::memcpy(hash_.data(), kProtocolName.data(), hash_.size());
  chain_ = hash_;
  mix_hash(prologue);
  mix_key_and_hash(view_of(shared_secret));
}

Handshake::~Handshake() {
  transport::wipe(chain_.data(), chain_.size());
  transport::wipe(secret_.data(), secret_.size());
}

void Handshake::set_secret_for_test(const CurveBytes& secret) {
  secret_ = secret;
  has_secret_ = true;
}

Status Handshake::make_secret() {
  if (!has_secret_ && !base::random_bytes(secret_.data(), secret_.size()))
    return Status(Code::kExhausted, "the kernel gives no random bytes for a handshake");
  has_secret_ = true;
  return Status();
}

void Handshake::mix_hash(std::string_view bytes) {
  hash_ = transport::sha256({view_of(hash_), bytes});
}

void Handshake::mix_key(std::string_view secret) {
  Outputs out = derive(chain_, secret);
  chain_ = out.first;
  aead_.set_key(out.second.data(), out.second.size());
  number_ = 0;
  transport::wipe(&out, sizeof out);
}

void Handshake::mix_key_and_hash(std::string_view secret) {
  Outputs out = derive(chain_, secret);
  chain_ = out.first;
  mix_hash(view_of(out.second));
  aead_.set_key(out.third.data(), out.third.size());
  number_ = 0;
  transport::wipe(&out, sizeof out);
}

std::string Handshake::encrypt(std::string_view plain) {
  uint8_t nonce[kAeadNonceBytes];
  put_nonce(number_++, nonce);
  std::string out(plain.size() + kAeadTagBytes, 0);
  auto* const data = reinterpret_cast<uint8_t*>(&out[0]);
  aead_.seal(nonce, {hash_.data(), hash_.size()}, {plain.data(), plain.size()}, data,
             data + plain.size());
  mix_hash(out);
  return out;
}

Result<std::string> Handshake::decrypt(std::string_view sealed) {
  if (sealed.size() < kAeadTagBytes) return does_not_fit();
  uint8_t nonce[kAeadNonceBytes];
  put_nonce(number_++, nonce);
  const size_t bytes = sealed.size() - kAeadTagBytes;
  const auto* const data = reinterpret_cast<const uint8_t*>(sealed.data());
  std::string out(bytes, 0);
  if (!aead_.open(nonce, {hash_.data(), hash_.size()}, {data, bytes}, &out[0], data + bytes))
    return does_not_fit();
  mix_hash(sealed);
  return out;
}

bool Handshake::mix_shared(const CurveBytes& others) {
  Digest shared;
  if (!transport::curve_shared(secret_, others, &shared)) return false;
  mix_key(view_of(shared));
  transport::wipe(shared.data(), shared.size());
  binding_ = hash_;
  return true;
}

Result<std::string> Handshake::write_first(std::string_view payload) {
  const Status made = make_secret();
  if (!made.ok()) return made;
  if (payload.size() > kNoiseMessageMax - kCurveBytes - kAeadTagBytes)
    return Status(Code::kInternal, "the first message of a handshake is too large");
  const CurveBytes mine = transport::curve_public(secret_);
  mix_hash(view_of(mine));
  mix_key(view_of(mine));
  return std::string(view_of(mine)) + encrypt(payload);
}

Result<std::string> Handshake::read_first(std::string_view message) {
  if (message.size() < kCurveBytes || message.size() > kNoiseMessageMax) return does_not_fit();
  std::memcpy(others_.data(), message.data(), others_.size());
  mix_hash(view_of(others_));
  mix_key(view_of(others_));
  return decrypt(message.substr(kCurveBytes));
}

Status Handshake::prepare_second() {
  const Status made = make_secret();
  if (!made.ok()) return made;
  const CurveBytes mine = transport::curve_public(secret_);
  mine_ = std::string(view_of(mine));
  mix_hash(mine_);
  mix_key(mine_);
  return mix_shared(others_) ? Status() : does_not_fit();
}

std::string Handshake::write_second(std::string_view payload) { return mine_ + encrypt(payload); }

Result<std::string> Handshake::read_second(std::string_view message) {
  if (message.size() < kCurveBytes || message.size() > kNoiseMessageMax) return does_not_fit();
  std::memcpy(others_.data(), message.data(), others_.size());
  mix_hash(view_of(others_));
  mix_key(view_of(others_));
  if (!mix_shared(others_)) return does_not_fit();
  return decrypt(message.substr(kCurveBytes));
}

Handshake::Keys Handshake::split() const {
  Outputs out = derive(chain_, {});
  const Keys keys = {out.first, out.second};
  transport::wipe(&out, sizeof out);
  return keys;
}

}  // namespace tendril::session
