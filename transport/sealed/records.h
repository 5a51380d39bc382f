// SPDX-License-Identifier: Apache-2.0
// Records in the form of TLS 1.3 (RFC 8446, 5.2) with AES-128-GCM, for one direction of one
// channel: a header of five bytes, at most 16 KiB of data, the byte that says "data", and the tag.
// The number of the record is the nonce, so a record that is changed, left out, repeated or moved
// does not open. After 2^24 records both ends derive the next key without a word. Pure; no
// allocation after the constructor; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/parts.h"
#include "transport/sealed/cipher.h"

namespace tendril::transport {

inline constexpr size_t kRecordDataMax = 16u << 10;
inline constexpr size_t kRecordHeaderBytes = 5;
inline constexpr size_t kRecordExtraBytes = kRecordHeaderBytes + 1 + kAeadTagBytes;
inline constexpr size_t kRecordBytesMax = kRecordDataMax + kRecordExtraBytes;
// TLS 1.3's limit for AES-GCM is 2^24.5 records of this size (RFC 8446, 5.5).
inline constexpr uint64_t kRecordsPerKey = uint64_t{1} << 24;

// The key, the nonce and the number of the next record.
class RecordKey {
 public:
  explicit RecordKey(const Digest& secret, uint64_t records_per_key = kRecordsPerKey);
  ~RecordKey() { wipe(secret_.data(), secret_.size()); }
  const Aead& aead() const { return aead_; }
  // Writes the next record's nonce; takes the next key first if this one is used up.
  void next_nonce(uint8_t* nonce);

 private:
  void derive();

  Digest secret_;
  const uint64_t records_per_key_;
  uint64_t number_ = 0;
  uint8_t mask_[kAeadNonceBytes];
  Aead aead_;
};

class RecordWriter {
 public:
  explicit RecordWriter(const Digest& secret, uint64_t records_per_key = kRecordsPerKey)
      : key_(secret, records_per_key) {}
  // Takes up to kRecordDataMax bytes from the front of `from`. Writes one record of at most
  // kRecordBytesMax and returns its size.
  size_t seal(Parts* from, uint8_t* into);

 private:
  RecordKey key_;
};

class RecordReader {
 public:
  explicit RecordReader(const Digest& secret, uint64_t records_per_key = kRecordsPerKey)
      : key_(secret, records_per_key) {}
  // The size of the record that begins there, by its first kRecordHeaderBytes. 0: no record of ours
  // begins like this.
  static size_t whole_bytes(const uint8_t* header);
  // Decrypts a whole record of `bytes` to `into`, which has room for its data, or in place: then
  // they begin behind the header. False: it is not the next record of this key, and nothing was
  // written.
  bool open(uint8_t* record, size_t bytes, uint8_t* into);
  static size_t data_bytes(size_t record_bytes) { return record_bytes - kRecordExtraBytes; }

 private:
  RecordKey key_;
};

}  // namespace tendril::transport
