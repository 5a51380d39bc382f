// SPDX-License-Identifier: Apache-2.0
// Lazy connections and exchanges of bytes over them. See mesh.h. Of two ranks the lower one
// connects; the higher one answers when it wants the connection, too.
#include "softnccl/mesh.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>

#include "softnccl/error.h"
#include "softnccl/knobs.h"

namespace tendril::softnccl {
namespace {

constexpr uint32_t kMark = 0x6c63736e;
constexpr char kWelcome = 'w';

struct Greeting {
  uint64_t token;
  int32_t rank;
  Purpose purpose;
};

struct Header {
  uint32_t mark;
  uint32_t label;
  uint64_t bytes;
};

std::string name_of(int rank) { return "rank " + std::to_string(rank); }

// What goes over one line in one direction, piece by piece, each behind its header.
struct Flow {
  std::deque<Piece> pieces;
  Header header{};
  size_t header_bytes = 0, bytes = 0;
  bool over() const { return pieces.empty(); }
};

ncclResult_t push(const Socket& line, Flow* flow) {
  while (!flow->over()) {
    const Piece& piece = flow->pieces.front();
    flow->header = {kMark, piece.label, piece.bytes};
    Net net = send_some(line, &flow->header, sizeof flow->header, &flow->header_bytes);
    if (net == Net::kDone && flow->header_bytes == sizeof flow->header)
      net = send_some(line, piece.data, piece.bytes, &flow->bytes);
    if (net != Net::kDone) return net_error(net, name_of(piece.peer));
    if (flow->header_bytes < sizeof flow->header || flow->bytes < piece.bytes) break;
    flow->header_bytes = flow->bytes = 0;
    flow->pieces.pop_front();
  }
  return ncclSuccess;
}

ncclResult_t pull(const Socket& line, Flow* flow) {
  while (!flow->over()) {
    const Piece& piece = flow->pieces.front();
    Net net = receive_some(line, &flow->header, sizeof flow->header, &flow->header_bytes);
    if (net == Net::kDone && flow->header_bytes == sizeof flow->header) {
      if (flow->header.mark != kMark || flow->header.label != piece.label ||
          flow->header.bytes != piece.bytes)
        return error(ncclInvalidUsage, name_of(piece.peer) +
                                           " and this rank call different operations: " +
                                           std::to_string(flow->header.bytes) + " bytes of kind " +
                                           std::to_string(flow->header.label) + " came where " +
                                           std::to_string(piece.bytes) + " of kind " +
                                           std::to_string(piece.label) + " were expected");
      net = receive_some(line, piece.data, piece.bytes, &flow->bytes);
    }
    if (net != Net::kDone) return net_error(net, name_of(piece.peer));
    if (flow->header_bytes < sizeof flow->header || flow->bytes < piece.bytes) break;
    flow->header_bytes = flow->bytes = 0;
    flow->pieces.pop_front();
  }
  return ncclSuccess;
}

}  // namespace

// One call of connect(): lines that wait for their welcome, and visitors that have not said who
// they are.
struct Mesh::Connecting {
  struct Visitor {
    Socket socket;
    Greeting greeting{};
    size_t bytes = 0;
  };
  Purpose purpose;
  std::vector<std::pair<int, Socket>> dialled;
  std::vector<Visitor> visitors;
};

ncclResult_t Mesh::listen() {
  const Net net = listen_anywhere(&listener_, &self_.address);
  self_.version = static_cast<uint32_t>(knobs().version);
  self_.token = new_token();
  return net_error(net, "a new communicator");
}

void Mesh::set_members(int rank, std::vector<Member> members) {
  rank_ = rank;
  members_ = std::move(members);
  for (auto* sockets : {lines_, early_})
    for (size_t purpose = 0; purpose < static_cast<size_t>(Purpose::kCount); purpose++)
      sockets[purpose].resize(members_.size());
}

bool Mesh::connected(Purpose purpose, const std::vector<int>& peers) const {
  std::lock_guard guard(lock_);
  const std::vector<Socket>& lines = lines_[static_cast<size_t>(purpose)];
  return std::all_of(peers.begin(), peers.end(),
                     [&](int peer) { return peer == rank_ || lines[static_cast<size_t>(peer)]; });
}

ncclResult_t Mesh::dial(Connecting* made, int peer, const Stop& stop) {
  Socket socket;
  const Greeting greeting = {members_[0].token, rank_, made->purpose};
  Net net = connect_to(members_[static_cast<size_t>(peer)].address, stop, &socket);
  if (net == Net::kDone) net = send_all(socket, &greeting, sizeof greeting, stop);
  made->dialled.emplace_back(peer, std::move(socket));
  return net_error(net, name_of(peer));
}

ncclResult_t Mesh::take_visitors(Connecting* made) {
  for (;;) {
    Connecting::Visitor visitor;
    const Net net = accept_one(listener_, &visitor.socket);
    if (net == Net::kLost) return ncclSuccess;
    if (net != Net::kDone) return net_error(net, "another rank");
    made->visitors.push_back(std::move(visitor));
  }
}

ncclResult_t Mesh::read_greetings(Connecting* made) {
  for (Connecting::Visitor& visitor : made->visitors) {
    const Net net =
        receive_some(visitor.socket, &visitor.greeting, sizeof visitor.greeting, &visitor.bytes);
    const Greeting& said = visitor.greeting;
    if (net == Net::kDone && visitor.bytes < sizeof said) continue;
    Socket socket = std::move(visitor.socket);
    const bool good = net == Net::kDone && said.token == members_[0].token && said.rank >= 0 &&
                      said.rank < rank_ && said.purpose < Purpose::kCount;
    if (good)
      early_[static_cast<size_t>(said.purpose)][static_cast<size_t>(said.rank)] = std::move(socket);
  }
  std::erase_if(made->visitors, [](const Connecting::Visitor& visitor) { return !visitor.socket; });
  return ncclSuccess;
}

ncclResult_t Mesh::connect(Purpose purpose, const std::vector<int>& peers, const Stop& stop) {
  if (const uint32_t delay_ms = knobs().connect_delay_ms)
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
  std::lock_guard guard(lock_);
  Connecting made;
  made.purpose = purpose;
  std::vector<int> awaited;
  for (int peer : peers) {
    const bool known = std::find(awaited.begin(), awaited.end(), peer) != awaited.end();
    if (peer == rank_ || known || line(purpose, peer)) continue;
    if (peer < rank_) awaited.push_back(peer);
    if (peer > rank_ && std::none_of(made.dialled.begin(), made.dialled.end(),
                                     [&](const auto& one) { return one.first == peer; }))
      if (ncclResult_t bad = dial(&made, peer, stop)) return bad;
  }
  for (;;) {
    if (ncclResult_t bad = take_visitors(&made)) return bad;
    if (ncclResult_t bad = read_greetings(&made)) return bad;
    for (int peer : awaited) {
      Socket& early = early_[static_cast<size_t>(purpose)][static_cast<size_t>(peer)];
      if (!early) continue;
      if (ncclResult_t bad =
              net_error(send_all(early, &kWelcome, sizeof kWelcome, stop), name_of(peer)))
        return bad;
      line(purpose, peer) = std::move(early);
    }
    std::erase_if(awaited, [&](int peer) { return static_cast<bool>(line(purpose, peer)); });
    for (auto& [peer, socket] : made.dialled) {
      char answer = 0;
      size_t bytes = 0;
      const Net net = receive_some(socket, &answer, sizeof answer, &bytes);
      if (net != Net::kDone) return net_error(net, name_of(peer));
      if (bytes != 0) line(purpose, peer) = std::move(socket);
    }
    std::erase_if(made.dialled, [](const auto& one) { return !one.second; });
    if (awaited.empty() && made.dialled.empty()) return ncclSuccess;
    std::vector<pollfd> entries = {{listener_.fd(), POLLIN, 0}};
    for (const auto& [peer, socket] : made.dialled) entries.push_back({socket.fd(), POLLIN, 0});
    for (const auto& visitor : made.visitors) entries.push_back({visitor.socket.fd(), POLLIN, 0});
    if (Net net = wait_for(&entries, stop); net != Net::kDone)
      return net_error(
          net, awaited.empty() ? name_of(made.dialled.front().first) : name_of(awaited.front()));
  }
}

ncclResult_t Mesh::exchange(Purpose purpose, std::vector<Piece> sends, std::vector<Piece> receives,
                            const Stop& stop) {
  std::vector<Flow> out(members_.size()), in(members_.size());
  for (const Piece& piece : sends) out[static_cast<size_t>(piece.peer)].pieces.push_back(piece);
  for (const Piece& piece : receives) in[static_cast<size_t>(piece.peer)].pieces.push_back(piece);
  for (;;) {
    std::vector<pollfd> entries;
    for (size_t peer = 0; peer < members_.size(); peer++) {
      // Lines without traffic may be under construction on another thread.
      if (out[peer].over() && in[peer].over()) continue;
      const Socket& socket = line(purpose, static_cast<int>(peer));
      if (ncclResult_t bad = push(socket, &out[peer])) return bad;
      if (ncclResult_t bad = pull(socket, &in[peer])) return bad;
      const short events =
          static_cast<short>((out[peer].over() ? 0 : POLLOUT) | (in[peer].over() ? 0 : POLLIN));
      if (events != 0) entries.push_back({socket.fd(), events, 0});
    }
    if (entries.empty()) return ncclSuccess;
    if (Net net = wait_for(&entries, stop); net != Net::kDone) return net_error(net, "other ranks");
  }
}

void Mesh::lose() {
  for (std::vector<Socket>& lines : lines_)
    for (Socket& line : lines)
      if (line) shutdown(line.fd(), SHUT_RDWR);
}

}  // namespace tendril::softnccl
