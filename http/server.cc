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

base::Result<std::unique_ptr<Server>> Server::start(const std::string& address, Router router) {
  std::unique_ptr<Server> server(new Server(std::move(router)));
  if (address.find(':') == std::string::npos) {
    return base::Status(
        Code::kInvalid,
        "HTTP needs an address with a port, such as 127.0.0.1:9433, not '" + address + "'");
  }
  auto listeners = transport::listen_tcp(address, 0);
  if (!listeners.ok()) return listeners.status();
  for (const transport::Listener& listener : *listeners) {
    if (listener.loopback || server->router_.requires_token()) continue;
    return base::Status(Code::kInvalid, "everybody who reaches " + listener.text +
                                            " could read what it serves; give it a token "
                                            "(--metrics-token FILE), or listen on 127.0.0.1");
  }
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
  for (const transport::Listener& listener : listeners_) texts.push_back("http://" + listener.text);
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
      const short events = connection.answer.empty() ? POLLIN : POLLOUT;
      waits.push_back({connection.fd.get(), events, 0});
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
  connections->push_back(std::move(connection));
}

// False: the connection is over.
bool Server::serve(Connection* connection) const {
  return connection->answer.empty() ? read_request(connection) : send_answer(connection);
}

bool Server::read_request(Connection* connection) const {
  char piece[1024];
  const ssize_t got = recv(connection->fd.get(), piece, sizeof piece, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  std::string& request = connection->request;
  request.append(piece, static_cast<size_t>(got));
  const bool whole =
      request.find("\r\n\r\n") != std::string::npos || request.find("\n\n") != std::string::npos;
  if (whole || request.size() > kRequestBytesMax) connection->answer = router_.answer(request);
  return connection->answer.empty() || send_answer(connection);
}

bool Server::send_answer(Connection* connection) {
  const std::string& answer = connection->answer;
  const ssize_t sent = send(connection->fd.get(), answer.data() + connection->sent,
                            answer.size() - connection->sent, MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  connection->sent += static_cast<size_t>(sent);
  if (connection->sent < answer.size()) return true;
  // What the peer has sent beyond its request must not turn our end into a reset that eats the
  // answer.
  shutdown(connection->fd.get(), SHUT_WR);
  char rest[1024];
  while (recv(connection->fd.get(), rest, sizeof rest, 0) > 0) {
  }
  return false;
}

}  // namespace tendril::http
