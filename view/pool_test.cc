// SPDX-License-Identifier: Apache-2.0
// Tables of a pool's answers, also of answers that make no sense.
#include "view/pool.h"

#include <gtest/gtest.h>

namespace tendril::view {
namespace {

std::string shown(const std::string& verb, const std::string& json) {
  const auto text = pool_text(verb, json);
  return text.ok() ? text.value() : "error: " + text.status().message();
}

TEST(PoolText, Queue) {
  EXPECT_EQ(shown("queue", R"({"waiting": []})"), "nobody waits\n");
  const std::string text = shown("queue", R"({"waiting": [{"request": 7, "place": 3, "of": 7,
    "queue": "top", "owner": "ada", "account": "vision", "user_class": "normal", "slices": 2,
    "share": 0.5, "waited_s": 75, "start_from_at": null, "start_to_at": null, "reason": "Quota",
    "numbers": "vision holds 4.0 of 4.0 top"}]})");
  EXPECT_NE(text.find("3 of 7"), std::string::npos) << text;
  EXPECT_NE(text.find("2 x 0.50"), std::string::npos) << text;
  EXPECT_NE(text.find("1m15s"), std::string::npos) << text;
  EXPECT_NE(text.find("Quota: vision holds 4.0 of 4.0 top"), std::string::npos) << text;
}

TEST(PoolText, Status) {
  const std::string text = shown("status", R"({"pool": "lab", "scheduler": "pool1", "term": 3,
    "planning": false, "planning_why": "gpu2 has not reported", "policy_revision": 2, "waiting": 1,
    "servers": [{"name": "gpu1", "state": "silent", "silent_s": 61, "draining": true, "leases": 1,
      "labels": {"site": "north"}, "version": "0.1.0", "gpus": [
      {"index": 0, "model": "H200", "class": "top", "given": 0.5},
      {"index": 1, "model": "H200", "class": "top", "given": 1}]}],
    "accounts": [{"name": "vision", "parent": null, "quota": {"top": 4}, "limit": {"top": null},
      "used": {"top": 1.5}, "waiting": 1}],
    "leases": [{"lease": 412, "state": "running", "owner": "ada", "slices": 2, "share": 1.5,
      "parts": [{"server": "gpu1", "gpus": [0, 1]}], "age_s": 5, "idle_s": null,
      "ends_in_s": 3600, "paused": true}]})");
  for (const char* const word :
       {"pool1 schedules, in term 3", "gpu2 has not reported", "silent for 1m01s, draining",
        "site=north", "1.50", "gpu1:0,1", "running, paused", "412"})
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
}

TEST(PoolText, Others) {
  EXPECT_EQ(shown("show", R"({"policy": "[pool]\nname = \"lab\"\u001b[2J"})").find('\x1b'),
            std::string::npos);
  EXPECT_EQ(shown("show", R"({"policy": "a\nb\n"})"), "a\nb\n");
  EXPECT_NE(shown("dry-run", R"({"changes": ["account a: quota 1 -> 2"], "ends": []})")
                .find("account a: quota 1 -> 2"),
            std::string::npos);
  EXPECT_EQ(shown("drain", R"({"server": "gpu1", "draining": true, "leases": 2})"),
            "draining: true\nleases: 2\nserver: gpu1\n");
}

TEST(PoolText, BelievesNothing) {
  EXPECT_NE(shown("status", "[1, 2]").find("error: "), std::string::npos);
  EXPECT_NE(shown("status", "no JSON").find("error: "), std::string::npos);
  for (const char* const verb : {"status", "queue", "show", "apply", "dry-run", "drain"}) {
    for (const char* const value :
         {"null", "1", "\"x\"", "[1, null, \"x\", {}, []]", "{\"a\": []}"}) {
      std::string json = "{";
      for (const char* const key : {"servers", "accounts", "leases", "waiting", "policy", "changes",
                                    "term", "planning", "pool"})
        json += (json.size() > 1 ? ", \"" : "\"") + std::string(key) + "\": " + value;
      EXPECT_TRUE(pool_text(verb, json + "}").ok()) << verb << " " << value;
    }
  }
}

}  // namespace
}  // namespace tendril::view
