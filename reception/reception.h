// SPDX-License-Identifier: Apache-2.0
// All control connections of tendrild, on one thread with epoll: accepts them, keeps strangers
// within bounds, reads requests and sends answers. Requests are performed by small pools of
// threads, each in the order of arrival: quick ones, lists, leases, attaches. A request that waits
// says so to its client. Nothing here knows what a request means.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "reception/request_pool.h"
#include "reception/strangers.h"
#include "session/control/conversation.h"
#include "transport/tcp/listener.h"

namespace tendril::reception {

struct ReceptionOptions {
  std::string host;                   // for messages
  uint32_t connections_max = 4096;    // peers that have proven something
  uint32_t administrators_kept = 64;  // places beyond these, for administrators
  // Peers that have proven nothing. 10,000 of them inside the handshake of TLS took 159 MB.
  uint32_t strangers_max = 3072;
  uint32_t strangers_of_address = 1024;  // of these, from one address
  uint32_t attaches_at_once = 8;
  // Makes the handler of a new connection.
  std::function<std::shared_ptr<session::ControlHandler>(const session::Peer&)> handler;
  // Makes the server's half of TLS. Empty: TLS is not spoken here.
  std::function<std::unique_ptr<session::Seal>(const session::Peer&)> seal;
  Repeats* repeats = nullptr;  // for the log
};

class Reception {
 public:
  // The listeners stay the caller's.
  static base::Result<std::unique_ptr<Reception>> create(
      const std::vector<transport::Listener>* listeners, ReceptionOptions options);
  ~Reception();

  // Calls `readable` on the loop's thread whenever the descriptor is readable. Before run().
  base::Status watch(int fd, std::function<void()> readable);
  // The loop. Returns when `stop_fd` becomes readable.
  void run(int stop_fd);
  // After run(): ends what the pools do, then every connection. False: something still runs, and
  // this object must not be destroyed.
  bool stop(int timeout_ms);

 private:
  struct Entry;
  struct Done;
  struct Inbox;
  class Line;

  explicit Reception(ReceptionOptions options);
  base::Status add(int fd, uint32_t events, uint64_t number);
  void accept_from(const transport::Listener& listener);
  void welcome(base::Fd fd);
  base::Status enter(Entry* entry, session::Standing standing);
  // False: there are no descriptors, and no stranger can be sent away.
  bool make_room();
  // Drops a stranger for which there is no room, unless what it has sent makes it none.
  void dismiss(Entry* entry);

  void handle(uint64_t number, uint32_t events);
  bool read_from(Entry* entry);
  // Reads what a part of those has sent who must let others go first.
  void read_deferred();
  // Does what can be done now: begins requests, sends, hands over. May drop the entry.
  void advance(Entry* entry);
  bool send_to(Entry* entry);
  void begin(Entry* entry, session::Message request);
  void defer(Entry* entry, session::Message request);
  void take(Done done);
  void hand_over(Entry* entry);
  void drop(Entry* entry);
  void watch_as_needed(Entry* entry);
  void take_done();
  void tick(uint64_t now_ns);
  void tell_news(uint64_t now_ns);
  RequestPool* pool_for(uint16_t kind);

  const ReceptionOptions options_;
  base::Fd epoll_;
  std::vector<const transport::Listener*> listeners_;
  std::vector<std::function<void()>> watched_;
  bool accepting_ = true;  // false: until the next tick, for want of descriptors
  std::unordered_map<uint64_t, std::unique_ptr<Entry>> entries_;
  std::map<uint64_t, Entry*> busy_;  // the entries whose requests are being performed
  uint64_t last_begun_ = 0;          // the number of the last request that was deferred
  Strangers strangers_;
  std::deque<uint64_t> deferred_;  // have sent something, and are many from one address
  uint64_t next_number_;
  size_t members_ = 0;
  uint64_t ticked_ns_ = 0;
  std::vector<uint8_t> buffer_;

  const std::shared_ptr<Inbox> inbox_;  // what other threads have for connections
  // The pools are destroyed first: their tasks use everything above.
  RequestPool quick_, lists_, leases_, attaches_;
};

}  // namespace tendril::reception
