// SPDX-License-Identifier: Apache-2.0
// See trial.h. Fixed layout, little-endian.
#include "session/choice/trial.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/clock.h"

namespace tendril::session {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;
using transport::Measured;
using transport::Streams;

namespace {

constexpr uint32_t kMark = 0x314c5254;  // "TRL1"
enum class OrderKind : uint32_t { kEcho = 1, kBurst = 2, kChoose = 3 };

struct Order {
  uint32_t mark = kMark;
  OrderKind kind = OrderKind::kEcho;
  uint32_t calls = 0, bulk = 0;  // kChoose: the fabric carries them
  Measured fabric, connections;  // kChoose; all 0: nothing was measured
};
static_assert(sizeof(Order) == 48);

constexpr uint32_t kEchoes = 17;          // the first one only wakes the worker
constexpr size_t kBurstBytes = 2u << 20;  // over all bulk connections
constexpr uint32_t kEchoesMost = 64, kBurstsMost = 2;
constexpr int kTrialMs = 10'000;   // the worker may still be starting
constexpr uint32_t kSpinUs = 200;  // as lanes do, then it sleeps

// What a call of send or recv says. False: the connection is over.
bool goes_on(ssize_t moved) {
  return moved > 0 || (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

Status over() { return Status(Code::kClosed, "a connection ended while it was measured"); }
Status late() {
  return Status(Code::kTimeout, "the other end does not answer while connections are measured");
}

Status move_order(int fd, Order* order, bool sends, const Deadline& deadline) {
  auto* const at = reinterpret_cast<uint8_t*>(order);
  base::Spin spin(sends ? 0 : kSpinUs);
  for (size_t done = 0; done < sizeof *order;) {
    const ssize_t moved =
        sends ? ::send(fd, at + done, sizeof *order - done, MSG_NOSIGNAL | MSG_DONTWAIT)
              : ::recv(fd, at + done, sizeof *order - done, MSG_DONTWAIT);
    if (!goes_on(moved)) return over();
    if (moved > 0) done += size_t(moved);
    if (moved > 0 || spin.again()) continue;
    pollfd waiting{fd, short(sends ? POLLOUT : POLLIN), 0};
    if (deadline.passed()) return late();
    (void)::poll(&waiting, 1, deadline.left_ms());
  }
  return Status();
}

// A burst on all bulk connections at once. *steady_ns: of its last three quarters, because TCP
// begins slowly.
Status move_burst(const Streams& streams, bool sends, const Deadline& deadline,
                  uint64_t* steady_ns) {
  const size_t count = std::max<size_t>(streams.bulk.size(), 1);
  std::vector<size_t> left(count, kBurstBytes / count);
  std::vector<uint8_t> block(128u << 10);
  const size_t whole = left[0] * count;
  uint64_t quarter_ns = base::now_ns();
  bool is_steady = false;
  for (size_t done = 0; done < whole;) {
    std::vector<pollfd> waiting;
    for (size_t i = 0; i < count; ++i) {
      const int fd = streams.bulk.empty() ? streams.command.get() : streams.bulk[i].get();
      waiting.push_back({left[i] != 0 ? fd : -1, short(sends ? POLLOUT : POLLIN), 0});
    }
    if (deadline.passed()) return late();
    (void)::poll(waiting.data(), waiting.size(), deadline.left_ms());
    for (size_t i = 0; i < count; ++i) {
      if (waiting[i].revents == 0) continue;
      const size_t step = std::min(left[i], block.size());
      const ssize_t moved =
          sends ? ::send(waiting[i].fd, block.data(), step, MSG_NOSIGNAL | MSG_DONTWAIT)
                : ::recv(waiting[i].fd, block.data(), step, MSG_DONTWAIT);
      if (!goes_on(moved)) return over();
      if (moved < 0) continue;
      left[i] -= size_t(moved);
      done += size_t(moved);
    }
    if (is_steady || done < whole / 4) continue;
    is_steady = true;
    quarter_ns = base::now_ns();
  }
  *steady_ns = base::now_ns() - quarter_ns;
  return Status();
}

bool is_sensible(const Measured& measured) {
  const auto good = [](double number) {
    return std::isfinite(number) && number >= 0 && number < 1e9;
  };
  return good(measured.round_trip_us) && good(measured.gigabytes_per_second);
}

}  // namespace

Result<Measured> measure_connections(const Streams& streams) {
  const Deadline deadline(kTrialMs);
  const int fd = streams.command.get();
  std::vector<double> trips_us;
  for (uint32_t i = 0; i < kEchoes; ++i) {
    Order order;
    const uint64_t begin_ns = base::now_ns();
    Status good = move_order(fd, &order, true, deadline);
    if (good.ok()) good = move_order(fd, &order, false, deadline);
    if (!good.ok()) return good;
    if (i != 0) trips_us.push_back(double(base::now_ns() - begin_ns) / 1000);
  }
  std::sort(trips_us.begin(), trips_us.end());
  Order order;
  order.kind = OrderKind::kBurst;
  uint64_t steady_ns = 0;
  Status good = move_order(fd, &order, true, deadline);
  if (good.ok()) good = move_burst(streams, false, deadline, &steady_ns);
  if (!good.ok()) return good;
  return Measured{trips_us[trips_us.size() / 2],
                  double(kBurstBytes) * 3 / 4 / double(std::max<uint64_t>(steady_ns, 1))};
}

Status tell_choice(const Streams& streams, const WayChoice& choice, const Measured& over_fabric,
                   const Measured& over_connections) {
  Order order;
  order.kind = OrderKind::kChoose;
  order.calls = choice.calls ? 1 : 0;
  order.bulk = choice.bulk ? 1 : 0;
  order.fabric = over_fabric;
  order.connections = over_connections;
  return move_order(streams.command.get(), &order, true, Deadline(kTrialMs));
}

Result<WayChoice> serve_trial(const Streams& streams, const std::string& fabric,
                              const std::string& connections) {
  const Deadline deadline(kTrialMs);
  const int fd = streams.command.get();
  uint32_t echoes = 0, bursts = 0;
  for (;;) {
    Order order;
    Status good = move_order(fd, &order, false, deadline);
    if (!good.ok()) return good;
    if (order.mark != kMark || order.calls > 1 || order.bulk > 1 || !is_sensible(order.fabric) ||
        !is_sensible(order.connections))
      break;
    if (order.kind == OrderKind::kChoose) {
      const bool was_measured = order.connections.round_trip_us != 0;
      WayChoice choice = was_measured
                             ? choose_way(fabric, order.fabric, connections, order.connections)
                             : forced_way(fabric);
      choice.calls = order.calls != 0;
      choice.bulk = order.bulk != 0;
      return choice;
    }
    uint64_t unused_ns = 0;
    if (order.kind == OrderKind::kEcho && ++echoes <= kEchoesMost)
      good = move_order(fd, &order, true, deadline);
    else if (order.kind == OrderKind::kBurst && ++bursts <= kBurstsMost)
      good = move_burst(streams, true, deadline, &unused_ns);
    else
      break;
    if (!good.ok()) return good;
  }
  return Status(Code::kInvalid, "the client's trial of its connections makes no sense");
}

}  // namespace tendril::session
