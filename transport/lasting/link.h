// SPDX-License-Identifier: Apache-2.0
// The private parts of a lasting session: its lines, and the thread that keeps them. The thread
// takes acknowledgements, notices a cut of an idle session, connects again, and sends once more
// what was lost. Private to transport/lasting.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/lock.h"
#include "base/thread.h"
#include "transport/lasting/lasting.h"
#include "transport/parts.h"

namespace tendril::transport {

// Of one line and direction. A second-level cache holds those of the lane.
inline constexpr size_t kKeptCommandBytes = 1u << 20, kKeptBulkBytes = 2u << 20;
// A sender goes over to a carrier when the peer lacks at most so much: three eighths of what is
// kept. The rest takes what a carrier may hold when it fails.
constexpr size_t left_over_most(size_t kept_bytes) { return kept_bytes / 8 * 3; }

struct LastingLine {
  base::Fd fd;  // its number stays; the connection behind it changes after a cut
  std::atomic<bool> end_said{false};  // the peer's kernel said that nothing more comes
  uint8_t* kept = nullptr;
  size_t kept_bytes = 0;

  // The sender's. Positions count the bytes of the stream since its beginning.
  alignas(64) std::atomic<uint32_t> sending{0};  // a thread uses the connection now
  std::atomic<uint64_t> sent{0};
  std::atomic<uint64_t> offered{0};  // to the kernel; not less than what can be acknowledged
  std::atomic<uint64_t> acknowledged{0};
  std::atomic<uint32_t> resending{0};  // the keeper is, so nobody else sends
  uint64_t resent = 0;                 // the keeper's
  // Of what a carrier had been offered, the peer has this much. It is not sent again.
  const void* offered_data = nullptr;
  size_t offered_bytes = 0, skip = 0;
  // What this end sends goes over the carrier; null: over the connection. Positions of the stream
  // are the carrier's and the shift. The stream began at its position `out_from`.
  std::atomic<Carrier*> out{nullptr};
  uint64_t out_from = 0, out_shift = 0;
  std::atomic<bool> may_turn{false};  // the next send goes over to the carrier

  // The receiver's.
  alignas(64) std::atomic<uint32_t> receiving{0};
  std::atomic<uint64_t> received{0};
  uint64_t told = 0;            // what the peer knows of it
  uint64_t told_when_idle = 0;  // the keeper's
  std::atomic<Carrier*> in{nullptr};
  uint64_t in_shift = 0;
  // The peer goes over to the carrier at this position; kNever: it has not said so.
  static constexpr uint64_t kNever = UINT64_MAX;
  std::atomic<uint64_t> turns_at{kNever};
  base::Fd wake;  // readable when turns_at has news; invalid: it will not have

  // The line has one, which may be in use one way or both. Those who have entered may use it.
  std::atomic<Carrier*> carrier{nullptr};
  std::unique_ptr<Carrier> carrier_owned;  // guarded by the link's lock, or the keeper's
  std::atomic<const char*> kind{"tcp"};    // a literal
};

class Link final : public Lasting {
 public:
  Link(std::vector<base::Fd> lines, base::Fd acknowledgements, LastingSettings settings,
       std::vector<std::unique_ptr<Carrier>> carriers);
  ~Link() override;
  bool start();

  void resume(std::vector<base::Fd> connections) override;
  base::Status take_carriers(std::vector<std::unique_ptr<Carrier>> carriers) override;
  void use_carriers() override;
  uint64_t resumptions() const override { return state() >> kPhaseBits; }
  std::string carrier_failure() const override;

  enum Phase : uint64_t { kRunning = 0, kCut = 1, kEnded = 2 };
  static constexpr unsigned kPhaseBits = 2;
  static Phase phase_of(uint64_t state) { return Phase(state & ((1u << kPhaseBits) - 1)); }
  uint64_t state() const { return state_.load(std::memory_order_seq_cst); }
  LastingLine& line(size_t number) { return lines_[number]; }

  // Says that the calling thread uses a connection from now on, or waits for it, until it stores 0
  // to *busy. Returns the state. A cut is not mended while anybody does.
  uint64_t enter(std::atomic<uint32_t>* busy) const {
    busy->store(1, std::memory_order_seq_cst);
    return state();
  }
  // A connection failed while the session was in that state.
  void failed(uint64_t state);
  // Its carrier failed. kInvalid: the peer wrote nonsense, which ends the session.
  void carrier_failed(uint64_t state, const base::Status& why);
  // The session is over: this is why.
  base::Status give_up(const char* why);
  // Waits for news: the end of a cut, acknowledged bytes, the end of the session. `seen`: news()
  // from before the caller looked.
  uint32_t news() const { return news_.read(); }
  void await_news(uint32_t seen, const base::Deadline& deadline);
  // Tells the peer how far its bytes were taken. The caller has entered.
  void acknowledge(LastingLine* line, uint64_t state);
  // The caller, who has entered, sends or receives over the carrier from now on. Null: not yet.
  Carrier* turn_out(LastingLine* line);
  Carrier* turn_in(LastingLine* line);
  void shut_down();
  base::Status closed();

 private:
  static void keeper_main(void* self);
  void keep();
  void wait_and_serve();
  bool take_acknowledgements();  // false: the connection for them failed
  bool accept_acknowledgement(uint32_t line, uint64_t position);
  bool accept_turn(uint32_t line, uint64_t position);
  uint32_t number_of(const LastingLine& line) const { return uint32_t(&line - lines_.data()); }
  void look_at_carriers();
  bool is_carried() const;
  void look_for_silence();
  // Sends one record of acknowledgement. False: there was no room, or a cut.
  bool tell(uint32_t line, uint64_t position, bool waits);
  void resend(LastingLine* line);
  void kick();
  void drop_kicks();
  bool end(const char* why);  // false: it had ended before
  void shut_connections();
  void interrupt_carriers();  // the keeper's

  // Cuts; see cut.cc.
  enum class Loss : uint8_t { kEnded, kDoubtful, kCut };
  bool mend();
  Loss look_at_loss();
  static bool is_cut_for_certain(const LastingLine& line);
  bool is_anything_open() const;
  void abandon_connections();
  void announce_cut();
  bool leave_carriers();
  bool leave_carrier(LastingLine* line, Carrier* carrier);
  bool resume_over(std::vector<base::Fd>* connections);
  void await_idle();
  base::Result<std::vector<base::Fd>> connect_again(Loss loss, const base::Deadline& until);
  bool exchange(int fd, const base::Deadline& deadline, std::vector<uint64_t>* positions);
  bool install(std::vector<base::Fd>* connections, const std::vector<uint64_t>& positions);

  std::vector<LastingLine> lines_;
  base::Fd acknowledgements_;
  bool acknowledgements_end_said_ = false;  // the keeper's
  const uint32_t patience_ms_;
  const std::unique_ptr<Redial> redial_;
  const bool may_be_carried_;
  const pid_t owner_ = getpid();
  std::atomic<uint64_t> state_{kRunning};  // resumptions, then the phase
  base::Event news_;
  base::Fd kick_;
  base::Thread keeper_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> down_{false};

  base::Lock tell_lock_;  // for a record of acknowledgement, which must not be torn
  mutable base::Lock lock_;
  std::vector<base::Fd> offered_;  // by resume; guarded by lock_
  std::string why_;                // it ended; guarded by lock_
  std::string carrier_why_;        // the carriers failed; guarded by lock_
  bool takes_carriers_ = true;     // guarded by lock_: none have come, and there was no cut

  uint32_t attempts_ = 0;
  uint8_t record_[16] = {};  // the beginning of one
  size_t record_bytes_ = 0;
};

}  // namespace tendril::transport
