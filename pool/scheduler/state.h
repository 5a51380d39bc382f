// SPDX-License-Identifier: Apache-2.0
// Inside of the scheduler: what it knows of servers, requests and leases, and the steps between.
// Only the files of this folder include it. One file for each concern: servers.cc (reports,
// orders), book.cc (entries and results), requests.cc (from the request to the grant), planning.cc
// (policy, engine, news), running.cc (limits, ends, accounting), waking.cc (parked leases), past.cc
// (the history), recovery.cc, commands.cc, describe.cc, figures.cc, picture.cc.
#pragma once

#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "pool/accounting/history.h"
#include "pool/engine/engine.h"
#include "pool/life/life.h"
#include "pool/policy/assign.h"
#include "pool/policy/policy.h"
#include "pool/policy/policy_file.h"
#include "pool/scheduler/json.h"
#include "pool/scheduler/peers.h"
#include "pool/scheduler/records.h"
#include "pool/scheduler/scheduler.h"
#include "view/picture.h"

namespace tendril::pool {

inline constexpr uint64_t kMillisecond = 1'000'000, kSecond = 1'000'000'000;
inline constexpr uint64_t kHoldAnswerNs = 5 * kSecond;       // then a hold counts as refused
inline constexpr uint64_t kCommitAnswerNs = 8 * kSecond;     // the same for a commit
inline constexpr uint64_t kStoreSlowNs = 3 * kSecond;        // then nothing new is started
inline constexpr uint64_t kGrowsAgainNs = 5 * kSecond;       // between tries to give a share back
inline constexpr uint64_t kNewsEveryNs = 5 * kSecond;        // a sign of life to each that waits
inline constexpr uint64_t kNewsOfEachNs = kMillisecond / 4;  // SchedulerOptions::news_ms grows so
inline constexpr uint64_t kIdleShownNs = 15 * kSecond;       // shorter is not shown as idle
inline constexpr uint64_t kUsageEveryNs = 60 * kSecond;      // decayed usage goes to the store
inline constexpr uint64_t kIdsAtOnce = 1000;                 // reserved in the store
inline constexpr uint64_t kIdBits = 48;  // of a lease's number; above are term and attempt
inline constexpr size_t kOrdersAtOnce = 256;
inline constexpr uint32_t kNoServer = Engine::kNoServer;

enum class PartPhase : uint8_t {
  kUnknown,  // of a recovered grant: its server has not reported yet
  kAsked,    // the hold was ordered
  kHeld,
  kCommitting,  // the commit was ordered
  kCommitted,
  kClaimed,
  kEnded,
};
const char* phase_name(PartPhase phase);

// The part of a request or lease that is on one server.
struct Part {
  uint32_t server = 0;
  PartPhase phase = PartPhase::kAsked;
  uint64_t order_id = 0;         // of the hold or commit that is awaited
  uint64_t server_lease_id = 0;  // 0: not known yet
  uint64_t boot = 0;             // of the server, when the part was put there
  std::string secret;
  std::vector<wire::SliceGrant> slices;
  // As last reported.
  uint64_t reported_ns = 0, age_ns = 0, idle_ns = wire::kIdleUnknown, idle_total_ns = 0;
  uint64_t used_ns = 0, waited_ns = 0, memory_used_bytes = 0;
  uint64_t given_gpu_ns = 0, given_rest = 0, given_age_ns = 0;  // GPUs had, up to that age
  int64_t ended_s = 0;  // wall, of one that its server ended before it started again; 0: now
  uint32_t processes = 0;
  bool was_attached = false, paused = false, waits_for_turn = false;
  bool parked = false;      // it holds no share, and of its memory only
  bool wants_wake = false;  // it is parked, and asks whether it may hold everything again
  uint64_t wants_since_ns = 0;
  bool may_wake = false;              // it was let, and counts as if it held everything
  bool was_told_to_wait = false;      // its holder knows why it was not
  std::optional<bool> asks;           // its server was told that it is to ask, or need not
  std::vector<uint64_t> stays_bytes;  // these, by slice
  wire::Standing standing = wire::Standing::kGranted;
  int64_t standing_since_s = kNever;  // wall; kNever: this scheduler did not see it begin
  wire::LeaseCounts counts;           // of one that somebody looks at
  uint64_t counted_ns = 0;            // when they were told; 0: never
  bool from_zero = false;             // begun by this scheduler, so its sums begin with it
  bool accounted = false;             // its record is on the way to the store
};

enum class Stage : uint8_t {
  kWaiting,     // for its turn; before `stored` it has no place
  kHolding,     // holds are asked of all servers
  kGranting,    // all hold; the grant goes to the store
  kCommitting,  // commits are asked of all servers
  kGranted,     // runs, or waits to be claimed
  kEnding,      // its servers were told to end it
};

// What somebody who waits was told, in wall seconds; kNever: nothing.
struct ToldTimes {
  int64_t from_s = kNever, to_s = kNever;  // of the start
  int64_t reclaimed_s = kNever;            // what it needs is taken back by then
};

// A request, and the lease that comes of it. Both have the number `id` for people.
struct Job {
  uint64_t id = 0;
  uint64_t lease_id = 0;  // by which servers know this attempt; 0: there is none
  uint32_t attempts = 0;
  Stage stage = Stage::kWaiting;
  uint64_t stage_due_ns = kNotAgain;  // the step fails then
  Asker who;
  std::string account, user_class, gpu_class;
  wire::LeaseRequest request;
  Filter filter;
  int64_t submitted_ns = 0;  // monotonic; may be negative
  int64_t submitted_s = 0;   // wall
  uint64_t connection = 0;   // of the client that waits for the answer
  uint64_t absent_due_ns = kNotAgain;
  uint64_t batch = 0;           // that the store must have before the next step
  bool in_engine = false;       // it waits or runs there
  bool stored = false;          // the store has the request
  bool accepted = false;        // it has, or had, a place in the queue
  bool granted_stored = false;  // the store has the grant
  bool local = false;           // a server granted it by itself
  bool released = false;        // somebody ended it; what a limit ends gets a warning of each term
  bool committed = false;       // by all servers
  bool lost_parts = false;      // a part ended under an earlier scheduler
  bool recovered = false;       // parts are kUnknown until their servers reported
  std::string parked;           // why it is not in the engine although it waits
  std::string held;             // who keeps it from starting, and why
  bool held_by_operator = false;
  std::vector<Part> parts;
  uint64_t waited_s = 0;
  // While it runs.
  int64_t granted_ns = 0;  // monotonic; may be negative
  int64_t granted_s = 0;   // wall
  Life life;
  bool stirred = false;   // life has acted, so look at each report
  uint64_t acted_ns = 0;  // when it did last
  // The engine counts each of its slices as at least this, because its servers were ordered to make
  // them so large again.
  uint32_t grown_millionths = 0;
  // The same of its memory, for a change; and who waits to hear whether its server takes it.
  uint64_t grown_memory_bytes = 0, changer = 0;
  uint64_t grows_from_ns = 0;  // a server refused to, so not before this time
  uint64_t life_due_ns = kNotAgain;
  bool reclaim = false;
  std::string reclaim_why, end_why;
  uint64_t loss_due_ns = kNotAgain;  // a part ended: the next step against the others
  bool loss_told = false;
  // News.
  wire::News told;
  ToldTimes told_times;
  uint64_t told_ns = 0;
  bool was_told = false;

  uint64_t share_millionths() const {
    return parts.empty() || parts[0].slices.empty() ? request.slice.share_millionths
                                                    : parts[0].slices[0].share_millionths;
  }
  bool on_servers() const { return stage >= Stage::kHolding; }
};

// What one scheduler counted since its term began.
struct Totals {
  // Upper ends of the classes of waits; the last class has no end.
  static constexpr uint64_t kWaits[] = {1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600};
  struct Use {
    uint64_t used_ns = 0, idle_ns = 0;
  };
  struct Waits {
    uint64_t waited_ns = 0, grants[std::size(kWaits) + 1] = {};
  };
  uint64_t requests = 0, refused = 0, granted = 0, ended = 0;
  std::map<std::string, Waits> waits;  // by account
  std::map<std::string, Use> uses;     // by account
};

// Of an attempt that was given up: what its servers may still hold. It counts until they have
// cancelled it, or it has expired there.
struct Remnant {
  std::vector<PlacedSlice> slices;
};

struct PendingOrder {
  wire::Order order;
  bool sent = false;  // on the present connection
};

struct Member {  // a server
  uint32_t number = 0;
  ServerRecord record;
  std::vector<GpuFacts> facts;  // by GPU
  uint64_t connection = 0;      // of its last report; 0: it has none
  uint64_t boot = 0;
  uint64_t last_report_ns = 0;
  uint64_t reply_due_ns = kNotAgain;  // a report waits for its answer
  bool joined = false;                // reported in full in this term, on this connection
  bool was_joined = false;            // in this term, on any connection
  bool silent = true;
  bool silence_armed = false;
  bool in_full = false;
  std::set<uint64_t> seen;                      // its leases in the full report so far
  std::map<uint64_t, PendingOrder> orders;      // by id
  std::set<uint64_t> jobs;                      // with parts here
  std::unordered_map<uint64_t, uint64_t> book;  // its lease -> job
  std::set<uint64_t> told_of_earlier;  // its leases of earlier boots that are recorded already
  uint64_t ended_boot = 0, ended_seen = 0, ended_stored = 0;
  std::deque<std::pair<uint64_t, uint64_t>> ended_batches;  // batch, ended number
  uint64_t policy_sent = 0;
  PeerNames::Told peers;     // that it was told
  uint64_t capacity_ns = 0;  // by the history's clock, up to which its GPUs are counted; 0: not
};

class Scheduler::State {
 public:
  explicit State(SchedulerOptions given);

  // ---- events, as in scheduler.h ----
  void recover(const std::vector<std::pair<std::string, std::string>>& records, Now now);
  void reported(uint64_t connection, const std::string& proven_name, const wire::PoolReport& report,
                Now now);
  void lost(uint64_t connection, Now now);
  void submitted(uint64_t connection, const Asker& who, const wire::LeaseRequest& request, Now now);
  void left(uint64_t connection, bool orderly, Now now);
  void command(uint64_t connection, const Asker& who, const wire::PoolCommand& command, Now now);
  void stored(uint64_t batch, const base::Status& status, Now now);
  Effects tick(Now now);
  wire::ListReply list(const wire::ListRequest& request, const Asker& who, Now now) const;
  Counts counts() const;
  std::string figures(Now now);
  view::Picture picture(Now now);
  void watch(uint64_t lease, Now now);
  uint64_t given(uint32_t gpu_class) const;

  SchedulerOptions options;
  PolicyRecord policy_record;

 private:
  enum class Timer : uint8_t { kReply, kSilence, kStage, kAbsent, kLife, kLoss, kRemnant, kOther };
  using Due = std::tuple<uint64_t, Timer, uint64_t>;
  using CommandHandler = void (State::*)(uint64_t, const Asker&, const wire::PoolCommand&);

  // ---- time (scheduler.cc) ----
  void arrive(Now now);
  void arm(uint64_t due_ns, Timer timer, uint64_t id) { timers_.push({due_ns, timer, id}); }
  void fire(const Due& due);
  void set_stage(Job& job, Stage stage, uint64_t lasts_ns);
  int64_t seconds() const { return int64_t(now_.monotonic_ns / kSecond); }
  void event(const char* what, const std::string& object, const std::string& text);

  // ---- store (scheduler.cc) ----
  uint64_t write(std::vector<Write> writes);  // the batch's number
  uint64_t new_id();
  bool store_is_slow() const;

  // ---- servers.cc ----
  Member* member(uint32_t number) {
    return number < members_.size() ? members_[number].get() : nullptr;
  }
  const Member* member(uint32_t number) const {
    return number < members_.size() ? members_[number].get() : nullptr;
  }
  Member* find_member(const std::string& name);
  Member* add_member(const ServerRecord& record);
  Member* speaker(uint64_t connection, const std::string& proven_name,
                  const wire::PoolReport& report);
  void begin_connection(Member& member, uint64_t connection, const wire::PoolReport& report);
  void refuse_report(uint64_t connection, base::Status status);
  void take_facts(Member& member, const wire::ServerFacts& facts);
  void describe_to_engine(Member& member);
  void name_to_others(const Member& member);
  void set_engine_state(Member& member);
  void set_engine_maintenance(Member& member);
  void take_book(Member& member, const wire::PoolReport& report);
  void finish_full(Member& member);
  void restarted(Member& member, const wire::PoolReport& report);
  void lose_parts_of_other_boots(Member& member, uint64_t boot, const wire::PoolReport& report);
  void silence(Member& member);
  void joined(Member& member);
  void forget(Member& member);
  void save(const Member& member);
  uint64_t order(Member& member, wire::Order order);
  void drop_order(Member& member, uint64_t order_id);
  void answer_report(Member& member);
  static bool speaks(const Member& member) { return member.joined && member.connection != 0; }
  std::string server_names(const Job& job) const;

  // ---- book.cc ----
  void take_entry(Member& member, const wire::BookEntry& entry);
  int64_t ended_before(const wire::BookEntry& entry) const;
  void take_ended(Member& member, const wire::BookEntry& entry);
  void write_ends(Member& member);
  void flush_ends();
  void save_grant(const Job& job);
  void end_write(Write write);
  void take_counts(Member& server, const wire::LeaseCounts& counts);
  void name_watched(const Member& server, wire::PoolOrders* orders);
  void take_sample(Member& member, const wire::LeaseUse& use);
  void take_result(Member& member, const wire::OrderResult& result);
  void update_part(Member& member, Job& job, Part& part, const wire::BookEntry& entry);
  void adopt(Member& member, const wire::BookEntry& entry);
  void adopt_in_engine(Job& job);
  void cancel_stray(Member& member, uint64_t pool_lease_id);
  Part* part_of(Job& job, uint32_t server);
  Job* job_of(Member& member, const wire::BookEntry& entry);
  void part_gone(Member& member, Job& job, Part& part, const wire::BookEntry* last,
                 const std::string& why);
  void lost_a_part(Job& job, bool suddenly);
  void end_the_rest(Job& job);
  static std::string loss_text(const Job& job);
  static std::string loss_notice(const Job& job);
  Write accounting(const Member& member, const Job& job, Part& part, const std::string& why);
  static void grow_given(Part& part, uint64_t age_ns);
  std::vector<PlacedSlice> placed(const Job& job) const;
  static uint32_t position_of(const Member& member, uint32_t gpu_index);

  // ---- past.cc: the history ----
  void recover_history(const std::vector<std::pair<std::string, std::string>>& records);
  const HistoryRow& note_use(const Member& member, const Job& job, Part& part, LeaseEnd end);
  void note_waiting(const Job& job, bool last);
  void note_capacity(Member& member);
  void end_orphans();
  void write_history();
  uint64_t history_due_ns() const;

  // ---- requests.cc ----
  base::Status check(const Asker& who, const wire::LeaseRequest& request) const;
  base::Status unequal_apis(const wire::LeaseRequest& request) const;
  bool speaks_apis(const Member& member, const std::vector<wire::ApiRecord>& wanted_apis) const;
  void answer_again(Job& job);
  void resume_request(Job& job, uint64_t connection);
  base::Status enter(Job& job);  // the engine's queue
  Ask ask_of(const Job& job) const;
  GpuFacts with_load(const Member& member, uint32_t gpu) const;
  void leave_engine(Job& job);
  void place_parts(Job& job, const EngineStart& start);
  void hold(Job& job);
  void held(Job& job);
  void commit(Job& job);
  void committed(Job& job);
  void attempt_failed(Job& job, uint32_t server, const std::string& why);
  void cancel_parts(Job& job);
  void remember_remnant(const Job& job, std::vector<PlacedSlice> slices, bool may_be_committed);
  // That server holds nothing more of it; kNoServer: none does.
  void remnant_gone(uint64_t lease_id, uint32_t server);
  void remnants_gone(uint32_t server);
  void answer(Job& job, base::Status status);
  wire::LeaseReply reply_of(const Job& job) const;
  void drop_job(Job& job);  // it is gone from everywhere, the store included
  void refuse(uint64_t connection, base::Status status);
  RequestRecord record_of(const Job& job) const;
  GrantRecord grant_of(const Job& job) const;
  void set_absent(Job& job);

  // ---- planning.cc ----
  void use_policy(PoolPolicy policy);  // of the store's text
  void refresh_policy(bool changed);
  void enter_all();
  void enter_again(Job& job);
  void enter_parked();
  void plan();
  bool may_plan(std::string* why) const;
  uint64_t news_pass_every_ns() const;
  void tell_waiting();
  uint32_t report_every_ms() const;
  void hurry_reports();
  std::string parked_text(const Job& job) const;
  wire::News news_of(Job& job, const EngineWaiting* waiting) const;
  ToldTimes times_of(const EngineWaiting& waiting) const;
  std::string clock_text(int64_t wall_s) const;
  std::string start_text(const ToldTimes& times, const std::string& why) const;
  std::string numbers_text(const EngineWaiting& waiting, int64_t reclaimed_wall_s) const;
  std::string numbers_text(const EngineWaiting& waiting) const;
  ToldTimes damped(const ToldTimes& told, const ToldTimes& fresh, int64_t submitted_s) const;
  int64_t wall_of(int64_t engine_s) const { return now_.wall_s + (engine_s - seconds()); }
  void refuse_who_will_not_wait();

  // ---- running.cc ----
  void look_at_life(Job& job);
  void live(Job& job, const LifeAdvance& advance);
  bool is_told(const Job& job) const;
  uint64_t longest_of(const Job& job) const;
  LifeRules rules_of(const Job& job) const;
  LifeFacts facts_of(const Job& job) const;
  void act(Job& job, const LifeAction& action);
  uint32_t granted_share(const Job& job) const;
  void grow(Job& job, wire::Order told);
  void grow_again();
  // waking.cc
  std::vector<std::pair<uint64_t, Job*>> sleepers();
  void wake_sleepers();
  void tell_sleepers();
  bool is_asleep(const Job& job) const;
  std::vector<PlacedSlice> awake(const Job& job) const;
  bool let_wake(Job& job, std::string* why);
  void tell_to_wait(Job& job, const std::string& why);
  void tell_whether_to_ask(Job& job, bool asks);
  void stays_small(Job& job);
  void tell_parts(Job& job, wire::Order order);
  void end_job(Job& job, const std::string& why);
  void tell_end(Job& job);
  void finish_if_over(Job& job);
  void save_usage();

  // ---- recovery.cc ----
  void recover_record(const std::string& key, const std::string& value,
                      std::vector<GrantRecord>* grants, std::vector<RequestRecord>* requests);
  void recover_request(const RequestRecord& record);
  void recover_grant(const GrantRecord& record);
  Job& job_from(const RequestRecord& record);
  void end_recovered(Job& job);
  void settle_recovered(Job& job, bool final);
  void go_on(Job& job);
  void settle_all();
  bool finish_parts(Job& job);
  void begin_planning();

  // ---- commands.cc ----
  void do_status(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_queue(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_show(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_drain(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_label(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_maintenance(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_move(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_apply(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_dry_run(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_forget(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_change(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void change_job(Job& job, uint32_t share_millionths, uint64_t memory_bytes,
                  const wire::LeaseTerms& terms);
  void memory_changed(Job& job, const wire::OrderResult& result);
  bool may_change_memory(Job& job, uint64_t memory_bytes, std::string* why);
  Job* named_job(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_release(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_park(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_hold(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void do_requeue(uint64_t connection, const Asker& who, const wire::PoolCommand& command);
  void change_waiting(uint64_t connection, const Asker& who, Job& job, int32_t priority);
  void answer_command(uint64_t connection, Json json, uint64_t batch = 0);
  void refuse_command(uint64_t connection, base::Status status);
  Member* named_server(uint64_t connection, const wire::PoolCommand& command, size_t at_least);
  static std::string policy_name(const wire::PoolCommand& command);
  void apply_text(uint64_t connection, const std::string& text, PoolPolicy policy);

  // ---- figures.cc ----
  void describe_figures_of_servers(Json& json) const;
  void describe_figures_of_queue(Json& json);
  void describe_figures_of_leases(Json& json) const;
  void describe_totals(Json& json) const;
  void count_grant(const Job& job);
  void count_use(const Job& job, const Part& part, uint64_t used_ns, uint64_t idle_total_ns);

  // ---- describe.cc ----
  void describe_server(Json& json, const Member& member) const;
  void describe_classes(Json& json) const;
  void describe_accounts(Json& json) const;
  void describe_lease(Json& json, const Job& job, const Asker& who) const;
  void describe_waiting(Json& json, const Job& job, const EngineWaiting* waiting,
                        const Asker& who) const;
  void describe_dry_run(Json& json, const PoolPolicy& then, const Asker& who);

  // ---- picture.cc ----
  void picture_server(const Member& server, view::PictureServer* out) const;
  void picture_parts(const Job& job, view::PictureLease* out,
                     std::vector<view::PictureServer*>* servers) const;
  void picture_lease(const Job& job, view::PictureLease* out,
                     std::vector<view::PictureServer*>* servers) const;
  void picture_request(const Job& job, const EngineWaiting* waiting,
                       view::PictureRequest* out) const;
  void picture_accounts(view::Picture* out) const;

  // (server, its number of the GPU) -> the GPU's running number in the pool
  using GpuNumbers = std::map<std::pair<uint32_t, uint32_t>, uint32_t>;
  void list_gpus(const GpuNumbers& numbers, const wire::ListRequest& request,
                 wire::ListReply* reply) const;
  static const char* stage_name(const Job& job);
  static bool may_see(const Asker& who, const Job& job);
  std::string class_name(uint32_t gpu_class) const;

  Now now_;
  uint64_t history_ns_ = 0;  // the same moment by the history's clock
  uint64_t orphans_due_ns_ = 0;
  History history_;
  Effects effects_;
  std::priority_queue<Due, std::vector<Due>, std::greater<Due>> timers_;

  std::vector<std::unique_ptr<Member>> members_;  // by the engine's numbers; null: forgotten
  std::unordered_map<std::string, uint32_t> member_by_name_;
  std::unordered_map<uint64_t, uint32_t> member_by_connection_;
  PeerNames peers_;
  bool reports_hurry_ = false;  // somebody waited at the last tick
  std::set<uint32_t> reply_now_;

  std::map<uint64_t, Job> jobs_;
  std::unordered_map<uint64_t, uint64_t> job_by_lease_, job_by_connection_;
  std::map<uint64_t, Remnant> remnants_;                  // by the attempt's lease id
  std::unordered_map<std::string, uint64_t> job_by_key_;  // owner and request key
  Totals totals_;
  std::vector<Write> ends_;       // of leases, not yet in a batch
  std::set<uint64_t> unsettled_;  // jobs of an earlier scheduler, of which servers said something
  std::set<uint64_t> awaiting_;   // jobs whose batch is awaited

  uint64_t next_order_ = 0;
  uint64_t next_id_ = 1, ids_reserved_ = 0;
  uint64_t next_batch_ = 1, stored_batch_ = 0;
  std::deque<std::pair<uint64_t, uint64_t>> unstored_;  // batch, since when
  std::string store_trouble_;
  std::multimap<uint64_t, Effects::ToCommander> command_answers_;            // by batch
  std::map<uint64_t, std::pair<PolicyRecord, PoolPolicy>> coming_policies_;  // by batch

  PoolPolicy policy_, effective_;
  bool has_policy_ = false;
  int64_t effective_from_s_ = 0, effective_to_s_ = kNever;
  int64_t wall_ahead_s_ = 0;  // of the monotonic clock, when the policy was last looked at
  Engine engine_;
  bool plan_dirty_ = false;
  uint64_t plan_due_ns_ = kNotAgain;
  std::vector<EngineWaiting> waiting_;        // of the last look
  uint64_t news_pass_ns_ = 0, signs_ns_ = 0;  // the last look at all that wait; and signs of life
  bool news_dirty_ = false;
  std::map<uint64_t, uint64_t> watched_;  // jobs that somebody looks at, and until when
  std::set<uint64_t> parked_;             // jobs that wait outside the engine
  bool store_was_slow_ = false;           // when the history was last looked at
  std::set<uint64_t> hurried_;            // jobs that do not wait
  std::set<uint64_t> asleep_;             // leases that may be parked
  size_t askers_ = 0;                     // of them that are to ask before they wake
  std::set<uint64_t> growing_;            // shrunk leases that are to grow when there is room
  uint64_t usage_saved_ns_ = 0;
  std::string usage_bytes_;  // as last written
  EngineRecord recovered_usage_;
  bool deposed_ = false;
  bool planning_ = false;                 // after recovery
  uint64_t planning_due_ns_ = kNotAgain;  // it begins then at the latest
};

}  // namespace tendril::pool
