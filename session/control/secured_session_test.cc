// SPDX-License-Identifier: Apache-2.0
// Whole sessions with a server that wants proof: with its token, with a lease, sealed or not, over
// TCP and shared memory, and with nothing to prove.
#include <gtest/gtest.h>

#include "session/control/test_server.h"

namespace tendril::session {
namespace {

using base::Code;
using base::Result;

constexpr char kToken[] = "sixteen letters!";

ConnectOptions with_token(const std::string& token, const char* transport) {
  ConnectOptions options = quick();
  options.token = token;
  options.transport = transport;
  return options;
}

wire::AttachRequest with_lease(const std::string& secret) {
  wire::AttachRequest request = for_echo();
  request.lease_id = 77;
  request.secret = secret;
  return request;
}

class SecuredSessionTest : public ::testing::Test {
 protected:
  void SetUp() override { alarm(240); }
  void TearDown() override { alarm(0); }
  SmallServer server_{kToken};
};

TEST_F(SecuredSessionTest, ATokenIsProvenAndDataAreSealed) {
  auto attached = attach(at(server_.address()), with_token(kToken, "tcp"), for_echo());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  EXPECT_EQ(attached->transport, "sealed(tcp)");
  EXPECT_EQ(attached->bulk.size(), 3u);
  use_session(*attached);
}

TEST_F(SecuredSessionTest, ALeaseIsProven) {
  ConnectOptions options = with_token("", "tcp");
  auto attached = attach(at(server_.address()), options, with_lease("the lease's secret"));
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  EXPECT_EQ(attached->transport, "sealed(tcp)");
  use_session(*attached);
}

TEST_F(SecuredSessionTest, TheServerDecidesWhatIsSealed) {
  server_.seals = false;
  auto attached = attach(at(server_.address()), with_token(kToken, "tcp"), for_echo());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  EXPECT_EQ(attached->transport, "tcp");
  use_session(*attached);
}

TEST_F(SecuredSessionTest, SharedMemoryNeedsTheSameProof) {
  auto attached = attach(at(server_.address()), with_token(kToken, ""), for_echo());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  if (access("/proc/sys/kernel/random/boot_id", R_OK) == 0) {
    EXPECT_EQ(attached->transport, "shm") << attached->reason;
  }
  use_session(*attached);
}

TEST_F(SecuredSessionTest, WrongSecretsAreRefusedWithTheirOwnTexts) {
  auto text = [&](const ConnectOptions& options, const wire::AttachRequest& request) {
    auto attached = attach(at(server_.address()), options, request);
    EXPECT_FALSE(attached.ok());
    return attached.status().message();
  };
  EXPECT_NE(text(with_token("wrong", "tcp"), for_echo()).find("does not know this server's token"),
            std::string::npos);
  EXPECT_NE(text(quick(), with_lease("wrong")).find("does not know the secret of its lease"),
            std::string::npos);
  wire::AttachRequest unknown = with_lease("the lease's secret");
  unknown.lease_id = 78;
  EXPECT_NE(text(quick(), unknown).find("no such lease"), std::string::npos);
  EXPECT_NE(text(quick(), for_echo()).find("wants to know who asks"), std::string::npos);
}

TEST_F(SecuredSessionTest, WhoHasNothingMayAskALessor) {
  class Clerk final : public Lessor {
   public:
    Result<wire::LeaseReply> lease(const Endpoint&, const wire::LeaseRequest&) override {
      wire::LeaseReply reply;
      reply.lease_id = 77;
      reply.secret = "the lease's secret";
      return reply;
    }
  };
  ConnectOptions options = with_token("", "tcp");
  options.lessor = std::make_shared<Clerk>();
  auto attached = attach(at(server_.address()), options, for_echo());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  use_session(*attached);
}

TEST_F(SecuredSessionTest, RefusalsOfTheRequestArriveSealed) {
  wire::AttachRequest other = for_echo();
  other.api = "unheard-of";
  auto attached = attach(at(server_.address()), with_token(kToken, "tcp"), other);
  ASSERT_FALSE(attached.ok());
  EXPECT_EQ(attached.status().code(), Code::kUnsupported);
  EXPECT_NE(attached.status().message().find("'unheard-of'"), std::string::npos);
}

}  // namespace
}  // namespace tendril::session
