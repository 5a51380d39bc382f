// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the worker's end of a lasting session whose client says what it likes. The
// first byte divides the input: acknowledgements, and what is said when the client comes again
// after a cut, after a good greeting or without one. What the worker sent must arrive as it was, or
// the session must end.
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>

#include "transport/testing/test_channels.h"

using namespace tendril;  // NOLINT: a program

namespace {

constexpr size_t kLines = 2, kSent = 3000;

uint8_t byte_at(size_t position) { return uint8_t(position * 7 + (position >> 8)); }

std::vector<base::Fd> connections(std::vector<base::Fd>* here) {
  std::vector<base::Fd> theirs(kLines + 1);
  here->resize(kLines + 1);
  for (size_t i = 0; i <= kLines; ++i) (*here)[i] = transport::tcp_sockets(&theirs[i]);
  return theirs;
}

// All that was said before must be so.
void check(int fd, size_t from) {
  uint8_t got[kSent];
  const ssize_t came = recv(fd, got, sizeof got, MSG_DONTWAIT);
  for (ssize_t i = 0; i < came; ++i) {
    if (got[i] != byte_at(from + size_t(i))) abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0 || bytes > 4000) return 0;
  const bool greets = data[0] >= 0x80;
  const size_t first = std::min<size_t>(data[0] & 0x7f, bytes - 1);
  std::vector<base::Fd> here, again;
  std::vector<base::Fd> theirs = connections(&here);
  base::Fd acknowledgements = std::move(theirs.back());
  theirs.pop_back();
  transport::LastingSettings settings;
  settings.patience_ms = 20;
  auto session =
      transport::Lasting::make(std::move(theirs), std::move(acknowledgements), std::move(settings))
          .take();
  const auto channel = transport::lasting_channel(session, 0);
  uint8_t sent[kSent];
  for (size_t i = 0; i < kSent; ++i) sent[i] = byte_at(i);
  iovec part{sent, kSent};
  (void)channel->send_some(&part, 1, 20);
  check(here[0].get(), 0);
  (void)!send(here[kLines].get(), data + 1, first, MSG_NOSIGNAL);
  session->resume(connections(&again));
  const uint64_t greeting[2] = {0x6e69616761646e74, kLines};
  if (greets) (void)!send(again[kLines].get(), greeting, sizeof greeting, MSG_NOSIGNAL);
  (void)!send(again[kLines].get(), data + 1 + first, bytes - 1 - first, MSG_NOSIGNAL);
  ::shutdown(again[kLines].get(), SHUT_WR);
  uint8_t got[16];
  (void)channel->receive(got, 1, sizeof got, {0, 5});
  const size_t before = greets ? 0 : sizeof greeting;
  if (bytes - 1 - first >= before + kLines * 8) {
    uint64_t taken = 0;  // that the client claims
    memcpy(&taken, data + 1 + first + before, sizeof taken);
    if (taken <= kSent) check(again[0].get(), size_t(taken));
  }
  return 0;
}
