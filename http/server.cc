// SPDX-License-Identifier: Apache-2.0
// See server.h.
#include "http/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"

namespace tendril::http {
namespace {

using base::Code;

constexpr size_t kConnectionsMax = 16;
constexpr uint64_t kAnswerNs = 5'000'000'000;
constexpr int kTickMs = 500;  // how late a connection that is over time may end

}  // namespace

base::Result<std::unique_ptr<Server>> Server::start(const std::string& address, Router router,
                                                    Protection protection) {
  if (address.find(':') == std::string::npos) {
    return base::Status(
        Code::kInvalid,
        "HTTP needs an address with a port, such as 127.0.0.1:9433, not '" + address + "'");
  }
  auto listeners = transport::listen_tcp(address, 0);
  if (!listeners.ok()) return listeners.status();
  bool protects = protection.on_loopback;
  for (const transport::Listener& listener : *listeners) protects |= !listener.loopback;
  if (!protects) protection.seal = nullptr;
  if (protection.seal) router.require_proof();
  for (const transport::Listener& listener : *listeners) {
    if (listener.loopback || router.requires_proof()) continue;
    return base::Status(Code::kInvalid, "everybody who reaches " + listener.text +
                                            " could read what it serves; give it a token "
                                            "(--metrics-token FILE), or listen on 127.0.0.1");
  }
  std::unique_ptr<Server> server(new Server);
  server->router_ = std::move(router);
  server->protection_ = std::move(protection);
  server->listeners_ = listeners.take();
  server->stop_.reset(eventfd(0, EFD_CLOEXEC));
  if (!server->stop_.valid())
    return base::errno_status(Code::kExhausted, "cannot serve HTTP", errno);
  for (const transport::Listener& listener : server->listeners_)
    fcntl(listener.fd.get(), F_SETFL, O_NONBLOCK);
  server->thread_ = std::thread([raw = server.get()] { raw->run(); });
  return server;
}

Server::~Server() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

std::vector<std::string> Server::addresses() const {
  std::vector<std::string> texts;
  for (const transport::Listener& listener : listeners_) {
    texts.push_back((protection_.seal ? "https://" : "http://") + listener.text);
  }
  return texts;
}

void Server::run() {
  pthread_setname_np(pthread_self(), "http");
  std::vector<Connection> connections;
  for (;;) {
    std::vector<pollfd> waits = {{stop_.get(), POLLIN, 0}};
    for (const transport::Listener& listener : listeners_)
      waits.push_back({listener.fd.get(), POLLIN, 0});
    for (const Connection& connection : connections) {
      const int in = connection.answered ? 0 : POLLIN;
      const int out = connection.sent < connection.out.size() ? POLLOUT : 0;
      waits.push_back({connection.fd.get(), static_cast<short>(in | out), 0});
    }
    if (poll(waits.data(), waits.size(), connections.empty() ? -1 : kTickMs) < 0 && errno != EINTR)
      return;
    if (waits[0].revents != 0) return;
    const uint64_t now_ns = base::now_ns();
    const size_t first = 1 + listeners_.size();
    for (size_t i = 0; i < connections.size(); ++i) {
      Connection& connection = connections[i];
      const bool ready = waits[first + i].revents != 0;
      if (now_ns >= connection.end_ns || (ready && !serve(&connection))) connection.fd.reset();
    }
    const auto over = [](const Connection& connection) { return !connection.fd.valid(); };
    connections.erase(std::remove_if(connections.begin(), connections.end(), over),
                      connections.end());
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (waits[1 + i].revents != 0) take(listeners_[i], &connections);
    }
  }
}

void Server::take(const transport::Listener& listener, std::vector<Connection>* connections) const {
  Connection connection;
  connection.fd.reset(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.fd.valid()) {
    if (errno == EMFILE || errno == ENFILE) usleep(100'000);
    return;
  }
  // Those that say nothing must not keep others out: the oldest makes room.
  if (connections->size() >= kConnectionsMax) connections->erase(connections->begin());
  connection.end_ns = base::now_ns() + kAnswerNs;
  if (protection_.seal) connection.seal = protection_.seal();
  connections->push_back(std::move(connection));
}

// False: the connection is over.
bool Server::serve(Connection* connection) const {
  return (connection->answered || read_request(connection)) && send_some(connection);
}

bool Server::read_request(Connection* connection) const {
  char piece[4096];
  const ssize_t got = recv(connection->fd.get(), piece, sizeof piece, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  std::string& request = connection->request;
  if (connection->seal != nullptr)
    open_record(piece, static_cast<size_t>(got), connection);
  else
    request.append(piece, static_cast<size_t>(got));
  if (connection->answered) return true;  // refused
  const bool whole =
      request.find("\r\n\r\n") != std::string::npos || request.find("\n\n") != std::string::npos;
  if (whole || request.size() > kRequestBytesMax) answer(connection);
  return true;
}

void Server::open_record(const char* data, size_t bytes, Connection* connection) const {
  std::vector<uint8_t> plain;
  const base::Status opened = connection->seal->receive(data, bytes, &plain, &connection->out);
  connection->request.append(plain.begin(), plain.end());
  connection->answered = !opened.ok() || connection->seal->has_ended();
}

void Server::answer(Connection* connection) const {
  session::Seal* const seal = connection->seal.get();
  const bool known =
      seal != nullptr && protection_.may_ask && protection_.may_ask(seal->identity());
  const std::string text = router_.answer(connection->request, known);
  connection->answered = true;
  if (seal == nullptr)
    connection->out.assign(text.begin(), text.end());
  else if (seal->send(text.data(), text.size(), &connection->out).ok())
    seal->finish(&connection->out);
}

bool Server::send_some(Connection* connection) {
  std::vector<uint8_t>& out = connection->out;
  const size_t left = out.size() - connection->sent;
  const ssize_t sent =
      left == 0 ? 0 : send(connection->fd.get(), out.data() + connection->sent, left, MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  connection->sent += static_cast<size_t>(sent);
  if (connection->sent < out.size()) return true;
  out.clear();
  connection->sent = 0;
  if (!connection->answered) return true;
  // What the peer has sent beyond its request must not turn our end into a reset that eats the
  // answer.
  shutdown(connection->fd.get(), SHUT_WR);
  char rest[1024];
  while (recv(connection->fd.get(), rest, sizeof rest, 0) > 0) {
  }
  return false;
}

}  // namespace tendril::http
