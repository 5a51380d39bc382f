// SPDX-License-Identifier: Apache-2.0
// Status and Result<T>: how every room reports an operating error. Never throws. The message is for
// a person: what happened, to which GPU or server, and what to do next. The first function that
// knows the cause writes the message. Its callers pass the error on unchanged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace tendril::base {

// Causes that callers may want to tell apart. Different causes also have different messages.
enum class Code : uint16_t {
  kOk = 0,
  kInvalid = 1,      // the caller or the peer passed something malformed
  kNotFound = 2,     // no such server, file, device, lease
  kRefused = 3,      // the peer refused: policy, quota, token
  kUnavailable = 4,  // no route, nobody listening, no capacity now
  kClosed = 5,       // the peer went away
  kTimeout = 6,
  kMismatch = 7,  // versions or features that do not fit together
  kUnsupported = 8,
  kExhausted = 9,  // memory, descriptors, disk
  kInternal = 10,
  kElsewhere = 11,  // this is a pool: its servers have what was wanted
};

const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  explicit operator bool() const { return ok(); }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// `Status` with what was being done, followed by the text of errno.
Status errno_status(Code code, const char* doing, int error);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T& operator*() { return *value_; }
  T* operator->() { return &*value_; }
  T take() { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace tendril::base
