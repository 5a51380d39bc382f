// SPDX-License-Identifier: Apache-2.0
// Sessions that get RDMA at attach, over a double of the verbs that is registered as a transport of
// its own; and all that keeps them from it: each leaves the session on TCP, with its own words.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "session/choice/way_choice.h"
#include "session/control/background_trial.h"
#include "session/control/offers.h"
#include "session/control/test_server.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/testing/verbs_double.h"

namespace tendril::session {
namespace {

using base::Code;
using base::Result;
using base::Status;
using transport::rdma::VerbsDouble;

VerbsDouble* client_verbs = nullptr;  // both ends' cards are on the fabric of the client's
VerbsDouble* worker_verbs = nullptr;

Result<std::unique_ptr<transport::Half>> offer_double(const transport::Setting& setting) {
  return transport::rdma::offer(client_verbs, setting);
}
Result<std::unique_ptr<transport::Half>> answer_double(const transport::Setting& setting,
                                                       const std::string& offered) {
  return transport::rdma::answer(worker_verbs, setting, offered);
}

const transport::Transport kDouble = {
    "double",
    "both ends are on one RDMA fabric",
    transport::kOrderedStream | transport::kBulkChannels | transport::kRegistersMemory,
    transport::Latency::kFabric,
    false,
    offer_double,
    answer_double,
    true};

// The same as a transport that carries lines of sessions that outlast cuts.
const transport::Transport kFabric = {"fabric",
                                      "both ends are on one RDMA fabric",
                                      kDouble.abilities | transport::kCarriesLines,
                                      transport::Latency::kFabric,
                                      false,
                                      offer_double,
                                      answer_double,
                                      true};

class RdmaAttachTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    for (const transport::Transport* each : {&kDouble, &kFabric}) {
      if (transport::find_transport(each->kind) != nullptr) continue;
      EXPECT_TRUE(transport::register_transport(each).ok());
    }
  }
  void SetUp() override {
    alarm(240);
    client_verbs = worker_verbs = &verbs_;
  }
  void TearDown() override { alarm(0); }
  // The session that a client gets, after it has been used.
  Attached attach_and_use(const std::string& wanted = "double", const std::string& token = "",
                          bool outlasts = false) {
    SmallServer server(token);
    server.outlasts = outlasts;
    ConnectOptions options = quick();
    options.ways_folder = folder_;
    options.transport = wanted;
    options.token = token;
    auto attached = attach(at(server.address()), options, for_echo());
    EXPECT_TRUE(attached.ok()) << attached.status().message();
    if (!attached.ok()) return Attached();
    Attached facts;
    facts.reason = attached->reason;
    if (attached->trial != nullptr) {
      facts.reason += "; " + attached->trial->wait(30'000);
      EXPECT_EQ(attached->transport, "tcp") << "a session begins at once";
    }
    char byte = 0;
    takes_pinned_ = attached->pinned != nullptr && attached->pinned->add(&byte, 1).ok();
    if (takes_pinned_) attached->pinned->remove(&byte);
    facts.lasting = attached->lasting;
    use_session(*attached, &facts.transport);
    return facts;
  }
  void falls_back(const char* text) {
    const Attached got = attach_and_use();
    EXPECT_EQ(got.transport, "tcp");
    EXPECT_NE(got.reason.find(text), std::string::npos) << got.reason;
  }
  Attached measured(const std::string& wanted = "fabric,tcp") {
    return attach_and_use(wanted, "", true);
  }
  VerbsDouble verbs_;
  std::string folder_;  // of what is remembered; empty: nothing is
  bool takes_pinned_ = false;
};

// The same with a folder of its own.
class RememberedWayTest : public RdmaAttachTest {
 protected:
  void SetUp() override {
    RdmaAttachTest::SetUp();
    char name[] = "/tmp/tendril-ways-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    for (const std::string& file : files()) unlink(file.c_str());
    rmdir(folder_.c_str());
    RdmaAttachTest::TearDown();
  }
  std::vector<std::string> files() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      all.push_back(entry.path());
    return all;
  }
  WayRecord remembered() {
    WayRecord record;
    EXPECT_EQ(files().size(), 1u);
    if (files().size() != 1) return record;
    std::stringstream text;
    text << std::ifstream(files()[0]).rdbuf();
    const size_t first = text.str().find('\n') + 1;
    const std::string way = text.str().substr(first, text.str().find('\n', first) - first);
    EXPECT_TRUE(read_record(text.str(), way, uint64_t(time(nullptr)), &record));
    return record;
  }
  // Replaces what is remembered of the connections.
  void remember(const transport::Measured& connections, const std::string& best = "",
                const std::string& beside = "") {
    WayRecord record = remembered();
    record.connections = connections;
    record.fabric = {10, 1};
    record.best = best;
    record.beside = beside;
    std::ofstream(files()[0]) << written(record);
  }
};

TEST_F(RdmaAttachTest, ASessionGetsItAndSaysWhatWasMeasured) {
  const Attached got = attach_and_use();
  EXPECT_EQ(got.transport, "rdma");
  EXPECT_NE(got.reason.find("double0:1 (RoCE), a read takes"), std::string::npos) << got.reason;
  EXPECT_TRUE(takes_pinned_);
}

// The card answers nothing for a second. Until then the session runs, and after that, too.
TEST_F(RdmaAttachTest, NoSessionWaitsForTheTrial) {
  SmallServer server;
  server.outlasts = true;
  ConnectOptions options = quick();
  options.transport = "fabric,tcp";
  verbs_.lose_reports(UINT32_MAX);
  auto attached = attach(at(server.address()), options, for_echo());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  ASSERT_NE(attached->trial, nullptr);
  EXPECT_EQ(attached->trial->wait(0), "") << "it cannot be over";
  const auto trial = attached->trial;
  std::string kind;
  use_session(*attached, &kind);
  EXPECT_EQ(kind, "tcp");
  EXPECT_NE(trial->wait(30'000).find("no fabric: it was tried"), std::string::npos);
  verbs_.lose_reports(0);
}

class SeveralPortsTest : public RememberedWayTest {
 protected:
  static constexpr uint64_t kSessionBytes = 9u << 20;  // use_session moves them to the worker
  void SetUp() override {
    RememberedWayTest::SetUp();
    verbs_.add_port({"double1:1", true, 50'000, true});
  }
  uint64_t moved(const char* port) const { return verbs_.moved_bytes(port); }
};

// The port with the higher rate on paper is the slower one.
TEST_F(SeveralPortsTest, TheBestMeasuredPairIsTakenAndRemembered) {
  verbs_.slow_down("double0:1", 5'000);
  Attached got = measured();
  EXPECT_NE(got.reason.find(":1 is the best of 4 pairs of ports"), std::string::npos) << got.reason;
  EXPECT_EQ(remembered().best.rfind("double1:1>", 0), 0u) << remembered().best;
  EXPECT_EQ(remembered().beside, "");
  remember({1e6, 0.001}, "double1:1>double1:1");
  const uint64_t before = moved("double0:1");
  got = measured();
  EXPECT_NE(got.reason.find("double1:1 (RoCE), a read takes"), std::string::npos) << got.reason;
  EXPECT_NE(got.reason.find("over double1:1 to double1:1; calls over fabric"), std::string::npos)
      << got.reason;
  EXPECT_EQ(got.transport, "rdma");
  EXPECT_GT(moved("double1:1"), kSessionBytes);
  EXPECT_LT(moved("double0:1") - before, kSessionBytes / 4) << "it only looks at the way";
}

TEST_F(SeveralPortsTest, BulkLinesGoOverTwoPairsThatAreAlike) {
  (void)measured();
  remember({1e6, 0.001}, "double0:1>double0:1", "double1:1>double1:1");
  const uint64_t first = moved("double0:1"), second = moved("double1:1");
  const Attached got = measured();
  EXPECT_NE(got.reason.find("bulk data go over two pairs at once"), std::string::npos)
      << got.reason;
  EXPECT_TRUE(takes_pinned_);
  EXPECT_GT(moved("double0:1") - first, kSessionBytes / 8);
  EXPECT_GT(moved("double1:1") - second, kSessionBytes / 8);
}

TEST_F(RememberedWayTest, PortsThatDoNotMeetAreToldAndLeft) {
  verbs_.add_port({"double1:1", true, 50'000, true}, 1);  // a network of its own
  const Attached got = measured();
  EXPECT_NE(got.reason.find("is the best of 4 pairs of ports"), std::string::npos) << got.reason;
  EXPECT_NE(got.reason.find("double0:1 to double1:1 failed: "), std::string::npos) << got.reason;
  EXPECT_NE(got.reason.find("calls over"), std::string::npos) << got.reason;
}

TEST_F(SeveralPortsTest, APortThatIsGoneIsNotMissed) {
  (void)measured();
  remember({1e6, 0.001}, "double7:1>double1:1");
  Attached got = measured();
  EXPECT_EQ(got.transport, "tcp");
  EXPECT_NE(got.reason.find("a port is not there any more"), std::string::npos) << got.reason;
  got = measured();
  EXPECT_NE(got.reason.find("pairs of ports"), std::string::npos) << got.reason;
}

// Two ends at one time do not fit into what may be locked.
TEST_F(SeveralPortsTest, WithoutLockedMemoryForAnotherPairTheFirstOneStays) {
  verbs_.lock_at_most(20u << 20);
  const Attached got = measured();
  EXPECT_NE(got.reason.find("ulimit -l"), std::string::npos) << got.reason;
  EXPECT_NE(got.reason.find("double0:1 to double0:1 is the best"), std::string::npos) << got.reason;
}

// It came too late, for example, and the worker has freed its queue pairs.
TEST_F(RdmaAttachTest, ATrialThatItsWorkerLeavesIsGivenUp) {
  SmallServer server;
  server.outlasts = true;
  server.leaves_trials = true;
  ConnectOptions options = quick();
  options.transport = "fabric,tcp";
  auto attached = attach(at(server.address()), options, for_echo());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  const auto trial = attached->trial;
  ASSERT_NE(trial, nullptr);
  EXPECT_EQ(trial->wait(30'000).rfind("no fabric: ", 0), 0u) << trial->wait(0);
  std::string kind;
  use_session(*attached, &kind);
  EXPECT_EQ(kind, "tcp");
  EXPECT_EQ(server.trials_over, 1);
}

TEST_F(RdmaAttachTest, ASessionThatOutlastsCutsIsMeasuredBothWays) {
  const Attached got = measured();
  for (const char* said : {"a read takes", "calls over", "bulk data over", "times)"})
    EXPECT_NE(got.reason.find(said), std::string::npos) << got.reason;
  EXPECT_NE(got.lasting, nullptr);
}

TEST_F(RdmaAttachTest, WhoAsksForItGetsItUnmeasured) {
  const Attached got = measured("fabric");
  EXPECT_EQ(got.transport, "rdma");
  EXPECT_NE(got.lasting, nullptr);
  EXPECT_NE(got.reason.find("it was asked for"), std::string::npos) << got.reason;
}

TEST_F(RdmaAttachTest, WithoutAnOutageItMustBeAskedFor) {
  const Attached got = attach_and_use("fabric,tcp");
  EXPECT_EQ(got.transport, "tcp");
  EXPECT_NE(got.reason.find("must be asked for"), std::string::npos) << got.reason;
  EXPECT_EQ(attach_and_use("fabric").transport, "rdma");
}

TEST_F(RememberedWayTest, WhatIsRememberedDecides) {
  (void)measured();
  remember({0.001, 0.001});  // connections that are quick, and thin
  Attached got = measured();
  EXPECT_EQ(got.transport, "tcp");
  EXPECT_NE(got.reason.find("bulk data over fabric"), std::string::npos) << got.reason;
  EXPECT_TRUE(takes_pinned_);
  remember({1e6, 1e6});
  got = measured();
  EXPECT_EQ(got.transport, "rdma");
  EXPECT_NE(got.reason.find("bulk data over tcp"), std::string::npos) << got.reason;
  EXPECT_FALSE(takes_pinned_);
  remember({0.001, 1e6});
  got = measured();
  EXPECT_EQ(got.transport, "tcp");
  EXPECT_NE(got.lasting, nullptr);
}

TEST_F(RememberedWayTest, AFailureIsRememberedUnlessSomebodyInsists) {
  verbs_.fail_after(0, transport::rdma::Fate::kUnanswered);
  Attached got = measured();
  EXPECT_EQ(got.transport, "tcp");
  EXPECT_NE(got.reason.find("does not answer"), std::string::npos) << got.reason;
  got = measured();
  EXPECT_EQ(got.transport, "tcp");
  EXPECT_NE(got.reason.find("it failed within the last hour"), std::string::npos) << got.reason;
  EXPECT_EQ(measured("fabric").transport, "rdma");
}

// A port that was down and came back, with the address that it had.
TEST_F(RememberedWayTest, ALinkThatCameBackIsTriedAnew) {
  verbs_.set_link(false);
  Attached got = measured();
  EXPECT_EQ(got.transport, "tcp");
  EXPECT_NE(got.reason.find("the port went down"), std::string::npos) << got.reason;
  verbs_.set_link(true);
  got = measured();
  EXPECT_NE(got.reason.find("calls over"), std::string::npos) << got.reason;
  EXPECT_EQ(got.reason.find("within the last hour"), std::string::npos) << got.reason;
}

TEST_F(RememberedWayTest, WhatWasMeasuredHoldsUntilALinkChanges) {
  (void)measured();
  remember({1e6, 1e6});
  Attached got = measured();
  EXPECT_NE(got.reason.find("tcp 1e+06 us"), std::string::npos) << got.reason;
  verbs_.set_link(false);
  verbs_.set_link(true);
  got = measured();
  EXPECT_EQ(got.reason.find("tcp 1e+06 us"), std::string::npos) << got.reason;
  EXPECT_EQ(files().size(), 2u);
}

// The link goes down and up while it is measured, and nothing fails.
TEST_F(RememberedWayTest, WhatALinkGaveThatChangedMeanwhileIsNotRemembered) {
  verbs_.flap_after(40);
  const Attached got = measured();
  EXPECT_NE(got.reason.find("calls over"), std::string::npos) << got.reason;
  EXPECT_TRUE(files().empty());
  (void)measured();
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(RememberedWayTest, AnotherWayIsMeasuredAnew) {
  (void)measured();
  verbs_.set_facts({"double0:1", true, 200'000, true});  // another rate
  (void)measured();
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(RdmaAttachTest, NobodyGetsItUnasked) {
  const Attached got = attach_and_use("");
  EXPECT_NE(got.transport, "rdma");
}

TEST_F(RdmaAttachTest, NoLibraryAtTheClient) {
  verbs_.refuse_to_open(Status(Code::kNotFound, "libibverbs.so.1 is missing"));
  falls_back("no double: client: libibverbs.so.1 is missing");
}

TEST_F(RdmaAttachTest, NoDeviceAtTheServer) {
  VerbsDouble other;
  other.refuse_to_open(Status(Code::kUnavailable, "the port mlx5_0:1 is down"));
  worker_verbs = &other;
  falls_back("no double: server: the port mlx5_0:1 is down");
}

TEST_F(RdmaAttachTest, NoLockedMemory) {
  verbs_.lock_at_most(100'000);
  falls_back("ulimit -l");
}

TEST_F(RdmaAttachTest, AnotherKindOfFabric) {
  VerbsDouble other;
  other.set_facts({"mlx5_0:1", false, 200'000, true});
  worker_verbs = &other;
  falls_back("this end is on InfiniBand and the other one on RoCE");
}

TEST_F(RdmaAttachTest, NoWayBetweenTheCards) {
  VerbsDouble other;  // another fabric
  worker_verbs = &other;
  falls_back("the peer's card does not answer");
  verbs_.set_link(false);
  worker_verbs = &verbs_;
  falls_back("the port went down");
}

TEST_F(RdmaAttachTest, SwitchedOffByItsSetting) {
  setenv("TENDRIL_RDMA_DEVICE", "none", 1);
  falls_back("TENDRIL_RDMA_DEVICE=none switches it off");
  unsetenv("TENDRIL_RDMA_DEVICE");
}

TEST_F(RdmaAttachTest, ASealedSessionStaysOnTcp) {
  const Attached got = attach_and_use("double", "a token of some length");
  EXPECT_EQ(got.transport, "sealed(tcp)");
  EXPECT_NE(got.reason.find("which RDMA cannot do"), std::string::npos) << got.reason;
}

TEST_F(RdmaAttachTest, AnOfferFromAnotherVersionIsDeclined) {
  auto answered = transport::rdma::answer(&verbs_, {4}, "from another version");
  EXPECT_EQ(answered.status().code(), Code::kMismatch);
}

}  // namespace
}  // namespace tendril::session
