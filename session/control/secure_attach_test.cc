// SPDX-License-Identifier: Apache-2.0
// The secured attach on bytes: what both ends learn, and what each refuses.
#include "session/control/secure_attach.h"

#include <gtest/gtest.h>

namespace tendril::session {
namespace {

using base::Code;
using base::Result;
using base::Status;

const AttachProof kLease = {wire::AttachKey::kLeaseSecret, 7, "the secret of lease 7, 32 bytes!"};
const Hellos kHellos = {{1, 2, 3}, {4, 5, 6}};

wire::AttachRequest a_request() {
  wire::AttachRequest request;
  request.lease_id = 99;  // what counts is what was proven
  request.secret = "never sent";
  request.api = "echo";
  request.client.user = "somebody";
  return request;
}

wire::SecuredAttach decoded(const std::vector<uint8_t>& body) {
  wire::SecuredAttach message;
  EXPECT_TRUE(wire::decode(body.data(), body.size(), &message));
  return message;
}

bool contains(const std::vector<uint8_t>& body, const std::string& text) {
  return std::string(body.begin(), body.end()).find(text) != std::string::npos;
}

TEST(SecureAttach, CarriesRequestAndAnswer) {
  SecureAttach client(kLease, kHellos);
  const std::vector<uint8_t> asked = *client.request(a_request());
  EXPECT_FALSE(contains(asked, "never sent") || contains(asked, "somebody"));
  EXPECT_FALSE(contains(asked, kLease.secret));
  SecureAttachAnswer server(kLease, kHellos);
  Result<wire::AttachRequest> request = server.read(decoded(asked));
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->lease_id, 7u);
  EXPECT_EQ(request->secret, kLease.secret);
  EXPECT_EQ(request->client.user, "somebody");
  wire::AttachReply reply;
  reply.session_id = 5;
  reply.lease.secret = "another secret";
  reply.sealed = true;
  const std::vector<uint8_t> answered = server.write(reply);
  EXPECT_FALSE(contains(answered, "another secret"));
  Result<wire::AttachReply> got = client.answer(answered);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got->session_id, 5u);
  EXPECT_TRUE(got->sealed);
  EXPECT_EQ(client.session_key().size(), 32u);
  EXPECT_EQ(client.session_key(), server.session_key());
}

TEST(SecureAttach, RefusalsTravelSealed) {
  SecureAttach client(kLease, kHellos);
  SecureAttachAnswer server(kLease, kHellos);
  ASSERT_TRUE(server.read(decoded(*client.request(a_request()))).ok());
  const std::vector<uint8_t> answered =
      server.write(Status(Code::kExhausted, "alice has the whole GPU"));
  EXPECT_FALSE(contains(answered, "alice"));
  Result<wire::AttachReply> got = client.answer(answered);
  EXPECT_EQ(got.status().code(), Code::kExhausted);
  EXPECT_EQ(got.status().message(), "alice has the whole GPU");
}

TEST(SecureAttach, ARecordedRequestFitsNoOtherConnection) {
  SecureAttach client(kLease, kHellos);
  const wire::SecuredAttach recorded = decoded(*client.request(a_request()));
  const Hellos later = {kHellos.client, {4, 5, 7}};  // another nonce
  Result<wire::AttachRequest> again = SecureAttachAnswer(kLease, later).read(recorded);
  EXPECT_EQ(again.status().code(), Code::kRefused);
  const Hellos moved = {{1, 2, 3, 4}, {5, 6}};  // the same bytes, divided otherwise
  EXPECT_FALSE(SecureAttachAnswer(kLease, moved).read(recorded).ok());
}

TEST(SecureAttach, AnotherSecretOrAnotherKindIsRefused) {
  SecureAttach client(kLease, kHellos);
  const wire::SecuredAttach asked = decoded(*client.request(a_request()));
  AttachProof other = kLease;
  other.secret.back() = '?';
  EXPECT_EQ(SecureAttachAnswer(other, kHellos).read(asked).status().code(), Code::kRefused);
  other = kLease;
  other.lease_id = 8;
  EXPECT_FALSE(SecureAttachAnswer(other, kHellos).read(asked).ok());
  other = kLease;
  other.key = wire::AttachKey::kToken;
  EXPECT_FALSE(SecureAttachAnswer(other, kHellos).read(asked).ok());
}

TEST(SecureAttach, AnImpostorCannotAnswer) {
  SecureAttach client(kLease, kHellos);
  ASSERT_TRUE(client.request(a_request()).ok());
  AttachProof guessed = kLease;
  guessed.secret = "a guess";
  SecureAttach helper(guessed, kHellos);
  SecureAttachAnswer impostor(guessed, kHellos);
  ASSERT_TRUE(impostor.read(decoded(*helper.request(a_request()))).ok());
  Result<wire::AttachReply> got = client.answer(impostor.write(wire::AttachReply()));
  EXPECT_EQ(got.status().code(), Code::kRefused);
  EXPECT_NE(got.status().message().find("impostor"), std::string::npos);
  // Nor by giving the client its own message back.
  Result<wire::AttachReply> mirrored = SecureAttach(kLease, kHellos).answer({});
  EXPECT_FALSE(mirrored.ok());
}

TEST(SecureAttach, LaterConnectionsProveTheSession) {
  const std::string key(32, 'k');
  wire::JoinRequest request;
  request.session_id = 5;
  request.channel = 2;
  request.proof = prove_join(key, wire::Request::kJoin, request);
  EXPECT_TRUE(is_proven(key, wire::Request::kJoin, request));
  EXPECT_FALSE(is_proven(key, wire::Request::kUse, request));
  EXPECT_FALSE(is_proven(std::string(32, 'l'), wire::Request::kJoin, request));
  EXPECT_FALSE(is_proven(std::string(), wire::Request::kJoin, request));
  wire::JoinRequest other = request;
  other.channel = 3;
  EXPECT_FALSE(is_proven(key, wire::Request::kJoin, other));
  other = request;
  other.session_id = 6;
  EXPECT_FALSE(is_proven(key, wire::Request::kJoin, other));
  other = request;
  other.proof.clear();
  EXPECT_FALSE(is_proven(key, wire::Request::kJoin, other));
}

TEST(SecureAttach, AProofToComeAgainServesOneConnection) {
  const std::string key(32, 'k');
  wire::JoinRequest request;
  request.session_id = 5;
  request.attempt = 1;
  request.nonce = "the nonce of this connection";
  request.proof = prove_join(key, wire::Request::kJoin, request);
  EXPECT_TRUE(is_proven(key, wire::Request::kJoin, request));
  wire::JoinRequest other = request;
  other.nonce = "the nonce of another connection";
  EXPECT_FALSE(is_proven(key, wire::Request::kJoin, other));
  other = request;
  other.attempt = 2;
  EXPECT_FALSE(is_proven(key, wire::Request::kJoin, other));
  other = request;
  other.attempt = 0;  // the proof of a session that begins
  EXPECT_FALSE(is_proven(key, wire::Request::kJoin, other));
  other = request;
  other.nonce.clear();
  other.proof = prove_join(key, wire::Request::kJoin, other);
  EXPECT_FALSE(is_proven(key, wire::Request::kJoin, other));
}

}  // namespace
}  // namespace tendril::session
