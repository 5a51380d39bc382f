// SPDX-License-Identifier: Apache-2.0
// A session's TCP connections that survive a lost link. Each end counts the bytes of each channel
// and keeps those that the other end's program has not yet taken. After a cut the client connects
// again; both ends say how far they got, and send the rest once more. Above this nobody notices,
// except that a send or a receive took longer. docs/decisions/0039-lasting-sessions.md says how a
// cut is told from a peer that has ended, and what it costs.
//
// Any thread may use the channels, by the rules of transport.h. Sending and receiving allocate
// nothing and take no lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "transport/transport.h"

namespace tendril::transport {

inline constexpr size_t kLastingLinesMax = 32;  // of one session

// How the client's end connects again. On the session's own thread.
class Redial {
 public:
  virtual ~Redial() = default;
  // All connections of the session once more: the channels in their order, then the one for
  // acknowledgements. `attempt` grows with each call. kRefused: the session is over, the text says
  // why. Any other failure: try again.
  virtual base::Result<std::vector<base::Fd>> dial(uint32_t attempt, int timeout_ms) = 0;
  // For people: the connection was lost; it is back after that time.
  virtual void cut(uint32_t /*patience_ms*/) {}
  virtual void resumed(uint64_t /*after_ms*/) {}
  // The same for carriers that failed: the session goes on over its connections.
  virtual void carrier_failed(const std::string& /*why*/, uint32_t /*patience_ms*/) {}
};

// A channel that carries a line in place of its connection, until it fails. It holds what the peer
// may not have taken, so that nothing is lost then. rdma/end.h makes them.
class Carrier : public Channel {
 public:
  // Bytes of the stream: what senders need not offer again, and what receivers got. Also after an
  // error. For the thread that sends, or receives; for anybody when nobody does.
  virtual uint64_t sent() const = 0;
  virtual uint64_t received() const = 0;
  // Whether the peer has said, over it, that nothing more comes. Any thread.
  virtual bool peer_closed() const = 0;
  // An error when what was sent has failed, which nobody else may notice. Any thread.
  virtual base::Status look() = 0;
  // Wakes who sends and who receives, for good. Says nothing to the peer. Any thread.
  virtual void interrupt() = 0;

  struct Remains {
    uint64_t acknowledged = 0;  // the position that the peer has surely taken
    // Memory that was offered behind `sent`, of which the peer may have taken the beginning.
    const void* offered = nullptr;
    size_t offered_bytes = 0;
  };
  // After `interrupt`, when nobody sends or receives any more. Nothing touches memory through it
  // afterwards. Writes the bytes from `acknowledged` to `sent` into a ring, each at its position
  // and `shift`; none from before `from`.
  virtual base::Result<Remains> leave(uint8_t* ring, size_t ring_bytes, uint64_t from,
                                      uint64_t shift) = 0;
};

struct LastingSettings {
  uint32_t patience_ms = 30'000;   // how long a cut may last
  std::unique_ptr<Redial> redial;  // null: the worker's end, which waits for `resume`
  bool may_be_carried = false;     // `take_carriers` may come
};

// What runs on connections and may go over to carriers, in two steps at each end. From the first
// step on this end takes what its peer sends over them. The second step comes when the peer has
// done its first one: what this end sends goes over its carriers from then on. What a carrier moved
// before is none of it. Null ones carry nothing. kUnavailable: it was cut or has ended. Any thread.
class Carried {
 public:
  virtual base::Status take_carriers(std::vector<std::unique_ptr<Carrier>> carriers) = 0;
  virtual void use_carriers() = 0;

 protected:
  ~Carried() = default;
};

// Its first lines may go over to carriers while it runs, each with its next send. Nothing pauses,
// and no byte is lost.
class Lasting : public Carried {
 public:
  // `lines`: one TCP connection for each channel. `acknowledgements`: one more. kExhausted: no
  // memory, descriptor or thread.
  // `carriers`: of the first lines; null ones carry nothing.
  static base::Result<std::shared_ptr<Lasting>> make(
      std::vector<base::Fd> lines, base::Fd acknowledgements, LastingSettings settings,
      std::vector<std::unique_ptr<Carrier>> carriers = {});
  virtual ~Lasting() = default;
  // The worker's end: the client has connected again. The channels in their order, then the one for
  // acknowledgements. Any thread; does not block.
  virtual void resume(std::vector<base::Fd> connections) = 0;
  virtual uint64_t resumptions() const = 0;
  // Why its carriers were given up; empty: they were not.
  virtual std::string carrier_failure() const = 0;
};

// The channel of that line. Call it once for each line. Its kind is that of the carrier that it
// sends over, or "tcp".
std::unique_ptr<Channel> lasting_channel(const std::shared_ptr<Lasting>& lasting, size_t line);

// How a TCP connection has ended, as far as the kernel knows.
enum class TcpEnd : uint8_t {
  kNone,    // it has not
  kByPeer,  // the peer's kernel said that nothing more comes: its program closed it, or is gone
  kCut,     // reset or timed out: the link, somebody in between, or a peer's machine
};
TcpEnd tcp_end(int fd);
// True if data was sent `resent` times in a row, and nothing came back for that long.
bool tcp_is_silent(int fd, unsigned resent, uint32_t silent_ms);

}  // namespace tendril::transport
