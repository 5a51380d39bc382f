// SPDX-License-Identifier: Apache-2.0
// The store of device code: across processes, with poisoned files, over its limit, and on a disk
// that takes nothing more.
#include "worker/cuda/code/module_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/content_hash.h"
#include "base/text.h"

namespace tendril::worker::cuda {
namespace {

class ModuleStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/tendril-store-XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    directory_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static std::string text(char fill, size_t bytes = 1000) { return std::string(bytes, fill); }
  static std::string hash(const std::string& data) {
    return base::content_hash(data.data(), data.size());
  }
  static ImageBytes image(const std::string& data) {
    ImageBytes out = make_image(data.size());
    std::memcpy(out.data.get(), data.data(), data.size());
    return out;
  }
  static bool add(ModuleStore& store, const std::string& data) {
    return store.add(hash(data), image(data)) != nullptr;
  }
  static bool has(ModuleStore& store, const std::string& data) {
    const ModuleStore::Image found = store.find(hash(data), data.size());
    return found != nullptr && found->bytes == data.size() &&
           std::memcmp(found->data.get(), data.data(), data.size()) == 0;
  }
  std::string path(const std::string& data) const {
    const std::string h = hash(data);
    return directory_ + "/" + base::hex(h.data(), h.size()) + ".image";
  }
  size_t files() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory_))
      count += entry.is_regular_file();
    return count;
  }

  std::string directory_;
};

TEST_F(ModuleStoreTest, OtherWorkersFindIt) {
  ModuleStore first(directory_), second(directory_);
  EXPECT_FALSE(has(second, text('a')));
  ASSERT_TRUE(add(first, text('a')));
  EXPECT_TRUE(has(first, text('a')));
  EXPECT_TRUE(has(second, text('a')));
  EXPECT_EQ(files(), 1u);
}

TEST_F(ModuleStoreTest, RefusesWhatTheHashDoesNotName) {
  ModuleStore store(directory_);
  EXPECT_EQ(store.add(hash(text('a')), image(text('b'))), nullptr);
  EXPECT_EQ(store.add("short", image(text('b'))), nullptr);
  EXPECT_EQ(store.add(hash(text('a')), ImageBytes{}), nullptr);
  EXPECT_EQ(files(), 0u);
}

TEST_F(ModuleStoreTest, PoisonedFileIsAMissAndGoes) {
  ModuleStore writer(directory_);
  ASSERT_TRUE(add(writer, text('a')));
  const int fd = open(path(text('a')).c_str(), O_WRONLY);
  ASSERT_EQ(pwrite(fd, "x", 1, 500), 1);
  close(fd);
  ModuleStore reader(directory_);
  EXPECT_FALSE(has(reader, text('a')));
  EXPECT_EQ(files(), 0u);
  ASSERT_TRUE(add(reader, text('a')));
  EXPECT_TRUE(has(reader, text('a')));
}

TEST_F(ModuleStoreTest, TruncatedFileAndLinkAreMisses) {
  ModuleStore writer(directory_);
  ASSERT_TRUE(add(writer, text('a')));
  ASSERT_EQ(truncate(path(text('a')).c_str(), 10), 0);
  ASSERT_EQ(symlink("/dev/zero", path(text('b')).c_str()), 0);
  ASSERT_EQ(mkfifo(path(text('c')).c_str(), 0600), 0);
  ModuleStore reader(directory_);
  EXPECT_FALSE(has(reader, text('a')));
  EXPECT_FALSE(has(reader, text('b')));
  EXPECT_FALSE(has(reader, text('c')));
}

TEST_F(ModuleStoreTest, LeastRecentlyUsedGoes) {
  ModuleStore store(directory_, 2500);
  ASSERT_TRUE(add(store, text('a')));
  ASSERT_TRUE(add(store, text('b')));
  // 'a' was used later than 'b', whatever the clock's step.
  const struct timespec old[2] = {{1000, 0}, {1000, 0}}, newer[2] = {{2000, 0}, {2000, 0}};
  utimensat(AT_FDCWD, path(text('b')).c_str(), old, 0);
  utimensat(AT_FDCWD, path(text('a')).c_str(), newer, 0);
  ASSERT_TRUE(add(store, text('c')));
  ModuleStore other(directory_);
  EXPECT_TRUE(has(other, text('a')));
  EXPECT_FALSE(has(other, text('b')));
  EXPECT_TRUE(has(other, text('c')));
}

TEST_F(ModuleStoreTest, FullDiskMeansMemory) {
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit full = before;
  full.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  ModuleStore store(directory_);
  EXPECT_TRUE(add(store, text('a')));
  EXPECT_TRUE(add(store, text('b')));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(has(store, text('a')));
  EXPECT_TRUE(has(store, text('b')));
  EXPECT_EQ(files(), 0u);
}

TEST_F(ModuleStoreTest, MemoryHasALimitToo) {
  ModuleStore store("", 2500);
  ASSERT_TRUE(add(store, text('a')));
  ASSERT_TRUE(add(store, text('b')));
  ASSERT_TRUE(add(store, text('c')));
  EXPECT_FALSE(has(store, text('a')));
  EXPECT_TRUE(has(store, text('c')));
  const std::string large = text('d', 5000);
  ASSERT_TRUE(add(store, large));
  EXPECT_TRUE(has(store, large));  // until the next one comes
}

TEST_F(ModuleStoreTest, UnusableDirectoryMeansMemory) {
  ModuleStore store("/proc/nowhere/store");
  ASSERT_TRUE(add(store, text('a')));
  EXPECT_TRUE(has(store, text('a')));
}

TEST(LoadedCode, MembersGoWithTheirOwnerAndTheirContext) {
  using api::cuda::Kind;
  Objects objects;
  LoadedCode code;
  int things[6], contexts[2];
  const auto id = [](Kind kind, uint32_t index) { return api::make_id(kind, 0, 1, index); };
  const uint64_t module = id(Kind::kModule, 1), function = id(Kind::kFunction, 1),
                 library = id(Kind::kLibrary, 1);
  const uint64_t kernel = id(Kind::kKernel, 1), one = id(Kind::kFunction, 2),
                 two = id(Kind::kFunction, 3);
  ASSERT_TRUE(objects.bind(Kind::kModule, module, &things[0]));
  ASSERT_TRUE(objects.bind(Kind::kFunction, function, &things[1]));
  ASSERT_TRUE(objects.bind(Kind::kLibrary, library, &things[2]));
  ASSERT_TRUE(objects.bind(Kind::kKernel, kernel, &things[3]));
  ASSERT_TRUE(objects.bind(Kind::kFunction, one, &things[4]));
  ASSERT_TRUE(objects.bind(Kind::kFunction, two, &things[5]));
  wire::Assignment assignment{};
  assignment.slice_count = 1;
  assignment.slices[0].memory_bytes = 1000;
  Charge charge(assignment, nullptr);
  code.add(module, &contexts[0], nullptr, {100, true});
  code.add_member(module, function, &contexts[0]);
  auto image = std::make_shared<int>(7);
  code.add(library, nullptr, image, {20, false});
  code.add_member(library, kernel, nullptr);
  code.add_member(kernel, one, &contexts[0]);
  code.add_member(kernel, two, &contexts[1]);
  EXPECT_EQ(image.use_count(), 2);
  EXPECT_TRUE(code.pay(charge, module, 0) && code.pay(charge, module, 0) &&
              code.pay(charge, kernel, 0));
  EXPECT_EQ(charge.used(0), 120u) << "each once, a kernel for its library";
  EXPECT_TRUE(code.pay_variable(charge, module, 0, 0x7000, 50)) << "known already";
  EXPECT_TRUE(code.pay_variable(charge, library, 0, 0x8000, 3) &&
              code.pay_variable(charge, library, 0, 0x8000, 3));
  EXPECT_FALSE(code.pay_variable(charge, library, 0, 0x9000, 900));
  EXPECT_EQ(charge.used(0), 123u);

  code.remove_context(objects, charge, &contexts[0]);
  EXPECT_EQ(charge.used(0), 23u);
  EXPECT_EQ(objects.find(Kind::kModule, module), nullptr);
  EXPECT_EQ(objects.find(Kind::kFunction, function), nullptr);
  EXPECT_EQ(objects.find(Kind::kFunction, one), nullptr);
  EXPECT_NE(objects.find(Kind::kKernel, kernel), nullptr);
  EXPECT_NE(objects.find(Kind::kFunction, two), nullptr);

  code.remove(objects, charge, library);
  EXPECT_EQ(charge.used(0), 0u);
  EXPECT_EQ(objects.find(Kind::kLibrary, library), nullptr);
  EXPECT_EQ(objects.find(Kind::kKernel, kernel), nullptr);
  EXPECT_EQ(objects.find(Kind::kFunction, two), nullptr);
  EXPECT_EQ(image.use_count(), 1);
}

}  // namespace
}  // namespace tendril::worker::cuda
