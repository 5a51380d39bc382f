// SPDX-License-Identifier: Apache-2.0
// Writes a message into memory: either into a fixed span (calls, straight into a lane's ring) or
// into a growing buffer (control messages). The generated codecs and wire/control.cc use it, on the
// caller's thread. It never writes outside its span. Data that does not fit is dropped and sets a
// sticky failure. Little-endian machines only; all supported machines are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace tendril::wire {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

class Encoder {
 public:
  // A fixed span; `data` may be null when capacity is 0.
  Encoder(void* data, size_t capacity)
      : begin_(static_cast<uint8_t*>(data)), at_(begin_), end_(begin_ + capacity) {}
  // Grows `buffer` as needed, up to `limit` bytes. Call finish() to cut it to its content.
  explicit Encoder(std::vector<uint8_t>* buffer, size_t limit = size_t(64) << 20);

  // Any trivially copyable value: numbers, enums, the fixed structs of an API.
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!room(sizeof(T))) return;
    std::memcpy(at_, &value, sizeof(T));
    at_ += sizeof(T);
  }
  void u8(uint8_t value) { put(value); }
  void u16(uint16_t value) { put(value); }
  void u32(uint32_t value) { put(value); }
  void u64(uint64_t value) { put(value); }
  void i32(int32_t value) { put(value); }
  void i64(int64_t value) { put(value); }

  // Bytes without a count.
  void bytes(const void* data, size_t count) {
    if (count == 0 || !room(count)) return;
    std::memcpy(at_, data, count);
    at_ += count;
  }
  // u32 count, then the bytes. Decoder::blob / text read it.
  void blob(const void* data, size_t count) {
    if (count > UINT32_MAX) return fail();
    u32(uint32_t(count));
    bytes(data, count);
  }
  void text(const std::string& value) { blob(value.data(), value.size()); }
  // u32 count, then `count` elements.
  template <typename T>
  void array(const T* values, size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count > UINT32_MAX / sizeof(T)) return fail();
    u32(uint32_t(count));
    bytes(values, count * sizeof(T));
  }
  // Room for `count` bytes that the caller writes. Null if there is none.
  uint8_t* reserve(size_t count) {
    if (!room(count)) return nullptr;
    uint8_t* here = at_;
    at_ += count;
    return here;
  }
  // Zero bytes up to the next multiple of `alignment` (a power of two), counted from the start of
  // the message.
  void align(size_t alignment) {
    size_t extra = (0 - size()) & (alignment - 1);
    if (extra == 0 || !room(extra)) return;
    std::memset(at_, 0, extra);
    at_ += extra;
  }
  // Overwrites a u32 written before.
  void patch_u32(size_t offset, uint32_t value) {
    if (size() >= sizeof value && offset <= size() - sizeof value)
      std::memcpy(begin_ + offset, &value, sizeof value);
  }

  size_t size() const { return size_t(at_ - begin_); }
  bool ok() const { return !failed_; }
  void fail() { failed_ = true; }
  // For a growing buffer: cuts it to what was written. True if everything fitted.
  bool finish();

 private:
  bool room(size_t count) {
    if (__builtin_expect(!failed_ && size_t(end_ - at_) >= count, 1)) return true;
    return grow(count);
  }
  bool grow(size_t count);

  uint8_t* begin_;
  uint8_t* at_;
  uint8_t* end_;
  std::vector<uint8_t>* buffer_ = nullptr;
  size_t limit_ = 0;
  bool failed_ = false;
};

}  // namespace tendril::wire
