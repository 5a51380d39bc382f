// SPDX-License-Identifier: Apache-2.0
// See records.h.
#include "transport/sealed/records.h"

#include <algorithm>
#include <cstring>

namespace tendril::transport {
namespace {

constexpr uint8_t kApplicationData = 23, kVersionMajor = 3, kVersionMinor = 3;
constexpr size_t kKeyBytes = 16, kBlockBytes = 16;

}  // namespace

RecordKey::RecordKey(const Digest& secret, uint64_t records_per_key)
    : secret_(secret), records_per_key_(records_per_key) {
  derive();
}

void RecordKey::derive() {
  std::string key = hkdf_expand_label(secret_, "key", kKeyBytes);
  std::string mask = hkdf_expand_label(secret_, "iv", sizeof mask_);
  aead_.set_key(key.data(), key.size());
  std::memcpy(mask_, mask.data(), sizeof mask_);
  wipe(key.data(), key.size());
  wipe(mask.data(), mask.size());
}

void RecordKey::next_nonce(uint8_t* nonce) {
  if (number_ == records_per_key_) {
    std::string next = hkdf_expand_label(secret_, "traffic upd", secret_.size());
    std::memcpy(secret_.data(), next.data(), secret_.size());
    wipe(next.data(), next.size());
    number_ = 0;
    derive();
  }
  std::memcpy(nonce, mask_, sizeof mask_);
  for (size_t i = 0; i < 8; ++i) nonce[sizeof mask_ - 1 - i] ^= uint8_t(number_ >> (8 * i));
  ++number_;
}

size_t RecordWriter::seal(Parts* from, uint8_t* into) {
  uint8_t* const data = into + kRecordHeaderBytes;
  const size_t bytes = std::min(from->bytes(), kRecordDataMax);
  const size_t body = bytes + 1 + kAeadTagBytes;
  into[0] = kApplicationData;
  into[1] = kVersionMajor;
  into[2] = kVersionMinor;
  into[3] = uint8_t(body >> 8);
  into[4] = uint8_t(body);
  uint8_t nonce[kAeadNonceBytes];
  key_.next_nonce(nonce);
  // A full record's data mostly lie in one piece. They are encrypted on the way.
  size_t done = 0;
  if (from->array()->iov_len >= bytes && bytes >= kBlockBytes) {
    done = bytes / kBlockBytes * kBlockBytes;
    key_.aead().run(nonce, 0, {from->array()->iov_base, done}, data);
    from->advance(done);
  }
  from->copy_out(data + done, bytes - done);
  data[bytes] = kApplicationData;
  key_.aead().run(nonce, done, {data + done, bytes + 1 - done}, data + done);
  key_.aead().make_tag(nonce, {into, kRecordHeaderBytes}, {data, bytes + 1}, data + bytes + 1);
  return kRecordHeaderBytes + body;
}

size_t RecordReader::whole_bytes(const uint8_t* header) {
  const size_t body = size_t{header[3]} << 8 | header[4];
  if (header[0] != kApplicationData || header[1] != kVersionMajor || header[2] != kVersionMinor ||
      body < 1 + kAeadTagBytes || body > kRecordBytesMax - kRecordHeaderBytes) {
    return 0;
  }
  return kRecordHeaderBytes + body;
}

bool RecordReader::open(uint8_t* record, size_t bytes, uint8_t* into) {
  uint8_t* const data = record + kRecordHeaderBytes;
  const size_t sealed = bytes - kRecordHeaderBytes - kAeadTagBytes;
  uint8_t nonce[kAeadNonceBytes];
  key_.next_nonce(nonce);
  const Aead& aead = key_.aead();
  if (!aead.check(nonce, {record, kRecordHeaderBytes}, {data, sealed}, data + sealed)) return false;
  // The last byte says what the record is. It is no part of the data.
  const size_t whole = (sealed - 1) / kBlockBytes * kBlockBytes, rest = sealed - whole;
  uint8_t last[kBlockBytes];
  aead.run(nonce, whole, {data + whole, rest}, last);
  if (last[rest - 1] != kApplicationData) return false;  // we never pad, nor send anything else
  aead.run(nonce, 0, {data, whole}, into);
  std::memcpy(into + whole, last, rest - 1);
  return true;
}

}  // namespace tendril::transport
