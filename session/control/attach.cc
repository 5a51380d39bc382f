// SPDX-License-Identifier: Apache-2.0
// The client's half of attaching: hello, attach with its offers, then the channels of the worker's
// answer. Blocking with time-outs, on the thread that makes the first GPU call.
#include "session/control/attach.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "session/control/background_trial.h"
#include "session/control/control_client.h"
#include "session/control/offers.h"
#include "session/control/rejoin.h"
#include "session/control/secure_attach.h"

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

// A session that is being made, from its answer on.
struct Session {
  const Endpoint& endpoint;
  const ConnectOptions& options;
  std::string key;  // from the handshake; empty: there was none
  std::string way;  // of a fabric that carries its lines
};

std::vector<uint8_t> session_request(const Session& session, const wire::AttachReply& reply,
                                     wire::Request kind, uint16_t channel) {
  return membership_request({reply.session_id, reply.session_secret, session.key}, kind, channel);
}

// Completes the client's half with the worker's answer, and reports that to the server over a
// connection beside the session's. *unfit: the half could not be completed.
Status use_answer(const Session& session, const wire::AttachReply& reply,
                  const wire::TransportAnswer& answer, bool with_connections, transport::Half* half,
                  bool* unfit) {
  Endpoint beside = session.endpoint;
  const bool fetches = !reply.descriptor_socket.empty();
  if (fetches) {
    beside = Endpoint();
    beside.unix_path = reply.descriptor_socket;
    beside.text = "unix:" + reply.descriptor_socket;
  }
  Result<std::unique_ptr<ControlClient>> client =
      ControlClient::start_unproven(beside, session.options, {});
  if (!client.ok()) return client.status();
  Status status = (*client)->read_hello();
  if (!status.ok()) return status;
  base::Fd descriptor;
  if (fetches) {
    status =
        (*client)->fetch(session_request(session, reply, wire::Request::kFetch, 0), &descriptor);
  }
  if (!status.ok()) return status;
  status = half->complete(answer.blob, std::move(descriptor));
  *unfit = !status.ok();
  if (!status.ok()) return status;
  const uint16_t channel = with_connections ? wire::kUseWithConnections : 0;
  return (*client)
      ->ask(wire::Request::kUse, session_request(session, reply, wire::Request::kUse, channel),
            answer_ms(session.options))
      .status();
}

// Opens all further connections at once. So a distant server costs two round trips in all, not two
// for each.
Status join_bulk(const Session& session, const wire::AttachReply& reply,
                 transport::Streams* streams) {
  const uint16_t bulk = std::min(reply.bulk_channels, kBulkChannelsMax);
  const uint16_t count = uint16_t(bulk + (reply.outage_ms != 0 ? 1 : 0));
  std::vector<std::unique_ptr<ControlClient>> clients;
  for (uint16_t i = 0; i < count; ++i) {
    const std::vector<uint8_t> body = session_request(session, reply, wire::Request::kJoin, i);
    Result<std::unique_ptr<ControlClient>> client = ControlClient::start_unproven(
        session.endpoint, session.options,
        pack(uint16_t(wire::Request::kJoin), Code::kOk, body.data(), body.size()));
    if (!client.ok()) return client.status();
    clients.push_back(client.take());
  }
  for (auto& client : clients) {
    Status hello = client->read_hello();
    if (!hello.ok()) return hello;
    Result<Message> answer = client->read_reply(wire::Request::kJoin, answer_ms(session.options));
    if (!answer.ok()) return answer.status();
    Connection connection = client->take_connection();
    connection.allow_stalls();
    streams->bulk.push_back(connection.take_descriptor());
  }
  if (count == bulk) return Status();
  streams->acknowledgements = std::move(streams->bulk.back());
  streams->bulk.pop_back();
  streams->lasting.patience_ms = std::min(reply.outage_ms, session.options.outage_ms);
  streams->lasting.redial =
      redial(session.endpoint, session.options,
             {reply.session_id, reply.session_secret, session.key}, bulk, session.way);
  return Status();
}

bool carries_lines(const Offers::Own& own) {
  return (own.transport->abilities & transport::kCarriesLines) != 0;
}

// The same for a fabric that was asked for, so nothing else is tried.
Status use_fabric(Session* session, const wire::AttachReply& reply,
                  const wire::TransportAnswer& answer, const Offers::Own& own) {
  const bool lasts = reply.outage_ms != 0;
  if (session->options.transport != answer.kind) {
    return Status(Code::kUnsupported,
                  "this session does not outlast its failure (--outage off); it must be asked for: "
                  "TENDRIL_TRANSPORT=" +
                      answer.kind);
  }
  session->way = own.half->way(answer.blob);
  bool unfit = false;
  return use_answer(*session, reply, answer, lasts, own.half.get(), &unfit);
}

// A fabric that is tried while the session runs on its connections.
struct Fabric {
  Offers::Own* own = nullptr;
  std::string blob;
};

void try_fabric(const Session& session, Fabric* fabric, const wire::TransportAnswer& connections,
                Attached* attached) {
  BackgroundTrial::Task task;
  task.candidate = {fabric->own->transport->kind, connections.kind, std::move(fabric->own->half),
                    attached->lasting, std::make_shared<LatePinned>()};
  task.blob = fabric->blob;
  task.endpoint = session.endpoint;
  task.options = session.options;
  const wire::AttachReply& reply = attached->reply;
  task.membership = {reply.session_id, reply.session_secret, session.key};
  task.bulk_channels = std::min(reply.bulk_channels, kBulkChannelsMax);
  attached->pinned = task.candidate.pinned;
  attached->reason += "; " + task.candidate.fabric + " is tried meanwhile";
  attached->trial = std::make_shared<BackgroundTrial>(std::move(task));
}

// Takes the first of the worker's answers that this end can use.
Status open_channels(Session* session, Connection connection, Offers* offers, Attached* attached) {
  std::string against;
  Fabric fabric;
  const wire::AttachReply& reply = attached->reply;
  for (const wire::TransportAnswer& answer : reply.transports.answers) {
    Offers::Own* own = offers->find(answer.kind);
    if (own == nullptr) continue;  // it was not offered
    const bool carries = carries_lines(*own);
    const bool lasts = carries && reply.outage_ms != 0;
    if (lasts && session->options.transport != answer.kind) {
      fabric = {own, answer.blob};
      session->way = own->half->way(answer.blob);
      continue;
    }
    bool unfit = false;
    Status used;
    if (carries)
      used = use_fabric(session, reply, answer, *own);
    else if (!own->transport->uses_connections)
      used = use_answer(*session, reply, answer, false, own->half.get(), &unfit);
    if (!used.ok()) {
      against = "no " + answer.kind + ": chosen, but it could not be had: " + used.message();
      continue;
    }
    transport::Streams streams;
    if (own->transport->uses_connections || lasts) {
      Status joined = join_bulk(*session, reply, &streams);
      if (!joined.ok()) return joined;
    }
    connection.allow_stalls();
    streams.command = connection.take_descriptor();
    if (reply.sealed) streams.key = session->key;
    streams.lasting.may_be_carried = fabric.own != nullptr;
    std::string remark = own->half->remark();
    if (lasts) remark += "; " + forced_way(answer.kind).text;
    Result<transport::Channels> channels = own->half->open(std::move(streams));
    if (!channels.ok()) return channels.status();
    static_cast<transport::Channels&>(*attached) = channels.take();
    attached->transport = attached->command->kind();
    attached->reason = against.empty() ? cleaned(answer.reason) : against;
    if (!remark.empty()) attached->reason += "; " + remark;
    if (fabric.own != nullptr && attached->lasting != nullptr)
      try_fabric(*session, &fabric, answer, attached);
    return Status();
  }
  return Status(Code::kMismatch, session->endpoint.text +
                                     " chose no transport that this client offered" +
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

Status malformed_answer(const Endpoint& endpoint) {
  return Status(Code::kMismatch,
                endpoint.text + " answered attach with something this client does not understand");
}

// What this client can prove. Null: nothing.
std::optional<AttachProof> proof_for(const ConnectOptions& options,
                                     const wire::AttachRequest& request) {
  if (request.lease_id != 0)
    return AttachProof{wire::AttachKey::kLeaseSecret, request.lease_id, request.secret};
  if (!options.token.empty()) return AttachProof{wire::AttachKey::kToken, 0, options.token};
  return {};
}

// Asks in clear. Only on this host does a secret travel so.
Result<wire::AttachReply> ask_plainly(const Endpoint& endpoint, ControlClient* client,
                                      const wire::AttachRequest& request) {
  if (request.lease_id != 0 && !client->is_local()) {
    return Status(Code::kRefused,
                  endpoint.text +
                      " is on another host and does not secure attaching, so the "
                      "lease's secret was not sent; start the server with a token or "
                      "with identities ('tendril help serve')");
  }
  Result<Message> answer = client->ask(wire::Request::kAttach, wire::encode(request), kAttachMs);
  if (!answer.ok()) return answer.status();
  wire::AttachReply reply;
  if (!answer->read(&reply)) return malformed_answer(endpoint);
  return reply;
}

Result<wire::AttachReply> ask_in_handshake(Session* session, ControlClient* client,
                                           const AttachProof& proof,
                                           const wire::AttachRequest& request) {
  SecureAttach handshake(proof, client->hellos());
  Result<std::vector<uint8_t>> body = handshake.request(request);
  if (!body.ok()) return body.status();
  Result<Message> answer = client->ask(wire::Request::kSecuredAttach, *body, kAttachMs);
  if (!answer.ok()) return answer.status();
  Result<wire::AttachReply> reply = handshake.answer(answer->body);
  if (!reply.ok()) {
    return Status(reply.status().code(),
                  session->endpoint.text + ": " + cleaned(reply.status().message()));
  }
  session->key = handshake.session_key();
  return reply;
}

// A unix socket names its user, so whoever has nothing to prove just says hello there.
Result<std::unique_ptr<ControlClient>> greet(const Endpoint& endpoint,
                                             const ConnectOptions& options, bool proves) {
  ConnectOptions plain = options;
  plain.token.clear();
  plain.securer = nullptr;
  Result<std::unique_ptr<ControlClient>> client =
      proves || endpoint.unix_path.empty() ? ControlClient::start_unproven(endpoint, plain, {})
                                           : ControlClient::start(endpoint, plain, {});
  if (!client.ok()) return client.status();
  Status checked = (*client)->read_hello();
  if (!checked.ok()) return checked;
  return client;
}

Result<wire::AttachReply> ask(Session* session, ControlClient* client,
                              std::optional<AttachProof> proof,
                              const wire::AttachRequest& request) {
  const bool secured = !client->server_hello().nonce.empty();
  const bool by_user = !session->endpoint.unix_path.empty();
  if (!secured || (!proof && by_user)) return ask_plainly(session->endpoint, client, request);
  if (!proof && session->options.lessor != nullptr) {
    Result<wire::LeaseReply> lease =
        session->options.lessor->lease(session->endpoint, request.lease);
    if (!lease.ok()) return lease.status();
    proof = AttachProof{wire::AttachKey::kLeaseSecret, lease->lease_id, lease->secret};
  }
  if (!proof) {
    return Status(Code::kRefused,
                  session->endpoint.text +
                      " wants to know who asks, and this program has neither a lease nor a token; "
                      "run it under 'tendril run', or set TENDRIL_TOKEN_FILE");
  }
  return ask_in_handshake(session, client, *proof, request);
}

Status check_sealing(const Session& session, const Attached& attached, bool over_network) {
  if (!session.options.insists_on_sealing || attached.reply.sealed || !over_network)
    return Status();
  return Status(Code::kRefused,
                session.endpoint.text +
                    " does not seal this session's data, and TENDRIL_ENCRYPT=always wants it; "
                    "start the server with --encrypt always");
}

Result<Attached> attach_unshaped(const Endpoint& endpoint, const ConnectOptions& options,
                                 const wire::AttachRequest& request) {
  const std::optional<AttachProof> proof = proof_for(options, request);
  Result<std::unique_ptr<ControlClient>> client = greet(endpoint, options, proof.has_value());
  if (!client.ok()) return client.status();
  if (!(*client)->server_hello().pool.empty())
    return Status(Code::kElsewhere,
                  endpoint.text + " is a pool; a program attaches to its servers");
  const bool over_network = !(*client)->is_local();
  wire::AttachRequest asked = request;
  if (asked.bulk_channels == 0) asked.bulk_channels = options.bulk_channels;
  asked.insists_on_sealing = options.insists_on_sealing;
  asked.outage_ms = options.outage_ms;
  Offers offers = Offers::make({asked.bulk_channels, options.insists_on_sealing && over_network},
                               options.transport);
  asked.transports = offers.records();
  Session session{endpoint, options, {}, {}};
  Result<wire::AttachReply> reply = ask(&session, client->get(), proof, asked);
  if (!reply.ok()) return reply.status();
  Attached attached;
  attached.reply = reply.take();
  Status good = check_sealing(session, attached, over_network);
  if (good.ok()) good = open_channels(&session, (*client)->take_connection(), &offers, &attached);
  if (!good.ok()) return good;
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

Result<wire::AttachReply> look(const Endpoint& endpoint, const ConnectOptions& options,
                               const wire::AttachRequest& request) {
  const std::optional<AttachProof> proof = proof_for(options, request);
  Result<std::unique_ptr<ControlClient>> client = greet(endpoint, options, proof.has_value());
  if (!client.ok()) return client.status();
  Session session{endpoint, options, {}, {}};
  wire::AttachRequest asked = request;
  asked.only_looks = true;
  return ask(&session, client->get(), proof, asked);
}

Result<Connection> take_passage(const Endpoint& endpoint, const ConnectOptions& options,
                                const wire::JoinRequest& request) {
  const std::vector<uint8_t> body = wire::encode(request);
  Result<std::unique_ptr<ControlClient>> client = ControlClient::start_unproven(
      endpoint, options, pack(uint16_t(wire::Request::kJoin), Code::kOk, body.data(), body.size()));
  if (!client.ok()) return client.status();
  const Status greeted = (*client)->read_hello();
  if (!greeted.ok()) return greeted;
  const Result<Message> answer = (*client)->read_reply(wire::Request::kJoin, answer_ms(options));
  if (!answer.ok()) return answer.status();
  return (*client)->take_connection();
}

Result<wire::MeetReply> meet(const Endpoint& endpoint, const ConnectOptions& options,
                             double* round_trip_us) {
  Result<std::unique_ptr<ControlClient>> client =
      ControlClient::start_unproven(endpoint, options, {});
  if (!client.ok()) return client.status();
  const Status greeted = (*client)->read_hello();
  if (!greeted.ok()) return greeted;
  const uint64_t begin_ns = base::now_ns();
  Result<Message> answer = (*client)->ask(wire::Request::kMeet, {}, answer_ms(options));
  if (!answer.ok()) return answer.status();
  *round_trip_us = static_cast<double>(base::now_ns() - begin_ns) / 1000;
  wire::MeetReply reply;
  if (!answer->read(&reply))
    return Status(Code::kInvalid, endpoint.text + " answers in a way that is not understood");
  return reply;
}

}  // namespace tendril::session
