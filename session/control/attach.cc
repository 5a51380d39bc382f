// SPDX-License-Identifier: Apache-2.0
// The client's half of attaching: hello, attach with its offers, then the channels of the worker's
// answer. Blocking with time-outs, on the thread that makes the first GPU call.
#include "session/control/attach.h"

#include <algorithm>

#include "base/text.h"
#include "session/control/control_client.h"
#include "session/control/offers.h"

namespace tendril::session {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr int kAttachMs = 60'000;  // the server may have to start a worker first
constexpr uint16_t kBulkChannelsMax = 64;

int answer_ms(const ConnectOptions& options) {
  return options.answer_ms > 0 ? options.answer_ms : options.timeout_ms;
}

std::vector<uint8_t> session_request(const wire::AttachReply& reply, uint16_t channel) {
  wire::JoinRequest request;
  request.session_id = reply.session_id;
  request.session_secret = reply.session_secret;
  request.channel = channel;
  return wire::encode(request);
}

// Completes the client's half with the worker's answer, and reports that to the server over a
// connection beside the session's.
Status use_answer(const Endpoint& endpoint, const ConnectOptions& options,
                  const wire::AttachReply& reply, const wire::TransportAnswer& answer,
                  transport::Half* half) {
  Endpoint beside = endpoint;
  const bool fetches = !reply.descriptor_socket.empty();
  if (fetches) {
    beside = Endpoint();
    beside.unix_path = reply.descriptor_socket;
    beside.text = "unix:" + reply.descriptor_socket;
  }
  Result<std::unique_ptr<ControlClient>> client = ControlClient::start(beside, options, {});
  if (!client.ok()) return client.status();
  Status status = (*client)->read_hello();
  if (!status.ok()) return status;
  const std::vector<uint8_t> body = session_request(reply, 0);
  base::Fd descriptor;
  if (fetches) status = (*client)->fetch(body, &descriptor);
  if (status.ok()) status = half->complete(answer.blob, std::move(descriptor));
  if (!status.ok()) return status;
  return (*client)->ask(wire::Request::kUse, body, answer_ms(options)).status();
}

// Opens all bulk connections at once. So a distant server costs two round trips in all, not two for
// each.
Status join_bulk(const Endpoint& endpoint, const ConnectOptions& options,
                 const wire::AttachReply& reply, std::vector<base::Fd>* joined) {
  const uint16_t count = std::min(reply.bulk_channels, kBulkChannelsMax);
  std::vector<std::unique_ptr<ControlClient>> clients;
  for (uint16_t i = 0; i < count; ++i) {
    const std::vector<uint8_t> body = session_request(reply, i);
    Result<std::unique_ptr<ControlClient>> client = ControlClient::start(
        endpoint, options,
        pack(uint16_t(wire::Request::kJoin), Code::kOk, body.data(), body.size()));
    if (!client.ok()) return client.status();
    clients.push_back(client.take());
  }
  for (auto& client : clients) {
    Status hello = client->read_hello();
    if (!hello.ok()) return hello;
    Result<Message> answer = client->read_reply(wire::Request::kJoin, answer_ms(options));
    if (!answer.ok()) return answer.status();
    Connection connection = client->take_connection();
    connection.allow_stalls();
    joined->push_back(connection.take_descriptor());
  }
  return Status();
}

// Takes the first of the worker's answers that this end can use.
Status open_channels(const Endpoint& endpoint, const ConnectOptions& options, Connection connection,
                     Offers* offers, Attached* attached) {
  std::string against;
  for (const wire::TransportAnswer& answer : attached->reply.transports.answers) {
    Offers::Own* own = offers->find(answer.kind);
    if (own == nullptr) continue;  // it was not offered
    transport::Streams streams;
    if (own->transport->uses_connections) {
      Status joined = join_bulk(endpoint, options, attached->reply, &streams.bulk);
      if (!joined.ok()) return joined;
    } else {
      Status used = use_answer(endpoint, options, attached->reply, answer, own->half.get());
      if (!used.ok()) {
        against = "no " + answer.kind + ": chosen, but it could not be had: " + used.message();
        continue;
      }
    }
    connection.allow_stalls();
    streams.command = connection.take_descriptor();
    Result<transport::Channels> channels = own->half->open(std::move(streams));
    if (!channels.ok()) return channels.status();
    static_cast<transport::Channels&>(*attached) = channels.take();
    attached->transport = attached->command->kind();
    attached->reason = against.empty() ? cleaned(answer.reason) : against;
    return Status();
  }
  return Status(Code::kMismatch, endpoint.text + " chose no transport that this client offered" +
                                     (against.empty() ? "" : " (" + against + ")") +
                                     "; install the same version on both");
}

// The bulk channels share the line's bandwidth. Commands use hardly any. A network lets their few
// bytes through between others.
void shape(const transport::Shape& link, Attached* attached) {
  if (link.delay_us == 0 && link.bytes_per_second == 0) return;
  attached->command = transport::shaped(std::move(attached->command), link);
  const auto line = std::make_shared<transport::Line>(link);
  for (auto& channel : attached->bulk) channel = transport::shaped(std::move(channel), line);
  attached->reason += "; shaped as a longer line";
}

Result<Attached> attach_unshaped(const Endpoint& endpoint, const ConnectOptions& options,
                                 const wire::AttachRequest& request) {
  Result<std::unique_ptr<ControlClient>> client = ControlClient::start(endpoint, options, {});
  if (!client.ok()) return client.status();
  Status checked = (*client)->read_hello();
  if (!checked.ok()) return checked;
  wire::AttachRequest asked = request;
  if (asked.bulk_channels == 0) asked.bulk_channels = options.bulk_channels;
  Offers offers = Offers::make({asked.bulk_channels, (*client)->keys()}, options.transport);
  asked.transports = offers.records();
  Result<Message> answer = (*client)->ask(wire::Request::kAttach, wire::encode(asked), kAttachMs);
  if (!answer.ok()) return answer.status();
  Attached attached;
  if (!answer->read(&attached.reply)) {
    return Status(
        Code::kMismatch,
        endpoint.text + " answered attach with something this client does not understand");
  }
  Status opened =
      open_channels(endpoint, options, (*client)->take_connection(), &offers, &attached);
  if (!opened.ok()) return opened;
  return attached;
}

}  // namespace

Result<Attached> attach(const Endpoint& endpoint, const ConnectOptions& options,
                        const wire::AttachRequest& request) {
  Status known = check_kind(options.transport);
  if (!known.ok()) return known;
  Result<Attached> attached = attach_unshaped(endpoint, options, request);
  if (attached.ok()) shape(options.link, &*attached);
  return attached;
}

}  // namespace tendril::session
