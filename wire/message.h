// SPDX-License-Identifier: Apache-2.0
// The codec of every generated message. A message is a struct with `visit`. Sizing, encoding,
// decoding and printing are visitors over its fields. Every scalar takes 8 bytes. Every array takes
// a count and its bytes, padded to 8. So a body is always aligned, and arrays are used in place.
// Decoding checks each count against the bytes left before it uses it.
//
// Records of the vendor's ABI travel as images of their frozen layout (api/cuda/types.txt). Handles
// inside them are translated on both sides. Records of the description travel in their layout in
// memory, too. An enum of the description is a scalar; a number that is none of its values is
// refused.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tendril::wire {

template <typename T>
struct Array {
  const T* data = nullptr;
  uint64_t count = 0;
  const T* begin() const { return data; }
  const T* end() const { return data + count; }
  const T& operator[](uint64_t i) const { return data[i]; }
};
using Bytes = Array<uint8_t>;

template <typename T>
struct Image {
  T value;
};

template <typename T>
struct Optional {
  bool present = false;
  T value;
};

inline Bytes bytes_of(const char* text) {
  return {reinterpret_cast<const uint8_t*>(text), text != nullptr ? std::strlen(text) : 0};
}

constexpr uint64_t padded(uint64_t bytes) { return (bytes + 7) & ~uint64_t{7}; }

template <typename T>
concept Scalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <typename T>
concept Record = T::kIsWireRecord;

class Sizer {
 public:
  uint64_t bytes = 0;
  template <Scalar T>
  void operator()(const char*, const T&) {
    bytes += 8;
  }
  template <Record T>
  void operator()(const char*, const T&) {
    bytes += padded(sizeof(T));
  }
  template <typename T>
  void operator()(const char*, const Array<T>& a) {
    bytes += 8 + padded(a.count * sizeof(T));
  }
  template <typename T>
  void operator()(const char*, const Image<T>&) {
    bytes += padded(sizeof(T));
  }
  template <typename T>
  void operator()(const char*, const Optional<T>& o) {
    bytes += 8 + (o.present ? padded(sizeof(T)) : 0);
  }
};

// Writes into a buffer that Sizer measured.
class Writer {
 public:
  explicit Writer(uint8_t* at) : at_(at) {}
  template <Scalar T>
  void operator()(const char*, const T& value) {
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    put(&word, 8);
  }
  template <Record T>
  void operator()(const char*, const T& value) {
    put(&value, sizeof(T));
  }
  template <typename T>
  void operator()(const char*, const Array<T>& a) {
    put(&a.count, 8);
    put(a.data, a.count * sizeof(T));
  }
  template <typename T>
  void operator()(const char*, const Image<T>& image) {
    put(&image.value, sizeof(T));
  }
  template <typename T>
  void operator()(const char*, const Optional<T>& o) {
    const uint64_t present = o.present;
    put(&present, 8);
    if (o.present) put(&o.value, sizeof(T));
  }

 private:
  void put(const void* from, uint64_t bytes) {
    if (bytes != 0) std::memcpy(at_, from, bytes);
    const uint64_t pad = padded(bytes) - bytes;
    if (pad != 0) std::memset(at_ + bytes, 0, pad);
    at_ += bytes + pad;
  }
  uint8_t* at_;
};

// Reads a body that a peer sent. Failure is sticky: after the first error every field is empty and
// ok() is false.
class Reader {
 public:
  Reader(const uint8_t* at, uint64_t bytes) : at_(at), left_(bytes) {}
  bool ok() const { return ok_; }
  template <Scalar T>
  void operator()(const char*, T& value) {
    value = T{};
    if constexpr (std::is_enum_v<T>) {
      uint64_t number = 0;
      (*this)("", number);
      if (number >= count_of(T{})) return fail();
      value = static_cast<T>(number);
    } else if (const uint8_t* from = take(8)) {
      std::memcpy(&value, from, sizeof value);
    }
  }
  template <Record T>
  void operator()(const char*, T& value) {
    value = T{};
    if (const uint8_t* from = take(padded(sizeof(T)))) std::memcpy(&value, from, sizeof(T));
  }
  template <typename T>
  void operator()(const char*, Array<T>& a) {
    a = {};
    uint64_t count = 0;
    if (const uint8_t* from = take(8)) std::memcpy(&count, from, 8);
    if (!ok_ || count > left_ / sizeof(T)) {
      fail();
      return;
    }
    const uint8_t* from = take(padded(count * sizeof(T)));
    if (from == nullptr) return;
    a.data = reinterpret_cast<const T*>(from);
    a.count = count;
  }
  template <typename T>
  void operator()(const char*, Image<T>& image) {
    std::memset(static_cast<void*>(&image.value), 0, sizeof(T));
    if (const uint8_t* from = take(padded(sizeof(T))))
      std::memcpy(static_cast<void*>(&image.value), from, sizeof(T));
  }
  template <typename T>
  void operator()(const char*, Optional<T>& o) {
    uint64_t present = 0;
    (*this)("", present);
    std::memset(static_cast<void*>(&o.value), 0, sizeof(T));
    o.present = ok_ && present == 1;
    if (present > 1) fail();
    if (!o.present) return;
    if (const uint8_t* from = take(padded(sizeof(T))))
      std::memcpy(static_cast<void*>(&o.value), from, sizeof(T));
  }

 private:
  const uint8_t* take(uint64_t bytes) {
    if (!ok_ || bytes > left_) {
      fail();
      return nullptr;
    }
    const uint8_t* from = at_;
    at_ += bytes;
    left_ -= bytes;
    return from;
  }
  void fail() {
    ok_ = false;
    left_ = 0;
  }
  const uint8_t* at_;
  uint64_t left_;
  bool ok_ = true;
};

template <typename Message>
uint64_t message_bytes(const Message& message) {
  Sizer sizer;
  const_cast<Message&>(message).visit(sizer);
  return sizer.bytes;
}

template <typename Message>
void write_message(const Message& message, uint8_t* into) {
  Writer writer(into);
  const_cast<Message&>(message).visit(writer);
}

// Flattened, so that the fields of a launch are read without calls (tests/cost counts them).
template <typename Message>
[[gnu::flatten]] bool read_message(Message& message, const uint8_t* from, uint64_t bytes) {
  Reader reader(from, bytes);
  message.visit(reader);
  return reader.ok();
}

}  // namespace tendril::wire
