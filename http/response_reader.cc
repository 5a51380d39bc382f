// SPDX-License-Identifier: Apache-2.0
// See response_reader.h.
#include "http/response_reader.h"

#include <algorithm>
#include <cctype>

namespace tendril::http {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr size_t kHeadBytesMax = 16'384;  // of status, headers, trailers and sizes of chunks
constexpr size_t kChunkHeadsMax = 1u << 20;

Status wrong(const char* what) {
  return Status(Code::kInvalid, std::string("this is no answer of an HTTP server: ") + what);
}

bool equal_names(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return tolower(static_cast<unsigned char>(x)) == tolower(static_cast<unsigned char>(y));
         });
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Digits of a base of 10 or 16, at most 9 of them. False: none, or another character.
bool read_digits(std::string_view text, unsigned base, size_t* value) {
  if (text.empty() || text.size() > 9) return false;
  *value = 0;
  for (const char letter : text) {
    const int lower = tolower(static_cast<unsigned char>(letter));
    unsigned digit = 99;
    if (lower >= '0' && lower <= '9') digit = unsigned(lower - '0');
    if (lower >= 'a' && lower <= 'f') digit = unsigned(lower - 'a') + 10;
    if (digit >= base) return false;
    *value = *value * base + digit;
  }
  return true;
}

}  // namespace

Status ResponseReader::take(std::string_view bytes) {
  while (!bytes.empty()) {
    if (is_whole()) return wrong("it is longer than it says");
    const Status done = read(&bytes);
    if (!done.ok()) return done;
  }
  return Status();
}

Status ResponseReader::end() {
  if (step_ == Step::kBody && until_end_) step_ = Step::kWhole;
  return is_whole() ? Status() : Status(Code::kClosed, "the answer ended in the middle");
}

Status ResponseReader::read(std::string_view* bytes) {
  if (step_ == Step::kBody || step_ == Step::kChunk) return read_body(bytes);
  const Result<bool> has_line = next_line(bytes);
  if (!has_line.ok() || !has_line.value()) return has_line.status();
  line_is_used_ = true;
  switch (step_) {
    case Step::kHead:
      return read_head(line_);
    case Step::kChunkSize:
      return begin_chunk(line_);
    case Step::kChunkEnd:
      step_ = Step::kChunkSize;
      return line_.empty() ? Status() : wrong("a chunk is longer than it says");
    default:  // trailers say nothing that we want
      if (line_.empty()) step_ = Step::kWhole;
      return Status();
  }
}

Result<bool> ResponseReader::next_line(std::string_view* bytes) {
  if (line_is_used_) line_.clear();
  line_is_used_ = false;
  const size_t end = bytes->find('\n');
  const std::string_view piece = bytes->substr(0, end);
  const size_t taken = end == std::string_view::npos ? piece.size() : piece.size() + 1;
  bytes->remove_prefix(taken);
  head_bytes_ += taken;
  const bool in_head = step_ == Step::kHead || step_ == Step::kTrailer;
  if (line_.size() + piece.size() > kHeadBytesMax || (in_head && head_bytes_ > kHeadBytesMax) ||
      head_bytes_ > kChunkHeadsMax) {
    return wrong("its head is too long");
  }
  line_ += piece;
  if (end == std::string_view::npos) return false;
  if (!line_.empty() && line_.back() == '\r') line_.pop_back();
  return true;
}

Status ResponseReader::read_head(std::string_view line) {
  if (status_ == 0) return read_status(line);
  if (!line.empty()) return read_header(line);
  return begin_body();
}

Status ResponseReader::read_status(std::string_view line) {
  size_t status = 0;
  const bool known =
      line.size() >= 12 && (line.substr(0, 9) == "HTTP/1.1 " || line.substr(0, 9) == "HTTP/1.0 ");
  if (!known || !read_digits(line.substr(9, 3), 10, &status) || status < 100 || status > 599 ||
      (line.size() > 12 && line[12] != ' ')) {
    return wrong("it does not begin as one");
  }
  status_ = int(status);
  keeps_ = line[7] == '1';
  return Status();
}

Status ResponseReader::read_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0 || line[0] == ' ' || line[0] == '\t')
    return wrong("a header has no name");
  const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
  if (equal_names(name, "Connection")) {
    if (equal_names(value, "close")) keeps_ = false;
  } else if (equal_names(name, "Transfer-Encoding")) {
    if (!equal_names(value, "chunked")) return wrong("its encoding is not known");
    chunked_ = true;
  } else if (equal_names(name, "Content-Length")) {
    size_t length = 0;
    if (!read_digits(value, 10, &length) || (has_length_ && length != left_))
      return wrong("its length is none");
    left_ = length;
    has_length_ = true;
  }
  return Status();
}

Status ResponseReader::begin_body() {
  if (chunked_ && has_length_) return wrong("it has two lengths");
  if (status_ < 200) {  // an announcement; the answer follows
    status_ = 0;
    chunked_ = has_length_ = false;
    left_ = 0;
    return Status();
  }
  const bool has_none = status_ == 204 || status_ == 304 || (has_length_ && left_ == 0);
  until_end_ = !has_none && !chunked_ && !has_length_;
  if (left_ > body_bytes_max_) return Status(Code::kExhausted, "the answer is larger than is read");
  step_ = has_none ? Step::kWhole : chunked_ ? Step::kChunkSize : Step::kBody;
  return Status();
}

Status ResponseReader::begin_chunk(std::string_view line) {
  if (!read_digits(trimmed(line.substr(0, line.find(';'))), 16, &left_))
    return wrong("the size of a chunk is none");
  step_ = left_ == 0 ? Step::kTrailer : Step::kChunk;
  return Status();
}

Status ResponseReader::read_body(std::string_view* bytes) {
  const size_t taken = until_end_ ? bytes->size() : std::min(left_, bytes->size());
  if (body_.size() + taken > body_bytes_max_)
    return Status(Code::kExhausted, "the answer is larger than is read");
  body_.append(bytes->data(), taken);
  bytes->remove_prefix(taken);
  if (until_end_) return Status();
  left_ -= taken;
  if (left_ == 0) step_ = step_ == Step::kChunk ? Step::kChunkEnd : Step::kWhole;
  return Status();
}

}  // namespace tendril::http
