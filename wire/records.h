// SPDX-License-Identifier: Apache-2.0
// How control messages are written: lists of records (u16 tag, u16 zero, u32 bytes, data), nested
// for structures. Each structure has one list of its fields, `visit`, for both encoding and
// decoding. A reader skips unknown tags, so either side may be newer. The peer is hostile: every
// list has a limit, and nothing is read outside its record. Tags are append-only. Private to wire/.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "wire/control.h"
#include "wire/decoder.h"
#include "wire/encoder.h"

namespace tendril::wire {

// Slices, GPUs or leases in one message: far above any server.
inline constexpr size_t kListMax = 4096;

// ---- the fields: v(tag, field); v.unless_empty leaves a field out that says nothing; v.range
// packs two numbers into one record. These structures are parts of several messages. ----

template <typename V>
void visit(V& v, SliceSpec& m) {
  v(1, m.share_millionths);
  v(2, m.memory_bytes);
  v.unless_empty(3, m.packed);
}

template <typename V>
void visit(V& v, ClientInfo& m) {
  v(1, m.host);
  v(2, m.user);
  v(3, m.program);
  v(4, m.pid);
  v.unless_empty(5, m.owner);
  v.unless_empty(6, m.proof);
}

template <typename V>
void visit(V& v, LeaseTerms& m) {
  v(1, m.policy);
  v(2, m.priority);
}

template <typename V>
void visit(V& v, SliceGrant& m) {
  v(1, m.gpu_index);
  v(2, m.share_millionths);
  v(3, m.memory_bytes);
  v.unless_empty(4, m.packed);
}

template <typename V>
void visit(V& v, GpuRecord& m) {
  v(1, m.index);
  v(2, m.name);
  v(3, m.uuid);
  v(4, m.pci_bus_id);
  v(5, m.memory_total_bytes);
  v(6, m.memory_used_bytes);
  v(7, m.share_used_millionths);
  v(8, m.utilization_percent);
  v(9, m.temperature_c);
  v(10, m.power_mw);
  v(11, m.memory_usable_bytes);
  v(12, m.memory_promised_bytes);
  v(13, m.process_bytes);
  v(14, m.packed);
  v.unless_empty(15, m.pageable_access);
  v.unless_empty(16, m.compute_capability);
  v.unless_empty(17, m.type);
  v.unless_empty(18, m.vendor);
  v.unless_empty(19, m.opencl_version);
  v.unless_empty(20, m.extensions);
}

template <typename V>
void visit(V& v, ApiRecord& m) {
  v(1, m.name);
  v(2, m.digest);
}

// ---- the two that walk them ----

class Writer {
 public:
  explicit Writer(Encoder* out) : out_(out) {}

  template <typename T>
  void operator()(uint16_t tag, T& value) {
    if constexpr (std::is_enum_v<T>) {
      auto number = std::underlying_type_t<T>(value);
      (*this)(tag, number);
    } else if constexpr (std::is_arithmetic_v<T>) {  // bool: one byte
      head(tag, sizeof value);
      out_->put(value);
    } else {
      head(tag, 0);
      const size_t start = out_->size();
      visit(*this, value);
      out_->patch_u32(start - sizeof(uint32_t), uint32_t(out_->size() - start));
    }
  }
  void operator()(uint16_t tag, std::string& value) {
    head(tag, uint32_t(value.size()));
    out_->bytes(value.data(), value.size());
  }
  template <typename T>
  void operator()(uint16_t tag, std::vector<T>& values) {
    for (T& value : values) (*this)(tag, value);
  }
  template <typename T>
  void unless_empty(uint16_t tag, T& value) {
    if (value != T{}) (*this)(tag, value);
  }
  void range(uint16_t tag, uint16_t first, uint16_t last) {
    uint32_t both = first | uint32_t(last) << 16;
    (*this)(tag, both);
  }

 private:
  void head(uint16_t tag, uint32_t bytes) {
    out_->u16(tag);
    out_->u16(0);
    out_->u32(bytes);
  }
  Encoder* out_;
};

// Takes the records of one message one by one and gives each to the field with its tag. A value of
// the wrong size makes the whole message fail.
class Reader {
 public:
  Reader(const void* data, size_t bytes) : in_(data, bytes) {}
  bool ok() const { return in_.ok(); }

  template <typename Message>
  void all(Message& message) {
    while (next()) visit(*this, message);
  }

  template <typename T>
  void operator()(uint16_t tag, T& value) {
    if (tag == tag_) read(value);
  }
  template <typename T>
  void unless_empty(uint16_t tag, T& value) {
    (*this)(tag, value);
  }
  void range(uint16_t tag, uint16_t& first, uint16_t& last) {
    uint32_t both = first | uint32_t(last) << 16;
    (*this)(tag, both);
    first = uint16_t(both);
    last = uint16_t(both >> 16);
  }

 private:
  bool next() {
    if (!in_.ok() || in_.left() == 0) return false;
    tag_ = in_.u16();
    in_.u16();
    bytes_ = in_.count(1);
    data_ = in_.view(bytes_);
    return in_.ok();
  }
  template <typename T>
  void read(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      uint8_t byte = 0;
      read(byte);
      value = byte != 0;
    } else if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> number{};
      read(number);
      value = T(number);
    } else if constexpr (std::is_arithmetic_v<T>) {
      if (bytes_ != sizeof(T)) return in_.fail();
      std::memcpy(&value, data_, sizeof(T));
    } else {
      Reader inner(data_, bytes_);
      inner.all(value);
      if (!inner.ok()) in_.fail();
    }
  }
  void read(std::string& value) {
    if (bytes_ == 0) return value.clear();
    value.assign(reinterpret_cast<const char*>(data_), bytes_);
  }
  template <typename T>
  void read(std::vector<T>& values) {
    if (values.size() >= kListMax) return in_.fail();
    T value{};
    read(value);
    values.push_back(std::move(value));
  }

  Decoder in_;
  uint16_t tag_ = 0;
  uint32_t bytes_ = 0;
  const uint8_t* data_ = nullptr;
};

// What a message's own file may say better: whether it is impossible although each record is
// well-formed, and how it looks before the first record is read.
template <typename Message>
bool sensible(const Message&) {
  return true;
}
template <typename Message>
void before_reading(Message&) {}

template <typename Message>
std::vector<uint8_t> encode(const Message& message) {
  std::vector<uint8_t> body;
  Encoder encoder(&body, kControlBytesMax);
  Writer writer(&encoder);
  visit(writer, const_cast<Message&>(message));  // a Writer only reads
  if (!encoder.finish()) body.clear();
  return body;
}

template <typename Message>
bool decode(const void* data, size_t bytes, Message* message) {
  *message = Message{};
  before_reading(*message);
  Reader reader(data, bytes);
  reader.all(*message);
  return reader.ok() && sensible(*message);
}

#define TENDRIL_CONTROL_MESSAGE(Message)                         \
  template std::vector<uint8_t> encode<Message>(const Message&); \
  template bool decode<Message>(const void*, size_t, Message*);

}  // namespace tendril::wire
