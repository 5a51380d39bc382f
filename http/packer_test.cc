// SPDX-License-Identifier: Apache-2.0
// What is packed, read with the library's own reader, piece by piece.
#include "http/packer.h"

#include <gtest/gtest.h>
#include <zlib/zlib.h>

#include <random>

namespace tendril::http {
namespace {

class Reader {
 public:
  Reader() { EXPECT_EQ(inflateInit2(&stream_, 15 + 16), Z_OK); }
  ~Reader() { inflateEnd(&stream_); }
  // What can be read after these bytes.
  std::string read(const std::string& packed) {
    std::string out;
    Bytef room[4096];
    std::string copy = packed;
    stream_.next_in = reinterpret_cast<Bytef*>(copy.data());
    stream_.avail_in = static_cast<uInt>(copy.size());
    do {
      stream_.next_out = room;
      stream_.avail_out = sizeof room;
      last_ = inflate(&stream_, Z_SYNC_FLUSH);
      EXPECT_TRUE(last_ == Z_OK || last_ == Z_STREAM_END || last_ == Z_BUF_ERROR) << last_;
      out.append(reinterpret_cast<const char*>(room), sizeof room - stream_.avail_out);
    } while (stream_.avail_out == 0);
    return out;
  }
  bool at_end() const { return last_ == Z_STREAM_END; }

 private:
  z_stream stream_ = {};
  int last_ = Z_OK;
};

TEST(Packer, EachPieceCanBeReadAtOnce) {
  std::mt19937 random(17);
  Packer packer;
  Reader reader;
  for (int i = 0; i < 200; ++i) {
    std::string piece(random() % 100'000 + 1, 0);
    const uint32_t kinds = i % 3 == 0 ? 256 : 4;  // noise does not get shorter
    for (char& c : piece) c = static_cast<char>(random() % kinds);
    ASSERT_EQ(reader.read(packer.pack(piece)), piece) << i;
  }
  EXPECT_FALSE(reader.at_end());
  EXPECT_EQ(reader.read(packer.finish()), "");
  EXPECT_TRUE(reader.at_end());
}

TEST(Packer, RowsGetShort) {
  std::string rows;
  for (int i = 0; i < 1000; ++i)
    rows += "{\"n\":" + std::to_string(i) + ",\"name\":\"gpu" + std::to_string(i) +
            "\",\"leases\":10,\"classes\":[\"H200\"],\"given\":[100,75,50,50],\"busy\":[1,2,3,4]},";
  Packer packer;
  EXPECT_LT(packer.pack(rows).size(), rows.size() / 6);
}

}  // namespace
}  // namespace tendril::http
