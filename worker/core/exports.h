// SPDX-License-Identifier: Apache-2.0
// How the workers of one server share memory and events. A worker publishes a thing, and tendrild
// keeps it under a token (wire/assignment.h). worker/process/control.h implements this. Only the
// executor thread calls it. It waits for the answer, because tendrild answers at once.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "transport/transport.h"
#include "wire/assignment.h"

namespace tendril::worker {

// What carries the bytes of a passage.
struct PassageWay {
  std::string brief;       // for lists: "rdma (3.4x)"
  std::string text;        // for the log
  bool carried = false;    // by a fabric
  bool failed = false;     // the fabric did, which carried it
  std::string remembered;  // for the next passage to that server; empty: nothing
};

// Gets what became of passages to other servers' workers. On a thread of the process' own.
class PassageTaker {
 public:
  virtual ~PassageTaker() = default;
  // Null: there is none, and `why` says it.
  virtual void passage_came(uint32_t number, std::unique_ptr<transport::Channel> channel,
                            const std::string& why) = 0;
  // Connection `index` of a passage's trial of a fabric (wire::kTrialLinesMax). Not valid: there is
  // none. `known`: what is remembered of the way to that server.
  virtual void trial_came(uint32_t number, uint32_t index, base::Fd connection,
                          const std::string& known) = 0;
};

class ParkLine;

class Exports {
 public:
  virtual ~Exports() = default;
  // `record` describes the thing; this fills in its token. `fd` is the descriptor that the driver
  // exported, or -1. The caller keeps owning it.
  virtual wire::ExportAnswer publish(wire::ExportRecord* record, int fd) = 0;
  // `record` names token and kind; this fills in the rest and `fd`.
  virtual wire::ExportAnswer fetch(wire::ExportRecord* record, base::Fd* fd) = 0;
  // From now on nobody may open it. tendrild closes its descriptor, because a driver keeps memory
  // while a descriptor of it is open. `freed`: the memory has also gone back to the driver.
  virtual void withdraw(const wire::ExportRecord& record, bool freed) = 0;
  // This worker has closed what it fetched.
  virtual void release(const wire::ExportRecord& record) = 0;

  // Device code that tendrild keeps for the owner of this lease, by its content hash. Not valid:
  // it has none. The reader must check the content.
  virtual base::Fd find_image(const std::string& hash, uint64_t bytes) { return base::Fd(); }
  // `memory` is sealed. False: tendrild does not keep it.
  virtual bool keep_image(const std::string& hash, uint64_t bytes, int memory) { return false; }

  // Passages by number. The taker hears of those that are asked for from now on; it lives as long
  // as the process. An offer gets its token at once. False: this worker has none to give.
  virtual void take_passages(PassageTaker* /*taker*/) {}
  virtual bool offer_passage(uint32_t /*number*/, wire::PassageToken* /*token*/) { return false; }
  virtual bool dial_passage(uint32_t /*number*/, const wire::PassageToken& /*token*/) {
    return false;
  }
  // For people, and for the next passage. Any thread.
  virtual void say_passage_way(uint32_t /*number*/, const PassageWay& /*way*/) {}

  // What GPUDirect does for this session, for people; cut where it is too long.
  virtual void tell_direct(const std::string& /*text*/) {}

  // Null: nobody parks this session. It lives as long as the process.
  virtual ParkLine* park_line() { return nullptr; }
};

}  // namespace tendril::worker
