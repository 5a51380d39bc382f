// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: a sealed channel reads arbitrary bytes, and arbitrary pieces of a good stream.
// The first byte chooses. What was sealed must come out unchanged, in whatever sizes it is sent and
// received; nothing else may come out.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "transport/testing/test_channels.h"

using namespace tendril;  // NOLINT: a program

namespace {

const std::string kKey(transport::kSessionKeyBytes, 'k');

void read_strange(const uint8_t* data, size_t bytes) {
  transport::SpentClient client(data, bytes);
  auto channel =
      transport::sealed(client.take_worker_end(), kKey, 0, transport::SealedEnd::kWorker);
  uint8_t got[100];
  for (;;) {
    base::Result<size_t> more = channel.value()->receive(got, 1, sizeof got, {0, 5000});
    if (!more.ok()) return;
    abort();  // nobody knows the key
  }
}

// Each two bytes are the size of a send and of a receive.
void pass_pieces(const uint8_t* data, size_t bytes) {
  std::unique_ptr<transport::Channel> there;
  std::unique_ptr<transport::Channel> here = transport::unix_pair(&there).take();
  here = transport::sealed_pair(std::move(here), &there);
  uint8_t sent = 0, got = 0;
  size_t under_way = 0;
  std::string piece;
  for (size_t i = 0; i + 1 < bytes && i < 200; i += 2) {
    const size_t send = size_t{data[i]} * data[i], take = size_t{data[i + 1]} * data[i + 1];
    if (under_way < 100'000) {
      piece.resize(send);
      for (char& c : piece) c = char(sent++);
      const size_t cut = send / 3;
      const iovec parts[2] = {{&piece[0], cut}, {&piece[0] + cut, send - cut}};
      if (!here->send(parts, 2).ok()) abort();
      under_way += send;
    }
    piece.resize(std::min(take, under_way));
    if (piece.empty()) continue;
    base::Result<size_t> came = there->receive(&piece[0], 1, piece.size(), {0, 5000});
    if (!came.ok()) abort();
    for (size_t at = 0; at < *came; ++at) {
      if (uint8_t(piece[at]) != got++) abort();
    }
    under_way -= *came;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0 || bytes > 60'000) return 0;
  if ((data[0] & 1) != 0)
    read_strange(data + 1, bytes - 1);
  else
    pass_pieces(data + 1, bytes - 1);
  return 0;
}
