// SPDX-License-Identifier: Apache-2.0
// The fields of the pool's messages (wire/records.h says how they are written).
#include "wire/pool.h"

#include "wire/records.h"

namespace tendril::wire {

template <typename V>
void visit(V& v, ServerFacts& m) {
  v(1, m.name);
  v(2, m.endpoint);
  v(3, m.server_id);
  v(4, m.boot);
  v(5, m.product_version);
  v(6, m.driver);
  v(7, m.driver_version);
  v(8, m.apis);
  v(9, m.transports);
  v(10, m.labels);
  v.unless_empty(11, m.draining);
  v(12, m.gpus);
  v.unless_empty(13, m.passage_id);
  v.unless_empty(14, m.data_endpoint);
}

template <typename V>
void visit(V& v, BookEntry& m) {
  v(1, m.lease_id);
  v.unless_empty(2, m.pool_lease_id);
  v(3, m.phase);
  v(4, m.owner_id);
  v(5, m.owner_name);
  v.unless_empty(6, m.account);
  v.unless_empty(7, m.user_class);
  v(8, m.client);
  v(9, m.slices);
  v(10, m.terms);
  v.unless_empty(11, m.paused);
  v(12, m.processes);
  v.unless_empty(13, m.was_attached);
  v(14, m.age_ns);
  v(15, m.idle_ns);
  v.unless_empty(16, m.idle_total_ns);
  v.unless_empty(17, m.used_ns);
  v.unless_empty(18, m.waited_ns);
  v.unless_empty(19, m.memory_used_bytes);
  v.unless_empty(20, m.why);
  v.unless_empty(21, m.ended_number);
  v.unless_empty(22, m.boot);
  v.unless_empty(23, m.ended_s);
  v(24, m.standing);
  v.unless_empty(25, m.stays_bytes);
  v.unless_empty(26, m.wants_wake);
}

template <typename V>
void visit(V& v, LeaseUse& m) {
  v(1, m.lease_id);
  v(2, m.age_ns);
  v(3, m.idle_ns);
  v.unless_empty(4, m.idle_total_ns);
  v.unless_empty(5, m.used_ns);
  v.unless_empty(6, m.waited_ns);
  v.unless_empty(7, m.memory_used_bytes);
}

template <typename V>
void visit(V& v, LeaseCounts& m) {
  v(1, m.lease_id);
  v(2, m.calls);
  v(3, m.round_trips);
  v(4, m.awaited_ns);
  v(5, m.bytes_in);
  v(6, m.bytes_out);
  v(7, m.links);
}

template <typename V>
void visit(V& v, OrderResult& m) {
  v(1, m.order_id);
  v(2, m.code);
  v.unless_empty(3, m.text);
  v.unless_empty(4, m.lease_id);
  v.unless_empty(5, m.secret);
}

template <typename V>
void visit(V& v, PoolReport& m) {
  v(1, m.boot);
  v(2, m.number);
  v.unless_empty(3, m.full);
  v.unless_empty(4, m.more);
  v(5, m.newest_term);
  v(6, m.facts);
  v(7, m.entries);
  v(8, m.results);
  v(9, m.uses);
  v(10, m.counts);
}

template <typename V>
void visit(V& v, Order& m) {
  v(1, m.order_id);
  v(2, m.kind);
  v.unless_empty(3, m.pool_lease_id);
  v.unless_empty(4, m.lease_id);
  v(5, m.gpus);
  v(6, m.slice);
  v(7, m.terms);
  v(8, m.client);
  v.unless_empty(9, m.owner_id);
  v.unless_empty(10, m.owner_name);
  v.unless_empty(11, m.account);
  v.unless_empty(12, m.user_class);
  v.unless_empty(13, m.expires_ms);
  v.unless_empty(14, m.unclaimed_ms);
  v.unless_empty(15, m.share_millionths);
  v.unless_empty(16, m.sets_terms);
  v(17, m.notice);
  v.unless_empty(18, m.text);
  v.unless_empty(19, m.in_s);
  v.unless_empty(20, m.memory_bytes);
}

template <typename V>
void visit(V& v, PoolPeer& m) {
  v(1, m.name);
  v(2, m.endpoint);
  v.unless_empty(3, m.passage_id);
}

template <typename V>
void visit(V& v, PoolOrders& m) {
  v(1, m.pool);
  v(2, m.scheduler);
  v(3, m.term);
  v.unless_empty(4, m.schedules);
  v.unless_empty(5, m.schedules_elsewhere);
  v.unless_empty(6, m.wants_full);
  v(7, m.orders);
  v(8, m.ended_stored);
  v(9, m.policy_revision);
  v.unless_empty(10, m.policy);
  v.unless_empty(11, m.peers_begin);
  v(12, m.peers);
  v.unless_empty(13, m.watched);
}

template <typename V>
void visit(V& v, ClaimRequest& m) {
  v(1, m.lease_id);
  v(2, m.secret);
}

template <typename V>
void visit(V& v, Notice& m) {
  v(1, m.lease_id);
  v(2, m.kind);
  v(3, m.text);
  v.unless_empty(4, m.in_s);
  v.unless_empty(5, m.memory);
}

template <typename V>
void visit(V& v, PoolCommand& m) {
  v(1, m.verb);
  v(2, m.arguments);
  v.unless_empty(3, m.body);
}

template <typename V>
void visit(V& v, PoolAnswer& m) {
  v(1, m.json);
  v.unless_empty(2, m.more);
}

// ---- messages that are impossible although each record is well-formed ----

static bool is_known(NoticeKind kind) {
  return kind >= NoticeKind::kWarning && kind <= NoticeKind::kEnded;
}

static bool sensible(const PoolReport& report) {
  if (report.facts.size() > 1 || report.entries.size() > kBookEntriesMax) return false;
  if (report.uses.size() > kLeaseUsesMax || report.counts.size() > kWatchedMax) return false;
  for (const LeaseCounts& counts : report.counts) {
    if (counts.links.size() > kPoolTextBytesMax) return false;
  }
  for (const BookEntry& entry : report.entries) {
    if (entry.phase < LeasePhase::kHeld || entry.phase > LeasePhase::kEnded) return false;
    for (const std::string* text :
         {&entry.owner_id, &entry.owner_name, &entry.account, &entry.user_class, &entry.why}) {
      if (text->size() > kPoolTextBytesMax) return false;
    }
  }
  return true;
}

// Orders of a kind that this build does not know are left for the server to refuse.
static bool sensible(const PoolOrders& orders) {
  if (orders.orders.size() > kOrdersMax || orders.peers.size() > kPoolPeersMax ||
      orders.watched.size() > kWatchedMax)
    return false;
  for (const Order& order : orders.orders) {
    if (!is_known(order.notice)) return false;
    for (const std::string* text :
         {&order.owner_id, &order.owner_name, &order.account, &order.user_class, &order.text}) {
      if (text->size() > kPoolTextBytesMax) return false;
    }
  }
  for (const PoolPeer& peer : orders.peers) {
    if (peer.name.size() > kPoolNameBytesMax || peer.endpoint.size() > kPeerEndpointBytesMax ||
        (!peer.passage_id.empty() && peer.passage_id.size() != kPassageIdBytes))
      return false;
  }
  return true;
}

static bool sensible(const Notice& notice) {
  return is_known(notice.kind) && notice.text.size() <= kPoolTextBytesMax;
}

static bool sensible(const PoolCommand& command) {
  return command.verb.size() <= kPoolNameBytesMax && command.arguments.size() <= kPoolArgumentsMax;
}

TENDRIL_CONTROL_MESSAGE(PoolReport)
TENDRIL_CONTROL_MESSAGE(PoolOrders)
TENDRIL_CONTROL_MESSAGE(ClaimRequest)
TENDRIL_CONTROL_MESSAGE(Notice)
TENDRIL_CONTROL_MESSAGE(PoolCommand)
TENDRIL_CONTROL_MESSAGE(PoolAnswer)

}  // namespace tendril::wire
