// SPDX-License-Identifier: Apache-2.0
// The meeting of all ranks. See bootstrap.h.
#include "softnccl/bootstrap.h"

#include <sys/random.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "softnccl/error.h"

namespace tendril::softnccl {
namespace {

constexpr uint32_t kJoin = 1, kDismiss = 2;
constexpr int kPatienceMs = 600'000;  // for ranks that never come

struct Id {
  uint64_t key;
  Address address;
};
static_assert(sizeof(Id) <= sizeof(ncclUniqueId));

struct Request {
  uint64_t key;
  uint32_t what;
  int32_t rank;
  int32_t ranks;
  uint32_t unused;
  Member self;
};

struct Answer {
  uint32_t result;
  int32_t ranks;
};

Id read(const ncclUniqueId& id) {
  Id inside;
  std::memcpy(&inside, id.internal, sizeof inside);
  return inside;
}

// One meeting, on a thread of its own.
class Root {
 public:
  Root(Socket listener, uint64_t key) : listener_(std::move(listener)), key_(key) {}

  void run() {
    while (going_ && wait()) {
      if (entries_[0].revents != 0) take_new();
      for (size_t i = 0; i < guests_.size() && going_; i++)
        if (i + 1 < entries_.size() && entries_[i + 1].revents != 0) hear(&guests_[i]);
      std::erase_if(guests_, [](const Guest& guest) { return !guest.socket; });
    }
  }

 private:
  struct Guest {
    Socket socket;
    size_t bytes = 0;
    Request request{};
    bool joined() const { return bytes == sizeof(Request); }
  };

  bool wait() {
    entries_.assign(1, {listener_.fd(), POLLIN, 0});
    for (const Guest& guest : guests_) entries_.push_back({guest.socket.fd(), POLLIN, 0});
    bool quiet = true;
    if (wait_for(&entries_, never_, kPatienceMs) != Net::kDone) return false;
    for (const pollfd& entry : entries_) quiet = quiet && entry.revents == 0;
    return !quiet;
  }

  void take_new() {
    Guest guest;
    if (accept_one(listener_, &guest.socket) == Net::kDone) guests_.push_back(std::move(guest));
  }

  void hear(Guest* guest) {
    if (guest->joined()) return finish(ncclRemoteError);  // it has nothing to say: it is gone
    if (receive_some(guest->socket, &guest->request, sizeof guest->request, &guest->bytes) !=
        Net::kDone) {
      guest->socket = Socket();
      return;
    }
    if (!guest->joined()) return;
    const Request& said = guest->request;
    if (said.key != key_ || said.rank < 0 || said.ranks > kRanksMax || said.rank >= said.ranks) {
      guest->socket = Socket();
    } else if (said.what == kDismiss) {
      going_ = false;
    } else {
      count(*guest);
    }
  }

  void count(const Guest& newest) {
    int joined = 0;
    for (const Guest& other : guests_) {
      if (!other.joined()) continue;
      joined++;
      const bool same = &other != &newest && other.request.rank == newest.request.rank;
      if (same || other.request.ranks != newest.request.ranks) return finish(ncclInvalidUsage);
    }
    if (joined == newest.request.ranks) finish(ncclSuccess);
  }

  void finish(ncclResult_t result) {
    going_ = false;
    std::vector<Member> members(guests_.size());
    for (const Guest& guest : guests_)
      if (result == ncclSuccess && guest.joined())
        members[static_cast<size_t>(guest.request.rank)] = guest.request.self;
    for (const Guest& guest : guests_) {
      if (!guest.joined()) continue;
      const Answer answer = {result, guest.request.ranks};
      if (send_all(guest.socket, &answer, sizeof answer, never_) == Net::kDone &&
          result == ncclSuccess)
        send_all(guest.socket, members.data(), sizeof(Member) * static_cast<size_t>(answer.ranks),
                 never_);
    }
  }

  Socket listener_;
  uint64_t key_;
  Stop never_;
  std::vector<Guest> guests_;
  std::vector<pollfd> entries_;
  bool going_ = true;
};

ncclResult_t ask(const ncclUniqueId& id, Request request, const Stop& stop, Socket* socket) {
  const Id inside = read(id);
  request.key = inside.key;
  if (Net bad = connect_to(inside.address, stop, socket); bad != Net::kDone)
    return net_error(bad, "the maker of the unique id");
  return net_error(send_all(*socket, &request, sizeof request, stop), "the maker of the unique id");
}

}  // namespace

uint64_t new_token() {
  uint64_t token = 0;
  while (getrandom(&token, sizeof token, 0) != sizeof token) {
  }
  return token;
}

ncclResult_t make_unique_id(ncclUniqueId* id) {
  Id inside{};
  Socket listener;
  inside.key = new_token();
  if (Net bad = listen_anywhere(&listener, &inside.address); bad != Net::kDone)
    return net_error(bad, "a new unique id");
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &inside, sizeof inside);
  auto root = std::make_shared<Root>(std::move(listener), inside.key);
  std::thread([root] { root->run(); }).detach();
  return ncclSuccess;
}

ncclResult_t join(const ncclUniqueId& id, int rank, int ranks, const Member& self, const Stop& stop,
                  std::vector<Member>* members) {
  Socket socket;
  Request request{};
  request.what = kJoin;
  request.rank = rank;
  request.ranks = ranks;
  request.self = self;
  if (ncclResult_t bad = ask(id, request, stop, &socket)) return bad;
  Answer answer{};
  if (Net bad = receive_all(socket, &answer, sizeof answer, stop); bad != Net::kDone)
    return net_error(bad, "the maker of the unique id");
  if (answer.result == ncclInvalidUsage)
    return error(ncclInvalidUsage, "ranks of one unique id disagree: rank " + std::to_string(rank) +
                                       " of " + std::to_string(ranks) +
                                       " came twice or with another number of ranks");
  if (answer.result != ncclSuccess || answer.ranks != ranks)
    return error(ncclRemoteError, "a rank went away while the communicator was made");
  members->resize(static_cast<size_t>(ranks));
  return net_error(receive_all(socket, members->data(), sizeof(Member) * members->size(), stop),
                   "the maker of the unique id");
}

void dismiss(const ncclUniqueId& id, const Stop& stop) {
  Socket socket;
  Request request{};
  request.what = kDismiss;
  request.ranks = 1;
  ask(id, request, stop, &socket);
}

}  // namespace tendril::softnccl
