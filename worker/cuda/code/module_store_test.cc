// SPDX-License-Identifier: Apache-2.0
// The store of device code: across processes, with poisoned content, over its limit, and with a
// keeper that takes nothing more.
#include "worker/cuda/code/module_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "base/content_hash.h"

namespace tendril::worker::cuda {
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

class ModuleStoreTest : public ::testing::Test {
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
  static bool add(ModuleStore& store, const std::string& data) {
    return store.add(hash(data), image(data)) != nullptr;
  }
  static bool has(ModuleStore& store, const std::string& data) {
    const ModuleStore::Image found = store.find(hash(data), data.size());
    return found != nullptr && found->bytes == data.size() &&
           std::memcmp(found->data.get(), data.data(), data.size()) == 0;
  }
  Keeper keeper_;
};

TEST_F(ModuleStoreTest, OtherWorkersFindIt) {
  ModuleStore first(&keeper_), second(&keeper_);
  EXPECT_FALSE(has(second, text('a')));
  ASSERT_TRUE(add(first, text('a')));
  EXPECT_TRUE(has(first, text('a')));
  EXPECT_TRUE(has(second, text('a')));
  EXPECT_EQ(keeper_.files.size(), 1u);
}

TEST_F(ModuleStoreTest, RefusesWhatTheHashDoesNotName) {
  ModuleStore store(&keeper_);
  EXPECT_EQ(store.add(hash(text('a')), image(text('b'))), nullptr);
  EXPECT_EQ(store.add("short", image(text('b'))), nullptr);
  EXPECT_EQ(store.add(hash(text('a')), ImageBytes{}), nullptr);
  EXPECT_TRUE(keeper_.files.empty());
}

TEST_F(ModuleStoreTest, WhatIsNotWhatItsNameSaysIsAMiss) {
  ModuleStore writer(&keeper_);
  ASSERT_TRUE(add(writer, text('a')));
  keeper_.files[hash(text('a'))][500] = 'x';
  ModuleStore reader(&keeper_);
  EXPECT_FALSE(has(reader, text('a')));
  ASSERT_TRUE(add(reader, text('a')));
  EXPECT_TRUE(has(reader, text('a')));
}

TEST_F(ModuleStoreTest, FullDiskMeansMemory) {
  keeper_.full = true;
  ModuleStore store(&keeper_);
  EXPECT_TRUE(add(store, text('a')));
  EXPECT_TRUE(add(store, text('b')));
  keeper_.full = false;
  EXPECT_TRUE(has(store, text('a')));
  EXPECT_TRUE(has(store, text('b')));
  EXPECT_TRUE(keeper_.files.empty());
}

TEST_F(ModuleStoreTest, MemoryHasALimitToo) {
  ModuleStore store(nullptr, 2500);
  ASSERT_TRUE(add(store, text('a')));
  ASSERT_TRUE(add(store, text('b')));
  ASSERT_TRUE(add(store, text('c')));
  EXPECT_FALSE(has(store, text('a')));
  EXPECT_TRUE(has(store, text('c')));
  const std::string large = text('d', 5000);
  ASSERT_TRUE(add(store, large));
  EXPECT_TRUE(has(store, large));  // until the next one comes
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
  constexpr uint64_t kPage = 2u << 20;
  assignment.slices[0].memory_bytes = 20 * kPage;
  Charge charge(assignment, nullptr);
  code.add(module, &contexts[0], nullptr, {2 * kPage, true});
  code.add_member(module, function, &contexts[0]);
  auto image = std::make_shared<int>(7);
  code.add(library, nullptr, image, {kPage, false});
  code.add_member(library, kernel, nullptr);
  code.add_member(kernel, one, &contexts[0]);
  code.add_member(kernel, two, &contexts[1]);
  EXPECT_EQ(image.use_count(), 2);
  EXPECT_TRUE(code.pay(charge, module, 0) && code.pay(charge, module, 0) &&
              code.pay(charge, kernel, 0));
  EXPECT_EQ(charge.used(0), 3 * kPage) << "each once, a kernel for its library";
  EXPECT_TRUE(code.pay_variable(charge, module, 0, 0x7000, 50)) << "known already";
  EXPECT_TRUE(code.pay_variable(charge, library, 0, 0x8000, 3) &&
              code.pay_variable(charge, library, 0, 0x8000, 3));
  EXPECT_FALSE(code.pay_variable(charge, library, 0, 0x9000, 18 * kPage));
  EXPECT_EQ(charge.used(0), 4 * kPage) << "a small one begins a page";

  code.remove_context(objects, charge, &contexts[0]);
  EXPECT_EQ(charge.used(0), 2 * kPage);
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
