// SPDX-License-Identifier: Apache-2.0
// See conversation.h.
#include "session/control/conversation.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace tendril::session {

using base::Code;
using base::Status;

namespace {

constexpr size_t kKeptBytes = 4096;  // of an empty buffer

uint64_t after_ms(uint64_t from_ns, int ms) { return from_ns + uint64_t(ms) * 1'000'000u; }

Status no_common_version(const wire::Hello& mine, const wire::Hello& theirs) {
  return Status(
      Code::kMismatch,
      base::format("this server is Tendril %s and speaks protocol %u to %u; the client is Tendril "
                   "%s and speaks %u to %u; install the same version on both",
                   mine.product_version.c_str(), unsigned(mine.protocol_oldest),
                   unsigned(mine.protocol_newest), cleaned(theirs.product_version).c_str(),
                   unsigned(theirs.protocol_oldest), unsigned(theirs.protocol_newest)));
}

// Many connections are idle. They must not keep the room of their largest message.
void trim(std::vector<uint8_t>* bytes) {
  if (bytes->empty() && bytes->capacity() > kKeptBytes) std::vector<uint8_t>().swap(*bytes);
}

}  // namespace

Conversation::Conversation(ControlHandler* handler, Setting setting, uint64_t now_ns)
    : handler_(handler), setting_(std::move(setting)), born_ns_(now_ns), idle_ns_(now_ns) {}

void Conversation::receive(const void* data, size_t bytes, uint64_t now_ns) {
  if (ending_ || bytes == 0) return;
  const auto* at = static_cast<const uint8_t*>(data);
  if (!begun_) {
    begun_ = true;
    if (at[0] == kTlsFirstByte && setting_.seal) seal_ = setting_.seal();
  }
  if (seal_ == nullptr) {
    in_.insert(in_.end(), at, at + bytes);
  } else {
    const size_t before = out_.size();
    failure_ = seal_->receive(at, bytes, &in_, &out_);
    if (out_.size() > before && output_ns_ == 0) output_ns_ = now_ns;
    if (!failure_.ok() || seal_->has_ended()) ending_ = true;
  }
  if (!ending_) advance(now_ns);
}

void Conversation::check_proof() {
  if (seal_ == nullptr || ending_ || !seal_->is_open()) return;
  failure_ = seal_->receive(nullptr, 0, &in_, &out_);
  if (!failure_.ok()) ending_ = true;
}

void Conversation::advance(uint64_t now_ns) {
  Message message;
  if (facts_ == nullptr && !ending_ && take_message(&message, now_ns))
    accept_hello(message, now_ns);
}

bool Conversation::take_message(Message* message, uint64_t now_ns) {
  wire::ControlHeader header;
  const size_t marked = std::min(in_.size(), sizeof header.magic);
  if (marked != 0 && std::memcmp(in_.data(), &header.magic, marked) != 0) {
    ending_ = true;  // a port scanner, or somebody else's protocol: no answer
    return false;
  }
  if (!in_.empty() && message_ns_ == 0) message_ns_ = now_ns;
  if (in_.size() < sizeof header) return false;
  std::memcpy(&header, in_.data(), sizeof header);
  uint32_t most = wire::kControlBytesMax;
  if (facts_ == nullptr)
    most = kHelloBytesMax;
  else if (admitted_as_ == Standing::kStranger)
    most = kStrangerBytesMax;
  if (header.bytes > most) {
    if (facts_ != nullptr)
      refuse(header.kind, Status(Code::kInvalid, "the request is too long"), now_ns);
    ending_ = true;
    return false;
  }
  const size_t whole = sizeof header + header.bytes;
  if (in_.size() < whole) return false;
  message->kind = header.kind;
  message->code = Code(header.code);
  message->body.assign(in_.begin() + sizeof header, in_.begin() + ptrdiff_t(whole));
  in_.erase(in_.begin(), in_.begin() + ptrdiff_t(whole));
  trim(&in_);
  message_ns_ = in_.empty() ? 0 : now_ns;
  return true;
}

void Conversation::accept_hello(const Message& message, uint64_t now_ns) {
  auto facts = std::make_shared<Facts>();
  if (message.kind != wire::kHelloKind || !message.read(&facts->theirs)) {
    refuse(wire::kHelloKind, Status(Code::kInvalid, "the request is malformed"), now_ns);
    ending_ = true;
    return;
  }
  facts->mine = handler_->hello();
  facts->mine.token.clear();
  facts->peer = setting_.peer;
  facts->sealed = seal_ != nullptr;
  if (seal_ != nullptr && !seal_->proof().empty()) {
    facts->peer.identity = seal_->identity();
    facts->peer.proof = seal_->proof();
  }
  Admission admission;
  if (facts->theirs.protocol_newest < facts->mine.protocol_oldest ||
      facts->theirs.protocol_oldest > facts->mine.protocol_newest)
    admission.refusal = no_common_version(facts->mine, facts->theirs);
  else if (!facts->theirs.proves_later || facts->mine.nonce.empty())
    admission = handler_->admit(facts->theirs, facts->peer);
  if (admission.refusal.ok() && setting_.enter)
    admission.refusal = setting_.enter(admission.standing);
  if (!admission.refusal.ok()) {
    refuse(wire::kHelloKind, admission.refusal, now_ns);
    ending_ = true;
    return;
  }
  admitted_as_ = facts->standing = admission.standing;
  facts->theirs.token.clear();
  hears_news_ = facts->theirs.hears_news;
  facts->client_hello = message.body;
  facts->server_hello = wire::encode(facts->mine);
  idle_ns_ = now_ns;
  say(wire::kHelloKind, Code::kOk, facts->server_hello.data(), facts->server_hello.size(), now_ns);
  facts_ = std::move(facts);
  setting_ = Setting();
}

bool Conversation::next(Message* request, uint64_t now_ns) {
  if (facts_ == nullptr || !wants_input() || in_.empty() || !take_message(request, now_ns))
    return false;
  busy_ = true;
  busy_kind_ = request->kind;
  return true;
}

void Conversation::complete(Outcome outcome, uint64_t now_ns) {
  busy_ = false;
  if (admitted_as_ != Standing::kStranger) idle_ns_ = now_ns;  // a stranger cannot ask for ever
  if (!in_.empty()) message_ns_ = now_ns;
  // A stranger has one attempt.
  if (admitted_as_ == Standing::kStranger && outcome.code != Code::kOk) outcome.ends = true;
  if (outcome.lease_id != 0) leases_.push_back(outcome.lease_id);
  if (outcome.handover != Outcome::Handover::kNone && (seal_ != nullptr || !in_.empty())) {
    // Bytes that came too early are here and not where the worker reads.
    outcome.handover = Outcome::Handover::kNone;
    outcome.code = Code::kInvalid;
    const std::string text = seal_ != nullptr ? "a session cannot use a connection inside TLS"
                                              : "bytes came before the answer to the request";
    outcome.body.assign(text.begin(), text.end());
    outcome.ends = true;
  }
  if (outcome.riding.valid() && seal_ == nullptr) {
    riding_ = std::move(outcome.riding);
    riding_at_ = out_.size();
  }
  say(outcome.kind, outcome.code, outcome.body.data(), outcome.body.size(), now_ns);
  if (outcome.ends) ending_ = true;
  handing_over_ = outcome.handover != Outcome::Handover::kNone;
  outcome.body.clear();
  outcome_ = std::move(outcome);
}

void Conversation::tell(const wire::News& news, uint64_t now_ns) {
  if (!busy_ || !hears_news_ || is_full()) return;
  const std::vector<uint8_t> body = wire::encode(news);
  say(wire::kNewsKind, Code::kOk, body.data(), body.size(), now_ns);
}

void Conversation::notice(const wire::Notice& notice, uint64_t now_ns) {
  if (facts_ == nullptr || !hears_news_ || ending_ || handing_over_ || is_full()) return;
  const std::vector<uint8_t> body = wire::encode(notice);
  say(wire::kNoticeKind, Code::kOk, body.data(), body.size(), now_ns);
}

void Conversation::say(uint16_t kind, Code code, const void* body, size_t bytes, uint64_t now_ns) {
  const std::vector<uint8_t> all = pack(kind, code, body, bytes);
  if (output_ns_ == 0) output_ns_ = now_ns;
  if (seal_ == nullptr) {
    out_.insert(out_.end(), all.begin(), all.end());
    return;
  }
  const Status sealed = seal_->send(all.data(), all.size(), &out_);
  if (sealed.ok()) return;
  failure_ = sealed;
  ending_ = true;
}

void Conversation::refuse(uint16_t kind, const Status& status, uint64_t now_ns) {
  say(kind, status.code(), status.message().data(), status.message().size(), now_ns);
}

const uint8_t* Conversation::output(size_t* bytes, int* riding) const {
  *riding = -1;
  *bytes = out_.size() - sent_;
  if (riding_.valid() && *bytes > 0) {
    if (riding_at_ == sent_)
      *riding = riding_.get();
    else
      *bytes = riding_at_ - sent_;
  }
  return out_.data() + sent_;
}

void Conversation::sent(size_t bytes, uint64_t now_ns) {
  if (bytes == 0) return;
  if (riding_.valid() && riding_at_ == sent_) riding_.reset();
  sent_ += bytes;
  output_ns_ = now_ns;
  if (has_output()) return;
  out_.clear();
  trim(&out_);
  sent_ = 0;
  output_ns_ = 0;
}

uint64_t Conversation::deadline_ns() const {
  uint64_t at_ns = UINT64_MAX;
  const auto until = [&at_ns](uint64_t from_ns, int ms) {
    at_ns = std::min(at_ns, after_ms(from_ns, ms));
  };
  if (has_output()) until(output_ns_, kMessageMs);
  if (facts_ == nullptr) {
    until(born_ns_, kMessageMs);
  } else if (!busy_) {
    if (message_ns_ != 0 && !is_full()) until(message_ns_, kMessageMs);
    if (admitted_as_ == Standing::kStranger) until(idle_ns_, kStrangerMs);
    if (leases_.empty()) until(idle_ns_, kIdleMs);
  }
  return at_ns;
}

}  // namespace tendril::session
