// SPDX-License-Identifier: Apache-2.0
// A page of plain words that tendrild shares with workers (wire::AccountingPage, wire::TurnPage).
// It is a memory object, mapped here, whose descriptor goes to the worker. It is sealed, so that a
// hostile worker cannot shrink it while the daemon uses it.
#pragma once

#include "base/fd.h"
#include "base/result.h"

namespace tendril::daemon {

class SharedMemory {
 public:
  static base::Result<SharedMemory> create(const char* name, size_t bytes);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();
  void* at() const { return at_; }
  int fd() const { return fd_.get(); }

 private:
  SharedMemory(base::Fd fd, void* at, size_t bytes) : fd_(std::move(fd)), at_(at), bytes_(bytes) {}
  base::Fd fd_;
  void* at_;
  size_t bytes_;
};

template <typename Page>
class SharedPage {
 public:
  static base::Result<SharedPage> create(const char* name) {
    auto memory = SharedMemory::create(name, sizeof(Page));
    if (!memory.ok()) return memory.status();
    return SharedPage(memory.take());
  }
  Page* get() const { return static_cast<Page*>(memory_.at()); }
  Page* operator->() const { return get(); }
  int fd() const { return memory_.fd(); }

 private:
  explicit SharedPage(SharedMemory memory) : memory_(std::move(memory)) {}
  SharedMemory memory_;
};

}  // namespace tendril::daemon
