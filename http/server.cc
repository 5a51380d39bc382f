// SPDX-License-Identifier: Apache-2.0
// See server.h.
#include "http/server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace tendril::http {

using base::Code;
using base::Status;

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kReadNs = 5 * kSecondNs;   // until a request is whole
constexpr uint64_t kIdleNs = 20 * kSecondNs;  // between two requests of one connection
constexpr uint64_t kAskNs = 40 * kSecondNs;   // until a site has answered
constexpr uint64_t kTakeNs = 15 * kSecondNs;  // in which a peer must take something
constexpr uint64_t kLeaveNs = 2 * kSecondNs;  // in which a peer must end after its last answer
constexpr int kLeavePieces = 64;              // read at once of what such a peer still sends
constexpr size_t kUnsentMax = 8u << 20;       // of a stream
constexpr int kTickMs = 500;                  // how late a connection that is over time may end

// Answers at once, by routes.
class RouterSite final : public Site {
 public:
  RouterSite(Router router, std::function<bool(const std::string&)> may_ask)
      : router_(std::move(router)), may_ask_(std::move(may_ask)) {}
  void serve(Request request, std::shared_ptr<Exchange> exchange) override {
    const Visitor& visitor = exchange->visitor();
    const bool known = visitor.sealed && may_ask_ && may_ask_(visitor.identity);
    exchange->answer(router_.route(request, known));
  }

 private:
  const Router router_;
  const std::function<bool(const std::string&)> may_ask_;
};

}  // namespace

struct Server::Mailbox {
  std::mutex mutex;
  bool closed = false;                         // guarded by mutex, as the next
  std::vector<std::function<void()>> letters;  // run by the server's thread
  base::Fd wake;

  void post(std::function<void()> letter) {
    std::lock_guard<std::mutex> hold(mutex);
    if (closed) return;
    letters.push_back(std::move(letter));
    if (letters.size() == 1) eventfd_write(wake.get(), 1);
  }
};

class Server::ExchangeImpl final : public Exchange,
                                   public std::enable_shared_from_this<ExchangeImpl> {
 public:
  ExchangeImpl(std::shared_ptr<Mailbox> mailbox, Server* server, Connection* connection,
               bool takes_gzip)
      : mailbox_(std::move(mailbox)),
        server_(server),
        connection_(connection),
        visitor_(connection->visitor),
        takes_gzip_(takes_gzip) {}

  const Visitor& visitor() const override { return visitor_; }
  void answer(Response response) override {
    perform([response = std::move(response)](Server* server, Connection* connection) {
      if (connection->state != Connection::State::kAsking) return;
      server->put(answer_text(response, connection->keeps), connection);
      connection->state = Connection::State::kSending;
      connection->over = !connection->keeps;
      connection->exchange.reset();
      if (connection->over) server->finish(connection);
    });
  }
  void begin_stream(Response head) override {
    perform([head = std::move(head), packs = takes_gzip_](Server* server,
                                                          Connection* connection) mutable {
      if (connection->state != Connection::State::kAsking) return;
      if (server->streams() >= server->bounds_.streams_max) {
        connection->keeps = false;
        return server->refuse({503, "text/plain", "too many look at this already\n", {}},
                              connection);
      }
      connection->state = Connection::State::kStreaming;
      if (packs) {
        connection->packer = std::make_unique<Packer>();
        head.headers.emplace_back("Content-Encoding", "gzip");
      }
      server->put(stream_text(head), connection);
    });
  }
  void send(std::string piece) override {
    unsent_ += piece.size();
    perform([piece = std::move(piece)](Server* server, Connection* connection) {
      if (connection->state != Connection::State::kStreaming || connection->over) return;
      Packer* packer = connection->packer.get();
      server->put(packer == nullptr ? piece : packer->pack(piece), connection);
      connection->over = connection->over || connection->out.size() > kUnsentMax;
    });
  }
  void end() override {
    perform([](Server* server, Connection* connection) {
      if (connection->state != Connection::State::kStreaming) return;
      if (connection->packer != nullptr) server->put(connection->packer->finish(), connection);
      connection->over = true;
      server->finish(connection);
    });
  }
  bool is_open() const override { return open_; }
  size_t unsent_bytes() const override { return unsent_; }

  // The server's thread: nothing more reaches the peer.
  void close() {
    open_ = false;
    connection_ = nullptr;
  }
  void set_unsent(size_t bytes) { unsent_ = bytes; }

 private:
  void perform(std::function<void(Server*, Connection*)> act) {
    mailbox_->post([self = shared_from_this(), act = std::move(act)] {
      if (self->connection_ != nullptr) act(self->server_, self->connection_);
    });
  }

  const std::shared_ptr<Mailbox> mailbox_;
  Server* const server_;
  Connection* connection_;  // the server's thread's; null: it is gone
  const Visitor visitor_;
  const bool takes_gzip_;
  std::atomic<bool> open_{true};
  std::atomic<size_t> unsent_{0};
};

base::Result<std::unique_ptr<Server>> Server::open(const std::string& address,
                                                   Protection protection, Bounds bounds) {
  if (address.find(':') == std::string::npos) {
    return Status(
        Code::kInvalid,
        "HTTP needs an address with a port, such as 127.0.0.1:9433, not '" + address + "'");
  }
  auto listeners = transport::listen_tcp(address, 0);
  if (!listeners.ok()) return listeners.status();
  bool protects = protection.on_loopback;
  for (const transport::Listener& listener : *listeners) protects |= !listener.loopback;
  if (!protects) protection.seal = nullptr;
  std::unique_ptr<Server> server(new Server);
  server->protection_ = std::move(protection);
  server->bounds_ = bounds;
  server->listeners_ = listeners.take();
  server->mailbox_ = std::make_shared<Mailbox>();
  server->mailbox_->wake.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->mailbox_->wake.valid())
    return base::errno_status(Code::kExhausted, "cannot serve HTTP", errno);
  for (const transport::Listener& listener : server->listeners_)
    fcntl(listener.fd.get(), F_SETFL, O_NONBLOCK);
  return server;
}

base::Result<std::unique_ptr<Server>> Server::start(const std::string& address, Router router,
                                                    Protection protection) {
  const auto may_ask = protection.may_ask;
  auto opened = open(address, std::move(protection), Bounds());
  if (!opened.ok()) return opened.status();
  std::unique_ptr<Server> server = opened.take();
  if (server->protection_.seal) router.require_proof();
  for (const transport::Listener& listener : server->listeners_) {
    if (listener.loopback || router.requires_proof()) continue;
    return Status(Code::kInvalid, "everybody who reaches " + listener.text +
                                      " could read what it serves; give it a token "
                                      "(--metrics-token FILE), or listen on 127.0.0.1");
  }
  server->own_site_ = std::make_unique<RouterSite>(std::move(router), may_ask);
  server->site_ = server->own_site_.get();
  server->begin();
  return server;
}

base::Result<std::unique_ptr<Server>> Server::start(const std::string& address, Site* site,
                                                    Protection protection, Bounds bounds) {
  auto opened = open(address, std::move(protection), bounds);
  if (!opened.ok()) return opened.status();
  std::unique_ptr<Server> server = opened.take();
  for (const transport::Listener& listener : server->listeners_) {
    if (listener.loopback || server->protection_.seal) continue;
    return Status(Code::kInvalid, "whoever is on the way to " + listener.text +
                                      " could read and change what it serves; it needs TLS there");
  }
  server->site_ = site;
  server->begin();
  return server;
}

void Server::begin() {
  site_->begin(
      [mailbox = mailbox_](std::function<void()> letter) { mailbox->post(std::move(letter)); });
  thread_ = std::thread([this] { run(); });
}

Server::~Server() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> hold(mailbox_->mutex);
    mailbox_->closed = true;
    eventfd_write(mailbox_->wake.get(), 1);
  }
  thread_.join();
  std::vector<std::function<void()>> left;
  left.swap(mailbox_->letters);
  for (Connection& connection : connections_) {
    if (connection.exchange != nullptr) connection.exchange->close();
  }
}

std::vector<std::string> Server::addresses() const {
  std::vector<std::string> texts;
  for (const transport::Listener& listener : listeners_) {
    texts.push_back((protection_.seal ? "https://" : "http://") + listener.text);
  }
  return texts;
}

size_t Server::streams() const {
  return static_cast<size_t>(
      std::count_if(connections_.begin(), connections_.end(), [](const Connection& connection) {
        return connection.state == Connection::State::kStreaming;
      }));
}

void Server::run() {
  pthread_setname_np(pthread_self(), "http");
  uint64_t ticked_ns = 0;
  std::vector<pollfd> waits;
  for (;;) {
    waits = {{mailbox_->wake.get(), POLLIN, 0}};
    for (const transport::Listener& listener : listeners_)
      waits.push_back({listener.fd.get(), POLLIN, 0});
    for (const Connection& connection : connections_) {
      const bool reads = connection.state == Connection::State::kLeaving ||
                         (!connection.over && connection.state != Connection::State::kAsking);
      const int out = connection.sent < connection.out.size() ? POLLOUT : 0;
      waits.push_back({connection.fd.get(), static_cast<short>((reads ? POLLIN : 0) | out), 0});
    }
    if (poll(waits.data(), waits.size(), connections_.empty() ? -1 : kTickMs) < 0 && errno != EINTR)
      return;
    {
      // The bell is silenced before the look at `closed`, never after it: else the last ring, which
      // tells of the end, could be lost.
      std::lock_guard<std::mutex> hold(mailbox_->mutex);
      eventfd_t ignored = 0;
      eventfd_read(mailbox_->wake.get(), &ignored);
      if (mailbox_->closed) return;
    }
    const uint64_t now_ns = base::now_ns();
    size_t at = 1 + listeners_.size();
    for (auto each = connections_.begin(); each != connections_.end(); ++at) {
      const short came = waits[at].revents;
      const bool gone = each->state == Connection::State::kAsking && (came & (POLLERR | POLLHUP));
      const bool keeps = !gone && (came == 0 || serve(&*each)) && now_ns < each->end_ns;
      if (!keeps && each->exchange != nullptr) each->exchange->close();
      each = keeps ? std::next(each) : connections_.erase(each);
    }
    deliver();
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (waits[1 + i].revents != 0) take(listeners_[i]);
    }
    if (now_ns - ticked_ns >= uint64_t{kTickMs} * 1'000'000u) {
      ticked_ns = now_ns;
      site_->tick(now_ns);
      deliver();
    }
  }
}

// Until nothing is left: an answer that was given at once is on its way at once.
void Server::deliver() {
  std::vector<std::function<void()>> letters;
  for (;;) {
    {
      std::lock_guard<std::mutex> hold(mailbox_->mutex);
      letters.swap(mailbox_->letters);
    }
    if (letters.empty()) break;
    for (const auto& letter : letters) letter();
    letters.clear();
    for (auto each = connections_.begin(); each != connections_.end();) {
      const bool keeps = each->out.empty() || send_some(&*each);
      if (!keeps && each->exchange != nullptr) each->exchange->close();
      each = keeps ? std::next(each) : connections_.erase(each);
    }
  }
}

void Server::take(const transport::Listener& listener) {
  Connection connection;
  connection.fd.reset(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.fd.valid()) {
    if (errno == EMFILE || errno == ENFILE) usleep(100'000);
    return;
  }
  make_room();
  const int on = 1;
  setsockopt(connection.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  connection.visitor.address = transport::describe_peer(connection.fd.get()).address;
  connection.visitor.loopback = listener.loopback;
  connection.end_ns = base::now_ns() + kReadNs;
  if (protection_.seal) {
    connection.seal = protection_.seal();
    connection.visitor.sealed = true;
  }
  connections_.push_back(std::move(connection));
}

// Those that say nothing must not keep others out: the oldest makes room.
void Server::make_room() {
  if (connections_.size() < bounds_.connections_max) return;
  auto oldest = connections_.begin();
  while (std::next(oldest) != connections_.end() && oldest->state == Connection::State::kStreaming)
    ++oldest;
  if (oldest->exchange != nullptr) oldest->exchange->close();
  connections_.erase(oldest);
}

// False: the connection is over.
bool Server::serve(Connection* connection) {
  if (connection->state == Connection::State::kLeaving) return leave(connection);
  if (!connection->over && connection->state != Connection::State::kAsking) {
    if (!read_some(connection)) return false;
  }
  return send_some(connection);
}

bool Server::read_some(Connection* connection) {
  char piece[16384];
  const ssize_t got = recv(connection->fd.get(), piece, sizeof piece, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  if (connection->seal != nullptr)
    open_record(piece, static_cast<size_t>(got), connection);
  else
    connection->in.append(piece, static_cast<size_t>(got));
  // Whoever hears a stream has nothing more to say.
  if (connection->state == Connection::State::kStreaming) connection->in.clear();
  if (connection->in.size() > (1u << 20)) return false;
  if (!connection->over) read_requests(connection);
  return true;
}

void Server::open_record(const char* data, size_t bytes, Connection* connection) const {
  std::vector<uint8_t> plain;
  const Status opened = connection->seal->receive(data, bytes, &plain, &connection->out);
  connection->in.append(plain.begin(), plain.end());
  connection->over = !opened.ok() || connection->seal->has_ended();
}

// Reads the next request, if it is whole and none is being answered.
void Server::read_requests(Connection* connection) {
  if (connection->state != Connection::State::kReading) return;
  if (!connection->has_headers && !read_headers(connection)) return;
  if (connection->in.size() < connection->body_bytes) return;
  Request request = std::move(connection->request);
  request.body = connection->in.substr(0, connection->body_bytes);
  connection->in.erase(0, connection->body_bytes);
  connection->has_headers = false;
  connection->keeps = bounds_.keeps && request.keeps;
  connection->state = Connection::State::kAsking;
  connection->end_ns = base::now_ns() + kAskNs;
  if (connection->seal != nullptr) connection->visitor.identity = connection->seal->identity();
  connection->exchange = std::make_shared<ExchangeImpl>(
      mailbox_, this, connection,
      request.header("accept-encoding").find("gzip") != std::string_view::npos);
  site_->serve(std::move(request), connection->exchange);
}

bool Server::read_headers(Connection* connection) {
  std::string& in = connection->in;
  size_t end = in.find("\r\n\r\n"), past = end + 4;
  const size_t short_end = in.find("\n\n");
  if (short_end < end) end = short_end, past = end + 2;
  if (end == std::string::npos && in.size() <= kRequestBytesMax) return false;
  if (end != std::string::npos && past > kRequestBytesMax) end = std::string::npos;
  Response problem;
  Request request;
  const std::string text = end == std::string::npos ? in : in.substr(0, past);
  bool good = parse_request(text, &request, &problem);
  if (good) {
    const size_t most = site_->body_bytes_max(request);
    // Who cannot send a body here may say so; it is not read, and the connection ends.
    if (most == 0 && !bounds_.keeps) {
      connection->body_bytes = 0;
    } else {
      good = body_bytes_of(request, most, &connection->body_bytes, &problem);
    }
  }
  if (!good) {
    refuse(problem, connection);
    return false;
  }
  in.erase(0, past);
  connection->request = std::move(request);
  connection->has_headers = true;
  return true;
}

void Server::refuse(const Response& problem, Connection* connection) {
  put(answer_text(problem), connection);
  connection->over = true;
  finish(connection);
}

void Server::put(const std::string& text, Connection* connection) const {
  std::vector<uint8_t>& out = connection->out;
  if (out.empty()) connection->end_ns = base::now_ns() + kTakeNs;
  if (connection->seal == nullptr)
    out.insert(out.end(), text.begin(), text.end());
  else if (!connection->seal->send(text.data(), text.size(), &out).ok())
    connection->over = true;
}

// Says goodbye after what is in `out`.
void Server::finish(Connection* connection) const {
  if (connection->seal != nullptr) connection->seal->finish(&connection->out);
}

bool Server::send_some(Connection* connection) {
  std::vector<uint8_t>& out = connection->out;
  const size_t left = out.size() - connection->sent;
  const ssize_t sent =
      left == 0 ? 0 : send(connection->fd.get(), out.data() + connection->sent, left, MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  connection->sent += static_cast<size_t>(sent);
  const uint64_t now_ns = base::now_ns();
  const bool streams = connection->state == Connection::State::kStreaming;
  if (sent > 0) connection->end_ns = now_ns + kTakeNs;
  if (streams && connection->exchange != nullptr)
    connection->exchange->set_unsent(out.size() - connection->sent);
  if (connection->sent < out.size()) return true;
  const bool wrote = !out.empty();
  out.clear();
  connection->sent = 0;
  if (!connection->over) {
    if (streams) connection->end_ns = UINT64_MAX;
    if (connection->state != Connection::State::kSending || !wrote) return true;
    connection->state = Connection::State::kReading;
    connection->end_ns = now_ns + kIdleNs;
    read_requests(connection);
    return true;
  }
  shutdown(connection->fd.get(), SHUT_WR);
  connection->state = Connection::State::kLeaving;
  connection->end_ns = now_ns + kLeaveNs;
  return leave(connection);
}

// Waits for the peer's end, within bounds. What the peer still sends, such as the rest of a body
// that was refused, must not turn our end into a reset that eats the answer.
bool Server::leave(Connection* connection) {
  char rest[16384];
  for (int i = 0; i < kLeavePieces; ++i) {
    const ssize_t got = recv(connection->fd.get(), rest, sizeof rest, 0);
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
  }
  return true;
}

}  // namespace tendril::http
