// SPDX-License-Identifier: Apache-2.0
// The worker's end of its socket to the daemon. It says that it is ready, chooses among the
// client's transports, and collects the session's connections and pages. Then it listens for the
// order to stop, and for answers about what workers share, on a thread of its own. See
// wire/assignment.h for the messages.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "session/choice/trial_connections.h"
#include "session/control/offers.h"
#include "session/lane/service.h"
#include "transport/registry.h"
#include "wire/assignment.h"
#include "worker/core/exports.h"
#include "worker/core/park_line.h"
#include "worker/core/turns.h"

namespace tendril::worker {

struct SessionParts {
  wire::Assignment assignment = {};
  wire::AccountingPage* accounting = nullptr;  // mapped for the life of the process
  Turns turns;                                 // mapped as long
  transport::Channels channels;                // on the transport that both ends agreed on
};

// One message with its tail and its descriptors.
struct Received {
  wire::WorkerMessage message = {};
  std::vector<uint8_t> tail;
  std::vector<base::Fd> fds;
};

class DaemonLink final : public Exports, public ParkLine {
 public:
  explicit DaemonLink(int socket) : socket_(socket) {}

  base::Status say_ready();
  // A system call that is on no list; see filter.h. Any thread.
  void say_learned(const std::string& call);
  // Blocks until the session is complete. kClosed: the daemon does not need this worker any more.
  base::Result<SessionParts> receive_session();
  // Starts the thread that listens. It ends `service` when the daemon says so or is gone. It also
  // wakes a thread that waits for an answer. It lives as long as the process.
  void listen(session::Service* service);

  wire::ExportAnswer publish(wire::ExportRecord* record, int fd) override;
  wire::ExportAnswer fetch(wire::ExportRecord* record, base::Fd* fd) override;
  void withdraw(const wire::ExportRecord& record, bool freed) override;
  void release(const wire::ExportRecord& record) override;
  base::Fd find_image(const std::string& hash, uint64_t bytes) override;
  bool keep_image(const std::string& hash, uint64_t bytes, int memory) override;
  void take_passages(PassageTaker* taker) override;
  bool offer_passage(uint32_t number, wire::PassageToken* token) override;
  bool dial_passage(uint32_t number, const wire::PassageToken& token) override;
  void tell_direct(const std::string& text) override;
  void say_passage_way(uint32_t number, const PassageWay& way) override;
  ParkLine* park_line() override { return this; }

  void wait(uint32_t number, int timeout_ms) override;
  base::Fd take_file() override;
  void parked(uint32_t number, uint64_t bytes, uint64_t copied) override;
  void stays(uint32_t number, const std::string& why) override;
  void wants_wake(uint32_t number) override;
  void returned(uint32_t number) override;
  void end_chore(ParkChore done) override;

 private:
  struct Answer {
    wire::ExportAnswer answer;
    wire::ExportRecord record;
    base::Fd fd;
  };
  base::Status say(wire::WorkerRequestKind kind, const wire::ExportRecord& record, int fd,
                   uint32_t number = 0);
  void say_text(wire::WorkerRequestKind kind, const std::string& text);
  void say_at_length(const wire::WorkerRequest& request, const std::string& tail);
  // Chooses among the offers and reports the choice or the failure to the daemon.
  base::Result<session::Choice> answer_offers(const wire::WorkerMessage& message,
                                              const std::vector<uint8_t>& tail);
  Answer ask(wire::WorkerRequestKind kind, const wire::ExportRecord& record, int fd);
  void take_messages(session::Service* service);
  void take_passage(Received* received);
  void take_order(uint32_t number, base::Fd file = base::Fd());
  bool take_parking(Received* received);
  void take_trial(Received* received);
  // Answers the client's trial of a fabric, if it comes. On a thread of its own.
  void await_trial();

  const int socket_;
  std::mutex mutex_;
  std::condition_variable answered_, ordered_;
  std::optional<Answer> answer_;  // guarded by mutex_
  base::Fd file_;                 // guarded by mutex_: to park to
  bool gone_ = false;             // guarded by mutex_: no answer will come
  // Of a session that outlasts cuts. Constant once the session is complete.
  std::shared_ptr<transport::Lasting> lasting_;
  session::Candidate candidate_;  // the trial's thread's, once it runs
  session::TrialConnections trial_;
  PassageTaker* taker_ = nullptr;  // guarded by mutex_
  std::set<uint32_t> dialled_;     // guarded by mutex_: passages that this end has asked for
};

}  // namespace tendril::worker
