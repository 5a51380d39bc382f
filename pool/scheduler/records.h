// SPDX-License-Identifier: Apache-2.0
// What the scheduler keeps in the store: records, their keys, and their bytes. A reader is bounded,
// trusts no count and says false for anything malformed: a store may be damaged, or of another
// version. Times are wall seconds, because a scheduler's monotonic clock does not outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pool/engine/engine.h"
#include "wire/pool.h"

namespace tendril::pool {

struct MetaRecord {
  uint64_t ids_used = 0;  // no id up to this is given again
};

struct PolicyRecord {
  uint64_t revision = 0;
  std::string text;
};

struct MaintenanceWindow {
  int64_t from_s = 0, to_s = 0;
  std::string why;
};
struct ServerRecord {
  std::string name;
  wire::ServerFacts facts;  // as last reported, without what changes all the time
  bool drained = false;
  std::string drain_why;
  std::map<std::string, std::string> labels;  // an administrator's
  std::vector<MaintenanceWindow> maintenance;
};

// Leases of this boot up to this number are recorded.
struct EndedRecord {
  uint64_t boot = 0, number = 0;
};

// A request that waits.
struct RequestRecord {
  uint64_t id = 0;
  std::string owner_id, owner_name, role, host;
  std::vector<std::string> groups;
  std::string account, user_class;
  int64_t submitted_s = 0;
  wire::LeaseRequest request;
  std::string held;  // somebody keeps it from starting; who and why
  bool held_by_operator = false;
};

struct PartRecord {
  std::string server;
  std::vector<wire::SliceGrant> slices;
  uint64_t server_lease_id = 0, boot = 0;  // 0: not known when it was written
  // GPUs that it had, times the time, up to that age of the lease.
  uint64_t given_gpu_ns = 0, given_rest = 0, given_age_ns = 0;
};
// A request that was granted, written before any server commits; or a lease that is to end, also
// one that a server granted by itself.
struct GrantRecord {
  RequestRecord request;
  uint64_t lease_id = 0;  // by which servers know it
  int64_t granted_s = 0;
  bool committed = false;  // by all servers, so the client may have its answer
  std::string gpu_class;
  bool lost_parts = false;        // others ended, and are recorded
  std::vector<PartRecord> parts;  // those that have not
  bool local = false;             // its server granted it by itself
  bool ending = false;            // it was released, and its servers are told to end it
  std::string end_why;
};

struct EngineRecord {
  std::vector<UsageRecord> usage;
  std::vector<DurationRecord> durations;
};

// A line of the audit log, for who looks later (scheduler/journal.h).
struct EventRecord {
  uint64_t at_ms = 0;  // since 1970; grows from one to the next
  std::string id;      // of who it was
  std::string line;    // a JSON object
};
struct EventsRecord {
  uint64_t number = 0;  // counts the records of one kind, from 1
  std::vector<EventRecord> events;
};

template <typename Record>
std::string pack(const Record& record);
template <typename Record>
bool unpack(const std::string& bytes, Record* record);

namespace keys {
inline const std::string kMeta = "pool/meta";
inline const std::string kPolicy = "pool/policy";
inline const std::string kUsage = "pool/usage";
inline const std::string kServer = "pool/server/";
inline const std::string kEnded = "pool/ended/";
inline const std::string kRequest = "pool/request/";
inline const std::string kGrant = "pool/grant/";
}  // namespace keys

}  // namespace tendril::pool
