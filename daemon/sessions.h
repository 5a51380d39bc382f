// SPDX-License-Identifier: Apache-2.0
// Leases and the sessions that use them. A lease is a promise of slices, with a shared accounting
// page. A session is one client process with one worker.
//
// A session ends when its worker exits, whatever the cause. Only then are its memory and, for an
// implicit lease, its slices free again, because only then are they really free. When a client
// goes, its worker has kGraceMs to notice. Then the worker is killed.
//
// Any thread may call, unless a comment says otherwise. attach blocks until a worker is ready.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "access/guard.h"
#include "base/fd.h"
#include "base/result.h"
#include "daemon/arbiter.h"
#include "daemon/containment/cgroups.h"
#include "daemon/event_loop.h"
#include "daemon/exports.h"
#include "daemon/image_store.h"
#include "daemon/packed_servers.h"
#include "daemon/parking/park_files.h"
#include "daemon/pool/ended_file.h"
#include "daemon/shared_page.h"
#include "daemon/worker_pool.h"
#include "gpu/inventory.h"
#include "lease/holds.h"
#include "lease/idle_watch.h"
#include "lease/lease_book.h"
#include "lease/parking.h"
#include "session/choice/trial_entry.h"
#include "session/control/connection.h"
#include "view/ended_leases.h"
#include "wire/assignment.h"
#include "wire/control.h"
#include "wire/pool.h"

namespace tendril::daemon {

inline constexpr int kGraceMs = 500;  // from a client's end to SIGKILL for its worker
// From AttachReply to the last bulk channel. Of three hundred programs that attach at once, the
// last ones wait long for a processor.
inline constexpr int kJoinMaxMs = 60'000;
// A request that does not fit waits this long if something is about to become free. A program that
// starts right after another must not be refused because the first one's worker takes time to exit.
// Of twelve programs at once, one took 2.0 s (H200). The time is far less than a client waits for
// its lease (60 s).
inline constexpr int kComingFreeMs = 4000;
// A program that attaches to a parked lease waits this long for the lease to wake.
inline constexpr int kWakeForSeatMs = 30'000;
inline constexpr uint16_t kBulkMax = 16;
// The last column is the daemon's own. The quota also covers what the empty contexts of the lease's
// processes cost, and other sessions' memory that these processes keep from being freed.
inline constexpr uint32_t kDaemonTally = wire::kTalliesMax - 1;

class Peers;

using ServerId = std::array<uint8_t, wire::kServerIdBytes>;

class Sessions {
 public:
  // `descriptors_max`: how many of this process' descriptors the workers' exports may take.
  // `server_id` distinguishes this server's handles from other servers'. `guard` knows the limits.
  Sessions(EventLoop* loop, WorkerPool* pool, PackedServers* packed, Arbiter* arbiter,
           access::Guard* guard, lease::LeaseBook book, size_t descriptors_max,
           const ServerId& server_id);

  // Whether a peer may do what it asks is decided before (access/decide.h). Only limits that depend
  // on what its owner holds are decided here; *limits says which rule that was.
  base::Result<wire::LeaseReply> lease(const access::Principal& owner,
                                       const wire::LeaseRequest& request, access::Decision* limits);
  // Ends the lease and every session on it. `why`: for its holder; empty: it asked for it.
  base::Status release(uint64_t lease_id, const std::string& why = std::string());
  base::Status change(const access::Principal& by, const wire::ChangeRequest& request,
                      access::Decision* limits);
  // ---- who holds a lease (daemon/outage/) ----

  uint64_t new_holder() { return next_holder_.fetch_add(1); }
  // The connection of that holder holds the lease from now on.
  void held_by(uint64_t lease_id, uint64_t holder);
  // That connection has ended. True: the lease is to be released. False: another one holds it, or
  // the network was cut (`may_return`), and the holder has some time to claim it again.
  bool holder_gone(uint64_t lease_id, uint64_t holder, bool may_return);

  // Who holds the lease; nothing if there is no such lease.
  std::optional<access::Principal> owner_of(uint64_t lease_id);

  // The secret that only the holder of the lease and its programs know.
  base::Result<std::string> secret_of(uint64_t lease_id);
  // Blocks until a worker is ready and has answered the client's offers. The session has the key of
  // `connection`; its worker gets it if the session is sealed. `descriptor_socket`: where a client
  // can fetch the descriptor that belongs to the answer. `owner`: of the lease, if none is named.
  base::Result<wire::AttachReply> attach(const access::Principal& owner,
                                         const wire::AttachRequest& request,
                                         const wire::ConnectionRecord& connection,
                                         const std::string& descriptor_socket,
                                         access::Decision* limits);
  // What the API says of the devices of a lease. No session begins. No facts: the client attaches.
  base::Result<wire::AttachReply> look(const wire::AttachRequest& request,
                                       access::Decision* limits);
  // Call it when the reply was sent: the connection now belongs to the session.
  void attached(uint64_t session_id, session::Connection connection);
  // Call it when the client vanished before it got its reply.
  void abandon(uint64_t session_id);
  base::Status join(const wire::JoinRequest& request);
  void joined(const wire::JoinRequest& request, session::Connection connection);
  // How long cuts may last that sessions outlast. Before the first session.
  void outlast(uint32_t outage_ms) { outage_ms_ = outage_ms; }
  // A client on this host fetches the descriptor of the worker's answer.
  base::Result<base::Fd> fetch(const wire::JoinRequest& request);
  // Another server takes up its end of a passage. `must_seal`: by this server's rule for that peer.
  base::Status join_passage(const wire::JoinRequest& request, bool must_seal);
  void joined_passage(const wire::JoinRequest& request, session::Connection connection);
  // The client uses the worker's first answer in place of joined connections.
  base::Status use(const wire::JoinRequest& request);

  // ---- parked leases (daemon/parking/sessions_park.cc) ----

  // Host memory for parked leases, and after how long a lease is parked that does nothing; 0:
  // never. A lease that this memory has no room for is parked to files in `folder`. All these files
  // together have at most file_budget_bytes. Before the first session.
  void keep_parked(uint64_t host_budget_bytes, uint64_t idle_ns, const std::string& folder,
                   uint64_t file_budget_bytes);
  // Parks a lease, or wakes it. Blocks until that is done, at most half a minute. `why`: for its
  // holder; may be empty.
  base::Result<wire::ParkReply> park(const wire::ParkRequest& request, const std::string& why);
  // The same without waiting for it: success says that it begins.
  base::Status begin_move(const wire::ParkRequest& request, const std::string& why);

  // ---- pools (daemon/pool/sessions_pool.cc) ----

  // What holders are told of their leases. It must not block, nor call this object.
  using Teller = std::function<void(const wire::Notice&)>;
  void when_noticed(uint64_t lease_id, Teller teller);
  // The client that knows the secret of a lease that its pool granted has it from now on.
  base::Result<wire::LeaseReply> claim(const wire::ClaimRequest& request, access::Decision* limits);
  // From now on records of ended leases are kept for a scheduler; in the file, too, if there is
  // one.
  void serve_pool(std::unique_ptr<EndedFile> file);
  // An order of a lower term than the highest that was heard is refused.
  base::Status hear(uint64_t term);
  uint64_t newest_term();
  // Carries an order out. The same order again has the same result.
  wire::OrderResult obey(uint64_t term, const wire::Order& order);
  // All leases, and those that have ended and whose records nobody has stored yet.
  std::vector<wire::BookEntry> book();
  // What the sessions of these leases did so far; of leases that are here.
  // What the last session over RDMA made of GPUDirect; empty: there was none.
  std::string last_direct() {
    const std::lock_guard<std::mutex> hold(mutex_);
    return last_direct_;
  }
  std::vector<wire::LeaseCounts> counts(const std::vector<uint64_t>& lease_ids);
  void stored(uint64_t ended_number);
  // No new leases from now on.
  void drain();
  bool is_draining();
  size_t lease_count();

  // What each API says of each GPU. Before the first session.
  void know(std::vector<gpu::ApiFacts> facts) { facts_ = std::move(facts); }
  // Which servers sessions may have passages to; null: none. Before the first session.
  void reach(Peers* peers) { peers_ = peers; }
  // Where workers' images of device code go; null: nowhere. Before the first session.
  void keep_images_in(ImageStore* images) { images_ = images; }
  // What bounds a lease's part of the machine; null: nothing does. Before the first session.
  void bound_by(Cgroups* groups, uint64_t gpu_memory_bytes, uint64_t host_memory_bytes);
  // What a worker for NCCL may reach is decided by `bound`, before its session begins. Before the
  // first session.
  void bound_networks_by(std::function<base::Status(pid_t worker)> bound) {
    bound_network_ = std::move(bound);
  }

  // Fills in shares and memory used per GPU, and the leases with what they use: those that
  // `request` asks for. `viewer`: for whom; it may not see everything. nullptr: for this server.
  void describe(const access::Principal* viewer, const wire::ListRequest& request,
                wire::ListReply* reply);
  size_t session_count();
  // Figures for the metrics that describe() does not give.
  view::Counters counters();
  // Looks every few seconds for clients that vanished without closing their connection, and for
  // leases whose time is over.
  // Supervisor's thread.
  void sweep();

 private:
  struct Lease;
  struct Session {
    uint64_t id = 0, lease_id = 0;
    std::string secret;
    std::string key;      // of its handshake; empty: it attached without one
    bool sealed = false;  // its connections are sealed with the key
    std::string api;
    uint32_t tally = 0;
    std::shared_ptr<WorkerProcess> worker;
    // The connection that attached. The worker reads it; here it is watched for the client's end.
    session::Connection liveness;
    uint16_t channels_granted = 0;
    // How long a cut of its network may last; 0: it does not outlast any. Then there is one more
    // connection, for acknowledgements. Its end, too, says that the client has ended.
    uint32_t outage_ms = 0;
    session::Connection acknowledgements;
    uint32_t cuts = 0;  // that this end has noticed
    bool is_cut = false;
    uint32_t returns = 0;                    // how often its client connected again
    uint32_t attempt = 0;                    // the client's last one to connect again
    std::vector<session::Connection> again;  // what has come of it, by channel
    std::vector<bool> channels_joined;
    uint16_t channels_here = 0;
    session::TrialEntry trial;  // its client's, of a fabric
    bool answered = false;      // the worker has chosen among the client's transports
    wire::TransportAnswers answers;
    base::Fd descriptor;  // of the first answer, if the client needs one
    wire::StartOn start_on = wire::StartOn::kConnections;
    std::string link;     // what carries it, if its worker has said so
    bool direct = false;  // cards move its data from and to its GPUs' memory
    bool attached = false, started = false, ending = false;
    bool client_gone = false;  // its worker will exit soon
    wire::ClientInfo client;
    uint64_t began_ns = 0;
    uint32_t packed_server = 0;  // where its worker has a seat; 0: it is not packed
    bool expected = false;       // it is the first on its lease
    bool networked = false;      // its worker may use NCCL
    uint64_t gang = 0;           // its program has parts of GPUs on other servers, too
    // Passages for which a connection may come, by number (daemon/passages/).
    struct Offered {
      std::string key;
      uint64_t until_ns = 0;
      uint32_t taken = 0;  // lines, a bit each
    };
    std::map<uint32_t, Offered> passages;
    // To other servers, from the first copy on.
    struct Connected {
      uint32_t number = 0;    // the passage's
      std::string server_id;  // of one that this server has connected to
      wire::PassageRecord record;
    };
    std::vector<Connected> connected;
  };
  struct Lease {
    uint64_t id = 0;
    std::string secret;
    bool implicit = false, ending = false;
    // its first worker is starting; the others will run as the same user
    bool choosing_user = false;
    bool expecting = false;  // nobody has attached yet; a worker is warmed up meanwhile
    wire::ClientInfo client;
    std::vector<wire::SliceGrant> slices;
    wire::LeaseTerms terms;
    std::unique_ptr<SharedPage<wire::AccountingPage>> accounting;
    std::map<uint32_t, uint64_t> sessions;  // by tally
    uint64_t began_ns = 0;
    access::Principal owner;
    bool counted = false;  // in its owner's usage, with these shares:
    uint64_t share_counted = 0;
    uint64_t attached_ns = 0;  // as in access::LeaseLife
    lease::IdleWatch idle{0};
    bool warned = false;       // that a limit will end it soon
    uint64_t holder = 0;       // the connection; 0: none ever did
    bool holder_away = false;  // its network was cut
    Teller teller;             // empty: nobody hears
    // Of a pool's lease. An order began it, and it waits for its holder until it is claimed.
    uint64_t pool_lease_id = 0;
    std::string account, user_class;
    wire::LeasePhase phase = wire::LeasePhase::kClaimed;
    bool paused = false;
    uint64_t paused_until_ns = 0;
    std::string why;  // it ends
    // To the host's memory or back, under way or the last time.
    struct Moving {
      uint32_t number = 0;                 // of the park, for its workers
      std::set<uint64_t> sessions;         // whose answers are awaited
      uint64_t bytes = 0;                  // that they have in the host's memory
      uint64_t copied_bytes = 0;           // for that; the rest was there already
      uint64_t from_bytes = 0;             // what its workers had moved before this park
      std::string why, failure;            // it was parked; it was not
      std::map<uint64_t, base::Fd> files;  // by session; empty: copies are in memory
      uint64_t not_before_ns = 0;          // it failed, and is not tried again before
      uint64_t ahead_of_ns = 0;            // copied ahead, for what it did last at this time
      std::set<uint64_t> forgetting;  // sessions that are to give copies back, and have not yet
      bool asks = false;              // its pool is asked before it wakes
      uint64_t wished_ns = 0;         // since when its pool is asked; 0: it is not
    } moving;
  };

  using Hold = std::unique_lock<std::mutex>;

  static bool make_secret(std::string* secret);
  static wire::ClientInfo cleaned(const wire::ClientInfo& info);  // fit for lists and logs
  static wire::ClientInfo cleaned(const wire::ClientInfo& info, const access::Principal& owner);
  static std::string who(const wire::ClientInfo& client);  // for the log
  static uint64_t age_s(uint64_t began_ns);

  // The caller holds mutex_. Functions that take the hold may release it for a while.
  base::Result<std::vector<wire::SliceGrant>> place(Hold* hold, uint64_t lease_id,
                                                    const wire::LeaseRequest& request);
  base::Result<Lease*> make_lease(Hold* hold, const access::Principal& owner,
                                  const wire::LeaseRequest& request, bool implicit,
                                  access::Decision* limits);
  base::Result<Lease*> find_lease(const wire::AttachRequest& request);
  base::Result<std::shared_ptr<Session>> make_session(Hold* hold, const access::Principal& owner,
                                                      const wire::AttachRequest& request,
                                                      const wire::ConnectionRecord& connection,
                                                      access::Decision* limits);
  // sessions_limits.cc. Counts the lease in its owner's usage, or refuses it. `shares`: of all its
  // slices. Counting the same lease again replaces its shares.
  access::Decision count_lease(Lease* lease, uint64_t share_millionths);
  void forget_lease(const Lease& lease);
  access::Decision count_session(const access::Principal& owner);
  void forget_session(const access::Principal& owner);
  access::Decision check_change(const Lease& lease, const wire::ChangeRequest& request,
                                const access::Principal& by);
  // Ends leases whose time is over, and says which and by which rule.
  struct Overdue {
    uint64_t lease_id = 0;
    access::Principal owner;
    access::Ending ending;
  };
  std::vector<Overdue> end_overdue();
  void look_at_work();
  void warn(Lease* lease, const access::Limits& limits, const access::LeaseLife& life,
            uint64_t now_ns);
  // daemon/pool/sessions_pool.cc. They hold mutex_.
  base::Result<Lease*> ordered_lease(const wire::Order& order);
  base::Status carry_out(uint64_t term, const wire::Order& order, wire::OrderResult* result);
  base::Status hold(uint64_t term, const wire::Order& order, wire::OrderResult* result);
  base::Status hold_new(uint64_t term, const wire::Order& order, wire::OrderResult* result);
  base::Status commit(uint64_t term, const wire::Order& order, wire::OrderResult* result);
  base::Status cancel(uint64_t term, const wire::Order& order);
  base::Status change_as_ordered(const wire::Order& order);
  void may_wake(Lease* lease);
  void pause(Lease* lease, bool paused, uint64_t longest_s, const std::string& text);
  static void tell(const Lease& lease, wire::NoticeKind kind, const std::string& text,
                   uint64_t in_s = 0, bool memory = false);
  wire::BookEntry entry_of(const Lease& lease);
  void keep_record(const Lease& lease);
  void expire_holds();
  // daemon/parking/sessions_park.cc. They hold mutex_.
  static constexpr uint64_t kPressureIdleNs =
      2'000'000'000;  // who wakes displaces only these (0032)
  base::Status begin_park(Lease* lease, const std::string& why);
  void make_park_files(const Lease& lease);
  void take_park_files(uint64_t lease_id, uint32_t number, const std::vector<uint64_t>& sessions,
                       base::Result<ParkFiles::Files> made);
  void order_park(Lease* lease);
  static uint64_t moved_bytes(const Lease& lease);
  base::Status park_as_ordered(Lease* lease, const std::string& why);
  // `agreed`: the pool has said that it may, or cannot be asked.
  void want_wake(Lease* lease, bool agreed = false);
  bool must_ask(const Lease& lease) const;
  void wake_without_pool();
  void finish_park(Lease* lease);
  void fail_park(Lease* lease, const std::string& why);
  void wake_ready();
  void finish_wake(Lease* lease);
  void make_room();
  void park_idle();
  uint64_t programs_bytes(const Lease& lease) const;
  base::Status begin_in_memory(Lease* lease, uint64_t bytes);
  static uint64_t session_bytes(const Lease& lease, uint32_t tally);
  void end_writers_beyond(const Lease& lease);
  base::Status make_host_room(const Lease& lease, uint64_t bytes);
  void forget_copies(Lease* lease);
  void order_to_forget(Lease* lease);
  void forgot_copies(Lease* lease, uint64_t session_id);
  void copy_ahead(Lease* lease, uint64_t now_ns);
  bool is_beside_parked(const Lease& lease) const;
  bool may_be_parked(const Lease& lease, uint64_t now_ns, uint64_t idle_ns) const;
  void worker_told(Session* session, const wire::WorkerRequest& request, const std::string& tail);
  void worker_moved(Session* session, const wire::WorkerRequest& request);
  void forget_move(Lease* lease, uint64_t session_id);
  bool wakes_for_seat(Lease* lease);
  void set_gate(const Lease& lease);
  void order_workers(const Lease& lease, wire::WorkerMessageKind kind);
  static uint64_t parked_bytes(const Lease& lease, uint32_t slice);
  static uint64_t parked_bytes(const Lease& lease);
  void watch_park(Lease* lease, uint64_t copied);
  wire::ParkReply describe_park(const Lease& lease) const;
  // Ends a lease for the pool, and says so in the audit log. `by`: which order, for the log.
  void end_for_pool(Lease* lease, const std::string& why, const std::string& by);
  void resume_overdue();
  base::Status refit(Lease* lease, uint32_t share_millionths, uint64_t memory_bytes,
                     const wire::LeaseTerms& terms);
  // Tells the lease's workers how much memory its slices have.
  static void publish_memory(const Lease& lease);
  static base::Status lower_memory(const Lease& lease, uint64_t memory_bytes);
  bool is_something_ending() const;
  // Tells the pool how much memory idle workers may take. It depends on what is promised.
  void tell_room();
  bool is_trimming(const std::vector<wire::SliceGrant>& slices) const;
  void trimmed();
  void end_lease(Lease* lease, const std::string& why);
  static double idle_seconds(const Lease& lease);
  void record_end(const Lease& lease, const char* rule, const char* why);
  void drop_session(Session* session);
  void drop_lease_if_done(uint64_t lease_id);
  void charge_own(Lease* lease);
  static uint64_t charged_bytes(const wire::AccountingPage& page, uint32_t slice);
  // The same without what is paid ahead: of one session, or of all.
  int over_quota(const Lease& lease) const;
  // Puts the session on its lease, if the lease's memory holds one more process. May wait for one
  // that is ending. Sets session->tally.
  base::Status take_seat(Hold* hold, Session* session);
  base::Status no_room(const Lease& lease, uint32_t slice) const;
  base::Result<std::shared_ptr<WorkerProcess>> take_worker(const std::shared_ptr<Session>& session);
  // Puts the worker into its lease's group.
  void bound(uint64_t lease_id, WorkerProcess* worker);
  // Gives the session to its worker, with the client's offers.
  base::Status assign(const Session& session, const wire::TransportOffers& offers,
                      const wire::ConnectionRecord& connection);
  // Gives a connection to the session's worker. False: it could not, and the session ends.
  bool hand_over(const std::shared_ptr<Session>& session, wire::WorkerMessageKind kind,
                 uint16_t channel, const session::Connection& connection);
  void worker_answered(uint64_t session_id, const wire::TransportAnswers& answers, base::Fd fd);
  void end_session(const std::shared_ptr<Session>& session, const char* why);
  void start_if_complete(Session* session);
  wire::LeaseReply reply_of(const Lease& lease) const;
  // How its data travels: "sealed(tcp)"; empty: it has not begun.
  static std::string link_of(const Session& session);
  wire::SessionRecord record_of(const Session& session);
  wire::LeaseRecord record_of(const Lease& lease, const access::Principal* viewer);
  bool may_see(const access::Principal* viewer, const Session& session) const;
  static void add_used(const Lease& lease, wire::ListReply* reply);
  std::shared_ptr<Session> find_session(uint64_t id);
  // The session that `request` proves to know, by its secret or its key.
  std::shared_ptr<Session> find_session(wire::Request kind, const wire::JoinRequest& request);

  void worker_gone(uint64_t session_id, const std::string& how);
  void worker_asked(uint64_t session_id, const wire::WorkerRequest& request, base::Fd fd,
                    const std::string& tail);
  void worker_asked_for_image(const Session& session, const wire::WorkerRequest& request,
                              base::Fd fd);
  // daemon/passages/. They hold mutex_.
  wire::ExportAnswer offer_passage(Session* session, wire::ExportRecord* record);
  void dial_passage(const Session& session, const wire::ExportRecord& record);
  // Its worker says what carries it.
  void passage_goes(Session* session, const wire::ExportRecord& record, const std::string& brief,
                    const std::string& tail);
  // Takes mutex_.
  void connected_to(uint64_t session_id, Session::Connected passage);
  // daemon/outage/. They hold mutex_, except those for the supervisor's thread, which take it.
  void watch_client(const std::shared_ptr<Session>& session);  // supervisor's thread
  void watch_connection(const std::shared_ptr<Session>& session,
                        const session::Connection& connection);
  // Supervisor's thread. `returns`: of the session, when the connection was watched.
  void connection_ended(const std::shared_ptr<Session>& session, int fd, uint32_t returns);
  void client_is_cut(const std::shared_ptr<Session>& session);
  void client_is_gone(const std::shared_ptr<Session>& session, int grace_ms);
  static bool is_silent(const Session& session);
  static void forget_connections(Session* session, EventLoop* loop);
  base::Status join_again(Session* session, const wire::JoinRequest& request);
  void joined_again(const std::shared_ptr<Session>& session, const wire::JoinRequest& request,
                    session::Connection connection);

  EventLoop* const loop_;
  WorkerPool* const pool_;
  PackedServers* const packed_;
  std::vector<gpu::ApiFacts> facts_;  // constant
  ImageStore* images_ = nullptr;
  // What passages to a server go over best, by owner and the server's id (session/choice/ways.h).
  std::map<std::pair<std::string, std::string>, std::string> ways_;
  Peers* peers_ = nullptr;
  Cgroups* groups_ = nullptr;
  std::function<base::Status(pid_t)> bound_network_;
  uint64_t gpu_memory_bytes_ = 0, host_memory_bytes_ = 0;  // of this machine
  Arbiter* const arbiter_;
  access::Guard* const guard_;
  std::mutex mutex_;
  std::string last_direct_;  // guarded by mutex_
  // slices or workers' memory became free, or a worker's user was chosen
  std::condition_variable freed_;
  std::condition_variable answered_;                       // a worker answered, or is gone
  lease::LeaseBook book_;                                  // guarded by mutex_
  lease::Holds holds_;                                     // guarded by mutex_; on book_
  lease::Parking parking_;                                 // guarded by mutex_; on book_
  std::string park_folder_;                                // guarded by mutex_; empty: no files
  uint64_t park_idle_ns_ = 0;                              // guarded by mutex_; 0: never
  std::map<uint64_t, std::unique_ptr<Lease>> leases_;      // guarded by mutex_
  std::map<uint64_t, std::shared_ptr<Session>> sessions_;  // guarded by mutex_
  Exports exports_;                                        // guarded by mutex_
  std::map<std::string, access::Usage> usage_;             // guarded by mutex_; by owner's id
  uint64_t next_id_ = 1;                                   // guarded by mutex_
  view::EndedLeases ended_unscraped_;                      // guarded by mutex_
  view::Counters counters_;                                // guarded by mutex_; the sums of events
  bool keeps_records_ = false, draining_ = false;          // guarded by mutex_
  uint64_t heard_ns_ = 0;              // when a scheduler spoke last; 0: never. Guarded by mutex_
  std::deque<wire::BookEntry> ended_;  // guarded by mutex_
  uint64_t ended_count_ = 0;           // guarded by mutex_
  std::unique_ptr<EndedFile> ended_file_;  // guarded by mutex_; may be null
  // Results of orders that were carried out, the oldest first. Guarded by mutex_.
  std::deque<std::pair<uint64_t, wire::OrderResult>> results_;  // with their term
  const ServerId server_id_;
  uint32_t outage_ms_ = wire::kOutageMs;  // constant
  std::atomic<uint64_t> next_holder_{1};
  ParkFiles park_files_;  // the last member: its thread ends before the others are gone
};

}  // namespace tendril::daemon
