// SPDX-License-Identifier: Apache-2.0
// What a server and its pool's scheduler tell each other, how a client claims what a pool granted,
// what the holder of a lease is told, and commands of administrators. Bodies of the control
// protocol (wire/control.h): encode and decode are overloaded for PoolReport, PoolOrders,
// ClaimRequest, Notice, PoolCommand and PoolAnswer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/control.h"

namespace tendril::wire {

// ---- from a server to its scheduler ----

// What a server is and has. Its name is that of its certificate; without one, what it calls itself.
struct ServerFacts {
  std::string name;
  std::string endpoint;   // "host:port", where clients reach it
  std::string server_id;  // 16 raw bytes, of its machine or data folder
  uint64_t boot = 0;      // random, of this run of tendrild
  std::string product_version, driver;
  uint32_t driver_version = 0;  // as in ListReply
  std::vector<ApiRecord> apis;
  std::vector<std::string> transports;  // kinds
  std::vector<std::string> labels;      // "key=value"
  bool draining = false;                // it takes no more leases and ends with the last
  std::vector<GpuRecord> gpus;
  // 16 raw bytes, random, of this run: PassageToken::server_id names the server so.
  std::string passage_id;
  // Where other servers reach it, for copies between GPUs; empty: where clients do.
  std::string data_endpoint;
};

enum class LeasePhase : uint8_t {
  kHeld = 1,       // promised until the hold expires
  kCommitted = 2,  // granted, and nobody has claimed it yet
  kClaimed = 3,    // it lives on its holder's connection
  kEnded = 4,
};
inline constexpr uint64_t kIdleUnknown = UINT64_MAX;

// One lease in the server's book. The last record of an ended lease has its sums.
struct BookEntry {
  uint64_t lease_id = 0;       // the server's number
  uint64_t pool_lease_id = 0;  // 0: the server granted it by itself
  LeasePhase phase = LeasePhase::kHeld;
  std::string owner_id, owner_name, account, user_class;
  ClientInfo client;
  std::vector<SliceGrant> slices;
  LeaseTerms terms;
  bool paused = false;
  uint32_t processes = 0;
  bool was_attached = false;
  uint64_t age_ns = 0;
  // Since work or a copy last passed the gate of any of its workers; kIdleUnknown counts as active.
  uint64_t idle_ns = kIdleUnknown;
  uint64_t idle_total_ns = 0;           // all idle time so far, attached or not
  uint64_t used_ns = 0, waited_ns = 0;  // GPU time had and waited for, over all slices
  uint64_t memory_used_bytes = 0;
  std::string why;            // of an ended one, for people
  uint64_t ended_number = 0;  // counts the leases that this boot ended; 0: it lives
  uint64_t boot = 0;          // that ended it, if it was an earlier one; 0: this one
  int64_t ended_s = 0;        // when it ended, wall seconds
  // Of a parked one: what of the memory of each slice stays on its GPU. It holds no share. One that
  // wakes holds everything again, also while it waits for room.
  Standing standing = Standing::kGranted;
  std::vector<uint64_t> stays_bytes;
  bool wants_wake = false;  // it is parked, and waits for kMayWake
};

// What a lease that lives did so far, as in BookEntry. Each report has it of all leases of which it
// has no entry: history is made of it.
struct LeaseUse {
  uint64_t lease_id = 0;
  uint64_t age_ns = 0, idle_ns = kIdleUnknown, idle_total_ns = 0, used_ns = 0, waited_ns = 0;
  uint64_t memory_used_bytes = 0;
};

// What the programs that are attached to a lease did so far, and how their data travels.
struct LeaseCounts {
  uint64_t lease_id = 0;
  uint64_t calls = 0, round_trips = 0, awaited_ns = 0;  // awaited: a reply was due
  uint64_t bytes_in = 0, bytes_out = 0;                 // to the server, from it
  std::string links;                                    // "sealed(tcp), shm"
};

struct OrderResult {
  uint64_t order_id = 0;
  base::Code code = base::Code::kOk;
  std::string text;  // why not
  uint64_t lease_id = 0;
  std::string secret;  // of a lease that was committed; never logged
};

// The first report of a connection is full: facts and the whole book, in several reports if it is
// long. Later ones have what changed.
struct PoolReport {
  uint64_t boot = 0;
  uint64_t number = 0;             // counts the reports of a connection, from 1
  bool full = false;               // part of a full book
  bool more = false;               // the next report continues this book
  uint64_t newest_term = 0;        // that this server has heard of
  std::vector<ServerFacts> facts;  // one, or none if nothing changed
  std::vector<BookEntry> entries;
  std::vector<OrderResult> results;
  std::vector<LeaseUse> uses;
  std::vector<LeaseCounts> counts;  // of the leases that the last orders ask to watch
};
// In one report; and the leases that one server is asked to count.
inline constexpr size_t kBookEntriesMax = 512, kLeaseUsesMax = 4096, kWatchedMax = 64;

// ---- from the scheduler to a server ----

enum class OrderKind : uint8_t {
  kHold = 1,    // promise slices on these GPUs
  kCommit = 2,  // make the hold a lease
  kCancel = 3,  // forget the hold, or end the lease if it was committed
  kEnd = 4,     // end the lease, with a text for its holder
  kChange = 5,  // share or terms
  kPause = 6,   // no turns until kResume
  kResume = 7,
  kNotice = 8,  // tell the holder
  kDrain = 9,   // take no more direct leases
  kUndrain = 10,
  kPark = 11,  // its GPU memory to the host's memory of its server, until it works again
  kWake = 12,
  // A parked lease of the pool asks before it wakes (BookEntry::wants_wake), because its user or
  // account may be at a limit then. It does so until kMayWake.
  kAskToWake = 13,
  kMayWake = 14,  // it need not ask, and goes on if it has asked
};

enum class NoticeKind : uint8_t {
  kWarning = 1,  // something will happen in `in_s`
  kShrunk = 2,
  kPaused = 3,
  kResumed = 4,
  kRequeue = 5,  // the program is to end within `in_s` and will be started again
  kEnded = 6,    // the last word of a lease
};

// Repeating an order that was carried out gives the same result and changes nothing.
struct Order {
  uint64_t order_id = 0;
  OrderKind kind = OrderKind::kHold;
  uint64_t pool_lease_id = 0;  // what the order is about
  uint64_t lease_id = 0;       // the same by the server's number; for leases that it granted itself
  // kHold
  std::vector<uint32_t> gpus;  // one for each slice
  SliceSpec slice;
  LeaseTerms terms;  // kChange too
  ClientInfo client;
  std::string owner_id, owner_name, account, user_class;
  uint32_t expires_ms = 0;    // of a hold
  uint32_t unclaimed_ms = 0;  // of a commit: it ends if nobody claims it
  // kChange
  uint32_t share_millionths = 0;  // 0: it stays
  uint64_t memory_bytes = 0;      // of each slice; 0: it stays
  bool sets_terms = false;
  // kNotice, kEnd, kPause, kChange
  NoticeKind notice = NoticeKind::kWarning;
  std::string text;
  uint64_t in_s = 0;
};
inline constexpr size_t kOrdersMax = 512, kPoolTextBytesMax = 1024;

// Another server of the pool, to whose workers workers may have connections.
struct PoolPeer {
  std::string name;
  std::string endpoint;    // as in ServerFacts
  std::string passage_id;  // the same; empty: it is older and tells none
};
inline constexpr size_t kPoolPeersMax = 512;  // in one answer
inline constexpr size_t kPeerEndpointBytesMax = 280, kPassageIdBytes = 16;

// The answer to a report, at once if there are orders or the book is to be continued, else after
// kReportEveryMs. A standby gives no orders.
struct PoolOrders {
  std::string pool, scheduler;  // names, for messages
  uint64_t term = 0;
  bool schedules = false;
  std::string schedules_elsewhere;  // of a standby: the endpoint of the one that does, if known
  bool wants_full = false;
  std::vector<Order> orders;
  uint64_t ended_stored = 0;  // records of ended leases up to this number may be forgotten
  // By what the server admits alone. A text of the pool's policy, sent when its revision changed.
  uint64_t policy_revision = 0;
  std::string policy;
  // Those that are new or have changed. `peers_begin`: they replace all that were named before.
  bool peers_begin = false;
  std::vector<PoolPeer> peers;
  // Leases that somebody looks at, by the server's numbers: the next report has their counts. Not
  // all leases, because reports of thousands must stay short.
  std::vector<uint64_t> watched;
};
inline constexpr int kReportEveryMs = 2000, kServerSilentMs = 10'000, kHoldMs = 10'000,
                     kUnclaimedMs = 60'000;

// ---- clients ----

// Proves itself by the secret. The answer has the slices and no secret.
struct ClaimRequest {
  uint64_t lease_id = 0;
  std::string secret;
};

// From a server to the connection that holds a lease, at any time, if the client hears news.
inline constexpr uint16_t kNoticeKind = 0x8001;
struct Notice {
  uint64_t lease_id = 0;
  NoticeKind kind = NoticeKind::kWarning;
  std::string text;
  uint64_t in_s = 0;
  // Of kPaused and kResumed: its GPU memory left for the host's memory, or is back.
  bool memory = false;
};

// "drain gpu3", "apply" with a policy as the body, "queue", "status". The scheduler says which
// verbs it knows when it refuses another.
struct PoolCommand {
  std::string verb;
  std::vector<std::string> arguments;
  std::string body;
};
// A long answer comes in parts: the verb "more" on the same connection gives the next one.
struct PoolAnswer {
  std::string json;
  bool more = false;
};
inline constexpr size_t kPoolArgumentsMax = 32;

}  // namespace tendril::wire
