// SPDX-License-Identifier: Apache-2.0
// The control protocol between a client (library or command line) and tendrild: hello, then one
// request and one reply at a time. It serves attaching, listing, leasing and diagnosis. Calls of
// the API never travel here. Both ends may have different versions. Hello is a list of (feature,
// data) records, and every message tolerates unknown records. Decoding is bounded and never trusts
// a count (wire/decoder.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::wire {

inline constexpr uint16_t kDefaultPort = 7433;
inline constexpr uint32_t kHelloMagic = 0x44524e54;  // "TNRD"
// 2: attach names the API and its digest. Before, hello did.
inline constexpr uint16_t kProtocolVersion = 2;
inline constexpr uint32_t kControlBytesMax = 1u << 20;

enum class Feature : uint16_t {
  kProtocol = 1,  // u16 oldest, u16 newest understood
  // 2 was the digest of the GPU's calls, before protocol 2
  kProductVersion = 3,  // text, for messages only
  kToken = 4,           // client -> daemon: the shared secret; never logged
  // 5 was the boot id, before protocol 2; an offer of shared memory has it now
  kBulkChannels = 6,  // u16 wished / granted
  kNews = 7,          // u8: the client wants to know why it waits
  // client -> daemon: it has proven nothing yet, and will prove itself in its request
  kProvesLater = 20,
  kNonce = 21,  // daemon -> client: fresh random bytes; attaching must be secured with them
  // A pool's scheduler -> all: its pool's name; its term; u8: it schedules, it is no standby
  kPool = 22,
  kTerm = 23,
  kSchedules = 24,
};
inline constexpr size_t kNonceBytes = 32;

struct Hello {
  uint16_t protocol_oldest = kProtocolVersion;
  uint16_t protocol_newest = kProtocolVersion;
  std::string product_version;
  std::string token;
  uint16_t bulk_channels = 0;
  bool hears_news = false;
  bool proves_later = false;
  std::string nonce;
  std::string pool;  // empty: this is no pool
  uint64_t term = 0;
  bool schedules = false;
};

enum class Request : uint16_t {
  kPing = 1,
  kList = 2,     // ListRequest or nothing -> ListReply
  kLease = 3,    // LeaseRequest -> LeaseReply; the lease lives while this connection does
  kAttach = 4,   // AttachRequest -> AttachReply; the connection becomes the session's command lane
  kJoin = 5,     // JoinRequest -> Status; the connection becomes a bulk channel of a session
  kRelease = 6,  // end a lease by id (administration)
  // JoinRequest, over a unix socket. The descriptor of the worker's answer travels with the reply.
  kFetch = 7,
  // JoinRequest: the client accepts the worker's first answer. The session begins on that
  // transport. No connections are joined, unless the channel is kUseWithConnections.
  kUse = 8,
  kChange = 9,  // ChangeRequest: new terms for a live lease (administration)
  // Passages (daemon/passages/)
  kMeet = 10,   // -> MeetReply; another server asks who this one is. Proves nothing, gives nothing
  kReach = 11,  // ReachRequest -> ReachReply; a user asks for the way to another server
  kPark = 12,   // ParkRequest -> ParkReply, when it is done (administration)
  // SecuredAttach -> SecuredAttach: kAttach inside a handshake that proves to each end that the
  // other knows a secret (session/control/secure_attach.h)
  kSecuredAttach = 20,
  // Identities, inside TLS only. identity/service.h answers them.
  kEnroll = 30,  // EnrollRequest -> CertificateReply; from somebody without a certificate
  kRenew = 31,   // RenewRequest -> CertificateReply
  kDenied = 32,  // -> DeniedReply; from servers of the pool
  kInvite = 33,  // InviteRequest -> InviteReply; from administrators, as the next
  kRevoke = 34,  // RevokeRequest -> RevokeReply
  kIssued = 35,  // IssuedRequest -> IssuedReply
  // Pools (wire/pool.h)
  kPoolReport = 40,   // PoolReport -> PoolOrders; from a server to its scheduler, again and again
  kClaim = 41,        // ClaimRequest -> LeaseReply; the lease lives while this connection does
  kPoolCommand = 42,  // PoolCommand -> PoolAnswer (administration)
};

// The version of this build, "0.1.0", for hello and messages.
const char* product_version();

// A slice: a part of one GPU. Exactly one of share and memory_bytes may be 0: the server then
// derives it from the other.
struct SliceSpec {
  uint32_t share_millionths =
      1'000'000;  // of one GPU's time and, unless memory_bytes is given, of its memory
  uint64_t memory_bytes = 0;
  bool packed = false;  // runs at the same time as other packed tenants, instead of in turns
};

// What a lease may use beyond its shares, and in which order leases are served.
enum class SharePolicy : uint8_t {
  kLend = 0,  // also idle time of the others
  kCap = 1,   // never more than its shares
};
inline constexpr int32_t kPriorityMax = 100;  // the least is -100; the default is 0
struct LeaseTerms {
  SharePolicy policy = SharePolicy::kLend;
  int32_t priority = 0;  // higher is served first, and gets no more
};

// What a client says of itself. In lists the server adds who the owner of the lease is, and how
// that was proven: "certificate", "uid", "token" or "none". In a request it ignores both.
struct ClientInfo {
  std::string host, user, program;
  uint32_t pid = 0;
  std::string owner, proof;
};

// One API that a server's workers serve. A client with another digest has other layouts of the
// calls.
struct ApiRecord {
  std::string name;     // "cuda"; at most kApiNameBytesMax
  uint64_t digest = 0;  // over the layouts of its messages
};
inline constexpr size_t kApiNameBytesMax = 32;

// How a pool puts the slices of one request on servers.
enum class Layout : uint8_t {
  kAny = 0,        // as it suits the pool
  kOneServer = 1,  // all on one server
  kPack = 2,       // on as few servers as possible
  kSpread = 3,     // on as many servers as possible
};

// What a request asks of a pool, beyond slices. A lone server ignores it.
struct PoolWish {
  std::string filter;               // pool/filter; empty: any GPU
  std::string user_class, account;  // empty: what the policy assigns
  Layout layout = Layout::kAny;
  uint64_t longest_s = 0;     // the lease ends then; 0: the longest that its class has
  bool refuses_wait = false;  // it is refused if it cannot start at once
  bool requeues = false;      // the program may be ended and started again
  uint32_t restarts = 0;      // how often that happened
  std::string request_key;    // kRequestKeyBytes random bytes: the same request again has the same
  std::vector<ApiRecord> apis;  // of the client's libraries; a server with others is of no use
};
inline constexpr size_t kRequestKeyBytes = 16;
inline constexpr size_t kFilterBytesMax = 1024, kPoolNameBytesMax = 64;

struct LeaseRequest {
  uint32_t count = 1;  // slices, each on a separate GPU; all or nothing
  SliceSpec slice;
  ClientInfo client;
  LeaseTerms terms;
  PoolWish wish;
};

// Whether a lease's GPU memory is on its GPUs (lease/parking.h says what each means).
enum class Standing : uint8_t { kGranted = 0, kParking, kParked, kWaking, kReturning };
const char* standing_name(Standing standing);

// One GPU as part of a lease or list; API-neutral.
struct GpuRecord {
  uint32_t index = 0;  // on its server
  std::string name;
  std::string uuid;  // 16 raw bytes
  std::string pci_bus_id;
  uint64_t memory_total_bytes = 0;  // of the whole GPU
  uint64_t memory_used_bytes = 0;   // by all leases
  uint32_t share_used_millionths = 0;
  // What placement needs (lease/placement.h): what the GPU lends, how much of it is promised, what
  // a process needs before it allocates anything, and whether the GPU's tenants are packed.
  uint64_t memory_usable_bytes = 0, memory_promised_bytes = 0, process_bytes = 0;
  bool packed = false;
  bool pageable_access = false;     // kernels reach all memory of their worker process
  uint32_t compute_capability = 0;  // 90 for 9.0; 0: not known
  // Of an OpenCL device: "accelerator", who made it, "3.0", words. Otherwise empty.
  std::string type, vendor, opencl_version, extensions;
  // From the vendor's monitoring library, if the server has it; -1: unknown.
  int32_t utilization_percent = -1, temperature_c = -1, power_mw = -1;
};

struct SliceGrant {
  uint32_t gpu_index = 0;
  uint32_t share_millionths = 0;
  uint64_t memory_bytes = 0;
  bool packed = false;
};

// The part of a pool's grant that is on one server. The client claims it there (wire/pool.h).
struct LeasePart {
  std::string server;    // its name in the pool, as its certificate proves it
  std::string endpoint;  // "host:port"
  uint64_t lease_id = 0;
  std::string secret;
  std::vector<SliceGrant> slices;
};

struct LeaseReply {
  uint64_t lease_id = 0;
  std::string secret;  // needed to attach to it; never logged
  std::vector<SliceGrant>
      slices;  // ordinal in this vector = device ordinal the program sees on this server
  // From a pool only: then lease_id is the pool's, and neither secret nor slices are set. Ordinals
  // of devices follow this order.
  std::vector<LeasePart> parts;
  uint64_t waited_s = 0;
};

// How much of its GPU's time a slice has had, in turns.
struct SliceUse {
  bool measured = false;           // false if the lease has the whole GPU, or the slice is packed
  uint32_t recent_millionths = 0;  // over the last ten seconds
  uint64_t used_ns = 0;            // in all
  uint64_t waited_ns = 0;          // with work but without a turn
  uint64_t age_ns = 0;
};

// Copies between a lease's sessions here and those on another server have a connection.
struct PassageRecord {
  std::string server;  // its address, or as this server's operator wrote it
  bool sealed = false;
  std::string way;  // "rdma (3.4x)", "tcp"; empty: over its connections, and nothing else was tried
};

struct LeaseRecord {
  uint64_t lease_id = 0;
  ClientInfo client;
  std::vector<SliceGrant> slices;
  std::vector<uint64_t> memory_used_bytes;  // per slice
  uint32_t processes = 0;                   // attached now
  uint64_t age_s = 0;
  LeaseTerms terms;
  bool windows = false;        // it has turns together with its program's leases on other servers
  std::vector<SliceUse> uses;  // per slice
  // How its sessions' data travels, each way once: "sealed(tcp), shm". Empty: nobody is attached.
  std::string links;
  std::vector<PassageRecord> passages;  // of its sessions, each other server once
  // Whether its memory is on its GPUs, and since when; what of memory_used_bytes is in the host's
  // memory; how often that was so.
  Standing standing = Standing::kGranted;
  uint64_t standing_s = 0;
  std::vector<uint64_t> memory_parked_bytes;  // per slice; empty: none
  uint64_t parks = 0;
};

// A session and its worker's counts of what it has done so far.
struct SessionRecord {
  uint64_t session_id = 0, lease_id = 0;
  ClientInfo client;
  uint32_t worker_pid = 0;
  uint64_t age_s = 0;
  std::vector<uint64_t> memory_used_bytes;  // per slice of its lease
  uint64_t calls = 0, launches = 0, replies = 0;
  uint64_t bytes_in = 0, bytes_out = 0;  // to the server, from the server
  uint64_t awaited_ns = 0;               // time in which a reply was due
  bool measured = false;                 // whether gpu_ns is known
  uint64_t gpu_ns = 0;                   // GPU time in turns, over all slices
  uint64_t processor_ns = 0;             // of its worker
  bool waiting = false;                  // a reply is due now
  std::string link;  // how its data travels: "tcp", "sealed(tcp)", "shm"; empty: not yet
};

// Which part of the list is wanted. Without a limit: all of it, as before there were parts; then a
// list that is too long for one message is refused.
enum ListParts : uint32_t { kListServer = 1, kListLeases = 2, kListSessions = 4, kListAll = 7 };
struct ListRequest {
  uint32_t parts = kListAll;
  uint64_t leases_after = 0, sessions_after = 0;  // only those with greater ids
  uint32_t limit = 0;                             // of leases and of sessions
  // So many GPUs at once, after as many as were listed. A pool may have thousands. 0: all, as
  // before they came in parts.
  uint32_t gpus_after = 0, gpu_limit = 0;
};
inline constexpr uint32_t kListPageMax = 512, kGpuPageMax = 2048;

// In the order of their ids. `more_...`: there are others with greater ids.
struct ListReply {
  std::string server;  // host name
  std::string product_version;
  std::string driver;           // path of the vendor library, for people
  uint32_t driver_version = 0;  // e.g. 13000
  std::vector<GpuRecord> gpus;
  std::vector<LeaseRecord> leases;
  std::vector<SessionRecord> sessions;
  uint64_t now_ns = 0;  // the server's clock when this was written; used to compute rates
  std::vector<ApiRecord> apis;
  bool more_leases = false, more_sessions = false, more_gpus = false;
  std::vector<uint32_t> nccl_versions;  // that it lends, as 22809 for 2.28.9; the highest first
  std::string server_id;  // random, new at each start; no secret. Empty: a scheduler's list
  // What the last session over RDMA made of GPUDirect, for people. Empty: none could have it.
  std::string gpudirect;
};

// Why a request waits. Sent any number of times before its answer, to clients that said they hear
// news.
struct News {
  std::string text;            // for people: "other programs attach first"
  uint32_t place = 0, of = 0;  // in the queue, from 1; 0: in no queue
  // From a pool, each a line for people or empty: "top (account vision)"; "Quota: vision holds 4.0
  // of 4.0 top"; "between 14:10 (if reclaimed) and 16:40 (when lease 311 reaches its limit)".
  std::string queue, reason, start;
};
inline constexpr size_t kNewsTextBytesMax = 256;

// A kind of transport that the client's build has. If `unavailable` is not empty, it says why the
// kind cannot be used there, and there is no blob.
struct TransportOffer {
  std::string kind;
  std::string blob;  // for the transport at the worker
  std::string unavailable;
};
struct TransportOffers {
  std::vector<TransportOffer> offers;
};
// The worker's answers. The first is its choice. If that has channels of its own, a second answer
// uses the session's connections. If the client cannot use the first after all, it joins
// connections instead of sending kUse.
struct TransportAnswer {
  std::string kind;
  std::string blob;    // for the transport at the client
  std::string reason;  // for people
};
struct TransportAnswers {
  std::vector<TransportAnswer> answers;
};
inline constexpr size_t kTransportKindBytesMax = 16, kTransportBlobBytesMax = 1024,
                        kTransportReasonBytesMax = 512, kTransportOffersMax = 8,
                        kTransportAnswersMax = 2;

struct AttachRequest {
  uint64_t lease_id = 0;  // 0: take `lease` implicitly, for the life of this session
  std::string secret;
  LeaseRequest lease;
  ClientInfo client;
  uint16_t bulk_channels = 0;  // wished
  // The API of the session, and the digest of the client's description of it. A process has one
  // session per API. They may be on one lease.
  std::string api;
  uint64_t api_digest = 0;
  TransportOffers transports;
  bool insists_on_sealing = false;  // it wants no session whose data travel in clear
  // Asks only what the lease's devices are. No session begins.
  bool only_looks = false;
  // The program may work with GPUs of other servers (NCCL), so its worker needs a network.
  bool collectives = false;
  // Of a program with parts of GPUs on several servers, the same for all: its turns come in common
  // windows (docs/decisions/0029-gang-windows.md). 0: none. The first that a lease's sessions name
  // holds for the lease.
  uint64_t gang = 0;
  // How long a cut of the network may last before the session is lost; 0: any cut ends it. The
  // server may grant less.
  uint32_t outage_ms = 0;
};
inline constexpr uint32_t kOutageMs = 30'000;  // unless somebody says so
inline constexpr uint32_t kOutageMsMax = 24 * 3600 * 1000;

struct AttachReply {
  uint64_t session_id = 0;
  std::string session_secret;  // for Join
  LeaseReply lease;
  uint16_t bulk_channels = 0;  // granted: join this many if the transport uses connections
  // The server's unix socket (leading '@': abstract) that gives the answer's descriptor. Empty:
  // there is none.
  std::string descriptor_socket;
  TransportAnswers transports;
  bool sealed = false;  // connections of this session carry sealed records
  // For one that only looks: what the API says of each slice's device, in its own words. Empty: the
  // server cannot say it without a session.
  std::vector<std::string> facts;
  std::vector<uint32_t> nccl_versions;  // as in ListReply
  // Granted, if the session uses connections. Then it has one more, for acknowledgements, which
  // joins as the channel behind the bulk channels.
  uint32_t outage_ms = 0;
};
inline constexpr size_t kNcclVersionsMax = 64;
// Of one device. An answer inside a handshake has 64 KiB for all.
inline constexpr size_t kDeviceFactsBytesMax = 8u << 10, kFactsBytesMax = 48u << 10;

struct JoinRequest {
  uint64_t session_id = 0;
  std::string session_secret;  // of a session that was attached without a handshake
  uint16_t channel = 0;
  std::string proof;  // of one with a handshake: made with its key, for this request and channel
  // After a cut: the client connects all of its channels again, and counts how often it does. The
  // connection that attached joins as the last channel, behind the one for acknowledgements. 0: the
  // session begins.
  uint32_t attempt = 0;
  // Not sent: the nonce of the server's hello on this connection, which such a proof covers. So
  // nobody can repeat what the client sent.
  std::string nonce;
};

// As JoinRequest::channel of kUse: the session outlasts cuts, so its connections are joined, too.
inline constexpr uint16_t kUseWithConnections = 1;

// Channels from here on are a trial's: as many as the session has bulk channels, at least one. The
// worker measures with the client whether the first answer's transport is better, and the session
// then goes over to it (session/choice/trial.h).
inline constexpr uint16_t kTrialChannels = 0x2000;

// Channels from here on are passages to other servers' workers (wire/assignment.h): this, the bit
// if its bytes are sealed, and the passage's number. The proof is made with the passage's own key.
inline constexpr uint16_t kPassageChannels = 0x8000;
inline constexpr uint16_t kSealedPassage = 0x4000;

// What the two ends of a secured attach know in common.
enum class AttachKey : uint8_t {
  kLeaseSecret = 0,
  kToken = 1,  // of a server with one secret
};
struct SecuredAttach {
  AttachKey key = AttachKey::kLeaseSecret;
  uint64_t lease_id = 0;  // whose secret it is
  std::string message;    // of the handshake; the request or its answer is sealed in it
};

// ---- how they look on the wire (docs/wire.md) ----

// Starts every control message, including hello. This header and the error message never change. So
// versions that share nothing else can still report that.
struct ControlHeader {
  uint32_t magic = kHelloMagic;
  uint32_t bytes = 0;  // of the body that follows; at most kControlBytesMax
  uint16_t kind = 0;   // 0 = hello, otherwise Request; a reply repeats the request's kind
  uint16_t code = 0;   // base::Code; if not kOk, the body is a message for people, as plain text
  uint32_t reserved = 0;
};
static_assert(sizeof(ControlHeader) == 16);
inline constexpr uint16_t kHelloKind = 0;
inline constexpr uint16_t kNewsKind = 0x8000;  // News; from the server only

// Bodies. Encoding appends only the body. Decoding returns false for anything malformed and ignores
// unknown records. Overloaded for Hello, LeaseRequest, LeaseReply, ListRequest, ListReply,
// AttachRequest, AttachReply, SecuredAttach, JoinRequest, ReleaseRequest, ChangeRequest, PingBody,
// ParkRequest, ParkReply, MeetReply, ReachRequest, ReachReply, News, EnrollRequest, RenewRequest,
// CertificateReply, DeniedReply, InviteRequest, InviteReply, RevokeRequest, RevokeReply,
// TransportOffers, TransportAnswers. An encoding that would be too long is empty.
struct ReleaseRequest {
  uint64_t lease_id = 0;
};
// Values that are not set stay the same. A program that asked before how much memory its device has
// goes on believing it.
struct ChangeRequest {
  uint64_t lease_id = 0;
  uint32_t share_millionths = 0;  // of each slice; 0: not set
  bool sets_policy = false, sets_priority = false;
  LeaseTerms terms;
  uint64_t memory_bytes = 0;  // of each slice; 0: not set
};
// Moves a lease's device memory to the host's memory of its server, or back.
struct ParkRequest {
  uint64_t lease_id = 0;
  bool wake = false;
};
struct ParkReply {
  Standing standing = Standing::kGranted;
  uint64_t parked_bytes = 0, stays_bytes = 0;  // of its GPU memory: in the host's, and not
  std::string why;                             // it was not parked the last time; for people
};
struct PingBody {
  uint64_t cookie = 0;
};
struct MeetReply {
  std::string server_id;  // as in ListReply
  bool seals = false;     // by this server's rule, data to whoever asks travels sealed
};
struct ReachRequest {
  std::string server_id;  // whom to look for among the servers that the operator named
};
struct ReachReply {
  std::string server;          // as the operator wrote it
  bool sealed = false;         // by the rule of one of the two, data between them travels sealed
  uint32_t round_trip_us = 0;  // of a message between them
};
// Asks for a certificate with a join token, or with the signed token of an identity provider.
struct EnrollRequest {
  std::string token_id, token_secret;
  std::string provider_token;
  std::string wished_name;  // an open invitation lets the client choose
  std::string request;      // for a certificate (DER)
};
struct RenewRequest {
  std::string certificate;  // the old one (PEM)
  std::string request;      // with the same key
};
struct CertificateReply {
  std::string certificate;  // PEM
};
struct DeniedReply {
  std::string list;  // identity::DenyList
};
struct InviteRequest {
  std::string role;         // "user"
  std::string name;         // empty: who joins chooses
  uint64_t valid_s = 0;     // of the token
  uint64_t lifetime_s = 0;  // of the certificates; 0: by the role
};
struct InviteReply {
  std::string token;    // identity::JoinToken
  std::string address;  // where it is used; empty: unknown
};
struct RevokeRequest {
  std::string whom;  // a name, ROLE/NAME, a serial number or a token's id
};
struct RevokeReply {
  uint64_t count = 0;  // of certificates and tokens
};
// Only those behind the one that is named. Without a serial: from the beginning.
struct IssuedRequest {
  uint64_t after_issued_s = 0;
  std::string after_serial;
};
struct IssuedCertificate {
  std::string serial, identity;  // "spiffe://POOL/ROLE/NAME"
  uint64_t issued_s = 0, ends_s = 0;
  std::string by;  // identity::Authority::IssuedRecord
  bool revoked = false;
};
inline constexpr size_t kIssuedPageMax = 512;
// By the time of issue, then by serial.
struct IssuedReply {
  std::vector<IssuedCertificate> certificates;  // kIssuedPageMax at most
  bool more = false;
};

template <typename Message>
std::vector<uint8_t> encode(const Message& message);
template <typename Message>
bool decode(const void* data, size_t bytes, Message* message);

// True if header and size are plausible. The body may then be read.
bool believable(const ControlHeader& header);

}  // namespace tendril::wire
