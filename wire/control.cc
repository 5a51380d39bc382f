// SPDX-License-Identifier: Apache-2.0
// Bodies of the control messages: lists of records (u16 tag, u16 zero, u32 bytes, data), nested for
// structures. Each structure has one list of its fields, `visit`, for both encoding and decoding. A
// reader skips unknown tags, so either side may be newer. The peer is hostile: every list has a
// limit, and nothing is read outside its record. Tags are append-only.
#include "wire/control.h"

#include <type_traits>

#include "wire/decoder.h"
#include "wire/encoder.h"

namespace tendril::wire {
namespace {

constexpr size_t kListMax = 4096;  // slices, GPUs or leases in one message: far above any server

// ---- the fields: v(tag, field); v.unless_empty leaves a field out that says nothing; v.range
// packs two numbers into one record ----

template <typename V>
void visit(V& v, SliceSpec& m) {
  v(1, m.share_millionths);
  v(2, m.memory_bytes);
  v.unless_empty(3, m.packed);
}

template <typename V>
void visit(V& v, ClientInfo& m) {
  v(1, m.host);
  v(2, m.user);
  v(3, m.program);
  v(4, m.pid);
  v.unless_empty(5, m.owner);
  v.unless_empty(6, m.proof);
}

template <typename V>
void visit(V& v, LeaseTerms& m) {
  v(1, m.policy);
  v(2, m.priority);
}

template <typename V>
void visit(V& v, LeaseRequest& m) {
  v(1, m.count);
  v(2, m.slice);
  v(3, m.client);
  v(4, m.terms);
}

template <typename V>
void visit(V& v, SliceGrant& m) {
  v(1, m.gpu_index);
  v(2, m.share_millionths);
  v(3, m.memory_bytes);
  v.unless_empty(4, m.packed);
}

template <typename V>
void visit(V& v, GpuRecord& m) {
  v(1, m.index);
  v(2, m.name);
  v(3, m.uuid);
  v(4, m.pci_bus_id);
  v(5, m.memory_total_bytes);
  v(6, m.memory_used_bytes);
  v(7, m.share_used_millionths);
  v(8, m.utilization_percent);
  v(9, m.temperature_c);
  v(10, m.power_mw);
  v(11, m.memory_usable_bytes);
  v(12, m.memory_promised_bytes);
  v(13, m.process_bytes);
  v(14, m.packed);
  v.unless_empty(15, m.pageable_access);
}

template <typename V>
void visit(V& v, LeaseReply& m) {
  v(1, m.lease_id);
  v(2, m.secret);
  v(3, m.slices);
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
void visit(V& v, ApiRecord& m) {
  v(1, m.name);
  v(2, m.digest);
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
}

template <typename V>
void visit(V& v, ListRequest& m) {
  v(1, m.parts);
  v(2, m.leases_after);
  v(3, m.sessions_after);
  v(4, m.limit);
}

template <typename V>
void visit(V& v, News& m) {
  v(1, m.text);
  v(2, m.place);
  v(3, m.of);
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
}

template <typename V>
void visit(V& v, JoinRequest& m) {
  v(1, m.session_id);
  v(2, m.session_secret);
  v(3, m.channel);
  v.unless_empty(4, m.proof);
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
}

template <typename V>
void visit(V& v, PingBody& m) {
  v(1, m.cookie);
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
void visit(V& v, Hello& m) {
  v.range(uint16_t(Feature::kProtocol), m.protocol_oldest, m.protocol_newest);
  v(uint16_t(Feature::kProductVersion), m.product_version);
  v.unless_empty(uint16_t(Feature::kToken), m.token);
  v(uint16_t(Feature::kBulkChannels), m.bulk_channels);
  v.unless_empty(uint16_t(Feature::kNews), m.hears_news);
  v.unless_empty(uint16_t(Feature::kProvesLater), m.proves_later);
  v.unless_empty(uint16_t(Feature::kNonce), m.nonce);
}

// ---- the two that walk them ----

class Writer {
 public:
  explicit Writer(Encoder* out) : out_(out) {}

  template <typename T>
  void operator()(uint16_t tag, T& value) {
    if constexpr (std::is_enum_v<T>) {
      auto number = std::underlying_type_t<T>(value);
      (*this)(tag, number);
    } else if constexpr (std::is_arithmetic_v<T>) {  // bool: one byte
      head(tag, sizeof value);
      out_->put(value);
    } else {
      head(tag, 0);
      const size_t start = out_->size();
      visit(*this, value);
      out_->patch_u32(start - sizeof(uint32_t), uint32_t(out_->size() - start));
    }
  }
  void operator()(uint16_t tag, std::string& value) {
    head(tag, uint32_t(value.size()));
    out_->bytes(value.data(), value.size());
  }
  template <typename T>
  void operator()(uint16_t tag, std::vector<T>& values) {
    for (T& value : values) (*this)(tag, value);
  }
  template <typename T>
  void unless_empty(uint16_t tag, T& value) {
    if (value != T{}) (*this)(tag, value);
  }
  void range(uint16_t tag, uint16_t first, uint16_t last) {
    uint32_t both = first | uint32_t(last) << 16;
    (*this)(tag, both);
  }

 private:
  void head(uint16_t tag, uint32_t bytes) {
    out_->u16(tag);
    out_->u16(0);
    out_->u32(bytes);
  }
  Encoder* out_;
};

// Takes the records of one message one by one and gives each to the field with its tag. A value of
// the wrong size makes the whole message fail.
class Reader {
 public:
  Reader(const void* data, size_t bytes) : in_(data, bytes) {}
  bool ok() const { return in_.ok(); }

  template <typename Message>
  void all(Message& message) {
    while (next()) visit(*this, message);
  }

  template <typename T>
  void operator()(uint16_t tag, T& value) {
    if (tag == tag_) read(value);
  }
  template <typename T>
  void unless_empty(uint16_t tag, T& value) {
    (*this)(tag, value);
  }
  void range(uint16_t tag, uint16_t& first, uint16_t& last) {
    uint32_t both = first | uint32_t(last) << 16;
    (*this)(tag, both);
    first = uint16_t(both);
    last = uint16_t(both >> 16);
  }

 private:
  bool next() {
    if (!in_.ok() || in_.left() == 0) return false;
    tag_ = in_.u16();
    in_.u16();
    bytes_ = in_.count(1);
    data_ = in_.view(bytes_);
    return in_.ok();
  }
  template <typename T>
  void read(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      uint8_t byte = 0;
      read(byte);
      value = byte != 0;
    } else if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> number{};
      read(number);
      value = T(number);
    } else if constexpr (std::is_arithmetic_v<T>) {
      if (bytes_ != sizeof(T)) return in_.fail();
      std::memcpy(&value, data_, sizeof(T));
    } else {
      Reader inner(data_, bytes_);
      inner.all(value);
      if (!inner.ok()) in_.fail();
    }
  }
  void read(std::string& value) {
    if (bytes_ == 0) return value.clear();
    value.assign(reinterpret_cast<const char*>(data_), bytes_);
  }
  template <typename T>
  void read(std::vector<T>& values) {
    if (values.size() >= kListMax) return in_.fail();
    T value{};
    read(value);
    values.push_back(std::move(value));
  }

  Decoder in_;
  uint16_t tag_ = 0;
  uint32_t bytes_ = 0;
  const uint8_t* data_ = nullptr;
};

// Rejects messages that are impossible although each record is well-formed.
template <typename Message>
bool sensible(const Message&) {
  return true;
}
bool sensible(const Hello& hello) { return hello.protocol_oldest <= hello.protocol_newest; }
bool sensible(const TransportOffers& offers) {
  for (const TransportOffer& offer : offers.offers) {
    if (offer.kind.size() > kTransportKindBytesMax || offer.blob.size() > kTransportBlobBytesMax ||
        offer.unavailable.size() > kTransportReasonBytesMax) {
      return false;
    }
  }
  return offers.offers.size() <= kTransportOffersMax;
}
bool sensible(const TransportAnswers& answers) {
  for (const TransportAnswer& answer : answers.answers) {
    if (answer.kind.size() > kTransportKindBytesMax ||
        answer.blob.size() > kTransportBlobBytesMax ||
        answer.reason.size() > kTransportReasonBytesMax) {
      return false;
    }
  }
  return answers.answers.size() <= kTransportAnswersMax;
}
bool sensible(const News& news) { return news.text.size() <= kNewsTextBytesMax; }
bool sensible(const AttachRequest& request) { return sensible(request.transports); }
bool sensible(const AttachReply& reply) { return sensible(reply.transports); }

template <typename Message>
void before_reading(Message&) {}
// A hello must name its range of versions.
void before_reading(Hello& hello) { hello.protocol_oldest = 1, hello.protocol_newest = 0; }

}  // namespace

template <typename Message>
std::vector<uint8_t> encode(const Message& message) {
  std::vector<uint8_t> body;
  Encoder encoder(&body, kControlBytesMax);
  Writer writer(&encoder);
  visit(writer, const_cast<Message&>(message));  // a Writer only reads
  if (!encoder.finish()) body.clear();
  return body;
}

template <typename Message>
bool decode(const void* data, size_t bytes, Message* message) {
  *message = Message{};
  before_reading(*message);
  Reader reader(data, bytes);
  reader.all(*message);
  return reader.ok() && sensible(*message);
}

#define TENDRIL_CONTROL_MESSAGE(Message)                         \
  template std::vector<uint8_t> encode<Message>(const Message&); \
  template bool decode<Message>(const void*, size_t, Message*);
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
TENDRIL_CONTROL_MESSAGE(PingBody)
TENDRIL_CONTROL_MESSAGE(EnrollRequest)
TENDRIL_CONTROL_MESSAGE(RenewRequest)
TENDRIL_CONTROL_MESSAGE(CertificateReply)
TENDRIL_CONTROL_MESSAGE(DeniedReply)
TENDRIL_CONTROL_MESSAGE(TransportOffers)
TENDRIL_CONTROL_MESSAGE(TransportAnswers)
#undef TENDRIL_CONTROL_MESSAGE

bool believable(const ControlHeader& header) {
  return header.magic == kHelloMagic && header.bytes <= kControlBytesMax;
}

const char* product_version() { return TENDRIL_VERSION; }

}  // namespace tendril::wire
