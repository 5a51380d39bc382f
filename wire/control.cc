// SPDX-License-Identifier: Apache-2.0
// The fields of the control messages (wire/records.h says how they are written).
#include "wire/control.h"

#include "wire/assignment.h"
#include "wire/records.h"

namespace tendril::wire {

template <typename V>
void visit(V& v, PoolWish& m) {
  v.unless_empty(1, m.filter);
  v.unless_empty(2, m.user_class);
  v.unless_empty(3, m.account);
  v.unless_empty(4, m.layout);
  v.unless_empty(5, m.longest_s);
  v.unless_empty(6, m.refuses_wait);
  v.unless_empty(7, m.requeues);
  v.unless_empty(8, m.restarts);
  v.unless_empty(9, m.request_key);
  v(10, m.apis);
}

template <typename V>
void visit(V& v, LeaseRequest& m) {
  v(1, m.count);
  v(2, m.slice);
  v(3, m.client);
  v(4, m.terms);
  v(5, m.wish);
}

template <typename V>
void visit(V& v, LeasePart& m) {
  v(1, m.server);
  v(2, m.endpoint);
  v(3, m.lease_id);
  v(4, m.secret);
  v(5, m.slices);
}

template <typename V>
void visit(V& v, LeaseReply& m) {
  v(1, m.lease_id);
  v(2, m.secret);
  v(3, m.slices);
  v(4, m.parts);
  v.unless_empty(5, m.waited_s);
}

template <typename V>
void visit(V& v, SliceUse& m) {
  v(1, m.measured);
  v(2, m.recent_millionths);
  v(3, m.used_ns);
  v(4, m.waited_ns);
  v(5, m.age_ns);
}

template <typename V>
void visit(V& v, PassageRecord& m) {
  v(1, m.server);
  v.unless_empty(2, m.sealed);
  v.unless_empty(3, m.way);
}

template <typename V>
void visit(V& v, LeaseRecord& m) {
  v(1, m.lease_id);
  v(2, m.client);
  v(3, m.slices);
  v(4, m.memory_used_bytes);
  v(5, m.processes);
  v(6, m.age_s);
  v(7, m.terms);
  v(8, m.uses);
  v.unless_empty(9, m.links);
  v(10, m.passages);
  v(11, m.standing);
  v.unless_empty(12, m.standing_s);
  v.unless_empty(13, m.memory_parked_bytes);
  v.unless_empty(14, m.parks);
  v.unless_empty(15, m.windows);
}

template <typename V>
void visit(V& v, SessionRecord& m) {
  v(1, m.session_id);
  v(2, m.lease_id);
  v(3, m.client);
  v(4, m.worker_pid);
  v(5, m.age_s);
  v(6, m.memory_used_bytes);
  v(7, m.calls);
  v(8, m.launches);
  v(9, m.replies);
  v(10, m.bytes_in);
  v(11, m.bytes_out);
  v(12, m.awaited_ns);
  v(13, m.measured);
  v(14, m.gpu_ns);
  v(15, m.processor_ns);
  v.unless_empty(16, m.waiting);
  v.unless_empty(17, m.link);
}

template <typename V>
void visit(V& v, ListReply& m) {
  v(1, m.server);
  v(2, m.product_version);
  v(3, m.driver);
  v(4, m.driver_version);
  v(5, m.gpus);
  v(6, m.leases);
  v(7, m.sessions);
  v(8, m.now_ns);
  v(9, m.apis);
  v.unless_empty(10, m.more_leases);
  v.unless_empty(11, m.more_sessions);
  v(12, m.nccl_versions);
  v.unless_empty(13, m.server_id);
  v.unless_empty(14, m.more_gpus);
  v.unless_empty(15, m.gpudirect);
}

template <typename V>
void visit(V& v, ListRequest& m) {
  v(1, m.parts);
  v(2, m.leases_after);
  v(3, m.sessions_after);
  v(4, m.limit);
  v.unless_empty(5, m.gpus_after);
  v.unless_empty(6, m.gpu_limit);
}

template <typename V>
void visit(V& v, News& m) {
  v(1, m.text);
  v(2, m.place);
  v(3, m.of);
  v.unless_empty(4, m.queue);
  v.unless_empty(5, m.reason);
  v.unless_empty(6, m.start);
}

template <typename V>
void visit(V& v, TransportOffer& m) {
  v(1, m.kind);
  v(2, m.blob);
  v.unless_empty(3, m.unavailable);
}

template <typename V>
void visit(V& v, TransportOffers& m) {
  v(1, m.offers);
}

template <typename V>
void visit(V& v, TransportAnswer& m) {
  v(1, m.kind);
  v(2, m.blob);
  v(3, m.reason);
}

template <typename V>
void visit(V& v, TransportAnswers& m) {
  v(1, m.answers);
}

// Tag 6 was a flag for shared memory, before protocol 2.
template <typename V>
void visit(V& v, AttachRequest& m) {
  v(1, m.lease_id);
  v(2, m.secret);
  v(3, m.lease);
  v(4, m.client);
  v(5, m.bulk_channels);
  v(7, m.api);
  v(8, m.api_digest);
  v(9, m.transports);
  v.unless_empty(10, m.insists_on_sealing);
  v.unless_empty(11, m.only_looks);
  v.unless_empty(12, m.collectives);
  v.unless_empty(13, m.gang);
  v.unless_empty(14, m.outage_ms);
}

template <typename V>
void visit(V& v, AttachReply& m) {
  v(1, m.session_id);
  v(2, m.session_secret);
  v(3, m.lease);
  v(4, m.bulk_channels);
  v(5, m.descriptor_socket);
  v(6, m.transports);
  v.unless_empty(7, m.sealed);
  v(8, m.facts);
  v(9, m.nccl_versions);
  v.unless_empty(10, m.outage_ms);
}

template <typename V>
void visit(V& v, JoinRequest& m) {
  v(1, m.session_id);
  v(2, m.session_secret);
  v(3, m.channel);
  v.unless_empty(4, m.proof);
  v.unless_empty(5, m.attempt);
}

template <typename V>
void visit(V& v, SecuredAttach& m) {
  v(1, m.key);
  v(2, m.lease_id);
  v(3, m.message);
}

template <typename V>
void visit(V& v, ReleaseRequest& m) {
  v(1, m.lease_id);
}

template <typename V>
void visit(V& v, ChangeRequest& m) {
  v(1, m.lease_id);
  v.unless_empty(2, m.share_millionths);
  v.unless_empty(3, m.sets_policy);
  v.unless_empty(4, m.sets_priority);
  v(5, m.terms);
  v.unless_empty(6, m.memory_bytes);
}

template <typename V>
void visit(V& v, ParkRequest& m) {
  v(1, m.lease_id);
  v.unless_empty(2, m.wake);
}

template <typename V>
void visit(V& v, ParkReply& m) {
  v(1, m.standing);
  v(2, m.parked_bytes);
  v(3, m.stays_bytes);
  v.unless_empty(4, m.why);
}

template <typename V>
void visit(V& v, PingBody& m) {
  v(1, m.cookie);
}

template <typename V>
void visit(V& v, MeetReply& m) {
  v(1, m.server_id);
  v.unless_empty(2, m.seals);
}

template <typename V>
void visit(V& v, ReachRequest& m) {
  v(1, m.server_id);
}

template <typename V>
void visit(V& v, ReachReply& m) {
  v(1, m.server);
  v.unless_empty(2, m.sealed);
  v(3, m.round_trip_us);
}

template <typename V>
void visit(V& v, EnrollRequest& m) {
  v.unless_empty(1, m.token_id);
  v.unless_empty(2, m.token_secret);
  v.unless_empty(3, m.provider_token);
  v.unless_empty(4, m.wished_name);
  v(5, m.request);
}

template <typename V>
void visit(V& v, RenewRequest& m) {
  v(1, m.certificate);
  v(2, m.request);
}

template <typename V>
void visit(V& v, CertificateReply& m) {
  v(1, m.certificate);
}

template <typename V>
void visit(V& v, DeniedReply& m) {
  v(1, m.list);
}

template <typename V>
void visit(V& v, InviteRequest& m) {
  v(1, m.role);
  v.unless_empty(2, m.name);
  v(3, m.valid_s);
  v.unless_empty(4, m.lifetime_s);
}

template <typename V>
void visit(V& v, InviteReply& m) {
  v(1, m.token);
  v.unless_empty(2, m.address);
}

template <typename V>
void visit(V& v, RevokeRequest& m) {
  v(1, m.whom);
}

template <typename V>
void visit(V& v, RevokeReply& m) {
  v(1, m.count);
}

template <typename V>
void visit(V& v, IssuedRequest& m) {
  v.unless_empty(1, m.after_issued_s);
  v.unless_empty(2, m.after_serial);
}

template <typename V>
void visit(V& v, IssuedCertificate& m) {
  v(1, m.serial);
  v(2, m.identity);
  v(3, m.issued_s);
  v(4, m.ends_s);
  v(5, m.by);
  v.unless_empty(6, m.revoked);
}

template <typename V>
void visit(V& v, IssuedReply& m) {
  v(1, m.certificates);
  v.unless_empty(2, m.more);
}

template <typename V>
void visit(V& v, Hello& m) {
  v.range(uint16_t(Feature::kProtocol), m.protocol_oldest, m.protocol_newest);
  v(uint16_t(Feature::kProductVersion), m.product_version);
  v.unless_empty(uint16_t(Feature::kToken), m.token);
  v(uint16_t(Feature::kBulkChannels), m.bulk_channels);
  v.unless_empty(uint16_t(Feature::kNews), m.hears_news);
  v.unless_empty(uint16_t(Feature::kProvesLater), m.proves_later);
  v.unless_empty(uint16_t(Feature::kNonce), m.nonce);
  v.unless_empty(uint16_t(Feature::kPool), m.pool);
  v.unless_empty(uint16_t(Feature::kTerm), m.term);
  v.unless_empty(uint16_t(Feature::kSchedules), m.schedules);
}

// ---- messages that are impossible although each record is well-formed ----

static bool sensible(const Hello& hello) { return hello.protocol_oldest <= hello.protocol_newest; }
static bool sensible(const TransportOffers& offers) {
  for (const TransportOffer& offer : offers.offers) {
    if (offer.kind.size() > kTransportKindBytesMax || offer.blob.size() > kTransportBlobBytesMax ||
        offer.unavailable.size() > kTransportReasonBytesMax) {
      return false;
    }
  }
  return offers.offers.size() <= kTransportOffersMax;
}
static bool sensible(const TransportAnswers& answers) {
  for (const TransportAnswer& answer : answers.answers) {
    if (answer.kind.size() > kTransportKindBytesMax ||
        answer.blob.size() > kTransportBlobBytesMax ||
        answer.reason.size() > kTransportReasonBytesMax) {
      return false;
    }
  }
  return answers.answers.size() <= kTransportAnswersMax;
}
static bool sensible(const News& news) {
  for (const std::string* line : {&news.text, &news.queue, &news.reason, &news.start}) {
    if (line->size() > kNewsTextBytesMax) return false;
  }
  return true;
}
static bool sensible(const LeaseRequest& request) {
  const PoolWish& wish = request.wish;
  return wish.filter.size() <= kFilterBytesMax && wish.user_class.size() <= kPoolNameBytesMax &&
         wish.account.size() <= kPoolNameBytesMax && wish.layout <= Layout::kSpread &&
         (wish.request_key.empty() || wish.request_key.size() == kRequestKeyBytes);
}
static bool sensible(const AttachRequest& request) {
  return sensible(request.transports) && sensible(request.lease);
}
static bool sensible(const AttachReply& reply) {
  size_t bytes = 0;
  for (const std::string& facts : reply.facts) {
    if (facts.size() > kDeviceFactsBytesMax) return false;
    bytes += facts.size();
  }
  return bytes <= kFactsBytesMax && reply.nccl_versions.size() <= kNcclVersionsMax &&
         sensible(reply.transports);
}

static bool sensible(const MeetReply& reply) { return reply.server_id.size() == kServerIdBytes; }
static bool sensible(const ReachRequest& request) {
  return request.server_id.size() == kServerIdBytes;
}
static bool sensible(const ReachReply& reply) { return reply.server.size() <= kNewsTextBytesMax; }

// A hello must name its range of versions.
static void before_reading(Hello& hello) { hello.protocol_oldest = 1, hello.protocol_newest = 0; }

TENDRIL_CONTROL_MESSAGE(Hello)
TENDRIL_CONTROL_MESSAGE(LeaseRequest)
TENDRIL_CONTROL_MESSAGE(LeaseReply)
TENDRIL_CONTROL_MESSAGE(ListRequest)
TENDRIL_CONTROL_MESSAGE(ListReply)
TENDRIL_CONTROL_MESSAGE(News)
TENDRIL_CONTROL_MESSAGE(AttachRequest)
TENDRIL_CONTROL_MESSAGE(AttachReply)
TENDRIL_CONTROL_MESSAGE(SecuredAttach)
TENDRIL_CONTROL_MESSAGE(JoinRequest)
TENDRIL_CONTROL_MESSAGE(ReleaseRequest)
TENDRIL_CONTROL_MESSAGE(ChangeRequest)
TENDRIL_CONTROL_MESSAGE(ParkRequest)
TENDRIL_CONTROL_MESSAGE(ParkReply)
TENDRIL_CONTROL_MESSAGE(PingBody)
TENDRIL_CONTROL_MESSAGE(MeetReply)
TENDRIL_CONTROL_MESSAGE(ReachRequest)
TENDRIL_CONTROL_MESSAGE(ReachReply)
TENDRIL_CONTROL_MESSAGE(EnrollRequest)
TENDRIL_CONTROL_MESSAGE(RenewRequest)
TENDRIL_CONTROL_MESSAGE(CertificateReply)
TENDRIL_CONTROL_MESSAGE(DeniedReply)
TENDRIL_CONTROL_MESSAGE(InviteRequest)
TENDRIL_CONTROL_MESSAGE(InviteReply)
TENDRIL_CONTROL_MESSAGE(RevokeRequest)
TENDRIL_CONTROL_MESSAGE(RevokeReply)
TENDRIL_CONTROL_MESSAGE(IssuedRequest)
TENDRIL_CONTROL_MESSAGE(IssuedReply)
TENDRIL_CONTROL_MESSAGE(TransportOffers)
TENDRIL_CONTROL_MESSAGE(TransportAnswers)

bool believable(const ControlHeader& header) {
  return header.magic == kHelloMagic && header.bytes <= kControlBytesMax;
}

const char* standing_name(Standing standing) {
  switch (standing) {
    case Standing::kGranted:
      return "granted";
    case Standing::kParking:
      return "parking";
    case Standing::kParked:
      return "parked";
    case Standing::kWaking:
      return "waking";
    case Standing::kReturning:
      return "returning";
  }
  return "unknown";
}

const char* product_version() { return TENDRIL_VERSION; }

}  // namespace tendril::wire
