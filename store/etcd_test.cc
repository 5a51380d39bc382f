// SPDX-License-Identifier: Apache-2.0
// The suite of all stores on a real etcd of three members, and what members can do to it: die,
// stop, lose their quorum, ask for a password. Skipped where there is no etcd. One process runs
// all, so that members start once.
#include "store/etcd.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "store/open.h"
#include "store/store_suite.h"
#include "store/testing/etcd_cluster.h"

namespace tendril::store {

using base::Code;
using base::Deadline;

namespace {

std::unique_ptr<EtcdCluster> cluster;  // the suite's
int next_prefix = 0;

class EtcdEnvironment : public testing::Environment {
 public:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    if (EtcdCluster::is_available()) cluster = std::make_unique<EtcdCluster>(3);
    if (cluster == nullptr) fprintf(stderr, "SKIPPED: there is no etcd on this machine\n");
  }
  void TearDown() override { cluster.reset(); }
};
const auto* const environment = testing::AddGlobalTestEnvironment(new EtcdEnvironment);

std::unique_ptr<Store> opened(const EtcdOptions& options) {
  auto store = open_etcd(options);
  EXPECT_TRUE(store.ok()) << store.status().message();
  return store.ok() ? store.take() : nullptr;
}

EtcdOptions options_of(const EtcdCluster& members) {
  EtcdOptions options;
  options.members = members.members();
  options.prefix = "test" + std::to_string(next_prefix++);
  return options;
}

class EtcdWorld : public World {
 public:
  EtcdWorld() : options_(options_of(*cluster)) {}
  std::unique_ptr<Store> open() override { return opened(options_); }

 private:
  const EtcdOptions options_;
};

uint64_t elected(Store& store, uint32_t ttl_ms = 5000) {
  const auto now = store.campaign("one", ttl_ms, Deadline(10'000));
  EXPECT_TRUE(now.ok() && now.value().mine) << now.status().message();
  return now.ok() ? now.value().term : 0;
}

// The exit status of a shell's command.
int shell(const std::string& command) {
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

double seconds_since(uint64_t begin_ns) { return double(base::now_ns() - begin_ns) / 1e9; }

// Writes numbers until `until`, with repeats; each must be acknowledged in the end.
void write_numbers(Store& store, uint64_t term, int* written, int until, uint64_t* longest_ns) {
  for (; *written < until; ++*written) {
    const uint64_t begin_ns = base::now_ns();
    const std::string number = std::to_string(1'000'000 + *written);
    for (;;) {
      const base::Status done = store.write(term, {{"n/" + number, number, {}}}, Deadline(4000));
      if (done.ok()) break;
      ASSERT_TRUE(worth_repeating(done)) << done.message();
      ASSERT_LT(seconds_since(begin_ns), 20) << done.message();
    }
    *longest_ns = std::max(*longest_ns, base::now_ns() - begin_ns);
  }
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Etcd, StoreSuite,
                         testing::Values(Kind{"etcd",
                                              []() -> std::unique_ptr<World> {
                                                if (cluster == nullptr) return nullptr;
                                                return std::make_unique<EtcdWorld>();
                                              }}),
                         kind_name);

class Etcd : public testing::Test {
 protected:
  void SetUp() override {
    if (cluster == nullptr) GTEST_SKIP() << "there is no etcd on this machine";
  }
};

TEST_F(Etcd, AnotherTakesTheTermOfOneThatDied) {
  const EtcdOptions options = options_of(*cluster);
  const auto one = opened(options), two = opened(options);
  const uint64_t first = elected(*one, 2000);
  const uint64_t begin_ns = base::now_ns();
  const uint64_t certain_ns = one->keep(first, Deadline(1000))->certain_until_ns;
  // From here on it does not keep the lock, as if it had died.
  uint64_t second = 0;
  while (second == 0 && seconds_since(begin_ns) < 10) {
    const auto now = two->campaign("two", 2000, Deadline(1000));
    ASSERT_TRUE(now.ok()) << now.status().message();
    if (now.value().mine) second = now.value().term;
    usleep(50'000);
  }
  EXPECT_GT(second, first);
  EXPECT_GT(base::now_ns(), certain_ns);  // never two at a time
  EXPECT_LT(seconds_since(begin_ns), 6);
  const base::Status deposed = one->write(first, {{"a", "1", {}}}, Deadline(1000));
  EXPECT_EQ(deposed.code(), Code::kRefused);
  EXPECT_NE(deposed.message().find("two schedules since term"), std::string::npos)
      << deposed.message();
  EXPECT_EQ(one->keep(first, Deadline(1000)).status().code(), Code::kRefused);
}

TEST_F(Etcd, MembersDieOneAfterTheOtherAndNothingIsLost) {
  const EtcdOptions options = options_of(*cluster);
  const auto store = opened(options);
  const uint64_t term = elected(*store);
  int written = 0;
  uint64_t longest_ns = 0;
  for (size_t member = 0; member < 3; ++member) {  // one of them leads
    write_numbers(*store, term, &written, written + 30, &longest_ns);
    cluster->kill(member);
    write_numbers(*store, term, &written, written + 30, &longest_ns);
    const auto kept = store->keep(term, Deadline(4000));
    ASSERT_TRUE(kept.ok()) << kept.status().message();
    cluster->start(member);
    write_numbers(*store, term, &written, written + 30, &longest_ns);
    usleep(1'500'000);  // it must be back before the next one dies
    ASSERT_TRUE(store->keep(term, Deadline(4000)).ok());
  }
  const auto all = list_all(*store, "n/", Deadline(5000));
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all.value().size(), size_t(written));
  printf("longest write while members died: %.2f s\n", double(longest_ns) / 1e9);
}

TEST_F(Etcd, WithoutAQuorumItSaysSoAndGoesOnLater) {
  EtcdCluster members(3);
  const EtcdOptions options = options_of(members);
  const auto store = opened(options);
  uint64_t term = elected(*store, 4000);
  ASSERT_TRUE(store->write(term, {{"before", "1", {}}}, Deadline(4000)).ok());
  members.kill(1);
  members.kill(2);
  const uint64_t lost_ns = base::now_ns();
  const base::Status refused = store->write(term, {{"during", "1", {}}}, Deadline(3000));
  EXPECT_FALSE(refused.ok());
  EXPECT_TRUE(worth_repeating(refused)) << refused.message();
  EXPECT_LT(seconds_since(lost_ns), 3.5);
  EXPECT_FALSE(store->keep(term, Deadline(2000)).ok());
  EXPECT_FALSE(store->get("before", Deadline(500)).ok());
  printf("without a quorum: %s\n", refused.message().c_str());
  members.start(1);
  const uint64_t back_ns = base::now_ns();
  base::Status done = refused;
  while (!done.ok() && seconds_since(back_ns) < 20) {
    done = store->write(term, {{"during", "1", {}}}, Deadline(2000));
    if (done.code() == Code::kRefused) {  // the lock did not last
      const auto now = store->campaign("one", 4000, Deadline(2000));
      if (now.ok() && now.value().mine) term = now.value().term;
    }
  }
  EXPECT_TRUE(done.ok()) << done.message();
  printf("writes %.2f s after the quorum is back\n", seconds_since(back_ns));
  EXPECT_EQ(store->get("before", Deadline(2000))->value, "1");
  EXPECT_EQ(store->get("during", Deadline(2000))->value, "1");
}

TEST_F(Etcd, AMemberThatHangsIsPassedBy) {
  EtcdOptions options = options_of(*cluster);
  options.answer_ms = 500;
  const auto store = opened(options);
  const uint64_t term = elected(*store);
  cluster->pause(0);
  const uint64_t begin_ns = base::now_ns();
  base::Status done(Code::kTimeout, "");
  while (!done.ok() && seconds_since(begin_ns) < 10)
    done = store->write(term, {{"a", "1", {}}}, Deadline(4000));
  cluster->resume(0);
  EXPECT_TRUE(done.ok()) << done.message();
  EXPECT_TRUE(store->keep(term, Deadline(4000)).ok());
  EXPECT_EQ(store->get("a", Deadline(4000))->value, "1");
  // Its destructor is less patient, and the next test wants the lock.
  EXPECT_TRUE(store->resign(term, Deadline(4000)).ok());
}

// The answer to taking the lock is lost: the caller asks again and hears that it has it. The lost
// try may be applied at any time, even while the next one is under way.
TEST_F(Etcd, ALockWhoseAnswerWasLostIsFoundAgain) {
  for (int round = 0; round < 20; ++round) {
    const auto store = opened(options_of(*cluster));
    uint64_t term = 0;
    for (int wait_ms = 1; term == 0 && wait_ms < 200; ++wait_ms) {
      auto now = store->campaign("one", 5000, Deadline(wait_ms));
      if (now.ok() && now->held) {
        EXPECT_TRUE(now->mine) << "round " << round;
        term = now->term;
      }
    }
    EXPECT_TRUE(store->write(term, {{"a", "1", {}}}, Deadline(4000)).ok());
  }
}

TEST_F(Etcd, NobodyThere) {
  EtcdOptions options;
  options.members = {"127.0.0.1:" + std::to_string(free_port())};
  const auto store = opened(options);
  const uint64_t begin_ns = base::now_ns();
  const auto found = store->get("a", Deadline(700));
  EXPECT_EQ(found.status().code(), Code::kUnavailable);
  EXPECT_NE(found.status().message().find(options.members[0]), std::string::npos);
  EXPECT_LT(seconds_since(begin_ns), 2);
}

TEST_F(Etcd, AFullOneSaysSo) {
  EtcdCluster member(1, {"--quota-backend-bytes", "2000000"});
  const auto store = opened(options_of(member));
  const uint64_t term = elected(*store);
  base::Status done;
  int kept = 0;
  for (; done.ok() && kept < 40; ++kept)
    done =
        store->write(term, {{std::to_string(kept), std::string(200'000, 'x'), {}}}, Deadline(4000));
  EXPECT_EQ(done.code(), Code::kExhausted) << done.message();
  EXPECT_NE(done.message().find("etcd is full"), std::string::npos) << done.message();
  // All that was acknowledged is there, and perhaps the one that filled it.
  const size_t found = list_all(*store, "", Deadline(4000))->size();
  EXPECT_GE(found, size_t(kept - 1));
  EXPECT_LE(found, size_t(kept));
}

TEST_F(Etcd, TlsAndAPassword) {
  if (shell("openssl version >/dev/null 2>&1; command -v etcdctl >/dev/null") != 0)
    GTEST_SKIP() << "there is no openssl or no etcdctl on this machine";
  const Folder folder;
  const std::string key = folder / "key.pem", certificate = folder / "certificate.pem";
  const std::string make =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
      " -days 2 -subj /CN=etcd -addext subjectAltName=IP:127.0.0.1 -keyout " +
      key + " -out " + certificate + " 2>/dev/null";
  ASSERT_EQ(shell(make), 0);
  EtcdCluster member(1, {"--cert-file", certificate, "--key-file", key}, true);
  EtcdOptions options = options_of(member);
  options.secure = true;
  options.ca_file = certificate;
  uint64_t term = 0;
  {
    const auto store = opened(options);
    term = elected(*store);
    EXPECT_TRUE(store->write(term, {{"a", "1", {}}}, Deadline(4000)).ok());
  }
  const std::string ctl = "ETCDCTL_API=3 etcdctl --endpoints https://" + member.members()[0] +
                          " --cacert " + certificate + " ";
  ASSERT_EQ(shell(ctl + "user add root:s3cret >/dev/null && " + ctl +
                  "user grant-role root root >/dev/null && " + ctl + "auth enable >/dev/null"),
            0);
  const auto stranger = opened(options)->get("a", Deadline(4000));
  EXPECT_EQ(stranger.status().code(), Code::kRefused) << stranger.status().message();
  EXPECT_NE(stranger.status().message().find("password-file"), std::string::npos);
  options.user = "root";
  options.password = "wrong";
  EXPECT_EQ(opened(options)->get("a", Deadline(4000)).status().code(), Code::kRefused);
  options.password = "s3cret";
  const auto store = opened(options);
  EXPECT_EQ(store->get("a", Deadline(4000))->value, "1");
  EXPECT_GT(elected(*store), term);

  options.ca_file.clear();  // the system does not know this authority
  const auto unknown = opened(options)->get("a", Deadline(4000));
  EXPECT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("proves nothing"), std::string::npos)
      << unknown.status().message();
}

}  // namespace tendril::store
