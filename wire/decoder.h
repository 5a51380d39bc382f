// SPDX-License-Identifier: Apache-2.0
// Reads a message that a hostile peer may have written. Nothing is read outside the span. Every
// count is checked against the bytes left before anything is allocated. The first violation sets a
// sticky failure. After that every getter returns zero or null. So a caller may read a whole
// message and check ok() once at the end. It must check before it acts on the values. Views point
// into the message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace tendril::wire {

class Decoder {
 public:
  Decoder(const void* data, size_t bytes)
      : begin_(static_cast<const uint8_t*>(data)), at_(begin_), end_(begin_ + bytes) {}

  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (!has(sizeof(T))) return value;
    std::memcpy(&value, at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  template <typename T>
  void get(T* value) {
    *value = get<T>();
  }
  uint8_t u8() { return get<uint8_t>(); }
  uint16_t u16() { return get<uint16_t>(); }
  uint32_t u32() { return get<uint32_t>(); }
  uint64_t u64() { return get<uint64_t>(); }
  int32_t i32() { return get<int32_t>(); }
  int64_t i64() { return get<int64_t>(); }

  // `count` bytes of the message, in place. Null if they are missing, or count is 0.
  const uint8_t* view(size_t count) {
    if (count == 0 || !has(count)) return nullptr;
    const uint8_t* here = at_;
    at_ += count;
    return here;
  }
  // Copies `count` bytes. If they are missing, `into` is zeroed.
  void bytes(void* into, size_t count) {
    const uint8_t* here = view(count);
    if (here != nullptr) {
      std::memcpy(into, here, count);
    } else if (count != 0) {
      std::memset(into, 0, count);
    }
  }
  // A u32 count of elements of `element_bytes` each. It is accepted only if that many bytes are
  // left.
  uint32_t count(size_t element_bytes) {
    uint32_t number = u32();
    if (element_bytes != 0 && number > left() / element_bytes) {
      fail();
      return 0;
    }
    return failed_ ? 0 : number;
  }
  // What Encoder::blob wrote.
  const uint8_t* blob(uint32_t* bytes) {
    *bytes = count(1);
    return view(*bytes);
  }
  std::string text() {
    uint32_t bytes = 0;
    const uint8_t* here = blob(&bytes);
    return here == nullptr ? std::string()
                           : std::string(reinterpret_cast<const char*>(here), bytes);
  }
  // What Encoder::array wrote.
  template <typename T>
  std::vector<T> array() {
    static_assert(std::is_trivially_copyable_v<T>);
    uint32_t number = count(sizeof(T));
    std::vector<T> values(number);
    if (number != 0) bytes(values.data(), number * sizeof(T));
    return values;
  }
  // What Encoder::array wrote, in place; aligned only if the writer aligned it.
  const uint8_t* array_view(size_t element_bytes, uint32_t* number) {
    *number = count(element_bytes);
    return view(size_t(*number) * element_bytes);
  }
  // Skips to the next multiple of `alignment` from the start of the message.
  void align(size_t alignment) {
    size_t extra = (0 - offset()) & (alignment - 1);
    if (extra != 0 && has(extra)) at_ += extra;
  }
  void skip(size_t count) {
    if (has(count)) at_ += count;
  }

  size_t offset() const { return size_t(at_ - begin_); }
  size_t left() const { return size_t(end_ - at_); }
  bool ok() const { return !failed_; }
  void fail() { failed_ = true; }
  // True if everything was read, nothing is left over, and there was no violation.
  bool done() const { return !failed_ && at_ == end_; }

 private:
  bool has(size_t count) {
    if (__builtin_expect(!failed_ && left() >= count, 1)) return true;
    failed_ = true;
    return false;
  }
  const uint8_t* begin_;
  const uint8_t* at_;
  const uint8_t* end_;
  bool failed_ = false;
};

}  // namespace tendril::wire
