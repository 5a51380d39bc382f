// SPDX-License-Identifier: Apache-2.0
// Filters as people write them, right and wrong.
#include "pool/filter/filter.h"

#include <gtest/gtest.h>

namespace tendril::pool {
namespace {

GpuFacts h200() {
  GpuFacts gpu;
  gpu.model = "NVIDIA H200";
  gpu.memory_bytes = 150'754'820'096;  // 143,771 MiB, as its driver says
  gpu.compute_capability = {9, 0};
  gpu.driver = version_of("580.95.05");
  gpu.cuda = {13, 0};
  gpu.server = "gpu3";
  gpu.labels = {{"room", "cellar"}};
  gpu.transports = {"tcp", "rdma"};
  gpu.index = 2;
  gpu.tenants = 1;
  gpu.tenants_known = true;
  return gpu;
}

bool holds(const std::string& text, const GpuFacts& gpu = h200()) {
  const auto filter = Filter::parse(text);
  EXPECT_TRUE(filter.ok()) << text << ": " << filter.status().message();
  return filter.ok() && filter.value().matches(gpu);
}

std::string error_of(const std::string& text, Filter::Subject subject = Filter::Subject::kGpu) {
  const auto filter = Filter::parse(text, subject);
  return filter.ok() ? "" : filter.status().message();
}

TEST(Filter, AnEmptyOneMatchesEverything) {
  EXPECT_TRUE(holds(""));
  EXPECT_TRUE(holds("  "));
  EXPECT_TRUE(holds("true"));
  EXPECT_FALSE(holds("false"));
  EXPECT_TRUE(Filter::parse("true").value().matches_everything());
  EXPECT_TRUE(Filter().matches(h200()));
}

TEST(Filter, ComparesWhatOpenclDevicesSay) {
  GpuFacts fpga;
  fpga.type = "accelerator";
  fpga.vendor = "Tendril tests";
  fpga.opencl = version_of("1.2");
  fpga.extensions = {"cl_khr_icd", "cl_khr_fp64"};
  EXPECT_TRUE(holds("type = accelerator and vendor ~ tendril and opencl >= 1.2", fpga));
  EXPECT_TRUE(holds("extension = cl_khr_fp64 and not extension ~ fp16", fpga));
  EXPECT_FALSE(holds("type = gpu or opencl >= 2", fpga));
  EXPECT_TRUE(holds("type = gpu"));
  EXPECT_FALSE(holds("vendor != nobody or extension != none or opencl < 9"));
}

TEST(Filter, ComparesTexts) {
  EXPECT_TRUE(holds("model~\"H200\" and memory>=40G"));
  EXPECT_TRUE(holds("model ~ h200"));
  EXPECT_TRUE(holds("model = 'NVIDIA H200'"));
  EXPECT_TRUE(holds("model == \"NVIDIA H200\""));
  EXPECT_FALSE(holds("model = 'nvidia h200'"));
  EXPECT_TRUE(holds("server != gpu4"));
  EXPECT_TRUE(holds("label.room = cellar"));
  EXPECT_TRUE(holds("label.rack != 7"));
  EXPECT_TRUE(holds("label.rack = ''"));
  EXPECT_TRUE(holds("transport = rdma"));
  EXPECT_FALSE(holds("transport != rdma"));
  EXPECT_TRUE(holds("transport ~ '^r'"));
}

TEST(Filter, ComparesSizesAsVendorsCount) {
  EXPECT_TRUE(holds("memory >= 141G"));
  EXPECT_TRUE(holds("memory >= \"141GB\""));
  EXPECT_FALSE(holds("memory >= 141Gi"));
  EXPECT_TRUE(holds("memory > 0.14T"));
  EXPECT_TRUE(holds("memory > 0"));
  GpuFacts h100 = h200();
  h100.memory_bytes = 81'559ull << 20;  // sold as 80 GB
  EXPECT_TRUE(holds("memory >= 80G", h100));
  EXPECT_FALSE(holds("memory >= 80GiB", h100));
  h100.memory_bytes = 0;
  EXPECT_FALSE(holds("memory >= 1M or memory < 1M", h100));
}

TEST(Filter, ComparesVersionsPartByPart) {
  EXPECT_TRUE(holds("compute_capability >= 8.9"));
  EXPECT_TRUE(holds("compute_capability >= 9"));
  EXPECT_FALSE(holds("compute_capability >= 10.0"));
  EXPECT_TRUE(holds("driver = 580"));
  EXPECT_FALSE(holds("driver > 580"));
  EXPECT_TRUE(holds("driver > 580.9"));
  EXPECT_TRUE(holds("driver < 580.100"));
  EXPECT_TRUE(holds("driver >= 580.95.05"));
  EXPECT_TRUE(holds("cuda != 12"));
  GpuFacts unknown = h200();
  unknown.driver.clear();
  EXPECT_FALSE(holds("driver != 1 or driver = 1", unknown));
}

TEST(Filter, ComparesNumbers) {
  EXPECT_TRUE(holds("index = 2"));
  EXPECT_TRUE(holds("tenants < 2"));
  EXPECT_FALSE(holds("tenants != 1"));
  EXPECT_TRUE(Filter::parse("index = 1 or tenants = 0").value().looks_at_load());
  EXPECT_FALSE(Filter::parse("index = 1").value().looks_at_load());
}

TEST(Filter, LooksPastTheLoad) {
  const auto could = [](const std::string& text) {
    return Filter::parse(text).value().could_match(h200());
  };
  EXPECT_TRUE(could("tenants = 7"));
  EXPECT_TRUE(could("not tenants = 1"));
  EXPECT_TRUE(could("tenants = 0 and index = 2"));
  EXPECT_FALSE(could("tenants = 0 and index = 3"));
  EXPECT_FALSE(could("not (tenants = 0 or index = 2)"));
  EXPECT_TRUE(could("not (tenants = 0 and index = 2)"));
  EXPECT_TRUE(could("index = 3 or tenants > 5"));
  EXPECT_FALSE(could("index = 3 or false"));
  EXPECT_TRUE(could(""));
}

TEST(Filter, CombinesInTheUsualOrder) {
  EXPECT_TRUE(holds("true or true and false"));
  EXPECT_FALSE(holds("(true or true) and false"));
  EXPECT_TRUE(holds("not false and true"));
  EXPECT_FALSE(holds("not (false or true)"));
  EXPECT_TRUE(holds("!false && !(index=1||index=3)"));
  EXPECT_TRUE(holds("not not true"));
}

TEST(Filter, LooksAtUsers) {
  UserFacts who;
  who.user = "alice";
  who.groups = {"students", "chess"};
  who.role = "user";
  const auto holds_for = [&who](const std::string& text) {
    const auto filter = Filter::parse(text, Filter::Subject::kUser);
    EXPECT_TRUE(filter.ok()) << filter.status().message();
    return filter.ok() && filter.value().matches(who);
  };
  EXPECT_TRUE(holds_for("group == \"students\""));
  EXPECT_TRUE(holds_for("group = chess and user = alice"));
  EXPECT_FALSE(holds_for("group != chess"));
  EXPECT_TRUE(holds_for("group != staff"));
  EXPECT_TRUE(holds_for("role = user and user ~ '^a'"));
  EXPECT_FALSE(Filter::parse("user = alice", Filter::Subject::kUser).value().matches(h200()));
  EXPECT_EQ(error_of("user = alice").find("column 1: 'user' is no fact of a GPU"), 0u);
}

TEST(Filter, ErrorsNameTheColumnAndWhatWasExpected) {
  EXPECT_EQ(error_of("memory >= "), "column 11: expected a value, found the end");
  EXPECT_EQ(error_of("memory >= much"),
            "column 11: expected a size with its unit, as in 40G or 512M, found 'much'");
  EXPECT_EQ(error_of("memory >= 40").find("column 11: expected a size with its unit"), 0u);
  EXPECT_NE(error_of("memroy >= 40G").find("did you mean 'memory'?"), std::string::npos);
  EXPECT_EQ(error_of("model H200"), "column 7: expected one of = != < <= > >= ~, found 'H200'");
  EXPECT_EQ(error_of("model > H200"),
            "column 7: expected =, != or ~, because model is a text, found '>'");
  EXPECT_EQ(error_of("(model = a").find("column 11: expected 'and', 'or' or ')', found the end"),
            0u);
  EXPECT_EQ(error_of("model = a model = b"),
            "column 11: expected 'and', 'or' or the end, found 'model'");
  EXPECT_EQ(error_of("model = \"a").find("column 9: expected a \" at the end"), 0u);
  EXPECT_EQ(error_of("model ~ H100|H200").find("column 13: the sign '|' means nothing here"), 0u);
  EXPECT_EQ(error_of("model ~ 'a('").find("column 9: at position 3 of the pattern"), 0u);
  for (const char* text : {"and", "not", "driver ~ 5", "driver = 5x", "driver = '.'", "driver = ''",
                           "driver = 1.2.3.4.5", "index = -1", "index = ''", "memory = 5Q",
                           "memory = 99999999999T", "label. = 5", "label = 5", "()",
                           "model =", "= 5", "'model' = a", "model = a or", "memory = ''"})
    EXPECT_NE(error_of(text), "") << text;
}

TEST(Filter, IsBounded) {
  EXPECT_NE(error_of(std::string(5000, ' ')), "");
  EXPECT_NE(error_of(std::string(1000, '(')).find("at most 32"), std::string::npos);
  EXPECT_NE(error_of(std::string(1000, '!')).find("at most 32"), std::string::npos);
  std::string many = "index=1";
  for (int i = 0; i < 300; ++i) many += " or index=1";
  EXPECT_NE(error_of(many).find("256 parts"), std::string::npos);
}

}  // namespace
}  // namespace tendril::pool
