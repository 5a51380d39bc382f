// SPDX-License-Identifier: Apache-2.0
// The store of device code: across processes, with poisoned content, over its limit, and with a
// keeper that takes nothing more.
#include "worker/core/code_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "base/content_hash.h"

namespace tendril::worker {
namespace {

// tendrild's end: keeps what it is given, unless it is full.
class Keeper : public Exports {
 public:
  wire::ExportAnswer publish(wire::ExportRecord*, int) override { return {}; }
  wire::ExportAnswer fetch(wire::ExportRecord*, base::Fd*) override { return {}; }
  void withdraw(const wire::ExportRecord&, bool) override {}
  void release(const wire::ExportRecord&) override {}

  base::Fd find_image(const std::string& hash, uint64_t bytes) override {
    const auto found = files.find(hash);
    if (found == files.end() || found->second.size() != bytes) return base::Fd();
    base::Fd file(memfd_create("image", MFD_CLOEXEC));
    EXPECT_EQ(write(file.get(), found->second.data(), bytes), static_cast<ssize_t>(bytes));
    lseek(file.get(), 0, SEEK_SET);
    return file;
  }
  bool keep_image(const std::string& hash, uint64_t bytes, int memory) override {
    EXPECT_NE(fcntl(memory, F_GET_SEALS) & F_SEAL_WRITE, 0);
    if (full) return false;
    std::string& content = files[hash];
    content.resize(bytes);
    return pread(memory, content.data(), bytes, 0) == static_cast<ssize_t>(bytes);
  }

  bool full = false;
  std::map<std::string, std::string> files;
};

class CodeStoreTest : public ::testing::Test {
 protected:
  static std::string text(char fill, size_t bytes = 1000) { return std::string(bytes, fill); }
  static std::string hash(const std::string& data) {
    return base::content_hash(data.data(), data.size());
  }
  static ImageBytes image(const std::string& data) {
    ImageBytes out = make_image(data.size());
    std::memcpy(out.data.get(), data.data(), data.size());
    return out;
  }
  static bool add(CodeStore& store, const std::string& data) {
    return store.add(hash(data), image(data)) != nullptr;
  }
  static bool has(CodeStore& store, const std::string& data) {
    const CodeStore::Image found = store.find(hash(data), data.size());
    return found != nullptr && found->bytes == data.size() &&
           std::memcmp(found->data.get(), data.data(), data.size()) == 0;
  }
  Keeper keeper_;
};

TEST_F(CodeStoreTest, OtherWorkersFindIt) {
  CodeStore first(&keeper_), second(&keeper_);
  EXPECT_FALSE(has(second, text('a')));
  ASSERT_TRUE(add(first, text('a')));
  EXPECT_TRUE(has(first, text('a')));
  EXPECT_TRUE(has(second, text('a')));
  EXPECT_EQ(keeper_.files.size(), 1u);
}

TEST_F(CodeStoreTest, RefusesWhatTheHashDoesNotName) {
  CodeStore store(&keeper_);
  EXPECT_EQ(store.add(hash(text('a')), image(text('b'))), nullptr);
  EXPECT_EQ(store.add("short", image(text('b'))), nullptr);
  EXPECT_EQ(store.add(hash(text('a')), ImageBytes{}), nullptr);
  EXPECT_TRUE(keeper_.files.empty());
}

TEST_F(CodeStoreTest, WhatIsNotWhatItsNameSaysIsAMiss) {
  CodeStore writer(&keeper_);
  ASSERT_TRUE(add(writer, text('a')));
  keeper_.files[hash(text('a'))][500] = 'x';
  CodeStore reader(&keeper_);
  EXPECT_FALSE(has(reader, text('a')));
  ASSERT_TRUE(add(reader, text('a')));
  EXPECT_TRUE(has(reader, text('a')));
}

TEST_F(CodeStoreTest, FullDiskMeansMemory) {
  keeper_.full = true;
  CodeStore store(&keeper_);
  EXPECT_TRUE(add(store, text('a')));
  EXPECT_TRUE(add(store, text('b')));
  keeper_.full = false;
  EXPECT_TRUE(has(store, text('a')));
  EXPECT_TRUE(has(store, text('b')));
  EXPECT_TRUE(keeper_.files.empty());
}

TEST_F(CodeStoreTest, MemoryHasALimitToo) {
  CodeStore store(nullptr, 2500);
  ASSERT_TRUE(add(store, text('a')));
  ASSERT_TRUE(add(store, text('b')));
  ASSERT_TRUE(add(store, text('c')));
  EXPECT_FALSE(has(store, text('a')));
  EXPECT_TRUE(has(store, text('c')));
  const std::string large = text('d', 5000);
  ASSERT_TRUE(add(store, large));
  EXPECT_TRUE(has(store, large));  // until the next one comes
}

}  // namespace
}  // namespace tendril::worker
