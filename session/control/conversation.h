// SPDX-License-Identifier: Apache-2.0
// The server's half of a control connection as a state machine on bytes: hello, then one request
// and one reply at a time. It has no socket, no thread and no clock. The caller feeds it what came,
// sends what it gives, has its requests performed (serve.h), and ends it at its deadline. The peer
// is unknown until its hello was accepted, and is never trusted. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "session/control/seal.h"
#include "session/control/serve.h"

namespace tendril::session {

inline constexpr uint32_t kHelloBytesMax = 4096;
inline constexpr uint32_t kStrangerBytesMax = 64u << 10;  // of a stranger's request
inline constexpr int kMessageMs = 5'000;     // to finish a message, hello and handshake included
inline constexpr int kStrangerMs = 10'000;   // from its hello to a stranger's request
inline constexpr int kIdleMs = 10 * 60'000;  // between requests, if the connection holds no lease

class Conversation {
 public:
  struct Setting {
    Peer peer;
    // Makes the server's half of a seal. Empty: a peer that begins with TLS gets no answer.
    std::function<std::unique_ptr<Seal>()> seal;
    // Whether there is a place for a peer of that standing. Empty: always.
    std::function<base::Status(Standing)> enter;
  };
  Conversation(ControlHandler* handler, Setting setting, uint64_t now_ns);

  // Bytes that came from the network.
  void receive(const void* data, size_t bytes, uint64_t now_ns);
  // Ends the conversation if the peer's proof is void by now (a revoked certificate).
  void check_proof();
  // Takes the next request. It must be answered by `complete` before another one can be taken.
  bool next(Message* request, uint64_t now_ns);
  void complete(Outcome outcome, uint64_t now_ns);
  // Tells the client why its request waits, if it wants to know.
  void tell(const wire::News& news, uint64_t now_ns);
  // Sends what the client did not ask for, if it hears news.
  void notice(const wire::Notice& notice, uint64_t now_ns);

  // What to send now. *riding: a descriptor that goes with the first byte, or -1.
  const uint8_t* output(size_t* bytes, int* riding) const;
  void sent(size_t bytes, uint64_t now_ns);
  bool has_output() const { return sent_ < out_.size(); }

  // More input would be used. Otherwise it must stay where it is: it may be for a worker.
  bool wants_input() const { return !busy_ && !ending_ && !handing_over_ && !is_full(); }
  bool is_busy() const { return busy_; }
  // Nothing is left to do: close the connection.
  bool is_over() const { return ending_ && !has_output(); }
  // Everything was sent and the connection belongs to a session: hand it over with that outcome.
  bool hands_over() const { return handing_over_ && !has_output(); }
  Outcome take_outcome() { return std::move(outcome_); }
  // When the connection must end unless something happens before. UINT64_MAX: never.
  uint64_t deadline_ns() const;

  // A hello was accepted.
  bool is_admitted() const { return facts_ != nullptr; }
  Standing standing() const { return admitted_as_; }
  const std::shared_ptr<const Facts>& facts() const { return facts_; }
  const std::vector<uint64_t>& leases() const { return leases_; }
  // Why the seal gave up, for the log; ok: it did not.
  const base::Status& failure() const { return failure_; }

 private:
  bool is_full() const { return out_.size() - sent_ > kStrangerBytesMax; }
  void advance(uint64_t now_ns);
  // The next message of the input, if it is complete. A wrong one ends the conversation.
  bool take_message(Message* message, uint64_t now_ns);
  void accept_hello(const Message& message, uint64_t now_ns);
  void say(uint16_t kind, base::Code code, const void* body, size_t bytes, uint64_t now_ns);
  void refuse(uint16_t kind, const base::Status& status, uint64_t now_ns);

  ControlHandler* const handler_;
  Setting setting_;
  std::unique_ptr<Seal> seal_;
  bool begun_ = false, busy_ = false, ending_ = false, handing_over_ = false, hears_news_ = false;
  Standing admitted_as_ = Standing::kStranger;
  std::shared_ptr<const Facts> facts_;
  std::vector<uint8_t> in_, out_;
  size_t sent_ = 0;
  base::Fd riding_;
  size_t riding_at_ = 0;  // which byte of out_ it goes with
  uint16_t busy_kind_ = 0;
  Outcome outcome_;
  std::vector<uint64_t> leases_;
  base::Status failure_;
  // The beginnings of: the connection, an incomplete message, output that waits, being idle.
  const uint64_t born_ns_;
  uint64_t message_ns_ = 0, output_ns_ = 0, idle_ns_ = 0;
};

}  // namespace tendril::session
