// SPDX-License-Identifier: Apache-2.0
// See rejoin.h.
#include "session/control/rejoin.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "session/choice/ways.h"
#include "session/control/control_client.h"
#include "session/control/secure_attach.h"

namespace tendril::session {

using base::Code;
using base::Result;
using base::Status;

std::vector<uint8_t> membership_request(const Membership& membership, wire::Request kind,
                                        uint16_t channel, uint32_t attempt,
                                        const std::string& nonce) {
  wire::JoinRequest request;
  request.session_id = membership.session_id;
  request.channel = channel;
  request.attempt = attempt;
  request.nonce = nonce;
  if (membership.key.empty())
    request.session_secret = membership.secret;
  else
    request.proof = prove_join(membership.key, kind, request);
  return wire::encode(request);
}

bool is_member(const Membership& membership, wire::Request kind, const wire::JoinRequest& request) {
  if (request.session_id != membership.session_id) return false;
  return membership.key.empty()
             ? base::equal_in_constant_time(membership.secret, request.session_secret)
             : is_proven(membership.key, kind, request);
}

namespace {

class Rejoining final : public transport::Redial {
 public:
  Rejoining(const Endpoint& endpoint, const ConnectOptions& options, Membership membership,
            uint16_t bulk_channels, const std::string& way)
      : endpoint_(endpoint),
        options_(options),
        membership_(std::move(membership)),
        bulk_channels_(bulk_channels),
        way_(way) {
    options_.lessor = nullptr;
  }

  Result<std::vector<base::Fd>> dial(uint32_t attempt, int timeout_ms) override {
    options_.timeout_ms = options_.answer_ms = std::max(timeout_ms, 1);
    std::vector<std::unique_ptr<ControlClient>> clients;
    // In the order of the lines: the lane, the bulk channels, the one for acknowledgements.
    std::vector<uint16_t> channels = {uint16_t(bulk_channels_ + 1)};
    for (uint16_t i = 0; i <= bulk_channels_; ++i) channels.push_back(i);
    for (size_t i = 0; i < channels.size(); ++i) {
      Result<std::unique_ptr<ControlClient>> client =
          ControlClient::start_unproven(endpoint_, options_, {});
      if (!client.ok()) return again(client.status());
      clients.push_back(client.take());
    }
    for (auto& client : clients) {
      const Status greeted = client->read_hello();
      if (!greeted.ok()) return again(greeted);
    }
    std::vector<base::Fd> connections;
    for (size_t i = 0; i < channels.size(); ++i) {
      const Result<Message> answer =
          clients[i]->ask(wire::Request::kJoin,
                          membership_request(membership_, wire::Request::kJoin, channels[i],
                                             attempt, clients[i]->server_hello().nonce),
                          timeout_ms);
      if (!answer.ok())
        return is_final(answer.status()) ? over(answer.status()) : again(answer.status());
      Connection connection = clients[i]->take_connection();
      connection.allow_stalls();
      connections.push_back(connection.take_descriptor());
    }
    return connections;
  }

  void cut(uint32_t patience_ms) override {
    say(base::format("the network to %s is cut; the program waits up to %u s for it",
                     endpoint_.text.c_str(), patience_ms / 1000));
  }
  void resumed(uint64_t after_ms) override {
    if (std::exchange(left_carriers_, false)) {
      say(base::format("the program goes on over TCP after %.1f s; nothing was lost",
                       double(after_ms) / 1000));
    } else {
      say(base::format("the network to %s is back after %.1f s; nothing was lost",
                       endpoint_.text.c_str(), double(after_ms) / 1000));
    }
  }
  void carrier_failed(const std::string& why, uint32_t patience_ms) override {
    left_carriers_ = true;
    Ways(options_.ways_folder).forget(way_);
    say(
        base::format("RDMA to %s failed (%s); the program connects over TCP, and waits up to %u s "
                     "for that",
                     endpoint_.text.c_str(), why.c_str(), patience_ms / 1000));
  }

 private:
  static bool is_final(const Status& status) {
    return status.code() != Code::kTimeout && status.code() != Code::kClosed &&
           status.code() != Code::kUnavailable && status.code() != Code::kExhausted;
  }
  static Status over(const Status& status) {
    return Status(Code::kRefused, "the network was cut, and when it was back: " + status.message());
  }
  static Status again(const Status& status) { return Status(Code::kUnavailable, status.message()); }
  void say(const std::string& line) const {
    if (options_.patience) options_.patience(line);
  }

  const Endpoint endpoint_;
  ConnectOptions options_;
  const Membership membership_;
  const uint16_t bulk_channels_;
  const std::string way_;
  bool left_carriers_ = false;
};

}  // namespace

std::unique_ptr<transport::Redial> redial(const Endpoint& endpoint, const ConnectOptions& options,
                                          Membership membership, uint16_t bulk_channels,
                                          const std::string& way) {
  return std::unique_ptr<transport::Redial>(
      new Rejoining(endpoint, options, std::move(membership), bulk_channels, way));
}

}  // namespace tendril::session
