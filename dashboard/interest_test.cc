// SPDX-License-Identifier: Apache-2.0
// What viewers ask for, from whoever can connect, and what each of them hears.
#include "dashboard/interest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "dashboard/rows.h"
#include "dashboard/test_picture.h"

namespace tendril::dashboard {
namespace {

using Json = nlohmann::json;

Json parsed(const std::string& members) { return Json::parse("{" + members + "}"); }

Json heard(const Model& model, const std::string& query, const Viewer& viewer, uint64_t since = 0,
           bool in_full = false) {
  auto interest = parse_interest(query, "now");
  EXPECT_TRUE(interest.ok()) << query;
  return parsed(changes_json(model, *interest, viewer, since, in_full));
}

TEST(Query, PairsAreDecoded) {
  auto query = parse_query("a=1&b=%41+c%2f&&flag&=x&e=%00");
  ASSERT_TRUE(query.ok());
  const std::vector<std::pair<std::string, std::string>> wanted = {
      {"a", "1"}, {"b", "A c/"}, {"flag", ""}, {"", "x"}, {"e", std::string(1, '\0')}};
  EXPECT_EQ(*query, wanted);
  for (const char* const bad : {"a=%", "a=%4", "a=%zz", "%f=1", "a=1&b=%-1"})
    EXPECT_FALSE(parse_query(bad).ok()) << bad;
}

TEST(Interest, IsReadWithinItsLimits) {
  auto interest =
      parse_interest("servers=1&queue=0&window=1-20,31&lease=7&epoch=now&since=19", "now");
  ASSERT_TRUE(interest.ok());
  EXPECT_TRUE(interest->servers);
  EXPECT_FALSE(interest->queue);
  EXPECT_TRUE(interest->in_window(1) && interest->in_window(20) && interest->in_window(31));
  EXPECT_FALSE(interest->in_window(0) || interest->in_window(21) || interest->in_window(32));
  EXPECT_EQ(interest->lease, 7u);
  EXPECT_EQ(interest->since, 19u);
  auto other = parse_interest("since=19&epoch=before", "now");
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->since, 0u) << "versions of another model say nothing";
}

TEST(Interest, NonsenseIsRefused) {
  std::string ranges = "window=";
  for (int i = 1; i < 140; i += 2) ranges += std::to_string(i) + ",";
  for (const std::string& bad :
       {std::string("window=1-201"), std::string("window=2-1"), std::string("window=-"),
        std::string("window=1-4294967296"), std::string("window=0-18446744073709551615"),
        std::string("window=18446744073709551616"), std::string("window=1-2-3"),
        std::string("window=x"), std::string("lease="), std::string("lease=-1"),
        std::string("since=1e3"), std::string("since=18446744073709551616"), std::string("color=1"),
        std::string("servers=1&=1"), ranges})
    EXPECT_FALSE(parse_interest(bad, "now").ok()) << bad;
  EXPECT_TRUE(parse_interest("window=1-200", "now").ok());
  EXPECT_TRUE(parse_interest("window=,,1,,", "now").ok());
}

TEST(Changes, AreOfWhatIsLookedAt) {
  Model model;
  model.take(small_pool());
  const Viewer everybody{"", true};
  EXPECT_EQ(heard(model, "", everybody).size(), 1u) << "the head only";
  const Json servers = heard(model, "servers=1", everybody);
  EXPECT_EQ(servers["servers"].size(), 2u);
  EXPECT_FALSE(servers.contains("leases"));
  const uint32_t number = model.servers().at("gpu1").number;
  const Json close = heard(model, "window=" + std::to_string(number), everybody, 0, true);
  ASSERT_EQ(close["leases"].size(), 1u);
  EXPECT_EQ(close["leases"][0]["id"], 7);
  EXPECT_EQ(close["details"].size(), 1u);
  EXPECT_EQ(heard(model, "lease=8", everybody, 0, true)["leases"][0]["id"], 8);
}

TEST(Changes, AreYoungerThanWhatTheViewerHas) {
  Model model;
  model.take(small_pool());
  const Viewer everybody{"", true};
  EXPECT_TRUE(heard(model, "servers=1&queue=1&accounts=1", everybody, 1).empty());
  view::Picture next = small_pool();
  next.servers.pop_back();
  next.leases.pop_back();
  next.queue.clear();
  model.take(std::move(next));
  const Json news = heard(model, "servers=1&queue=1&window=1-2", everybody, 1);
  EXPECT_EQ(news["servers_gone"].size(), 1u);
  EXPECT_EQ(news["leases_gone"].dump(), "[8]");
  EXPECT_EQ(news["queue_gone"].dump(), "[9]");
}

TEST(Changes, OthersHaveNoNames) {
  Model model;
  model.take(small_pool());
  const Viewer bob{"id of bob", false};
  const Json rows = heard(model, "queue=1&window=1-2", bob, 0, true);
  ASSERT_EQ(rows["leases"].size(), 2u);
  for (const Json& lease : rows["leases"]) {
    const bool is_his = lease["id"] == 8;
    EXPECT_EQ(lease["owner"], is_his ? "bob" : "");
    EXPECT_EQ(lease["program"], is_his ? "train.py" : "");
    EXPECT_EQ(lease["host"], is_his ? "laptop" : "");
  }
  EXPECT_EQ(rows.dump().find("alice"), std::string::npos);
  EXPECT_EQ(rows["queue"][0]["owner"], "bob");
  // Who has no name of its own does not own what has none.
  view::Picture unowned = small_pool();
  unowned.leases[0].owner_id.clear();
  model.take(std::move(unowned));
  const Json strange = heard(model, "window=1-2", Viewer{"", false}, 0, true);
  EXPECT_EQ(strange.dump().find("alice"), std::string::npos);
}

TEST(Changes, ALongQueueIsCutAndItsEndIsHeard) {
  Model model;
  view::Picture picture = small_pool();
  picture.queue.clear();
  for (uint64_t id = 1; id <= 500; ++id) {
    view::PictureRequest request;
    request.id = id;
    request.owner_id = id == 450 ? "id of bob" : "id of alice";
    picture.queue.push_back(std::move(request));
  }
  model.take(std::move(picture));
  EXPECT_EQ(heard(model, "queue=1", Viewer{"", true})["queue"].size(), kQueueShown);
  EXPECT_EQ(heard(model, "queue=1", Viewer{"id of bob", false})["queue"].size(), kQueueShown + 1);
}

TEST(Rows, HostileNamesAreShortStringsOfJson) {
  for (const std::string& name :
       {std::string("<script>alert(1)</script>"), std::string("\"},{\""), std::string("\x1b[31m"),
        std::string("\xff\xfe\xc3("), std::string(1, '\0'), std::string(10'000, 'W'),
        std::string("\xe2\x80\xae") + "gnp"}) {
    view::Picture picture = small_pool();
    picture.head.name = picture.servers[0].name = picture.servers[0].labels.emplace_back() = name;
    picture.leases[0].owner = picture.leases[0].program = picture.leases[0].account = name;
    picture.leases[0].slices[0].server = name;
    picture.queue[0].numbers = picture.queue[0].filter = name;
    picture.accounts[0].name = picture.accounts[0].classes[name].quota ? "" : name;
    Model model;
    model.take(std::move(picture));
    const std::string text =
        changes_json(model, *parse_interest("servers=1&queue=1&accounts=1&window=1-2", "now"),
                     {"", true}, 0, true);
    EXPECT_LT(text.size(), 12'000u);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_TRUE(Json::accept("{" + text + "}")) << text;
  }
}

}  // namespace
}  // namespace tendril::dashboard
