// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress in both forms, against the answers of a real driver recorded in
// api/cuda/procaddress.csv: for each base name and flag, the exported symbol, or the status that
// holds from a version on.
#include <sstream>

#include "procaddress.gen.h"
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

struct Expectation {
  std::string name;
  cuuint64_t flag;
  int version;
  std::string answer;  // a symbol, or "0:STATUS" for a null pointer
};

// The last version before `version` at which the real driver was asked; between the two nothing is
// recorded.
int probed_before(int version) {
  constexpr int kProbed[] = {2000,  2020,  3000,  3010,  3020,  4000,  4010,  5000,  5050,
                             6000,  6050,  7000,  8000,  9000,  9020,  10000, 10010, 10020,
                             11000, 11010, 11020, 11030, 11040, 11060, 11070, 12000, 12010,
                             12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000};
  int before = 0;
  for (int probed : kProbed) {
    if (probed < version) before = probed;
  }
  return before;
}

// Every recorded change, asked at its first version and at the last recorded one before the next
// change.
const std::vector<Expectation>& expectations() {
  static const std::vector<Expectation> all = [] {
    int newest = 0;
    cuDriverGetVersion(&newest);
    std::vector<Expectation> result;
    std::istringstream lines{std::string(kProcaddressCsv)};
    for (std::string line; std::getline(lines, line);) {
      if (line.empty() || line[0] == '#') continue;
      std::istringstream fields(line);
      std::string name, flag, steps;
      std::getline(fields, name, ',');
      std::getline(fields, flag, ',');
      std::getline(fields, steps);
      std::istringstream parts(steps);
      const cuuint64_t flags = std::stoull(flag);
      for (std::string part; parts >> part;) {
        const size_t equals = part.find('=');
        const int version = std::stoi(part.substr(0, equals));
        if (version > newest) break;
        const int before = probed_before(version);
        if (!result.empty() && result.back().name == name && result.back().flag == flags &&
            before > result.back().version) {
          result.push_back({name, flags, before, result.back().answer});
        }
        result.push_back({name, flags, version, part.substr(equals + 1)});
      }
      if (!result.empty() && result.back().name == name && result.back().version < newest) {
        result.push_back({name, flags, newest, result.back().answer});
      }
    }
    return result;
  }();
  return all;
}

std::string at(const Expectation& e) {
  return e.name + " flag " + std::to_string(e.flag) + " version " + std::to_string(e.version);
}

TEST(ProcaddressTest, EveryRecordedAnswerV2) {
  ASSERT_GT(expectations().size(), 3000u);
  for (const Expectation& e : expectations()) {
    void* found = &found;
    auto status = static_cast<CUdriverProcAddressQueryResult>(77);
    ASSERT_EQ(cuGetProcAddress_v2(e.name.c_str(), &found, e.version, e.flag, &status), CUDA_SUCCESS)
        << at(e);
    if (e.answer.rfind("0:", 0) == 0) {
      EXPECT_EQ(found, nullptr) << at(e);
      EXPECT_EQ(status, std::stoi(e.answer.substr(2))) << at(e);
      continue;
    }
    void* wanted = exported(e.answer.c_str());
    if (wanted) {
      EXPECT_EQ(found, wanted) << at(e) << " should be " << e.answer;
      EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS) << at(e);
    } else {
      // Graphics interop, which a driver for remote GPUs need not have.
      EXPECT_EQ(found, nullptr) << at(e) << ": " << e.answer << " is not exported";
      EXPECT_NE(status, CU_GET_PROC_ADDRESS_SUCCESS) << at(e);
    }
  }
}

TEST(ProcaddressTest, EveryRecordedAnswerOldForm) {
  for (const Expectation& e : expectations()) {
    void* found = &found;
    const CUresult result = cuGetProcAddress(e.name.c_str(), &found, e.version, e.flag);
    void* wanted = e.answer.rfind("0:", 0) == 0 ? nullptr : exported(e.answer.c_str());
    if (wanted) {
      EXPECT_EQ(result, CUDA_SUCCESS) << at(e);
      EXPECT_EQ(found, wanted) << at(e);
    } else {
      EXPECT_EQ(result, CUDA_ERROR_NOT_FOUND) << at(e);
    }
  }
}

TEST(ProcaddressTest, UnknownName) {
  void* found = &found;
  auto status = static_cast<CUdriverProcAddressQueryResult>(77);
  OK(cuGetProcAddress_v2("cuNoSuchFunction", &found, 12000, 0, &status));
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_CU(cuGetProcAddress("cuNoSuchFunction", &found, 12000, 0), CUDA_ERROR_NOT_FOUND);
}

TEST(ProcaddressTest, EmptyName) {
  void* found = &found;
  auto status = static_cast<CUdriverProcAddressQueryResult>(77);
  OK(cuGetProcAddress_v2("", &found, 12000, 0, &status));
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

TEST(ProcaddressTest, VersionAboveTheDriver) {
  int newest = 0;
  OK(cuDriverGetVersion(&newest));
  void* found = nullptr;
  auto status = static_cast<CUdriverProcAddressQueryResult>(77);
  INVALID(cuGetProcAddress_v2("cuInit", &found, newest + 1000, 0, &status));
  EXPECT_EQ(static_cast<int>(status), 77) << "the status must stay untouched";
  INVALID(cuGetProcAddress("cuInit", &found, newest + 1000, 0));
}

TEST(ProcaddressTest, VersionTooOld) {
  void* found = &found;
  auto status = static_cast<CUdriverProcAddressQueryResult>(77);
  OK(cuGetProcAddress_v2("cuGraphCreate", &found, 9000, 0, &status));
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_CU(cuGetProcAddress("cuGraphCreate", &found, 9000, 0), CUDA_ERROR_NOT_FOUND);
}

TEST(ProcaddressTest, SuffixedNameGivesThatSymbolOrNothing) {
  // The documentation asks for base names. The driver decides whether it finds a name with a
  // suffix.
  void* found = &found;
  auto status = static_cast<CUdriverProcAddressQueryResult>(77);
  EXPECT_CU(cuGetProcAddress_v2("cuMemAlloc_v2", &found, 12000, 0, &status), CUDA_SUCCESS,
            CUDA_ERROR_NOT_FOUND);
  EXPECT_TRUE(found == nullptr || found == exported("cuMemAlloc_v2"));
}

TEST(ProcaddressTest, StatusIsOptional) {
  void* found = nullptr;
  OK(cuGetProcAddress_v2("cuInit", &found, 12000, 0, nullptr));
  EXPECT_EQ(found, exported("cuInit"));
}

NULL_TEST(ProcaddressProcess, NullName) {
  void* found = nullptr;
  auto status = static_cast<CUdriverProcAddressQueryResult>(77);
  INVALID(cuGetProcAddress_v2(nullptr, &found, 12000, 0, &status));
}

NULL_TEST(ProcaddressProcess, NullResult) {
  auto status = static_cast<CUdriverProcAddressQueryResult>(77);
  INVALID(cuGetProcAddress_v2("cuInit", nullptr, 12000, 0, &status));
}

TEST(ProcaddressTest, FoundFunctionWorks) {
  void* found = nullptr;
  auto status = static_cast<CUdriverProcAddressQueryResult>(77);
  OK(cuGetProcAddress_v2("cuDriverGetVersion", &found, 12000, 0, &status));
  int version = 0;
  OK(reinterpret_cast<cuDriverGetVersion_t*>(found)(&version));
  EXPECT_GE(version, 12000);
}

PROCESS_TEST(ProcaddressProcess, WorksBeforeInit) {
  void* found = nullptr;
  auto status = static_cast<CUdriverProcAddressQueryResult>(77);
  OK(cuGetProcAddress_v2("cuInit", &found, 12000, 0, &status));
  ASSERT_EQ(found, exported("cuInit"));
  OK(reinterpret_cast<cuInit_t*>(found)(0));
}

}  // namespace
}  // namespace tendril::conformance
