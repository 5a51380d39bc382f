// SPDX-License-Identifier: Apache-2.0
// See secure_attach.h.
#include "session/control/secure_attach.h"

#include <cstring>
#include <string_view>

#include "transport/sealed/sealed.h"

namespace tendril::session {

using base::Code;
using base::Result;
using base::Status;
using transport::Digest;

namespace {

constexpr std::string_view kName = "tendril attach 1";
constexpr size_t kCodeBytes = 2;  // before the body of an answer

std::string_view text_of(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void append_number(uint64_t value, size_t bytes, std::string* to) {
  for (size_t i = 0; i < bytes; ++i) *to += char(value >> (8 * i));
}

// Secrets have any length; a handshake wants 32 bytes. A token is never taken for a lease's secret.
Digest shared_secret(const AttachProof& proof) {
  const char key = char(proof.key);
  return transport::hmac_sha256(kName, {{&key, 1}, proof.secret});
}

std::string prologue(const AttachProof& proof, const Hellos& hellos) {
  std::string text(kName);
  append_number(uint64_t(proof.key), 1, &text);
  append_number(proof.lease_id, 8, &text);
  append_number(hellos.client.size(), 4, &text);
  text += text_of(hellos.client);
  text += text_of(hellos.server);
  return text;
}

// Fresh for each handshake, and the same at both ends only if they agree on all of it.
std::string session_key_of(const Handshake& handshake) {
  Handshake::Keys keys = handshake.split();
  std::string both(transport::view_of(keys.initiator));
  both += transport::view_of(keys.responder);
  Digest key = transport::hkdf_extract(transport::view_of(handshake.binding()), both);
  std::string text(transport::view_of(key));
  transport::wipe(&keys, sizeof keys);
  transport::wipe(key.data(), key.size());
  transport::wipe(&both[0], both.size());
  return text;
}

}  // namespace

// ---- the client's half ----

SecureAttach::SecureAttach(const AttachProof& proof, const Hellos& hellos)
    : proof_(proof), handshake_(shared_secret(proof), prologue(proof, hellos)) {}

Result<std::vector<uint8_t>> SecureAttach::request(const wire::AttachRequest& request) {
  wire::AttachRequest inner = request;
  inner.lease_id = proof_.lease_id;
  inner.secret.clear();
  Result<std::string> message = handshake_.write_first(text_of(wire::encode(inner)));
  if (!message.ok()) return message.status();
  return wire::encode(wire::SecuredAttach{proof_.key, proof_.lease_id, message.take()});
}

Result<wire::AttachReply> SecureAttach::answer(const std::vector<uint8_t>& body) {
  wire::SecuredAttach answer;
  if (!wire::decode(body.data(), body.size(), &answer))
    return Status(Code::kMismatch, "the answer to attach is malformed");
  Result<std::string> payload = handshake_.read_second(answer.message);
  if (!payload.ok()) {
    return Status(Code::kRefused,
                  proof_.key == wire::AttachKey::kToken
                      ? "whoever answered does not know the token: it is an impostor, or somebody "
                        "in between changed its answer"
                      : "whoever answered does not know the lease: it is an impostor, or somebody "
                        "in between changed its answer");
  }
  const auto* at = reinterpret_cast<const uint8_t*>(payload->data());
  if (payload->size() < kCodeBytes)
    return Status(Code::kMismatch, "the answer to attach is malformed");
  const Code code = Code(at[0] | at[1] << 8);
  if (code != Code::kOk) return Status(code, payload->substr(kCodeBytes));
  wire::AttachReply reply;
  if (!wire::decode(at + kCodeBytes, payload->size() - kCodeBytes, &reply))
    return Status(Code::kMismatch, "the answer to attach is malformed");
  session_key_ = session_key_of(handshake_);
  return reply;
}

// ---- the server's half ----

SecureAttachAnswer::SecureAttachAnswer(const AttachProof& proof, const Hellos& hellos)
    : proof_(proof), handshake_(shared_secret(proof), prologue(proof, hellos)) {}

Result<wire::AttachRequest> SecureAttachAnswer::read(const wire::SecuredAttach& request) {
  Result<std::string> payload = handshake_.read_first(request.message);
  if (!payload.ok()) {
    return Status(Code::kRefused,
                  proof_.key == wire::AttachKey::kToken
                      ? "the client does not know this server's token, or repeats what another "
                        "client sent"
                      : "the client does not know the secret of its lease, or repeats what another "
                        "client sent; run the program again under 'tendril run'");
  }
  wire::AttachRequest inner;
  if (!wire::decode(payload->data(), payload->size(), &inner))
    return Status(Code::kInvalid, "the request is malformed");
  const Status prepared = handshake_.prepare_second();
  if (!prepared.ok()) return prepared;
  session_key_ = session_key_of(handshake_);
  inner.lease_id = proof_.lease_id;
  inner.secret = proof_.key == wire::AttachKey::kLeaseSecret ? proof_.secret : std::string();
  return inner;
}

std::vector<uint8_t> SecureAttachAnswer::write(const Result<wire::AttachReply>& reply) {
  std::string payload;
  append_number(uint64_t(reply.status().code()), kCodeBytes, &payload);
  if (reply.ok())
    payload += text_of(wire::encode(reply.value()));
  else
    payload += reply.status().message();
  return wire::encode(
      wire::SecuredAttach{proof_.key, proof_.lease_id, handshake_.write_second(payload)});
}

// ---- later connections ----

std::string prove_join(const std::string& session_key, wire::Request kind,
                       const wire::JoinRequest& request) {
  std::string what = "tendril join";
  append_number(uint64_t(kind), 2, &what);
  append_number(request.session_id, 8, &what);
  append_number(request.channel, 2, &what);
  if (request.attempt != 0) {
    append_number(request.attempt, 4, &what);
    what += request.nonce;
  }
  const Digest proof = transport::hmac_sha256(session_key, {what});
  return std::string(transport::view_of(proof));
}

bool is_proven(const std::string& session_key, wire::Request kind,
               const wire::JoinRequest& request) {
  const std::string expected = prove_join(session_key, kind, request);
  if (request.attempt != 0 && request.nonce.empty()) return false;
  return session_key.size() == transport::kSessionKeyBytes &&
         request.proof.size() == expected.size() &&
         transport::equal_bytes(request.proof.data(), expected.data(), expected.size());
}

}  // namespace tendril::session
