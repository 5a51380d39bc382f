// SPDX-License-Identifier: Apache-2.0
// See packer.h.
#include "http/packer.h"

#include <zlib/zlib.h>

#include "base/check.h"

namespace tendril::http {
namespace {

// The quickest level: the page's first message of a thousand servers shrinks from 336 to 40 kB.
constexpr int kLevel = 1;
constexpr int kWindowBits = 13;
constexpr int kGzip = 16;
constexpr int kMemoryLevel = 6;

}  // namespace

Packer::Packer() : stream_(std::make_unique<z_stream_s>()) {
  TENDRIL_CHECK(deflateInit2(stream_.get(), kLevel, Z_DEFLATED, kWindowBits + kGzip, kMemoryLevel,
                             Z_DEFAULT_STRATEGY) == Z_OK);
}

Packer::~Packer() { deflateEnd(stream_.get()); }

std::string Packer::pack(std::string_view piece) { return run(piece, Z_SYNC_FLUSH); }

std::string Packer::finish() { return run({}, Z_FINISH); }

std::string Packer::run(std::string_view piece, int flush) {
  std::string out;
  Bytef room[16384];
  stream_->next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(piece.data()));
  stream_->avail_in = static_cast<uInt>(piece.size());
  do {
    stream_->next_out = room;
    stream_->avail_out = sizeof room;
    const int done = deflate(stream_.get(), flush);
    TENDRIL_CHECK(done == Z_OK || done == Z_STREAM_END || done == Z_BUF_ERROR);
    out.append(reinterpret_cast<const char*>(room), sizeof room - stream_->avail_out);
  } while (stream_->avail_out == 0);
  return out;
}

}  // namespace tendril::http
