// SPDX-License-Identifier: Apache-2.0
// TCP as a registered transport. The session's own connections are its channels. It is always
// possible, because attach itself came over such a connection. It uses unix sockets if the server's
// address is one. The channels are sealed if the session has a key.
#include "transport/registry.h"
#include "transport/sealed/sealed.h"
#include "transport/tcp/socket.h"

namespace tendril::transport {
namespace {

using base::Result;

class TcpHalf final : public Half {
 public:
  explicit TcpHalf(SealedEnd end) : end_(end) {}

  Result<Channels> open(Streams streams) override {
    Channels channels;
    Result<std::unique_ptr<Channel>> channel = make(std::move(streams.command), streams.key, 0);
    if (!channel.ok()) return channel.status();
    channels.command = channel.take();
    for (base::Fd& fd : streams.bulk) {
      const size_t number = 1 + channels.bulk.size();
      channel = make(std::move(fd), streams.key, uint16_t(number));
      if (!channel.ok()) return channel.status();
      channels.bulk.push_back(channel.take());
    }
    return channels;
  }

 private:
  Result<std::unique_ptr<Channel>> make(base::Fd fd, const std::string& key,
                                        uint16_t number) const {
    std::unique_ptr<Channel> channel = socket_channel(std::move(fd));
    if (key.empty()) return channel;
    return sealed(std::move(channel), key, number, end_);
  }

  const SealedEnd end_;
};

Result<std::unique_ptr<Half>> offer_tcp(const Setting&) {
  return std::unique_ptr<Half>(new TcpHalf(SealedEnd::kClient));
}

Result<std::unique_ptr<Half>> answer_tcp(const Setting&, const std::string&) {
  return std::unique_ptr<Half>(new TcpHalf(SealedEnd::kWorker));
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
