// SPDX-License-Identifier: Apache-2.0
// Compresses a stream piece by piece, for a peer that takes gzip (RFC 1952): whoever has got the
// bytes of a piece can read all of it. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

struct z_stream_s;

namespace tendril::http {

class Packer {
 public:
  // Takes about 64 KiB until its end.
  Packer();
  ~Packer();
  // The packed bytes of one piece.
  std::string pack(std::string_view piece);
  // The last bytes of the stream. Nothing may follow.
  std::string finish();

 private:
  std::string run(std::string_view piece, int flush);

  std::unique_ptr<z_stream_s> stream_;
};

}  // namespace tendril::http
