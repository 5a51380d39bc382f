// SPDX-License-Identifier: Apache-2.0
// Prints calls for people: values by their types, enumerators by name, records field by field. The
// client's and the worker's trace use it. Each API adds the functions for its own enums and
// records: api/<name>_print.gen.h, generated from its types.txt. It follows no pointer and
// allocates nothing. Text that does not fit is cut off. The end of a line always fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tendril::api {

inline constexpr size_t kPrintedElements = 8;     // of an array
inline constexpr size_t kPrintedTextBytes = 120;  // of a string: enough to recognise a mangled name
inline constexpr size_t kPrintedLineBytes = 1500;  // of a call, without its result

class Text {
 public:
  const char* data() const { return text_; }
  size_t bytes() const { return used_; }

  void raw(const char* text) { raw(text, std::strlen(text)); }
  void raw(const char* text, size_t bytes);
  void decimal(int64_t value);
  void decimal(uint64_t value);
  void hex(uint64_t value);
  void real(double value);
  // Prints text in quotes, at most kPrintedTextBytes of it. Escapes all characters that are not
  // plain.
  void quoted(const char* text, size_t bytes);
  // Prints the time of day in seconds and microseconds, and a space. So the traces of two machines
  // can be compared.
  void now();
  // Prints the first 16 bytes in hexadecimal.
  void dump(const void* data, size_t bytes);

  // Lists of named or nameless values: open("f("), name("a"), decimal(1), item(), decimal(2),
  // close(")").
  void open(const char* bracket);
  void item();
  void name(const char* name);
  void close(const char* bracket);
  // Prints the element count of an array that was not printed in full.
  void rest(uint64_t elements);
  // Prints the end of the line. It always fits if it is shorter than 100 bytes.
  void end(const char* tail);

 private:
  char text_[kPrintedLineBytes + 128];
  size_t used_ = 0;
  bool first_ = true, cut_ = false;
};

bool all_zero(const void* data, size_t bytes);
// A nameless structure or union inside a record. Prints only whether any of its bytes is set.
void print_nested(Text& t, const char* name, const void* data, size_t bytes);

// Specialised for each enum of an API.
template <typename T>
struct Enumerators;  // static const char* name_of(uint32_t number): null for one without a name

// Specialised for each structure and union of an API.
template <typename T>
struct Record;  // static void print(Text& t, const T& value)

// Prints an enumerator by its name.
template <typename T>
void print_enum(Text& t, const T& value) {
  static_assert(sizeof(T) == sizeof(uint32_t));
  // A program may pass a number that is no enumerator. So it is never loaded as the enum.
  uint32_t number;
  std::memcpy(&number, &value, sizeof number);
  const char* name = Enumerators<T>::name_of(number);
  if (name != nullptr) {
    t.raw(name);
  } else {
    t.decimal(static_cast<int64_t>(static_cast<int32_t>(number)));
  }
}

template <typename T>
void print(Text& t, const T& value);

template <typename T>
void print_array(Text& t, const T* values, uint64_t count) {
  t.open("[");
  const uint64_t shown = count < kPrintedElements ? count : kPrintedElements;
  for (uint64_t i = 0; i < shown; ++i) {
    t.item();
    print(t, values[i]);
  }
  if (shown < count) t.rest(count - shown);
  t.close("]");
}

// Prints handles and addresses in hexadecimal. `unsigned long long` is printed in hexadecimal too,
// because device pointers and flags of the ABI have that type, and sizes do not.
template <typename T>
void print(Text& t, const T& value) {
  if constexpr (std::is_enum_v<T>) {
    print_enum(t, value);
  } else if constexpr (std::is_pointer_v<T>) {
    t.hex(reinterpret_cast<uint64_t>(value));
  } else if constexpr (std::is_same_v<T, unsigned long long>) {
    t.hex(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    t.real(static_cast<double>(value));
  } else if constexpr (std::is_unsigned_v<T>) {
    t.decimal(static_cast<uint64_t>(value));
  } else if constexpr (std::is_integral_v<T>) {
    t.decimal(static_cast<int64_t>(value));
  } else if constexpr (std::is_array_v<T> && sizeof(std::remove_extent_t<T>) == 1) {
    t.dump(&value, sizeof value);
  } else if constexpr (std::is_array_v<T>) {
    print_array(t, value, std::extent_v<T>);
  } else {
    Record<T>::print(t, value);
  }
}

// Prints a field of a record, unless it is zero.
template <typename T>
void print_field(Text& t, const char* name, const T& value) {
  if (all_zero(&value, sizeof value)) return;
  t.name(name);
  print(t, value);
}

}  // namespace tendril::api
