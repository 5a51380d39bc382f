// SPDX-License-Identifier: Apache-2.0
// The picture fits the terminal, and shows names as text.
#include "observe/picture.h"

#include <gtest/gtest.h>

namespace tendril::observe {
namespace {

gpu::DeviceUse device() {
  gpu::DeviceUse use;
  use.uuid = "GPU-1";
  use.name = "Card \033[31mred" + std::string(300, 'x');
  use.utilization_percent = 50;
  use.power_mw = 312'400;
  use.memory_total_bytes = uint64_t{80} << 30;
  use.memory_used_bytes = uint64_t{20} << 30;
  for (uint32_t pid = 1; pid < 20; ++pid) use.processes.push_back({pid, uint64_t{1} << 30, 5});
  return use;
}

const Owner& owner_of(uint32_t pid) {
  static std::map<uint32_t, Owner> owners;
  return owners[pid] = {"ada", "", "job\n" + std::to_string(pid) + std::string(200, 'y')};
}

size_t columns(const std::string& line) {
  size_t count = 0;
  for (const char one : line) count += (one & 0xc0) != 0x80 ? 1 : 0;
  return count;
}

TEST(ObservePicture, FitsTheTerminal) {
  for (const bool blocks : {false, true}) {
    Picture picture;
    std::string text;
    for (int i = 0; i < 100; ++i)
      text = picture.draw("box, 1 GPU", {device()}, owner_of, {80, blocks});
    EXPECT_EQ(text.find('\033'), std::string::npos);
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      EXPECT_LE(columns(text.substr(at, end - at)), 80u) << text.substr(at, end - at);
      at = end + 1;
    }
    EXPECT_NE(text.find("50 %"), std::string::npos) << text;
    EXPECT_NE(text.find("20.0 GiB of 80.0 GiB"), std::string::npos) << text;
    EXPECT_NE(text.find("312 W"), std::string::npos) << text;
    EXPECT_NE(text.find("and 11 more programs"), std::string::npos) << text;
    EXPECT_NE(text.find(blocks ? "▅▅▅▅" : "===="), std::string::npos) << text;
  }
}

TEST(ObservePicture, SaysWhatItDoesNotKnow) {
  gpu::DeviceUse use;
  use.uuid = "GPU-1";
  Picture picture;
  const std::string text = picture.draw("", {use}, owner_of, {});
  EXPECT_NE(text.find("? %"), std::string::npos) << text;
  EXPECT_NE(text.find("nobody"), std::string::npos) << text;
}

}  // namespace
}  // namespace tendril::observe
