// SPDX-License-Identifier: Apache-2.0
// Bytes of records: a version, then the fields in order. Requests and servers' facts travel inside
// as messages of the control protocol, which tolerates other versions.
#include "pool/scheduler/records.h"

#include <type_traits>

#include "wire/decoder.h"
#include "wire/encoder.h"

namespace tendril::pool {
namespace {

// 2: grants know that they end. 3: requests may be held.
constexpr uint32_t kVersion = 3, kVersionEndings = 2, kVersionHolds = 3;
constexpr uint32_t kListMax = 65'536;

class Packer {
 public:
  uint32_t version() const { return kVersion; }
  void operator()(std::string& value) {
    (*this)(uint32_t(value.size()));
    bytes_ += value;
  }
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  void operator()(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename T>
  void list(std::vector<T>& values) {
    (*this)(uint32_t(values.size()));
    for (T& value : values) visit(*this, value);
  }
  void labels(std::map<std::string, std::string>& values) {
    (*this)(uint32_t(values.size()));
    for (auto& [key, value] : values) {
      std::string copy = key;
      (*this)(copy);
      (*this)(value);
    }
  }
  template <typename Message>
  void message(Message& message) {
    const std::vector<uint8_t> body = wire::encode(message);
    std::string text(body.begin(), body.end());
    (*this)(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(const std::string& bytes) : in_(bytes.data(), bytes.size()) {
    (*this)(version_);
  }
  uint32_t version() const { return version_; }
  void operator()(std::string& value) { value = in_.text(); }
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  void operator()(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = in_.u8() != 0;
    } else {
      in_.get(&value);
    }
  }
  template <typename T>
  void list(std::vector<T>& values) {
    const uint32_t count = in_.count(1);
    if (count > kListMax) in_.fail();
    for (uint32_t i = 0; i < count && in_.ok(); ++i) visit(*this, values.emplace_back());
  }
  void labels(std::map<std::string, std::string>& values) {
    const uint32_t count = in_.count(2 * sizeof(uint32_t));
    for (uint32_t i = 0; i < count && in_.ok(); ++i) {
      std::string key = in_.text();
      values[key] = in_.text();
    }
  }
  template <typename Message>
  void message(Message& message) {
    const std::string body = in_.text();
    if (in_.ok() && !wire::decode(body.data(), body.size(), &message)) in_.fail();
  }
  bool done() const { return in_.done(); }

 private:
  wire::Decoder in_;
  uint32_t version_ = 0;
};

template <typename V>
void visit(V& v, std::string& text) {
  v(text);
}

template <typename V>
void visit(V& v, MetaRecord& r) {
  v(r.ids_used);
}

template <typename V>
void visit(V& v, PolicyRecord& r) {
  v(r.revision);
  v(r.text);
}

template <typename V>
void visit(V& v, MaintenanceWindow& r) {
  v(r.from_s);
  v(r.to_s);
  v(r.why);
}

template <typename V>
void visit(V& v, ServerRecord& r) {
  v(r.name);
  // Facts are part of a report, and have no codec of their own.
  wire::PoolReport report;
  report.facts.push_back(r.facts);
  v.message(report);
  if (!report.facts.empty()) r.facts = report.facts[0];
  v(r.drained);
  v(r.drain_why);
  v.labels(r.labels);
  v.list(r.maintenance);
}

template <typename V>
void visit(V& v, EndedRecord& r) {
  v(r.boot);
  v(r.number);
}

template <typename V>
void visit(V& v, RequestRecord& r) {
  v(r.id);
  v(r.owner_id);
  v(r.owner_name);
  v(r.role);
  v(r.host);
  v.list(r.groups);
  v(r.account);
  v(r.user_class);
  v(r.submitted_s);
  v.message(r.request);
  if (v.version() < kVersionHolds) return;
  v(r.held);
  v(r.held_by_operator);
}

template <typename V>
void visit(V& v, wire::SliceGrant& r) {
  v(r.gpu_index);
  v(r.share_millionths);
  v(r.memory_bytes);
  v(r.packed);
}

template <typename V>
void visit(V& v, PartRecord& r) {
  v(r.server);
  v.list(r.slices);
  if (v.version() < kVersionEndings) return;
  v(r.server_lease_id);
  v(r.boot);
  v(r.given_gpu_ns);
  v(r.given_rest);
  v(r.given_age_ns);
}

template <typename V>
void visit(V& v, GrantRecord& r) {
  visit(v, r.request);
  v(r.lease_id);
  v(r.granted_s);
  v(r.committed);
  v(r.gpu_class);
  v(r.lost_parts);
  v.list(r.parts);
  if (v.version() < kVersionEndings) return;
  v(r.local);
  v(r.ending);
  v(r.end_why);
}

template <typename V>
void visit(V& v, UsageRecord& r) {
  v(r.account);
  v(r.gpu_seconds);
}

struct Tenth {
  double value = 0;
};
template <typename V>
void visit(V& v, Tenth& r) {
  v(r.value);
}

template <typename V>
void visit(V& v, DurationRecord& r) {
  v(r.user_class);
  std::vector<Tenth> tenths;
  for (double value : r.tenths) tenths.push_back({value});
  v.list(tenths);
  r.tenths.clear();
  for (const Tenth& tenth : tenths) r.tenths.push_back(tenth.value);
}

template <typename V>
void visit(V& v, EngineRecord& r) {
  v.list(r.usage);
  v.list(r.durations);
}

template <typename V>
void visit(V& v, EventRecord& r) {
  v(r.at_ms);
  v(r.id);
  v(r.line);
}

template <typename V>
void visit(V& v, EventsRecord& r) {
  v(r.number);
  v.list(r.events);
}

}  // namespace

template <typename Record>
std::string pack(const Record& record) {
  Packer packer;
  packer(kVersion);
  Record copy = record;
  visit(packer, copy);
  return packer.take();
}

template <typename Record>
bool unpack(const std::string& bytes, Record* record) {
  Unpacker unpacker(bytes);
  if (unpacker.version() == 0 || unpacker.version() > kVersion) return false;
  visit(unpacker, *record);
  return unpacker.done();
}

#define TENDRIL_POOL_RECORD(Record)         \
  template std::string pack(const Record&); \
  template bool unpack(const std::string&, Record*);
TENDRIL_POOL_RECORD(MetaRecord)
TENDRIL_POOL_RECORD(PolicyRecord)
TENDRIL_POOL_RECORD(ServerRecord)
TENDRIL_POOL_RECORD(EndedRecord)
TENDRIL_POOL_RECORD(RequestRecord)
TENDRIL_POOL_RECORD(GrantRecord)
TENDRIL_POOL_RECORD(EngineRecord)
TENDRIL_POOL_RECORD(EventsRecord)

}  // namespace tendril::pool
