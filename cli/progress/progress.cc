// SPDX-License-Identifier: Apache-2.0
// See progress.h. The line is never longer than the terminal is wide, and has no colours.
#include "cli/progress/progress.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/memfd.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "cli/progress/pace.h"
#include "config/text.h"

namespace tendril::cli {

namespace {

constexpr char kClear[] = "\r\033[K";
constexpr size_t kUsualColumns = 80;

size_t columns() {
  winsize size = {};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0;
  // The last column stays free: some terminals go on to the next line there.
  return std::max<size_t>(20, std::min<size_t>(known ? size.ws_col : kUsualColumns, 80)) - 1;
}

// A terminal that a person has stopped (Ctrl-S) takes nothing. Neither the program nor its signals
// must wait for it.
void put(const std::string& text) {
  pollfd terminal = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&terminal, 1, 0) <= 0 || (terminal.revents & POLLOUT) == 0) return;
  const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
  (void)ignored;  // a terminal that is gone
}

bool in_foreground() { return tcgetpgrp(STDERR_FILENO) == getpgrp(); }

uint32_t* futex_word(std::atomic<uint32_t>* word) { return reinterpret_cast<uint32_t*>(word); }

}  // namespace

bool terminal_shows_progress() {
  return isatty(STDERR_FILENO) && config::variable("TERM") != "dumb" && in_foreground();
}

Progress::Progress(bool wanted) {
  if (!wanted) return;
  file_ = base::Fd(static_cast<int>(
      syscall(SYS_memfd_create, "tendril-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!file_.valid() || ftruncate(file_.get(), sizeof(wire::ProgressPage)) != 0 ||
      fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return;
  void* const memory =
      mmap(nullptr, sizeof(wire::ProgressPage), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (memory == MAP_FAILED) return;
  page_ = static_cast<wire::ProgressPage*>(memory);
  page_->magic.store(wire::kProgressMagic);
}

Progress::~Progress() {
  stop();
  if (page_ != nullptr) munmap(page_, sizeof(wire::ProgressPage));
}

std::string Progress::address() const {
  return page_ == nullptr ? "" : base::format("/proc/%d/fd/%d", getpid(), file_.get());
}

void Progress::start(std::string servers) {
  if (page_ == nullptr) return;
  stopping_.store(false);
  thread_ = std::thread([this, servers = base::printable(servers, 60)] { draw_all(servers); });
}

void Progress::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  syscall(SYS_futex, futex_word(&page_->line), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  thread_.join();
  const std::lock_guard<std::mutex> guard(mutex_);
  clear();
}

void Progress::say(const std::string& text) {
  const std::lock_guard<std::mutex> guard(mutex_);
  clear();
  fprintf(stderr, "%s\n", text.c_str());
}

void Progress::wait_tick() const {
  timespec tick = {0, Pace::kTickMs * 1'000'000L};
  if (!drawn_.empty())
    syscall(SYS_futex, futex_word(&page_->line), FUTEX_WAIT, wire::kLineStands, &tick, nullptr, 0);
  else
    nanosleep(&tick, nullptr);
}

void Progress::draw_all(const std::string& servers) {
  Pace pace;
  while (!stopping_.load()) {
    wait_tick();
    const std::lock_guard<std::mutex> guard(mutex_);
    if (page_->line.load() == wire::kLineUnwanted) {
      clear();
      continue;
    }
    ProgressLook look;
    look.attaching = page_->attaching.load();
    look.uploading = page_->uploading.load();
    look.begun_bytes = page_->begun_bytes.load();
    look.sent_bytes = page_->sent_bytes.load();
    look.upload_ns = page_->upload_ns.load();
    const std::string text = pace.line(base::now_ns(), look, servers);
    if (text.empty())
      clear();
    else if (text != drawn_ && in_foreground())
      draw(text);
  }
}

// The page says that a line stands before it does. A call that ends from then on asks for it to be
// taken away; one that ended just before is seen here.
void Progress::draw(const std::string& text) {
  uint32_t none = wire::kNoLine;
  if (drawn_.empty() && !page_->line.compare_exchange_strong(none, wire::kLineStands)) return;
  drawn_ = text;
  if (page_->attaching.load() == 0 && page_->uploading.load() == 0) return clear();
  put(kClear + ("tendril: " + text).substr(0, columns()));
}

void Progress::clear() {
  if (drawn_.empty()) return;
  put(kClear);
  drawn_.clear();
  page_->line.store(wire::kNoLine);
  syscall(SYS_futex, futex_word(&page_->line), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace tendril::cli
