// SPDX-License-Identifier: Apache-2.0
// See control_client.h. Each way in which a hello can fail has its own message.
#include "session/control/control_client.h"

#include <algorithm>

#include "base/text.h"
#include "session/control/patience.h"
#include "transport/tcp/listener.h"

namespace tendril::session {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {
constexpr int kLeaseMs = 60'000;    // a lease may wait for a worker to start
constexpr int kSilenceMs = 20'000;  // of a server that says every five seconds why one waits
constexpr size_t kNoticesMax = 64;  // kept while an answer is due
constexpr size_t kListedMax = 200'000;

template <typename Reply>
Result<Reply> decoded(const Result<Message>& message, const Status& otherwise) {
  if (!message.ok()) return message.status();
  Reply reply;
  if (!message.value().read(&reply)) return otherwise;
  return reply;
}
}  // namespace

// Connects, and seals the connection if the options say how. An open server serves its own host
// only and refuses TLS. Nobody between can make a client believe that, so the plain protocol is
// spoken with it, without the token.
static Result<Connection> connect_sealed(const Endpoint& endpoint, const ConnectOptions& options,
                                         const Deadline& deadline, std::string* token) {
  Result<Connection> connection = connect_to(endpoint, deadline, options.from);
  if (!connection.ok() || options.securer == nullptr) return connection;
  Result<std::unique_ptr<Seal>> seal = options.securer->secure(endpoint);
  if (!seal.ok()) return seal.status();
  if (*seal == nullptr) return connection;
  const bool this_host = transport::describe_peer(connection->descriptor()).loopback;
  const int most_ms = options.answer_ms > 0 ? options.answer_ms : options.timeout_ms;
  const Status secured = connection->secure(seal.take(), Deadline(most_ms));
  if (secured.ok()) token->clear();  // it was the key, or is for another server
  if (secured.ok()) return connection;
  if (secured.code() == Code::kUnsupported && this_host) {
    token->clear();
    return connect_to(endpoint, deadline, options.from);
  }
  if (secured.code() == Code::kClosed) {
    return Status(Code::kClosed,
                  base::format("%s closed the connection instead of speaking TLS: it is not a "
                               "Tendril server, or an old one; install the same version on both",
                               endpoint.text.c_str()));
  }
  return Status(secured.code(),
                base::format("%s: %s", endpoint.text.c_str(), secured.message().c_str()));
}

Status ControlClient::strange(const char* what) const {
  return Status(Code::kMismatch, base::format("%s %s", endpoint_.text.c_str(), what));
}

Result<std::unique_ptr<ControlClient>> ControlClient::start(const Endpoint& endpoint,
                                                            const ConnectOptions& options,
                                                            const std::vector<uint8_t>& more) {
  Deadline deadline(options.timeout_ms);
  std::string token = options.token;
  Result<Connection> connection = connect_sealed(endpoint, options, deadline, &token);
  if (!connection.ok()) return connection.status();
  std::unique_ptr<ControlClient> client(new ControlClient(connection.take(), endpoint, options));
  wire::Hello hello;
  hello.token = token;
  Status said = client->say_hello(hello, more, deadline);
  if (!said.ok()) return said;
  return client;
}

Result<std::unique_ptr<ControlClient>> ControlClient::start_unproven(
    const Endpoint& endpoint, const ConnectOptions& options, const std::vector<uint8_t>& more) {
  Deadline deadline(options.timeout_ms);
  Result<Connection> connection = connect_to(endpoint, deadline, options.from);
  if (!connection.ok()) return connection.status();
  std::unique_ptr<ControlClient> client(new ControlClient(connection.take(), endpoint, options));
  wire::Hello hello;
  hello.proves_later = true;
  Status said = client->say_hello(hello, more, deadline);
  if (!said.ok()) return said;
  return client;
}

Status ControlClient::say_hello(wire::Hello hello, const std::vector<uint8_t>& more,
                                const Deadline& deadline) {
  hello.product_version = wire::product_version();
  hello.bulk_channels = options_.bulk_channels;
  hello.hears_news = true;
  hellos_.client = wire::encode(hello);
  std::vector<uint8_t> all =
      pack(wire::kHelloKind, Code::kOk, hellos_.client.data(), hellos_.client.size());
  all.insert(all.end(), more.begin(), more.end());
  // A server that refuses may close before it has read everything. Its reason can still be read.
  Status sent = connection_.send_all(all.data(), all.size(), deadline);
  return sent.code() == Code::kClosed ? Status() : sent;
}

bool ControlClient::is_local() const {
  const transport::PeerFacts facts = transport::describe_peer(connection_.descriptor());
  return facts.loopback || facts.unix_socket;
}

Status ControlClient::read_hello() {
  Result<Message> message = receive_message(&connection_, Deadline(answer_ms()), answer_ms());
  if (!message.ok()) {
    switch (message.status().code()) {
      case Code::kTimeout:
        return Status(
            Code::kTimeout,
            base::format("%s accepted the connection but did not answer within %d ms: it is "
                         "not a Tendril server, or overloaded",
                         endpoint_.text.c_str(), answer_ms()));
      case Code::kClosed:
        return Status(Code::kClosed,
                      endpoint_.text +
                          " closed the connection without a word: it is just ending, or it is not "
                          "a Tendril server");
      default:
        return strange("is not a Tendril server: it answered with something else");
    }
  }
  if (message->code != Code::kOk) {
    return Status(message->code,
                  base::format("%s: %s", endpoint_.text.c_str(), cleaned(message->text()).c_str()));
  }
  if (message->kind != wire::kHelloKind || !message->read(&hello_)) {
    return strange("answered hello with something this client does not understand");
  }
  hellos_.server = std::move(message->body);
  hello_.product_version = cleaned(hello_.product_version);
  if (hello_.protocol_newest < wire::kProtocolVersion ||
      hello_.protocol_oldest > wire::kProtocolVersion) {
    return Status(Code::kMismatch,
                  base::format("%s runs Tendril %s, which speaks protocol %u to %u; this client is "
                               "Tendril %s and speaks "
                               "%u; install the same version on both",
                               endpoint_.text.c_str(), hello_.product_version.c_str(),
                               unsigned(hello_.protocol_oldest), unsigned(hello_.protocol_newest),
                               wire::product_version(), unsigned(wire::kProtocolVersion)));
  }
  return Status();
}

Result<Message> ControlClient::read_answer(int timeout_ms) {
  Patience patience(endpoint_.text, base::now_ns());
  for (;;) {
    Result<Message> message = receive_message(&connection_, Deadline(timeout_ms), answer_ms());
    if (message.ok() && message->kind == wire::kNoticeKind) {
      if (!keep_notice(*message)) return strange("sent a malformed notice");
      continue;
    }
    if (!message.ok() || message->kind != wire::kNewsKind) return message;
    wire::News news;
    if (!message->read(&news)) return strange("sent malformed news");
    const std::string line = patience.heard(news, base::now_ns());
    if (!line.empty() && options_.patience) options_.patience(line);
  }
}

Status ControlClient::with_server(const Status& status) const {
  return Status(status.code(),
                base::format("%s: %s", endpoint_.text.c_str(), status.message().c_str()));
}

Result<Message> ControlClient::read_reply(wire::Request request, int timeout_ms) {
  return checked(read_answer(timeout_ms), request);
}

Result<Message> ControlClient::checked(Result<Message> message, wire::Request request) const {
  if (!message.ok()) return with_server(message.status());
  if (message->code != Code::kOk) {
    return Status(message->code,
                  base::format("%s: %s", endpoint_.text.c_str(), cleaned(message->text()).c_str()));
  }
  if (message->kind != uint16_t(request))
    return strange("answered another question than was asked");
  return message;
}

Result<Message> ControlClient::ask(wire::Request request, const std::vector<uint8_t>& body,
                                   int timeout_ms) {
  Status sent =
      send_message(&connection_, uint16_t(request), Code::kOk, body, Deadline(answer_ms()));
  // A refusal may be waiting even if the server reads no more.
  if (!sent.ok() && sent.code() != Code::kClosed) return with_server(sent);
  return read_reply(request, timeout_ms);
}

Status ControlClient::fetch(const std::vector<uint8_t>& body, base::Fd* descriptor) {
  const Deadline deadline(answer_ms());
  Status status =
      send_message(&connection_, uint16_t(wire::Request::kFetch), Code::kOk, body, deadline);
  if (!status.ok()) return status;
  // The descriptor comes with the header's bytes.
  wire::ControlHeader header;
  size_t got = 0;
  status = connection_.receive_some(&header, sizeof header, deadline, &got, descriptor);
  if (!status.ok()) return status;
  if (got != sizeof header || !wire::believable(header)) return strange("sent a malformed answer");
  if (header.code == uint16_t(Code::kOk)) return Status();
  std::string text(header.bytes, 0);
  status = connection_.receive_all(&text[0], text.size(), deadline, &got);
  return Status(Code(header.code), status.ok() ? cleaned(text) : "no reason was given");
}

Result<double> ControlClient::ping_us() {
  uint64_t start = base::now_ns();
  Result<Message> message =
      ask(wire::Request::kPing, wire::encode(wire::PingBody{start}), answer_ms());
  if (!message.ok()) return message.status();
  double us = double(base::now_ns() - start) / 1000.0;
  wire::PingBody body;
  if (!message->read(&body) || body.cookie != start)
    return strange("answered a ping with something else");
  return us;
}

Result<wire::ListReply> ControlClient::list_part(const wire::ListRequest& request) {
  return decoded<wire::ListReply>(ask(wire::Request::kList, wire::encode(request), answer_ms()),
                                  strange("sent a malformed list"));
}

// Each part must go on where the last one ended, and there must be an end. False: it does not.
bool ControlClient::add_part(wire::ListRequest* request, wire::ListReply* part,
                             wire::ListReply* whole) {
  if ((part->more_gpus && part->gpus.empty()) || (part->more_leases && part->leases.empty()) ||
      (part->more_sessions && part->sessions.empty()))
    return false;
  for (wire::GpuRecord& gpu : part->gpus) whole->gpus.push_back(std::move(gpu));
  request->gpus_after = uint32_t(whole->gpus.size());
  for (wire::LeaseRecord& lease : part->leases) {
    if (lease.lease_id <= request->leases_after) return false;
    request->leases_after = lease.lease_id;
    whole->leases.push_back(std::move(lease));
  }
  for (wire::SessionRecord& session : part->sessions) {
    if (session.session_id <= request->sessions_after) return false;
    request->sessions_after = session.session_id;
    whole->sessions.push_back(std::move(session));
  }
  return whole->gpus.size() + whole->leases.size() + whole->sessions.size() <= kListedMax;
}

// The first part has nearly always everything.
Result<wire::ListReply> ControlClient::list() {
  wire::ListRequest request;
  request.limit = wire::kListPageMax;
  request.gpu_limit = wire::kGpuPageMax;
  Result<wire::ListReply> part = list_part(request);
  if (!part.ok()) return part;
  wire::ListReply whole = *part;
  whole.gpus.clear();
  whole.leases.clear();
  whole.sessions.clear();
  whole.more_gpus = whole.more_leases = whole.more_sessions = false;
  for (;;) {
    if (!add_part(&request, &*part, &whole)) return strange("sent a list without order or end");
    request.parts = (part->more_gpus ? wire::kListServer : 0u) |
                    (part->more_leases ? wire::kListLeases : 0u) |
                    (part->more_sessions ? wire::kListSessions : 0u);
    if (request.parts == 0) return whole;
    part = list_part(request);
    if (!part.ok()) return part;
  }
}

Result<wire::LeaseReply> ControlClient::lease(const wire::LeaseRequest& request) {
  return decoded<wire::LeaseReply>(ask(wire::Request::kLease, wire::encode(request), kLeaseMs),
                                   strange("sent a malformed lease"));
}

Result<Message> ControlClient::await_answer(const LeaseWait& wait, bool* gave_up) {
  const Deadline limit(wait.limit_ms < 0 ? -1 : int(std::min<int64_t>(wait.limit_ms, INT32_MAX)));
  std::string reason;
  for (;;) {
    const int left_ms = limit.left_ms();
    const bool limited = left_ms >= 0 && left_ms < kSilenceMs;
    const Status ready =
        connection_.await(wait.cancel_fd, Deadline(limited ? left_ms : kSilenceMs));
    *gave_up = ready.code() == Code::kUnavailable || (ready.code() == Code::kTimeout && limited);
    if (ready.code() == Code::kTimeout && limited) {
      return Status(Code::kTimeout, "no lease within the time that it may wait" +
                                        (reason.empty() ? reason : ": " + reason));
    }
    if (!ready.ok()) return ready;
    Result<Message> message = receive_message(&connection_, Deadline(answer_ms()), answer_ms());
    if (!message.ok()) return message;
    if (message->kind == wire::kNoticeKind) {
      if (!keep_notice(*message)) return strange("sent a malformed notice");
      continue;
    }
    if (message->kind != wire::kNewsKind) return message;
    wire::News news;
    if (!message->read(&news)) return strange("sent malformed news");
    reason = base::printable(news.text, wire::kNewsTextBytesMax);
    *gave_up = wait.news && !wait.news(news);
    if (*gave_up) return Status(Code::kUnavailable, "the wait was given up");
  }
}

Result<wire::LeaseReply> ControlClient::lease(const wire::LeaseRequest& request,
                                              const LeaseWait& wait, bool* gave_up) {
  *gave_up = false;
  const Status sent = send_message(&connection_, uint16_t(wire::Request::kLease), Code::kOk,
                                   wire::encode(request), Deadline(answer_ms()));
  if (!sent.ok() && sent.code() != Code::kClosed) return with_server(sent);
  Result<Message> message = await_answer(wait, gave_up);
  if (!message.ok()) connection_.shutdown();
  return decoded<wire::LeaseReply>(checked(std::move(message), wire::Request::kLease),
                                   strange("sent a malformed lease"));
}

bool ControlClient::keep_notice(const Message& message) {
  wire::Notice notice;
  if (!message.read(&notice)) return false;
  notice.text = cleaned(notice.text);
  if (notices_.size() < kNoticesMax) notices_.push_back(std::move(notice));
  return true;
}

Result<wire::Notice> ControlClient::notice(int timeout_ms) {
  while (notices_.empty()) {
    const Status ready = connection_.await(-1, Deadline(timeout_ms));
    if (!ready.ok()) return ready;
    Result<Message> message = receive_message(&connection_, Deadline(answer_ms()), answer_ms());
    if (!message.ok()) return with_server(message.status());
    if (message->kind == wire::kNoticeKind && !keep_notice(*message))
      return strange("sent a malformed notice");
  }
  wire::Notice first = std::move(notices_.front());
  notices_.pop_front();
  return first;
}

Status ControlClient::release(uint64_t lease_id) {
  return ask(wire::Request::kRelease, wire::encode(wire::ReleaseRequest{lease_id}), answer_ms())
      .status();
}

Status ControlClient::change(const wire::ChangeRequest& request) {
  return ask(wire::Request::kChange, wire::encode(request), answer_ms()).status();
}

Result<std::vector<uint8_t>> ControlClient::other(uint16_t kind, const std::vector<uint8_t>& body,
                                                  int timeout_ms) {
  Result<Message> answer = ask(wire::Request(kind), body, timeout_ms);
  if (!answer.ok()) return answer.status();
  return std::move(answer->body);
}

Result<std::unique_ptr<Control>> Control::connect(const Endpoint& endpoint,
                                                  const ConnectOptions& options) {
  Result<std::unique_ptr<ControlClient>> client = ControlClient::start(endpoint, options, {});
  if (!client.ok()) return client.status();
  Status hello = (*client)->read_hello();
  if (!hello.ok()) return hello;
  return std::unique_ptr<Control>(client.take());
}

}  // namespace tendril::session
