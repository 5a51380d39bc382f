// SPDX-License-Identifier: Apache-2.0
// Attaching, on the client: hello, attach, then shared memory where both ends are on one host, else
// bulk connections opened side by side. Blocking with time-outs, on the thread that makes the first
// GPU call.
#include "session/control/attach.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>

#include "base/text.h"
#include "session/control/adopt.h"
#include "session/control/control_client.h"
#include "transport/tcp/socket.h"

namespace tendril::session {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

constexpr int kAttachMs = 60'000;  // the server may have to start a worker first
constexpr uint16_t kBulkChannelsMax = 64;

// Fetches the session's memory over the server's unix socket and has the session moved to it.
Status fetch_shared_memory(const wire::AttachReply& reply, const ConnectOptions& options,
                           std::shared_ptr<transport::ShmMemory>* memory,
                           transport::HostWindow* window) {
  Endpoint endpoint;
  endpoint.unix_path = reply.shared_memory_socket;
  endpoint.text = "unix:" + reply.shared_memory_socket;
  Result<std::unique_ptr<ControlClient>> client = ControlClient::start(endpoint, options, {});
  if (!client.ok()) return client.status();
  Status hello = (*client)->read_hello();
  if (!hello.ok()) return hello;
  wire::JoinRequest request;
  request.session_id = reply.session_id;
  request.session_secret = reply.session_secret;
  std::vector<uint8_t> body = wire::encode(request);
  int fd = (*client)->fd();
  Status sent = send_message(fd, uint16_t(wire::Request::kShare), Code::kOk, body,
                             Deadline(options.timeout_ms));
  if (!sent.ok()) return sent;
  // The descriptor rides on the header's bytes.
  if (timeval limit{options.timeout_ms / 1000, options.timeout_ms % 1000 * 1000}; true) {
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  wire::ControlHeader header;
  size_t got = 0;
  Result<std::vector<int>> fds = receive_descriptors(fd, &header, sizeof header, &got);
  if (!fds.ok()) return fds.status();
  std::vector<base::Fd> owned;
  for (int one : *fds) owned.emplace_back(one);
  if (got != sizeof header || !wire::believable(header))
    return Status(Code::kMismatch, "a malformed answer");
  if (header.code != uint16_t(Code::kOk)) {
    std::string text(header.bytes, 0);
    Status rest = receive_all(fd, &text[0], text.size(), Deadline(options.timeout_ms), &got);
    return Status(Code(header.code), rest.ok() ? cleaned(text) : "no reason was given");
  }
  if (owned.size() != 1) return Status(Code::kMismatch, "no descriptor came with the answer");
  Result<std::shared_ptr<transport::ShmMemory>> mapped = transport::map_shm(owned[0]);
  if (!mapped.ok()) return mapped.status();
  *memory = mapped.take();
  *window = transport::host_window(std::move(owned[0]));
  return (*client)->ask(wire::Request::kShared, body, options.timeout_ms).status();
}

// Opens every bulk connection at once, so that a distant server costs two round trips and not two
// for each.
Status join_bulk(const Endpoint& endpoint, const ConnectOptions& options, Attached* attached) {
  uint16_t count = std::min(attached->reply.bulk_channels, kBulkChannelsMax);
  std::vector<std::unique_ptr<ControlClient>> clients;
  for (uint16_t i = 0; i < count; ++i) {
    wire::JoinRequest request;
    request.session_id = attached->reply.session_id;
    request.session_secret = attached->reply.session_secret;
    request.channel = i;
    std::vector<uint8_t> body = wire::encode(request);
    Result<std::unique_ptr<ControlClient>> client = ControlClient::start(
        endpoint, options,
        pack(uint16_t(wire::Request::kJoin), Code::kOk, body.data(), body.size()));
    if (!client.ok()) return client.status();
    clients.push_back(client.take());
  }
  for (auto& client : clients) {
    Status hello = client->read_hello();
    if (!hello.ok()) return hello;
    Result<Message> joined = client->read_reply(wire::Request::kJoin, options.timeout_ms);
    if (!joined.ok()) return joined.status();
    base::Fd connection = client->take_fd();
    allow_stalls(connection.get());
    attached->bulk.push_back(transport::socket_channel(std::move(connection)));
  }
  return Status();
}

// True when the session now runs over shared memory; otherwise attached->reason says why not.
bool try_shared_memory(const ConnectOptions& options, bool same_host, base::Fd* connection,
                       Attached* attached) {
  if (!options.allow_shared_memory) {
    attached->reason = "shared memory is switched off";
    return false;
  }
  if (!same_host) {
    attached->reason = "the server is another host";
    return false;
  }
  if (attached->reply.shared_memory_socket.empty()) {
    attached->reason = "same host, but the server offers no shared memory";
    return false;
  }
  std::shared_ptr<transport::ShmMemory> memory;
  transport::HostWindow window;
  Status fetched = fetch_shared_memory(attached->reply, options, &memory, &window);
  if (!fetched.ok()) {
    attached->reason = "same host, but shared memory could not be had: " + fetched.message();
    return false;
  }
  Adopted adopted =
      adopt_shared_memory(std::move(*connection), std::move(memory), std::move(window));
  attached->command = std::move(adopted.command);
  attached->bulk = std::move(adopted.bulk);
  attached->window = std::move(adopted.window);
  attached->transport = "shm";
  attached->reason = "client and server are on one host";
  return true;
}

// The bulk channels share the line's bandwidth. Commands hardly use any, and a network lets their
// few bytes through between others.
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
  std::string boot = boot_id();
  bool same_host = !boot.empty() && (*client)->server_hello().boot_id == boot;
  wire::AttachRequest asked = request;
  asked.shared_memory = options.allow_shared_memory && same_host;
  if (asked.bulk_channels == 0) asked.bulk_channels = options.bulk_channels;
  Result<Message> answer = (*client)->ask(wire::Request::kAttach, wire::encode(asked), kAttachMs);
  if (!answer.ok()) return answer.status();
  Attached attached;
  if (!answer->read(&attached.reply)) {
    return Status(
        Code::kMismatch,
        endpoint.text + " answered attach with something this client does not understand");
  }
  base::Fd connection = (*client)->take_fd();
  allow_stalls(connection.get());
  if (try_shared_memory(options, same_host, &connection, &attached)) return attached;
  Status joined = join_bulk(endpoint, options, &attached);
  if (!joined.ok()) return joined;
  attached.command = transport::socket_channel(std::move(connection));
  attached.transport = attached.command->kind();
  return attached;
}

}  // namespace

Result<Attached> attach(const Endpoint& endpoint, const ConnectOptions& options,
                        const wire::AttachRequest& request) {
  Result<Attached> attached = attach_unshaped(endpoint, options, request);
  if (attached.ok()) shape(options.link, &*attached);
  return attached;
}

}  // namespace tendril::session
