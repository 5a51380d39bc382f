// SPDX-License-Identifier: Apache-2.0
// Policies as people write them, right and wrong.
#include "pool/policy/policy_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "pool/policy/dates.h"
#include "pool/policy/settings.h"
#include "pool/policy/test_zones.h"

namespace tendril::pool {
namespace {

constexpr char kPolicy[] = R"(
[pool]
name = "lab"
store = "etcd://a:2379,b:2379"
timezone = "Europe/Berlin"
fair_share_half_life = "3d"
longest_wait = "12h"
pause_limit = "2m"
when_no_scheduler = "refuse"
servers_are_peers = false

[[gpu_class]]
name = "top"
match = 'model ~ "H100|H200" and memory >= "80G"'
usage_weight = 3.0
[[gpu_class]]
name = "any"
match = "true"

[[account]]
name = "vision"
parent = "research"
quota = { top = 4, any = 8 }
limit = { top = 8, any = 16 }
over_quota_weight = 2
lending_limit = { top = 2 }
[[account]]
name = "nlp"
parent = "research"
quota = { top = 2 }
[[account]]
name = "research"
max_per_user = { gpus = 6 }
[[account]]
name = "teaching"
quota = { any = "1/3" }

[[user_class]]
name = "interactive"
priority = 100
gpu_classes = ["any"]
max_per_user = { gpus = 1.0, leases = 2, pending = 4 }
max_wall = "8h"
default_wall = "2h"
idle_timeout = "30m"
idle_unused_timeout = "10m"
idle_action = ["warn", "shrink", "end"]
idle_grace = "5m"
[[user_class]]
name = "batch"
priority = 10
max_priority = 50
gpu_classes = ["top", "any"]
max_wall = "3d"
preempts = ["scavenger"]
into_maintenance = true
[[user_class]]
name = "scavenger"
priority = 0
preempt_mode = ["shrink", "pause", "requeue", "end"]
grace_time = "120s"
preempt_exempt_time = "10m"
usage_factor = 0.2
over_quota = "only"

[[assignment]]
match = 'group == "students"'
account = "teaching"
user_classes = ["interactive"]
[[assignment]]
match = 'group == "vision"'
account = "vision"

[[reservation]]
name = "ml101"
gpus = { any = 4 }
when = "Mon,Wed 10:00-12:00"
accounts = ["teaching"]

[[schedule]]
when = "Mon-Fri 08:00-18:00"
user_class.batch.max_per_user.gpus = 1.0
user_class.batch.gpu_classes = ["any"]
account.vision.quota.top = 3

[[move]]
from = "vision"
to = "nlp"
gpus = { top = 2 }
at = 2026-11-24T18:00:00
)";

base::Result<Zone> zones(const std::string& name) {
  if (name == "Europe/Berlin") return berlin();
  return only_utc(name);
}

PoolPolicy policy_of(const std::string& text) {
  auto policy = parse_pool_policy(text, "p.toml", zones);
  EXPECT_TRUE(policy.ok()) << policy.status().message();
  return policy.ok() ? policy.take() : PoolPolicy();
}

std::string error_of(const std::string& text) {
  const auto policy = parse_pool_policy(text, "p.toml", zones);
  return policy.ok() ? "" : policy.status().message();
}

int64_t at(int day, int hour) {  // of November 2026 in Berlin; the 23rd is a Monday
  return berlin().wall_of(days_of({2026, 11, day}) * kDayS + hour * 3600, false);
}

TEST(PoolPolicyFile, SaysEverything) {
  const PoolPolicy p = policy_of(kPolicy);
  EXPECT_EQ(p.name, "lab");
  EXPECT_EQ(p.store, "etcd://a:2379,b:2379");
  EXPECT_EQ(p.zone.offset_at(at(23, 12)), 3600);
  EXPECT_EQ(p.fair_share_half_life_s, 3u * 86'400);
  EXPECT_EQ(p.longest_wait_s, 12u * 3600);
  EXPECT_EQ(p.pause_limit_s, 120u);
  EXPECT_EQ(p.when_no_scheduler, WithoutScheduler::kRefuse);
  EXPECT_FALSE(p.servers_are_peers);
  ASSERT_EQ(p.gpu_classes.size(), 2u);
  EXPECT_EQ(p.gpu_classes[0].usage_weight, 3);
  EXPECT_TRUE(p.gpu_classes[1].match.matches_everything());
  // Parents come first.
  EXPECT_EQ(p.account("research"), 0u);
  const Account& vision = p.accounts[*p.account("vision")];
  EXPECT_EQ(vision.parent, 0u);
  EXPECT_EQ(vision.quota, (Amounts{4'000'000, 8'000'000}));
  EXPECT_EQ(vision.limit, (Amounts{8'000'000, 16'000'000}));
  EXPECT_EQ(vision.lending_limit, (Amounts{2'000'000, kUnlimited}));
  EXPECT_EQ(vision.over_quota_weight, 2);
  EXPECT_EQ(p.accounts[0].quota, (Amounts{6'000'000, 8'000'000}));
  EXPECT_EQ(p.accounts[0].max_per_user.gpus, 6'000'000u);
  EXPECT_EQ(p.accounts[*p.account("teaching")].quota[1], 333'333u);
  const UserClass& interactive = p.user_classes[0];
  EXPECT_EQ(interactive.priority, 100);
  EXPECT_EQ(interactive.gpu_classes, std::vector<uint32_t>{1});
  EXPECT_EQ(interactive.max_per_user.gpus, 1'000'000u);
  EXPECT_EQ(interactive.max_per_user.leases, 2u);
  EXPECT_EQ(interactive.max_per_user.pending, 4u);
  EXPECT_EQ(interactive.max_wall_s, 8u * 3600);
  EXPECT_EQ(interactive.default_wall_s, 2u * 3600);
  EXPECT_EQ(interactive.idle_timeout_s, 1800u);
  EXPECT_EQ(interactive.idle_unused_timeout_s, 600u);
  EXPECT_EQ(interactive.idle_action,
            (std::vector<Action>{Action::kWarn, Action::kShrink, Action::kEnd}));
  const UserClass& batch = p.user_classes[1];
  EXPECT_EQ(batch.preempts, std::vector<uint32_t>{2});
  EXPECT_EQ(batch.max_priority, 50);
  EXPECT_EQ(batch.default_wall_s, batch.max_wall_s);
  EXPECT_TRUE(batch.into_maintenance);
  EXPECT_EQ(p.user_classes[2].over_quota, OverQuota::kOnly);
  EXPECT_EQ(p.user_classes[2].usage_factor, 0.2);
  ASSERT_EQ(p.assignments.size(), 2u);
  EXPECT_EQ(p.assignments[1].user_classes, (std::vector<uint32_t>{0, 1, 2}));
  ASSERT_EQ(p.reservations.size(), 1u);
  EXPECT_EQ(p.reservations[0].gpus, (Amounts{0, 4'000'000}));
  EXPECT_EQ(p.schedules.size(), 1u);
  ASSERT_EQ(p.moves.size(), 1u);
  EXPECT_EQ(p.moves[0].at_s, at(24, 18));
}

TEST(PoolPolicyFile, HoldsAtItsTimes) {
  const PoolPolicy p = policy_of(kPolicy);
  const uint32_t vision = *p.account("vision"), nlp = *p.account("nlp");
  const PoolPolicy night = effective(p, at(23, 6));
  EXPECT_EQ(night.accounts[vision].quota[0], 4'000'000u);
  EXPECT_EQ(night.user_classes[1].gpu_classes, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(night.reservations[0].from_s, at(23, 10));
  EXPECT_EQ(night.reservations[0].to_s, at(23, 12));
  const PoolPolicy day = effective(p, at(23, 9));
  EXPECT_EQ(day.accounts[vision].quota[0], 3'000'000u);
  EXPECT_EQ(day.accounts[vision].quota[1], 8'000'000u);
  EXPECT_EQ(day.accounts[0].quota[0], 5'000'000u);  // a sum follows
  EXPECT_EQ(day.user_classes[1].gpu_classes, std::vector<uint32_t>{1});
  EXPECT_EQ(day.user_classes[1].max_per_user.gpus, 1'000'000u);
  EXPECT_EQ(day.user_classes[1].max_per_user.leases, kUnlimited);
  const PoolPolicy moved = effective(p, at(24, 19));
  EXPECT_EQ(moved.accounts[vision].quota[0], 2'000'000u);
  EXPECT_EQ(moved.accounts[nlp].quota[0], 4'000'000u);
  EXPECT_EQ(moved.accounts[0].quota[0], 6'000'000u);
  EXPECT_EQ(next_change(p, at(23, 6)), at(23, 8));
  EXPECT_EQ(next_change(p, at(23, 9)), at(23, 10));
  EXPECT_EQ(next_change(p, at(24, 17)), at(24, 18));
  EXPECT_EQ(next_change(default_policy(), 0), kNever);
}

TEST(PoolPolicyFile, AnEmptyOneAllowsEverything) {
  const PoolPolicy empty = policy_of(""), otherwise = default_policy();
  const auto texts = [](const PoolPolicy& policy) {
    std::string all;
    for (const PolicySetting& one : settings_of(policy))
      all += one.table + "." + one.name + "." + one.key + "=" + one.value + "\n";
    return all;
  };
  EXPECT_EQ(texts(empty), texts(otherwise));
  // With one class of GPUs it needs no name.
  const PoolPolicy small = policy_of("[[account]]\nname = \"lab\"\nquota = 2.5\nlimit = 4\n");
  EXPECT_EQ(small.accounts[0].quota, Amounts{2'500'000});
  EXPECT_EQ(small.assignments.size(), 1u);
}

TEST(PoolPolicyFile, ErrorsNameLineColumnAndWhatWasExpected) {
  EXPECT_EQ(error_of("[pool]\nwhen_no_scheduler = \"wait\"\n"),
            "p.toml, line 2, column 21: 'when_no_scheduler' must be \"local\" or \"refuse\"");
  EXPECT_EQ(error_of("[[gpu_class]]\nname = \"top\"\nmatch = 'memroy >= 40G'\n")
                .find("p.toml, line 3, column 10: in 'match': 'memroy' is no fact of a GPU; "),
            0u);
  EXPECT_EQ(error_of("[[gpu_class]]\nname = \"top\"\nmatch = 'model ~ x and memory >= 40'\n")
                .find("p.toml, line 3, column 34: in 'match': expected a size"),
            0u);
  EXPECT_EQ(error_of("[[schedule]]\nwhen = \"Mon-Fry\"\n")
                .find("p.toml, line 2, column 13: in 'when': expected a day"),
            0u);
  EXPECT_EQ(error_of("[[user_class]]\nname = \"a\"\nmax_wal = \"8h\"\n")
                .find("p.toml, line 3, column 1: unknown key 'max_wal' in [[user_class]]; "),
            0u);
  EXPECT_NE(
      error_of("[[user_class]]\nname = \"a\"\nmax_wal = \"8h\"\n").find("did you mean 'max_wall'?"),
      std::string::npos);
  EXPECT_EQ(error_of("[[user_class]]\nname = \"a\"\nmax_wall = 8\n"),
            "p.toml, line 3, column 12: 'max_wall' must be a time, as in \"90s\", \"15m\", \"12h\" "
            "or \"7d\", or \"none\"");
  EXPECT_EQ(error_of("[pool]\ntimezone = \"Mars\"\n").find("p.toml, line 2, column 12: in"), 0u);
  EXPECT_NE(error_of("[[account]]\nquota = 1\n").find("needs a name"), std::string::npos);
}

const std::string kTwo =
    "[[gpu_class]]\nname = \"top\"\nmatch = 'model ~ H'\n[[gpu_class]]\nname = \"any\"\n";

TEST(PoolPolicyFile, ChecksWhatTablesSayOfEachOther) {
  const auto says = [](const std::string& text, const std::string& what) {
    const std::string error = error_of(text);
    EXPECT_NE(error.find(what), std::string::npos) << text << "\nsays: " << error;
    EXPECT_EQ(error.find("p.toml, line "), 0u) << error;
  };
  says("[[account]]\nname = \"a\"\nparent = \"b\"\n[[account]]\nname = \"b\"\nparent = \"a\"\n",
       "line 3, column 10: 'a' is above itself");
  says("[[account]]\nname = \"a\"\nparent = \"a\"\n", "above itself");
  says("[[account]]\nname = \"a\"\nparent = \"c\"\n", "no [[account]] has this name");
  says("[[account]]\nname = \"a\"\n[[account]]\nname = \"a\"\n", "line 4, column 8: another");
  says("[[account]]\nname = \"a\"\n[[account]]\nname = \"b\"\n", "no [[assignment]] says who");
  says(kTwo + "[[account]]\nname = \"a\"\nquota = 4\n", "must be GPUs by class, as in { top = 4 }");
  says(kTwo + "[[account]]\nname = \"a\"\nquota = { tpo = 4 }\n", "did you mean 'top'?");
  says(kTwo + "[[user_class]]\nname = \"a\"\ngpu_classes = [\"tip\"]\n",
       "'gpu_classes' names 'tip', but no [[gpu_class]] has this name; there are top, any");
  says("[[account]]\nname = \"a\"\nquota = 4\nlimit = 2\n", "line 4, column 9: 'a' has a limit");
  says("[[account]]\nname = \"a\"\nquota = 4\nlending_limit = 5\n", "cannot lend 5.0");
  says(
      "[[account]]\nname = \"a\"\nquota = 1\n[[account]]\nname = \"b\"\nparent = \"a\"\nquota = 2\n"
      "[[assignment]]\naccount = \"b\"\n",
      "the accounts below it have 2.0");
  says("[[gpu_class]]\nname = \"any\"\n[[gpu_class]]\nname = \"top\"\nmatch = 'model ~ H'\n",
       "line 3, column 1: no GPU reaches this class");
  says(
      "[[user_class]]\nname = \"a\"\npriority = 1\npreempts = [\"b\"]\n[[user_class]]\nname = "
      "\"b\"\npriority = 1\n",
      "whose priority is not lower");
  says("[[user_class]]\nname = \"a\"\npreempt_mode = [\"warn\"]\n", "nothing else frees GPUs");
  says("[[user_class]]\nname = \"a\"\nidle_action = [\"end\", \"pause\"]\n", "after 'end'");
  says("[[user_class]]\nname = \"a\"\nwall_action = [\"pause\", \"end\"]\n", "only \"warn\"");
  says("[[user_class]]\nname = \"a\"\nidle_action = [\"swap\"]\n", "warn, shrink, pause");
  says("[[user_class]]\nname = \"a\"\nmax_wall = \"1h\"\ndefault_wall = \"2h\"\n", "at most");
  says("[[reservation]]\nname = \"r\"\ngpus = 1\naccounts = [\"everybody\"]\n", "needs 'when'");
  says("[[reservation]]\nname = \"r\"\ngpus = 1\nwhen = \"daily\"\n",
       "needs 'accounts' or 'users'");
  says("[[reservation]]\nname = \"r\"\nwhen = \"daily\"\nusers = [\"a\"]\n", "needs 'gpus'");
  says("[[schedule]]\nwhen = \"daily\"\n", "something to set");
  says("[[schedule]]\nwhen = \"daily\"\nuser_class.norml.max_wall = \"1h\"\n",
       "unknown key 'norml'");
  says("[[schedule]]\nwhen = \"daily\"\nuser_class.batch = 1\n", "unknown key 'batch'");
  says("[[gpu_class]]\nname = \"a\"\nmatch = 'tenants < 3'\n", "cannot depend on its tenants");
  says("[[move]]\nfrom = \"everybody\"\nto = \"a\"\ngpus = 1\n", "there is no account 'a'");
  says("[gpu_clas]\nname = \"a\"\n", "did you mean 'gpu_class'?");
  says("[gpu_class]\nname = \"a\"\n", "each under a line [[gpu_class]]");
}

TEST(PoolPolicyFile, RefusesOtherTypes) {
  for (const char* text : {"pool = 1",
                           "account = 1",
                           "account = [1]",
                           "[pool]\nname = 1",
                           "[pool]\nname = \"a b\"",
                           "[pool]\nstore = [\"a\"]",
                           "[pool]\nlongest_wait = 5",
                           "[pool]\nfair_share_half_life = \"1s\"",
                           "[[account]]\nname = \"a\"\nquota = -1",
                           "[[account]]\nname = \"a\"\nquota = nan",
                           "[[account]]\nname = \"a\"\nquota = \"none\"",
                           "[[account]]\nname = \"a\"\nquota = [1]",
                           "[[account]]\nname = \"a\"\nover_quota_weight = \"2\"",
                           "[[account]]\nname = \"a\"\nmax_per_user = 1",
                           "[[account]]\nname = \"a\"\nmax_per_user = { gpu = 1 }",
                           "[[user_class]]\nname = \"a\"\npriority = 1.5",
                           "[[user_class]]\nname = \"a\"\nmax_priority = 101",
                           "[[user_class]]\nname = \"a\"\ngpu_classes = []",
                           "[[user_class]]\nname = \"a\"\ngpu_classes = \"any\"",
                           "[[user_class]]\nname = \"a\"\npreempts = [\"a\"]",
                           "[[user_class]]\nname = \"a\"\nreclaimable = \"no\"",
                           "[[user_class]]\nname = \"a\"\nidle_grace = \"none\"",
                           "[[user_class]]\nname = \"a\"\nmax_wall = \"99999d\"",
                           "[[assignment]]\nmatch = 5",
                           "[[assignment]]\nuser_classes = []",
                           "[[move]]\nfrom = \"a\"",
                           "[[move]]\nfrom=\"everybody\"\nto=\"everybody\"\ngpus = 1",
                           "[[move]]\nat = \"18:00\"",
                           "groups = 1",
                           "[groups]\na = \"b\"",
                           "[groups]\na = [1]",
                           "[groups]\n\"a b\" = []",
                           "[[move]]\nat = 18:00:00",
                           "a = {",
                           "\xff\xfe"}) {
    EXPECT_EQ(error_of(text).find("p.toml, line "), 0u) << text << "\nsays: " << error_of(text);
  }
  EXPECT_NE(error_of(std::string(2u << 20, ' ')), "");
}

TEST(PoolPolicyFile, MovesGpusAndReadsThemBack) {
  Move move;
  move.from = "vision";
  move.to = "teaching";
  move.gpus = {{"any", 2'500'000}};
  move.at_s = at(25, 18) + 7;
  const auto longer = with_move(kPolicy, move, zones);
  ASSERT_TRUE(longer.ok()) << longer.status().message();
  const PoolPolicy p = policy_of(longer.value());
  ASSERT_EQ(p.moves.size(), 2u);
  EXPECT_EQ(p.moves[1].at_s, move.at_s);
  EXPECT_EQ(p.moves[1].gpus, move.gpus);
  const PoolPolicy then = effective(p, move.at_s);
  EXPECT_EQ(then.accounts[*p.account("vision")].quota[1], 5'500'000u);
  EXPECT_EQ(then.accounts[*p.account("teaching")].quota[1], 2'833'333u);
  EXPECT_EQ(then.accounts[*p.account("research")].quota[1], 5'500'000u);
  EXPECT_EQ(effective(p, move.at_s - 1).accounts[*p.account("vision")].quota[1], 8'000'000u);

  const auto refused = [&](const char* from, const char* to, uint64_t top) {
    Move wrong;
    wrong.from = from;
    wrong.to = to;
    wrong.gpus = {{"top", top}};
    wrong.at_s = move.at_s;
    const auto result = with_move(kPolicy, wrong, zones);
    return result.ok() ? "" : result.status().message();
  };
  // Two are gone by then.
  EXPECT_EQ(refused("vision", "nlp", 3'000'000),
            "vision has a quota of 2.0 top; 3.0 cannot be moved");
  EXPECT_NE(refused("research", "teaching", 1'000'000).find("is the sum of the accounts below"),
            std::string::npos);
  EXPECT_NE(refused("vision", "research", 1'000'000).find("is above the other"), std::string::npos);
  EXPECT_EQ(refused("nlp", "vision", 4'000'000), "");
  EXPECT_NE(refused("vision", "nobody", 1).find("there is no account 'nobody'"), std::string::npos);
  EXPECT_EQ(refused("nlp", "vision", 4'000'001).find("nlp has a quota of 4.0"), 0u);
}

TEST(PoolPolicyFile, NoMoveGoesOverALimit) {
  const std::string text =
      "[[account]]\nname = \"a\"\nquota = 4\n[[account]]\nname = \"b\"\nlimit = 2\n"
      "[[assignment]]\naccount = \"a\"\n";
  Move move;
  move.from = "a";
  move.to = "b";
  move.gpus = {{"any", 3'000'000}};
  const auto refused = with_move(text, move, only_utc);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(),
            "the quota of b would be 3.0 any, but its limit is 2.0; raise the limit in the policy "
            "first");
}

// Every example of docs/pool is right, at every time of a year.
TEST(PoolPolicyFile, ReadsTheExamples) {
  for (const char* name : {"lab", "company", "university"}) {
    const std::string path = std::string(TENDRIL_SOURCE) + "/docs/pool/" + name + ".toml";
    std::ifstream file(path);
    ASSERT_TRUE(file.good()) << path;
    std::stringstream text;
    text << file.rdbuf();
    const auto policy = parse_pool_policy(text.str(), path, [](const std::string& zone) {
      return zone == "UTC" ? only_utc(zone) : base::Result<Zone>(berlin());
    });
    ASSERT_TRUE(policy.ok()) << policy.status().message();
    int64_t now = at(23, 12);
    for (int i = 0; i < 1000 && now != kNever; ++i) {
      const PoolPolicy then = effective(policy.value(), now);
      ASSERT_EQ(then.accounts.size(), policy.value().accounts.size());
      now = next_change(policy.value(), now);
    }
  }
}

}  // namespace
}  // namespace tendril::pool
