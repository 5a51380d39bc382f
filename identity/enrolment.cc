// SPDX-License-Identifier: Apache-2.0
// See enrolment.h.
#include "identity/enrolment.h"

#include "identity/join_token.h"
#include "identity/tls.h"
#include "session/control/attach.h"
#include "wire/control.h"

namespace tendril::identity {

using base::Code;
using base::Result;
using base::Status;

namespace {

// One question over a connection of its own.
template <typename Reply>
Result<Reply> ask(const std::string& server, std::shared_ptr<const session::Securer> securer,
                  wire::Request kind, const std::vector<uint8_t>& body, int timeout_ms) {
  Result<session::Endpoint> endpoint = session::parse_endpoint(server);
  if (!endpoint.ok()) return endpoint.status();
  if (!endpoint->unix_path.empty())
    return Status(Code::kInvalid, "identities are given over the network: write host[:port]");
  session::ConnectOptions options;
  options.timeout_ms = timeout_ms;
  options.securer = std::move(securer);
  auto control = session::Control::connect(*endpoint, options);
  if (!control.ok()) return control.status();
  Result<std::vector<uint8_t>> answer = (*control)->other(uint16_t(kind), body, timeout_ms);
  if (!answer.ok()) return answer.status();
  Reply reply;
  if (!wire::decode(answer->data(), answer->size(), &reply))
    return Status(Code::kMismatch, server + " sent a malformed answer");
  return reply;
}

// What came must be for our key, by that authority, and for now.
Result<OwnIdentity> checked(const wire::CertificateReply& reply, const Key& key,
                            const Certificate& authority, const std::string& issuer) {
  OwnIdentity own;
  Result<Certificate> certificate = read_certificate(reply.certificate);
  if (!certificate.ok()) return certificate.status();
  own.certificate = certificate.take();
  own.authority = authority;
  own.key = key;
  own.issuer = issuer;
  Result<Facts> facts =
      judge(own.certificate, authority, Purpose::kClient, wall_clock_s(), "the new certificate");
  if (!facts.ok()) return facts.status();
  own.facts = facts.take();
  if (!is_key_of(key, own.certificate))
    return Status(Code::kMismatch, issuer + " sent a certificate for another key");
  return own;
}

Result<OwnIdentity> enroll(const EnrolmentOptions& options, const std::string& pin,
                           wire::EnrollRequest request) {
  Result<Key> key = make_key();
  if (!key.ok()) return key.status();
  Result<std::string> asked = make_request(*key);
  if (!asked.ok()) return asked.status();
  request.request = asked.take();
  Result<std::shared_ptr<TlsClient>> client = TlsClient::with_pin(pin);
  if (!client.ok()) return client.status();
  Result<wire::CertificateReply> reply = ask<wire::CertificateReply>(
      options.server, *client, wire::Request::kEnroll, wire::encode(request), options.timeout_ms);
  if (!reply.ok()) return reply.status();
  return checked(*reply, *key, (*client)->authority(), options.server);
}

}  // namespace

Result<OwnIdentity> join(const EnrolmentOptions& options, const std::string& token,
                         const std::string& wished) {
  Result<JoinToken> read = read_join_token(token);
  if (!read.ok()) return read.status();
  wire::EnrollRequest request;
  request.token_id = read->id;
  request.token_secret = read->secret;
  request.wished_name = wished;
  return enroll(options, read->pin, std::move(request));
}

Result<OwnIdentity> log_in(const EnrolmentOptions& options, const std::string& pin,
                           const std::string& provider_token) {
  wire::EnrollRequest request;
  request.provider_token = provider_token;
  return enroll(options, pin, std::move(request));
}

Result<OwnIdentity> renew(const OwnIdentity& own, int timeout_ms) {
  Result<std::string> asked = make_request(own.key);
  if (!asked.ok()) return asked.status();
  wire::RenewRequest request;
  request.certificate = certificate_text(own.certificate);
  request.request = asked.take();
  Result<std::shared_ptr<TlsClient>> client = TlsClient::with_identities({own});
  if (!client.ok()) return client.status();
  Result<wire::CertificateReply> reply = ask<wire::CertificateReply>(
      own.issuer, *client, wire::Request::kRenew, wire::encode(request), timeout_ms);
  if (!reply.ok()) return reply.status();
  return checked(*reply, own.key, own.authority, own.issuer);
}

Result<DenyList> fetch_denied(const OwnIdentity& own, int timeout_ms) {
  Result<std::shared_ptr<TlsClient>> client = TlsClient::with_identities({own});
  if (!client.ok()) return client.status();
  Result<wire::DeniedReply> reply = ask<wire::DeniedReply>(
      own.issuer, *client, wire::Request::kDenied, std::vector<uint8_t>(), timeout_ms);
  if (!reply.ok()) return reply.status();
  return DenyList::read(reply->list);
}

}  // namespace tendril::identity
