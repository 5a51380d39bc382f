// SPDX-License-Identifier: Apache-2.0
// TCP as a registered transport. The session's own connections are its channels. It is always
// possible, because attach itself came over such a connection. It uses unix sockets if the server's
// address is one. The channels are sealed if the session has a key, and outlast cuts if it has a
// connection for acknowledgements.
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
    std::vector<base::Fd> lines;
    lines.push_back(std::move(streams.command));
    for (base::Fd& fd : streams.bulk) lines.push_back(std::move(fd));
    const size_t count = lines.size();
    Channels channels;
    if (streams.acknowledgements.valid()) {
      Result<std::shared_ptr<Lasting>> lasting = Lasting::make(
          std::move(lines), std::move(streams.acknowledgements), std::move(streams.lasting));
      if (!lasting.ok()) return lasting.status();
      channels.lasting = lasting.take();
    }
    for (size_t i = 0; i < count; ++i) {
      Result<std::unique_ptr<Channel>> channel =
          seal(channels.lasting != nullptr ? lasting_channel(channels.lasting, i)
                                           : socket_channel(std::move(lines[i])),
               streams.key, uint16_t(i));
      if (!channel.ok()) return channel.status();
      if (i == 0)
        channels.command = channel.take();
      else
        channels.bulk.push_back(channel.take());
    }
    return channels;
  }

 private:
  Result<std::unique_ptr<Channel>> seal(std::unique_ptr<Channel> channel, const std::string& key,
                                        uint16_t number) const {
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
