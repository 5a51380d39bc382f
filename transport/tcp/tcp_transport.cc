// SPDX-License-Identifier: Apache-2.0
// TCP as a registered transport. The session's own connections are its channels. It is always
// possible, because attach itself came over such a connection. It uses unix sockets if the server's
// address is one.
#include "transport/registry.h"
#include "transport/tcp/socket.h"

namespace tendril::transport {
namespace {

using base::Result;

class TcpHalf final : public Half {
 public:
  Result<Channels> open(Streams streams) override {
    Channels channels;
    channels.command = socket_channel(std::move(streams.command));
    for (base::Fd& fd : streams.bulk) channels.bulk.push_back(socket_channel(std::move(fd)));
    return channels;
  }
};

Result<std::unique_ptr<Half>> offer_tcp(const Setting&) {
  return std::unique_ptr<Half>(new TcpHalf);
}

Result<std::unique_ptr<Half>> answer_tcp(const Setting&, const std::string&) {
  return std::unique_ptr<Half>(new TcpHalf);
}

}  // namespace

extern const Transport kTcpTransport;
const Transport kTcpTransport = {
    "tcp",
    "the connection is there already",
    kOrderedStream | kBulkChannels,
    Latency::kNetwork,
    true,
    offer_tcp,
    answer_tcp,
};

}  // namespace tendril::transport
