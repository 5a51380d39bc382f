// SPDX-License-Identifier: Apache-2.0
// Bodies of the control messages: lists of records (u16 tag, u16 zero, u32 bytes, data), nested for structures. A reader skips tags it
// does not know, so either side may be newer. The peer is hostile: every list has a limit and nothing is read outside its record.
// Tags are append-only.
#include "wire/control.h"

#include "wire/decoder.h"
#include "wire/encoder.h"

namespace tendril::wire {
namespace {

constexpr size_t kListMax = 4096;  // slices, GPUs or leases in one message: far above any server

class Writer {
 public:
  explicit Writer(Encoder* out) : out_(out) {}
  template <typename T>
  void number(uint16_t tag, T value) {
    head(tag, sizeof value);
    out_->put(value);
  }
  void text(uint16_t tag, const std::string& value) {
    head(tag, uint32_t(value.size()));
    out_->bytes(value.data(), value.size());
  }
  template <typename T>
  void message(uint16_t tag, const T& value) {
    head(tag, 0);
    size_t start = out_->size();
    write(this, value);
    out_->patch_u32(start - sizeof(uint32_t), uint32_t(out_->size() - start));
  }

 private:
  void head(uint16_t tag, uint32_t bytes) {
    out_->u16(tag);
    out_->u16(0);
    out_->u32(bytes);
  }
  Encoder* out_;
};

// Walks the records of one message. Values of the wrong size fail the whole message.
class Reader {
 public:
  Reader(const void* data, size_t bytes) : in_(data, bytes) {}
  bool next() {
    if (!in_.ok() || in_.left() == 0) return false;
    tag_ = in_.u16();
    in_.u16();
    bytes_ = in_.count(1);
    data_ = in_.view(bytes_);
    return in_.ok();
  }
  uint16_t tag() const { return tag_; }
  bool ok() const { return in_.ok(); }

  template <typename T>
  void number(T* value) {
    if (bytes_ != sizeof(T)) return in_.fail();
    std::memcpy(value, data_, sizeof(T));
  }
  void text(std::string* value) {
    if (bytes_ == 0) return value->clear();
    value->assign(reinterpret_cast<const char*>(data_), bytes_);
  }
  template <typename T>
  void message(T* value) {
    Reader inner(data_, bytes_);
    read(&inner, value);
    if (!inner.ok()) in_.fail();
  }
  template <typename T>
  void list(std::vector<T>* values) {
    if (values->size() >= kListMax) return in_.fail();
    T value{};
    message(&value);
    values->push_back(std::move(value));
  }
  void numbers(std::vector<uint64_t>* values) {
    if (values->size() >= kListMax) return in_.fail();
    uint64_t value = 0;
    number(&value);
    values->push_back(value);
  }
  Decoder raw() const { return Decoder(data_, bytes_); }
  void fail() { in_.fail(); }

 private:
  Decoder in_;
  uint16_t tag_ = 0;
  uint32_t bytes_ = 0;
  const uint8_t* data_ = nullptr;
};

void write(Writer* out, const SliceSpec& value) {
  out->number(1, value.share_millionths);
  out->number(2, value.memory_bytes);
}
void read(Reader* in, SliceSpec* value) {
  while (in->next()) {
    if (in->tag() == 1) in->number(&value->share_millionths);
    if (in->tag() == 2) in->number(&value->memory_bytes);
  }
}

void write(Writer* out, const ClientInfo& value) {
  out->text(1, value.host);
  out->text(2, value.user);
  out->text(3, value.program);
  out->number(4, value.pid);
}
void read(Reader* in, ClientInfo* value) {
  while (in->next()) {
    switch (in->tag()) {
      case 1:
        in->text(&value->host);
        break;
      case 2:
        in->text(&value->user);
        break;
      case 3:
        in->text(&value->program);
        break;
      case 4:
        in->number(&value->pid);
        break;
    }
  }
}

void write(Writer* out, const LeaseRequest& value) {
  out->number(1, value.count);
  out->message(2, value.slice);
  out->message(3, value.client);
}
void read(Reader* in, LeaseRequest* value) {
  while (in->next()) {
    switch (in->tag()) {
      case 1:
        in->number(&value->count);
        break;
      case 2:
        in->message(&value->slice);
        break;
      case 3:
        in->message(&value->client);
        break;
    }
  }
}

void write(Writer* out, const SliceGrant& value) {
  out->number(1, value.gpu_index);
  out->number(2, value.share_millionths);
  out->number(3, value.memory_bytes);
}
void read(Reader* in, SliceGrant* value) {
  while (in->next()) {
    switch (in->tag()) {
      case 1:
        in->number(&value->gpu_index);
        break;
      case 2:
        in->number(&value->share_millionths);
        break;
      case 3:
        in->number(&value->memory_bytes);
        break;
    }
  }
}

void write(Writer* out, const GpuRecord& value) {
  out->number(1, value.index);
  out->text(2, value.name);
  out->text(3, value.uuid);
  out->text(4, value.pci_bus_id);
  out->number(5, value.memory_total_bytes);
  out->number(6, value.memory_used_bytes);
  out->number(7, value.share_used_millionths);
  out->number(8, value.utilization_percent);
  out->number(9, value.temperature_c);
  out->number(10, value.power_mw);
}
void read(Reader* in, GpuRecord* value) {
  while (in->next()) {
    switch (in->tag()) {
      case 1:
        in->number(&value->index);
        break;
      case 2:
        in->text(&value->name);
        break;
      case 3:
        in->text(&value->uuid);
        break;
      case 4:
        in->text(&value->pci_bus_id);
        break;
      case 5:
        in->number(&value->memory_total_bytes);
        break;
      case 6:
        in->number(&value->memory_used_bytes);
        break;
      case 7:
        in->number(&value->share_used_millionths);
        break;
      case 8:
        in->number(&value->utilization_percent);
        break;
      case 9:
        in->number(&value->temperature_c);
        break;
      case 10:
        in->number(&value->power_mw);
        break;
    }
  }
}

void write(Writer* out, const LeaseReply& value) {
  out->number(1, value.lease_id);
  out->text(2, value.secret);
  for (const SliceGrant& slice : value.slices) out->message(3, slice);
}
void read(Reader* in, LeaseReply* value) {
  while (in->next()) {
    switch (in->tag()) {
      case 1:
        in->number(&value->lease_id);
        break;
      case 2:
        in->text(&value->secret);
        break;
      case 3:
        in->list(&value->slices);
        break;
    }
  }
}

void write(Writer* out, const LeaseRecord& value) {
  out->number(1, value.lease_id);
  out->message(2, value.client);
  for (const SliceGrant& slice : value.slices) out->message(3, slice);
  for (uint64_t used : value.memory_used_bytes) out->number(4, used);
  out->number(5, value.processes);
  out->number(6, value.age_s);
}
void read(Reader* in, LeaseRecord* value) {
  while (in->next()) {
    switch (in->tag()) {
      case 1:
        in->number(&value->lease_id);
        break;
      case 2:
        in->message(&value->client);
        break;
      case 3:
        in->list(&value->slices);
        break;
      case 4:
        in->numbers(&value->memory_used_bytes);
        break;
      case 5:
        in->number(&value->processes);
        break;
      case 6:
        in->number(&value->age_s);
        break;
    }
  }
}

void write(Writer* out, const ListReply& value) {
  out->text(1, value.server);
  out->text(2, value.product_version);
  out->text(3, value.driver);
  out->number(4, value.driver_version);
  for (const GpuRecord& gpu : value.gpus) out->message(5, gpu);
  for (const LeaseRecord& lease : value.leases) out->message(6, lease);
}
void read(Reader* in, ListReply* value) {
  while (in->next()) {
    switch (in->tag()) {
      case 1:
        in->text(&value->server);
        break;
      case 2:
        in->text(&value->product_version);
        break;
      case 3:
        in->text(&value->driver);
        break;
      case 4:
        in->number(&value->driver_version);
        break;
      case 5:
        in->list(&value->gpus);
        break;
      case 6:
        in->list(&value->leases);
        break;
    }
  }
}

void write(Writer* out, const AttachRequest& value) {
  out->number(1, value.lease_id);
  out->text(2, value.secret);
  out->message(3, value.lease);
  out->message(4, value.client);
  out->number(5, value.bulk_channels);
  out->number(6, uint8_t(value.shared_memory));
}
void read(Reader* in, AttachRequest* value) {
  uint8_t shared = 0;
  while (in->next()) {
    switch (in->tag()) {
      case 1:
        in->number(&value->lease_id);
        break;
      case 2:
        in->text(&value->secret);
        break;
      case 3:
        in->message(&value->lease);
        break;
      case 4:
        in->message(&value->client);
        break;
      case 5:
        in->number(&value->bulk_channels);
        break;
      case 6:
        in->number(&shared);
        break;
    }
  }
  value->shared_memory = shared != 0;
}

void write(Writer* out, const AttachReply& value) {
  out->number(1, value.session_id);
  out->text(2, value.session_secret);
  out->message(3, value.lease);
  out->number(4, value.bulk_channels);
  out->text(5, value.shared_memory_socket);
}
void read(Reader* in, AttachReply* value) {
  while (in->next()) {
    switch (in->tag()) {
      case 1:
        in->number(&value->session_id);
        break;
      case 2:
        in->text(&value->session_secret);
        break;
      case 3:
        in->message(&value->lease);
        break;
      case 4:
        in->number(&value->bulk_channels);
        break;
      case 5:
        in->text(&value->shared_memory_socket);
        break;
    }
  }
}

void write(Writer* out, const JoinRequest& value) {
  out->number(1, value.session_id);
  out->text(2, value.session_secret);
  out->number(3, value.channel);
}
void read(Reader* in, JoinRequest* value) {
  while (in->next()) {
    switch (in->tag()) {
      case 1:
        in->number(&value->session_id);
        break;
      case 2:
        in->text(&value->session_secret);
        break;
      case 3:
        in->number(&value->channel);
        break;
    }
  }
}

void write(Writer* out, const ReleaseRequest& value) { out->number(1, value.lease_id); }
void read(Reader* in, ReleaseRequest* value) {
  while (in->next()) {
    if (in->tag() == 1) in->number(&value->lease_id);
  }
}

void write(Writer* out, const PingBody& value) { out->number(1, value.cookie); }
void read(Reader* in, PingBody* value) {
  while (in->next()) {
    if (in->tag() == 1) in->number(&value->cookie);
  }
}

void write(Writer* out, const Hello& value) {
  out->number(uint16_t(Feature::kProtocol), uint32_t(value.protocol_oldest) | uint32_t(value.protocol_newest)
                                                                                  << 16);
  if (value.schema_digest != 0) out->number(uint16_t(Feature::kSchemaDigest), value.schema_digest);
  out->text(uint16_t(Feature::kProductVersion), value.product_version);
  if (!value.token.empty()) out->text(uint16_t(Feature::kToken), value.token);
  if (!value.boot_id.empty()) out->text(uint16_t(Feature::kSharedMemory), value.boot_id);
  out->number(uint16_t(Feature::kBulkChannels), value.bulk_channels);
}
void read(Reader* in, Hello* value) {
  bool protocol = false;
  while (in->next()) {
    switch (Feature(in->tag())) {
      case Feature::kProtocol: {
        uint32_t both = 0;
        in->number(&both);
        value->protocol_oldest = uint16_t(both);
        value->protocol_newest = uint16_t(both >> 16);
        protocol = true;
        break;
      }
      case Feature::kSchemaDigest:
        in->number(&value->schema_digest);
        break;
      case Feature::kProductVersion:
        in->text(&value->product_version);
        break;
      case Feature::kToken:
        in->text(&value->token);
        break;
      case Feature::kSharedMemory:
        in->text(&value->boot_id);
        break;
      case Feature::kBulkChannels:
        in->number(&value->bulk_channels);
        break;
    }
  }
  if (!protocol || value->protocol_oldest > value->protocol_newest) in->fail();
}

}  // namespace

template <typename Message>
std::vector<uint8_t> encode(const Message& message) {
  std::vector<uint8_t> body;
  Encoder encoder(&body, kControlBytesMax);
  Writer writer(&encoder);
  write(&writer, message);
  if (!encoder.finish()) body.clear();
  return body;
}

template <typename Message>
bool decode(const void* data, size_t bytes, Message* message) {
  *message = Message{};
  Reader reader(data, bytes);
  read(&reader, message);
  return reader.ok();
}

#define TENDRIL_CONTROL_MESSAGE(Message)                         \
  template std::vector<uint8_t> encode<Message>(const Message&); \
  template bool decode<Message>(const void*, size_t, Message*);
TENDRIL_CONTROL_MESSAGE(Hello)
TENDRIL_CONTROL_MESSAGE(LeaseRequest)
TENDRIL_CONTROL_MESSAGE(LeaseReply)
TENDRIL_CONTROL_MESSAGE(ListReply)
TENDRIL_CONTROL_MESSAGE(AttachRequest)
TENDRIL_CONTROL_MESSAGE(AttachReply)
TENDRIL_CONTROL_MESSAGE(JoinRequest)
TENDRIL_CONTROL_MESSAGE(ReleaseRequest)
TENDRIL_CONTROL_MESSAGE(PingBody)
#undef TENDRIL_CONTROL_MESSAGE

bool believable(const ControlHeader& header) {
  return header.magic == kHelloMagic && header.bytes <= kControlBytesMax;
}

const char* product_version() { return TENDRIL_VERSION; }

}  // namespace tendril::wire
