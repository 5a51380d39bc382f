// SPDX-License-Identifier: Apache-2.0
// The answer of an HTTP/1.1 server, read as its bytes come: for clients that keep a connection. The
// server may be anybody, so everything is bounded and read strictly. Pure. One thread at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tendril::http {

class ResponseReader {
 public:
  explicit ResponseReader(size_t body_bytes_max) : body_bytes_max_(body_bytes_max) {}

  // Takes the next bytes of the connection. kInvalid: that is no answer, or there is more than one.
  // kExhausted: the body is larger than allowed. After an error the reader is of no more use.
  base::Status take(std::string_view bytes);
  // The connection has ended. kClosed: the answer is not whole.
  base::Status end();

  bool is_whole() const { return step_ == Step::kWhole; }
  // Once it is whole: its status, its body, and whether the connection takes another request.
  int status() const { return status_; }
  const std::string& body() const { return body_; }
  bool keeps_connection() const { return keeps_ && !until_end_; }

 private:
  enum class Step { kHead, kBody, kChunkSize, kChunk, kChunkEnd, kTrailer, kWhole };

  base::Status read(std::string_view* bytes);
  base::Status read_head(std::string_view line);
  base::Status read_status(std::string_view line);
  base::Status read_header(std::string_view line);
  base::Status begin_body();
  base::Status read_body(std::string_view* bytes);
  base::Status begin_chunk(std::string_view line);
  // True: a whole line, without its end, is in line_.
  base::Result<bool> next_line(std::string_view* bytes);

  const size_t body_bytes_max_;
  Step step_ = Step::kHead;
  std::string line_;
  bool line_is_used_ = false;
  size_t head_bytes_ = 0;
  int status_ = 0;  // 0: the status line has not come
  bool keeps_ = true;
  bool chunked_ = false, until_end_ = false, has_length_ = false;
  size_t left_ = 0;  // of the body or the chunk
  std::string body_;
};

}  // namespace tendril::http
