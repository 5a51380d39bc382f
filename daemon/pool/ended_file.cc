// SPDX-License-Identifier: Apache-2.0
// See ended_file.h. The file is a row of frames: a length in four bytes, then a PoolReport with one
// entry, or with none and the number up to which all is stored.
#include "daemon/pool/ended_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

constexpr uint64_t kEndedFileBytesMax = 64u << 20;
constexpr uint64_t kLeaseIdMax = uint64_t{1} << 48;  // this boot numbers its leases from there on

std::string state_folder() {
  const auto named = [](const char* variable) {
    const char* const value = getenv(variable);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string chosen = named("TENDRIL_STATE"); !chosen.empty()) return chosen;
  if (const std::string state = named("XDG_STATE_HOME"); !state.empty()) return state + "/tendril";
  if (const std::string home = named("HOME"); !home.empty()) return home + "/.local/state/tendril";
  return "/var/lib/tendril";
}

}  // namespace

std::vector<wire::BookEntry> read_ended(const std::string& bytes) {
  std::vector<wire::BookEntry> entries;
  uint32_t length = 0;
  for (size_t at = 0; at + sizeof length <= bytes.size(); at += length) {
    memcpy(&length, bytes.data() + at, sizeof length);
    at += sizeof length;
    wire::PoolReport frame;
    if (length > bytes.size() - at || !wire::decode(bytes.data() + at, length, &frame)) break;
    if (frame.entries.empty()) {
      std::erase_if(entries, [&](const wire::BookEntry& entry) {
        return entry.ended_number <= frame.number;
      });
      continue;
    }
    wire::BookEntry& entry = frame.entries[0];
    if (entry.phase != wire::LeasePhase::kEnded || entry.lease_id >= kLeaseIdMax) continue;
    if (entry.boot == 0) entry.boot = frame.boot;
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string EndedFile::default_path(const std::string& server,
                                    const std::vector<std::string>& pools) {
  std::string name = server;
  for (const std::string& pool : pools) name += "@" + pool;
  for (char& letter : name) {
    const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                       (letter >= '0' && letter <= '9') || letter == '-' || letter == '@';
    if (!plain) letter = '_';
  }
  return state_folder() + "/ended-" + name.substr(0, 200);
}

base::Result<std::unique_ptr<EndedFile>> EndedFile::open(const std::string& path, uint64_t boot) {
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(folder, ignored);
  base::Fd file(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid() || flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    const bool in_use = file.valid() && errno == EWOULDBLOCK;
    return Status(in_use ? Code::kRefused : Code::kUnavailable,
                  base::printable(path) + ": " +
                      (in_use ? "another server keeps its records there" : strerror(errno)));
  }
  struct stat facts = {};
  std::string bytes;
  if (fstat(file.get(), &facts) == 0 && facts.st_size > 0) {
    bytes.resize(std::min<uint64_t>(uint64_t(facts.st_size), kEndedFileBytesMax));
    const ssize_t got = pread(file.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(got > 0 ? size_t(got) : 0);
  }
  auto opened = std::unique_ptr<EndedFile>(new EndedFile(std::move(file), boot));
  opened->left_ = read_ended(bytes);
  return opened;
}

void EndedFile::begin(const std::deque<wire::BookEntry>& entries) {
  if (ftruncate(file_.get(), 0) != 0) return;
  bytes_ = 0;
  for (const wire::BookEntry& entry : entries) add(entry);
}

void EndedFile::add(const wire::BookEntry& entry) {
  wire::PoolReport frame;
  frame.boot = boot_;
  frame.entries.push_back(entry);
  append(frame);
}

void EndedFile::stored(uint64_t ended_number, bool all) {
  if (all) {
    if (bytes_ != 0 && ftruncate(file_.get(), 0) == 0) bytes_ = 0;
    return;
  }
  wire::PoolReport mark;
  mark.boot = boot_;
  mark.number = ended_number;
  append(mark);
}

void EndedFile::append(const wire::PoolReport& frame) {
  const std::vector<uint8_t> body = wire::encode(frame);
  const auto length = static_cast<uint32_t>(body.size());
  std::string bytes(sizeof length, '\0');
  memcpy(bytes.data(), &length, sizeof length);
  bytes.append(body.begin(), body.end());
  if (body.empty() || bytes_ + bytes.size() > kEndedFileBytesMax) return;
  const ssize_t wrote = write(file_.get(), bytes.data(), bytes.size());
  if (wrote == static_cast<ssize_t>(bytes.size())) {
    bytes_ += bytes.size();
    return;
  }
  // A piece that did not get there would hide all behind it. Without room for records the server
  // goes on: it has them in memory, too.
  if (ftruncate(file_.get(), static_cast<off_t>(bytes_)) != 0) bytes_ = kEndedFileBytesMax;
}

}  // namespace tendril::daemon
