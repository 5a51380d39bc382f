// SPDX-License-Identifier: Apache-2.0
// The choice of a transport. Also a third transport that only this file registers. A whole session
// offers, chooses and uses it, although no other line knows it.
#include "session/control/offers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "session/control/test_server.h"
#include "transport/shm/shm.h"

namespace tendril::session {
namespace {

using base::Code;
using base::Result;
using base::Status;

// ---- the third transport: rings inside this process, nearer than anything else ----

struct Wormhole {
  bool open = false;       // the client can offer it
  bool collapses = false;  // the client's half fails after the answer
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<transport::Channel>> waiting;  // for the client's half
};
Wormhole wormhole;

class WormholeHalf final : public transport::Half {
 public:
  WormholeHalf(std::string blob, std::unique_ptr<transport::Channel> command)
      : blob_(std::move(blob)), command_(std::move(command)) {}
  std::string blob() const override { return blob_; }
  Status complete(const std::string& blob, base::Fd) override {
    if (wormhole.collapses) return Status(Code::kUnavailable, "the wormhole collapsed");
    std::lock_guard<std::mutex> guard(wormhole.mutex);
    command_ = std::move(wormhole.waiting[blob]);
    return command_ != nullptr ? Status() : Status(Code::kMismatch, "nobody waits there");
  }
  Result<transport::Channels> open(transport::Streams streams) override {
    connection_ = std::move(streams.command);
    transport::Channels channels;
    channels.command = std::move(command_);
    return channels;
  }

 private:
  const std::string blob_;
  std::unique_ptr<transport::Channel> command_;
  base::Fd connection_;
};

Result<std::unique_ptr<transport::Half>> offer_wormhole(const transport::Setting&) {
  if (!wormhole.open) return Status(Code::kUnavailable, "no wormhole is near");
  return std::unique_ptr<transport::Half>(new WormholeHalf("from the client", nullptr));
}

Result<std::unique_ptr<transport::Half>> answer_wormhole(const transport::Setting&,
                                                         const std::string& offered) {
  std::unique_ptr<transport::Channel> far;
  Result<std::unique_ptr<transport::Channel>> near = transport::loopback_pair(&far);
  if (!near.ok()) return near.status();
  std::lock_guard<std::mutex> guard(wormhole.mutex);
  const std::string blob = "answer to: " + offered;
  wormhole.waiting[blob] = std::move(far);
  return std::unique_ptr<transport::Half>(new WormholeHalf(blob, near.take()));
}

const transport::Transport kWormhole = {"wormhole",
                                        "space is bent",
                                        transport::kOrderedStream,
                                        transport::Latency::kSharedMemory,
                                        false,
                                        offer_wormhole,
                                        answer_wormhole};

class OffersTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { EXPECT_TRUE(transport::register_transport(&kWormhole).ok()); }
  void SetUp() override {
    alarm(240);
    wormhole.open = true;
    wormhole.collapses = false;
  }
  void TearDown() override { alarm(0); }
};

TEST_F(OffersTest, AThirdTransportCarriesASession) {
  SmallServer server;
  ConnectOptions options = quick();
  options.transport = "wormhole";  // shared memory is equally near, and was registered first
  auto attached = attach(at(server.address()), options, for_echo());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  EXPECT_EQ(attached->transport, "loopback");
  EXPECT_EQ(attached->bulk.size(), 0u);
  use_session(*attached);
}

TEST_F(OffersTest, ASessionFallsBackWhenItsTransportFails) {
  wormhole.collapses = true;
  SmallServer server;
  ConnectOptions options = quick();
  options.transport = "wormhole";
  auto attached = attach(at(server.address()), options, for_echo());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  EXPECT_EQ(attached->transport, "tcp");
  EXPECT_NE(attached->reason.find("the wormhole collapsed"), std::string::npos) << attached->reason;
  use_session(*attached);
}

TEST_F(OffersTest, SaysWhyNearerOnesWereNotChosen) {
  wormhole.open = false;
  Offers offers = Offers::make({4}, "tcp");
  auto choice = choose(offers.records(), {4});
  ASSERT_TRUE(choice.ok()) << choice.status().message();
  ASSERT_EQ(choice->answers.answers.size(), 1u);
  EXPECT_EQ(choice->answers.answers[0].kind, "tcp");
  EXPECT_EQ(choice->answers.answers[0].reason,
            "no shm: it is switched off at the client; "
            "no wormhole: it is switched off at the client; "
            "no rdma: it is switched off at the client");
  offers = Offers::make({4}, "wormhole");
  choice = choose(offers.records(), {4});
  ASSERT_TRUE(choice.ok());
  EXPECT_NE(choice->answers.answers[0].reason.find("no wormhole is near"), std::string::npos);
}

TEST_F(OffersTest, TheChoiceStandsBesideAWayOverConnections) {
  wire::TransportOffers offers;
  offers.offers = {{"tcp", "", ""}, {"carrier pigeon", "coo", ""}, {"wormhole", "w", ""}};
  auto choice = choose(offers, {4});
  ASSERT_TRUE(choice.ok());
  ASSERT_EQ(choice->answers.answers.size(), 2u);
  EXPECT_EQ(choice->answers.answers[0].kind, "wormhole");
  EXPECT_EQ(choice->answers.answers[0].blob, "answer to: w");
  EXPECT_EQ(choice->answers.answers[0].reason, "no shm: the client does not have it");
  EXPECT_EQ(choice->answers.answers[1].kind, "tcp");
}

TEST_F(OffersTest, AnotherHostsSharedMemoryIsDeclined) {
  wire::TransportOffers offers;
  offers.offers = {{"shm", "the boot id of another host", ""}, {"tcp", "", ""}};
  auto choice = choose(offers, {4});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->answers.answers[0].kind, "tcp");
  EXPECT_NE(choice->answers.answers[0].reason.find("no shm: the server is another host"),
            std::string::npos)
      << choice->answers.answers[0].reason;
}

TEST_F(OffersTest, APolicyForbidsFabricsAndNothingElse) {
  wire::TransportOffers offers;
  offers.offers = {{"rdma", "an address", ""}, {"tcp", "", ""}};
  forbid_fabrics(&offers, "the policy forbids RDMA to eve");
  EXPECT_EQ(offers.offers[0].blob, "");
  Result<Choice> choice = choose(offers, {4, false});
  ASSERT_TRUE(choice.ok()) << choice.status().message();
  ASSERT_EQ(choice->answers.answers.size(), 1u);
  EXPECT_EQ(choice->answers.answers[0].kind, "tcp");
  EXPECT_NE(choice->answers.answers[0].reason.find("no rdma: the policy forbids RDMA to eve"),
            std::string::npos)
      << choice->answers.answers[0].reason;
}

TEST_F(OffersTest, AnUnknownKindIsRefusedWithThoseThatExist) {
  const Status refused = check_kind("pigeon");
  EXPECT_EQ(refused.code(), Code::kInvalid);
  for (const char* said : {"TENDRIL_TRANSPORT", "'pigeon'", "auto, shm, wormhole, rdma, tcp"})
    EXPECT_NE(refused.message().find(said), std::string::npos) << refused.message();
  EXPECT_TRUE(check_kind("wormhole").ok());
  EXPECT_TRUE(check_kind("").ok());
}

TEST_F(OffersTest, NothingInCommonIsAnError) {
  wire::TransportOffers offers;
  offers.offers = {{"carrier pigeon", "coo", ""}};
  auto choice = choose(offers, {4});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), Code::kUnsupported);
  EXPECT_NE(choice.status().message().find("no tcp: the client does not have it"),
            std::string::npos);
}

TEST_F(OffersTest, BadRecordsAreNotRegistered) {
  EXPECT_FALSE(transport::register_transport(&kWormhole).ok()) << "twice";
  transport::Transport bad = kWormhole;
  bad.kind = "a-kind-of-more-than-16-bytes";
  EXPECT_FALSE(transport::register_transport(&bad).ok());
  bad.kind = "";
  EXPECT_FALSE(transport::register_transport(&bad).ok());
  bad.kind = "unordered";
  bad.abilities = transport::kBulkChannels;
  EXPECT_FALSE(transport::register_transport(&bad).ok());
}

}  // namespace
}  // namespace tendril::session
