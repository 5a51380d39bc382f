// SPDX-License-Identifier: Apache-2.0
// The daemon's store of device code: parts of owners, the common part, quotas, hostile folders and
// hostile descriptors.
#include "daemon/image_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>

#include "base/content_hash.h"
#include "base/kept_files.h"
#include "base/text.h"

namespace tendril::daemon {
namespace {

using wire::ExportAnswer;

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

class ImageStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/tendril-images-XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    top_ = path;
    options_.folder = top_ + "/store";
    options_.bytes_max = 10'000;
    options_.bytes_per_owner_max = 5'000;
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(top_);
  }
  bool open_store() {
    store_.reset();
    auto store = ImageStore::open(options_);
    if (store.ok()) store_ = store.take();
    return store_ != nullptr;
  }

  static std::string hash(const std::string& data) {
    return base::content_hash(data.data(), data.size());
  }
  static wire::ExportRecord record(const std::string& hash, uint64_t bytes) {
    wire::ExportRecord record = {};
    memcpy(record.content, hash.data(), hash.size());
    record.bytes = bytes;
    return record;
  }
  static base::Fd memory(const std::string& data, int seals = kAllSeals) {
    base::Fd file(memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(write(file.get(), data.data(), data.size()), static_cast<ssize_t>(data.size()));
    fcntl(file.get(), F_ADD_SEALS, seals);
    return file;
  }
  ExportAnswer keep(const std::string& owner, const std::string& name, uint64_t bytes,
                    base::Fd file) {
    std::promise<ExportAnswer> promise;
    store_->keep(owner, record(name, bytes), std::move(file),
                 [&](ExportAnswer answer, base::Fd) { promise.set_value(answer); });
    return promise.get_future().get();
  }
  bool keep(const std::string& owner, const std::string& data) {
    return keep(owner, hash(data), data.size(), memory(data)) == ExportAnswer::kDone;
  }
  std::string find(const std::string& owner, const std::string& name, uint64_t bytes) {
    std::promise<std::string> promise;
    store_->find(owner, record(name, bytes), [&](ExportAnswer answer, base::Fd image) {
      std::string text(bytes, 0);
      const bool got = image.valid() && base::read_all(image.get(), text.data(), bytes);
      EXPECT_EQ(got, answer == ExportAnswer::kDone);
      EXPECT_TRUE(!got || (fcntl(image.get(), F_GETFL) & O_ACCMODE) == O_RDONLY);
      promise.set_value(got ? text : "(none)");
    });
    return promise.get_future().get();
  }
  bool has(const std::string& owner, const std::string& data) {
    return find(owner, hash(data), data.size()) == data;
  }
  static std::string text(char fill, size_t bytes = 1000) { return std::string(bytes, fill); }
  size_t files() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(options_.folder))
      count += entry.path().extension() == ".image" || entry.path().extension() == ".part";
    return count;
  }

  std::string top_;
  ImageOptions options_;
  std::unique_ptr<ImageStore> store_;
};

TEST_F(ImageStoreTest, EachOwnerHasAPartThatLastsAndIsPrivate) {
  ASSERT_TRUE(open_store());
  ASSERT_TRUE(keep("alice", text('a')));
  EXPECT_TRUE(has("alice", text('a')));
  EXPECT_FALSE(has("bob", text('a')));
  ASSERT_TRUE(open_store());
  EXPECT_TRUE(has("alice", text('a')));
  struct stat info;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(options_.folder)) {
    ASSERT_EQ(lstat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 077, 0u) << entry.path();
    EXPECT_EQ(entry.path().string().find("alice"), std::string::npos);
  }
}

TEST_F(ImageStoreTest, AWrongLengthIsAMissAndRemovesNothing) {
  ASSERT_TRUE(open_store());
  ASSERT_TRUE(keep("alice", text('a')));
  EXPECT_EQ(find("alice", hash(text('a')), 999), "(none)");
  EXPECT_TRUE(has("alice", text('a')));
}

TEST_F(ImageStoreTest, KnownImagesAreCommonToAllAndVerified) {
  const std::string common = hash(text('k'));
  options_.known = top_ + "/known.txt";
  std::ofstream(options_.known) << "# a framework's kernels\n"
                                << base::hex(common.data(), common.size()) << "  kernels\n";
  ASSERT_TRUE(open_store());
  EXPECT_EQ(keep("mallory", common, 1000, memory(text('x'))), ExportAnswer::kFull);
  ASSERT_TRUE(keep("alice", text('k')));
  EXPECT_TRUE(has("bob", text('k')));
  std::ofstream(options_.known) << "# one\n12ab\n";
  auto bad = ImageStore::open(options_);
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.status().message().find("line 2"), std::string::npos);
}

TEST_F(ImageStoreTest, AnOwnersQuotaAndTheStoresLimit) {
  ASSERT_TRUE(open_store());
  for (char name = 'a'; name < 'k'; ++name) ASSERT_TRUE(keep("alice", text(name)));
  EXPECT_LE(files(), 5u);
  EXPECT_FALSE(keep("alice", text('z', 5001)));
  ASSERT_TRUE(keep("bob", text('b')));
  for (const char* owner : {"carol", "dave"}) {
    for (char name = 'a'; name < 'e'; ++name) ASSERT_TRUE(keep(owner, text(name)));
  }
  EXPECT_LE(files(), 10u);
  EXPECT_TRUE(has("bob", text('b'))) << "those go first who have most";
}

TEST_F(ImageStoreTest, TakesSealedMemoryOnly) {
  ASSERT_TRUE(open_store());
  const std::string data = text('a');
  EXPECT_EQ(keep("a", hash(data), data.size(), memory(data, F_SEAL_GROW)), ExportAnswer::kFull);
  EXPECT_EQ(keep("a", hash(data), data.size() + 1, memory(data)), ExportAnswer::kFull);
  EXPECT_EQ(keep("a", hash(data), 0, memory("")), ExportAnswer::kFull);
  EXPECT_EQ(keep("a", hash(data), UINT64_MAX, memory(data)), ExportAnswer::kFull);
  EXPECT_EQ(keep("a", hash(data), data.size(), base::Fd()), ExportAnswer::kFull);
  ASSERT_EQ(mkfifo((top_ + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(keep("a", hash(data), data.size(), base::Fd(open((top_ + "/fifo").c_str(), O_RDWR))),
            ExportAnswer::kFull);
  EXPECT_EQ(files(), 0u);
}

TEST_F(ImageStoreTest, AFolderThatOthersMayWriteIsNotUsed) {
  ASSERT_EQ(mkdir(options_.folder.c_str(), 0700), 0);
  ASSERT_EQ(chmod(options_.folder.c_str(), 0777), 0);
  EXPECT_FALSE(open_store());
  ASSERT_EQ(chmod(options_.folder.c_str(), 0700), 0);
  EXPECT_TRUE(open_store());
}

TEST_F(ImageStoreTest, AFloodOfQuestionsIsCutOff) {
  ASSERT_TRUE(open_store());
  std::atomic<int> full = 0, answers = 0;
  for (int i = 0; i < 10'000; ++i) {
    store_->find("mallory", record(hash("x"), 1), [&](ExportAnswer answer, base::Fd) {
      full += answer == ExportAnswer::kFull;
      ++answers;
    });
  }
  EXPECT_FALSE(has("alice", text('a')));  // is served, however many wait
  EXPECT_GT(full, 0);
  for (int i = 0; i < 500 && answers < 10'000; ++i) usleep(10'000);
  EXPECT_EQ(answers, 10'000);
}

}  // namespace
}  // namespace tendril::daemon
