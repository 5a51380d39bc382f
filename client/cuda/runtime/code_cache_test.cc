// SPDX-License-Identifier: Apache-2.0
// Compiled code comes back for the very same question and for no other, from another process too,
// and never damaged.
#include "client/cuda/runtime/code_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace tendril::client::cuda {
namespace {

struct Question {
  uint32_t kind = 1;
  std::string source = "source";
  const char *options = "-arch=sm_90", *target = "HOST64", *compiler = "May";
  uint32_t architecture = 90, more = 0;
};

class CodeCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/tendril-code-XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    folder_ = path;
    for (const char* name : {"CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE", "XDG_CACHE_HOME"})
      unsetenv(name);
    setenv("CUDA_CACHE_PATH", path, 1);
    code_cache_reset();
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    unsetenv("CUDA_CACHE_PATH");
    code_cache_reset();
  }

  static CUresult begin(const Question& q, Compilation** handle) {
    return code_cache_begin(handle, q.kind, q.source.data(), static_cast<uint32_t>(q.source.size()),
                            q.options, q.target, q.compiler, q.architecture, q.more);
  }
  static bool store(const Question& q, const std::string& code) {
    Compilation* handle = nullptr;
    if (begin(q, &handle) != CUDA_SUCCESS) return false;
    const CUresult result =
        code_cache_store(handle, 0, code.data(), static_cast<uint32_t>(code.size()));
    return code_cache_end(handle) == CUDA_SUCCESS && result == CUDA_SUCCESS;
  }
  static std::string find(const Question& q) {
    Compilation* handle = nullptr;
    if (begin(q, &handle) != CUDA_SUCCESS) return "(no cache)";
    void* code = nullptr;
    uint32_t bytes = 0;
    const CUresult result = code_cache_find(handle, 0, &code, &bytes);
    code_cache_end(handle);
    if (result != CUDA_SUCCESS) return "(miss)";
    const std::string found(static_cast<char*>(code), bytes);
    EXPECT_EQ(static_cast<char*>(code)[bytes], 0);
    code_cache_free(code);
    return found;
  }
  std::string only_file() const {
    std::string path;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/tendril")) {
      EXPECT_EQ(path, "");
      path = entry.path();
    }
    return path;
  }

  std::string folder_;
};

TEST_F(CodeCacheTest, TheSameQuestionHasTheSameAnswer) {
  EXPECT_EQ(find({}), "(miss)");
  ASSERT_TRUE(store({}, "code"));
  EXPECT_EQ(find({}), "code");
  code_cache_reset();  // as another process would
  EXPECT_EQ(find({}), "code");
  struct stat info;
  ASSERT_EQ(stat((folder_ + "/tendril").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0700u);
}

TEST_F(CodeCacheTest, EveryPartOfTheQuestionCounts) {
  ASSERT_TRUE(store({}, "code"));
  const Question others[] = {
      {.kind = 2},      {.source = "sourcf"}, {.source = "source "}, {.options = "-arch=sm_80"},
      {.target = "32"}, {.compiler = "June"}, {.architecture = 80},  {.more = 1}};
  for (const Question& other : others) EXPECT_EQ(find(other), "(miss)");
  // What ends one part must not begin the next.
  EXPECT_EQ(find({.options = "-arch=sm_90HOST64", .target = ""}), "(miss)");
}

TEST_F(CodeCacheTest, DamagedCodeIsAMissAndGoes) {
  ASSERT_TRUE(store({}, "some code"));
  const std::string path = only_file();
  const int fd = open(path.c_str(), O_WRONLY);
  ASSERT_EQ(pwrite(fd, "X", 1, 36), 1);
  close(fd);
  EXPECT_EQ(find({}), "(miss)");
  EXPECT_EQ(only_file(), "");
  ASSERT_TRUE(store({}, "some code"));
  ASSERT_EQ(truncate(path.c_str(), 20), 0);
  EXPECT_EQ(find({}), "(miss)");
}

TEST_F(CodeCacheTest, TheDriversVariablesHold) {
  setenv("CUDA_CACHE_MAXSIZE", "100", 1);
  code_cache_reset();
  ASSERT_TRUE(store({}, std::string(60, 'a')));
  ASSERT_TRUE(
      store({.kind = 2}, std::string(60, 'b')));  // with the hashes more than the folder may hold
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/tendril"), {}), 1);
  EXPECT_FALSE(store({.kind = 3}, std::string(101, 'c')));
  setenv("CUDA_CACHE_DISABLE", "1", 1);
  code_cache_reset();
  EXPECT_EQ(find({}), "(no cache)");
}

TEST_F(CodeCacheTest, APlaceThatCannotBeIsNoCache) {
  setenv("CUDA_CACHE_PATH", "/proc/nowhere", 1);
  code_cache_reset();
  EXPECT_EQ(find({}), "(no cache)");
  unsetenv("CUDA_CACHE_PATH");
  setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  code_cache_reset();
  EXPECT_EQ(code_cache_folder(), folder_ + "/tendril/code");
  EXPECT_TRUE(store({}, "code"));
}

}  // namespace
}  // namespace tendril::client::cuda
