// SPDX-License-Identifier: Apache-2.0
// See manager.h.
#include "cli/pool/manager.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "base/clock.h"

namespace tendril::cli {

Manager::Manager() : over_(eventfd(0, EFD_CLOEXEC)) {
  const char* const socket = getenv("NOTIFY_SOCKET");
  const char* const interval_us = getenv("WATCHDOG_USEC");
  const char* const process = getenv("WATCHDOG_PID");
  if (socket != nullptr) socket_ = socket;
  const bool ours = process == nullptr || atoll(process) == getpid();
  if (interval_us != nullptr && ours && atoll(interval_us) > 0)
    interval_ms_ = static_cast<int>(std::min(atoll(interval_us) / 1000, 3'600'000LL));
  for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
}

void Manager::tell(const std::string& state) const {
  sockaddr_un address = {};
  if (socket_.empty() || socket_.size() >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, socket_.data(), socket_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = 0;  // an abstract name
  const base::Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL,
         reinterpret_cast<const sockaddr*>(&address), bytes);
}

void Manager::ready(const std::string& status, std::function<bool()> alive) {
  tell("READY=1\nSTATUS=" + status);
  if (socket_.empty() || interval_ms_ == 0) return;
  watchdog_ = std::thread([this, alive = std::move(alive)] {
    pollfd over = {over_.get(), POLLIN, 0};
    for (;;) {
      if (alive()) tell("WATCHDOG=1");
      if (poll(&over, 1, std::max(interval_ms_ / 2, 1)) > 0) return;
    }
  });
}

void Manager::reloading() const {
  tell("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(base::now_us()));
}

void Manager::reloaded() const { tell("READY=1"); }

void Manager::stopping() {
  tell("STOPPING=1");
  end();
}

void Manager::end() {
  eventfd_write(over_.get(), 1);
  if (watchdog_.joinable()) watchdog_.join();
}

}  // namespace tendril::cli
