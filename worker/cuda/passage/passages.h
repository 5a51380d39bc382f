// SPDX-License-Identifier: Apache-2.0
// The passages of one session, and what they need in its contexts: streams that copy, streams that
// wait for an event, and words in pinned memory by which a stream of the program is held. Executor
// thread, unless a member says otherwise.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "worker/core/exports.h"
#include "worker/cuda/executor/executor.h"
#include "worker/cuda/passage/fabric_trial.h"
#include "worker/cuda/passage/passage.h"

namespace tendril::worker::cuda {

class Passages final : private PassageTaker {
 public:
  // `exports` may be null (tests): then there are none.
  Passages(Executor* executor, Exports* exports);
  // Ends them all. Nothing is held afterwards.
  ~Passages() override;

  // Makes passage `number`, whose other end somebody may take up who knows *token.
  CUresult offer(uint32_t number, wire::PassageToken* token);
  // Makes it and connects to the end that `token` names. The call's reply is sent when that is
  // decided.
  CUresult open(uint32_t number, const wire::PassageToken& token, uint32_t reply_id);

  // Half of a copy in the call's context. `stream`: of the program, if `ordered`.
  CUresult copy(uint32_t number, uint64_t operation, PassageRole role, const PassageShape& shape,
                CUstream stream, bool ordered);
  CUresult tell(uint32_t number, uint64_t operation, CUevent event);
  CUresult await(uint32_t number, uint64_t operation, CUstream stream);

  bool any();  // is there a passage
  // Comes before code is loaded into the context. A driver may load it behind streams that are
  // held, and keep other threads out of the context until then. What lets those streams go are
  // copies by other threads, so neither would ever end (an H200 under JAX, driver 580). So copies
  // that are under way end first. May wait: for bytes that move, and a second for streams that do
  // not get there.
  void before_code_is_loaded();

  // The context is about to end with all that is in it: releases what it holds.
  void end_context(CUcontext context);
  // It has ended.
  void forget_context(CUcontext context);

 private:
  // What a context has for passages. Its words live as long as the context.
  struct Parts {
    CUstream in = nullptr, out = nullptr;
    std::vector<CUstream> idle;  // that waited for an event; guarded by mutex_
    uint32_t* words = nullptr;
    CUdeviceptr words_at = 0;
    std::vector<uint32_t> free;    // words; guarded by mutex_
    std::vector<uint32_t> values;  // the last of each; guarded by mutex_
  };
  // A host function's data. They are used again, never freed: the driver may keep one.
  struct Arrival {
    Passages* all = nullptr;
    Passage* passage = nullptr;
    uint64_t operation = 0;
    CUcontext context = nullptr;
    CUstream waiter = nullptr;  // ours, in which the function runs; null: the program's
  };

  void passage_came(uint32_t number, std::unique_ptr<transport::Channel> channel,
                    const std::string& why) override;
  void trial_came(uint32_t number, uint32_t index, base::Fd connection,
                  const std::string& known) override;
  Passage* find(uint32_t number);
  Passage* make(uint32_t number);
  std::vector<Passage*> used_by(CUcontext context);
  CUresult parts_of(CUcontext context, Parts** parts);
  CUresult make_parts(Parts* parts);
  bool take_word(Parts* parts, PassageHold* hold);
  void give_back(CUcontext context, const PassageHold& hold);
  CUresult hold_stream(const Parts& parts, const PassageHold& hold, CUstream stream);
  // The operation begins when `stream` gets there, which is the program's or, with `waiter`, ours.
  CUresult arrive(Passage* passage, uint64_t operation, CUstream stream, bool waiter);
  CUresult arrive_after(Passage* passage, uint64_t operation, Parts* parts, CUevent event);
  static void arrived(void* arrival);
  CUresult refuse(Passage* passage, uint64_t operation, CUresult result);

  Executor& executor_;
  Exports* const exports_;
  std::mutex mutex_;  // of all that follows
  std::map<uint32_t, std::unique_ptr<Passage>> passages_;
  struct Opening {
    uint32_t reply_id = 0;  // the call that waits for the first line
    wire::PassageToken token = {};
  };
  void dial_more(uint32_t number, const wire::PassageToken& token);
  void try_fabric(uint32_t number, const wire::PassageToken& token, bool sealed);
  FabricTrial* make_trial(uint32_t number, bool chooses);
  std::map<uint32_t, Opening> opening_;                      // by passage
  std::map<uint32_t, std::unique_ptr<FabricTrial>> trials_;  // by passage; they end before these
  std::map<CUcontext, std::unique_ptr<Parts>> parts_;
  std::deque<Arrival> arrivals_;
  std::vector<Arrival*> spare_;
};

}  // namespace tendril::worker::cuda
