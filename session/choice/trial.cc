// SPDX-License-Identifier: Apache-2.0
// See trial.h. Fixed layout, little-endian.
#include "session/choice/trial.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"

namespace tendril::session {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;
using transport::Channel;
using transport::Measured;

namespace {

constexpr uint32_t kMark = 0x324c5254;  // "TRL2"
enum class OrderKind : uint32_t { kEchoes = 1, kBurst = 2, kChoose = 3 };

struct Order {
  uint32_t mark = kMark;
  OrderKind kind = OrderKind::kEchoes;
  uint32_t calls = 0, bulk = 0;  // kChoose: the fabric carries them; else calls: the WayKind
  Measured fabric, connections;  // kChoose
};
static_assert(sizeof(Order) == 48);

constexpr uint32_t kEchoes = 17;          // the first one only wakes the worker
constexpr size_t kBurstBytes = 2u << 20;  // over all bulk channels of a way
constexpr uint32_t kOrdersMost = 2;       // of a kind, for each way
constexpr uint32_t kSpinUs = 200;         // as lanes do, then it sleeps
constexpr uint32_t kPauseUs = 50;         // between looks at a burst that stands still

Status put(Channel* channel, const Order& order) {
  const iovec part{const_cast<Order*>(&order), sizeof order};
  return channel->send(&part, 1);
}
Status get(Channel* channel, Order* order, int timeout_ms = TrialLimits().step_ms) {
  return channel->receive(order, sizeof *order, sizeof *order, {kSpinUs, timeout_ms}).status();
}

// On all bulk channels at once. *steady_ns: of its last three quarters, because TCP begins slowly.
Status move_burst(const Way& way, bool sends, int timeout_ms, uint64_t* steady_ns) {
  const std::vector<Channel*> all = way.bulk.empty() ? std::vector{way.calls} : way.bulk;
  std::vector<size_t> left(all.size(), kBurstBytes / all.size());
  std::vector<uint8_t> block(128u << 10);
  const size_t whole = left[0] * all.size();
  const Deadline deadline(timeout_ms);
  base::Spin spin(kSpinUs);
  uint64_t quarter_ns = base::now_ns();
  bool is_steady = false;
  for (size_t done = 0; done < whole;) {
    size_t moved = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const iovec part{block.data(), std::min(left[i], block.size())};
      if (part.iov_len == 0) continue;
      Result<size_t> step = sends ? all[i]->send_some(&part, 1, 0)
                                  : all[i]->receive(block.data(), 0, part.iov_len, {0, 0});
      if (!step.ok()) return step.status();
      left[i] -= *step;
      moved += *step;
    }
    done += moved;
    if (moved != 0)
      spin.reset();
    else if (deadline.passed())
      return Status(Code::kTimeout, "a burst stood still while a way was measured");
    else if (!spin.again())
      usleep(kPauseUs);
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

Result<Measured> measure(Channel* orders, WayKind kind, const Way& way) {
  Order order;
  order.calls = uint32_t(kind);
  Status good = put(orders, order);
  std::vector<double> trips_us;
  for (uint32_t i = 0; i < kEchoes && good.ok(); ++i) {
    const uint64_t begin_ns = base::now_ns();
    Order echo;
    good = put(way.calls, echo);
    if (good.ok()) good = get(way.calls, &echo);
    if (i != 0) trips_us.push_back(double(base::now_ns() - begin_ns) / 1000);
  }
  order.kind = OrderKind::kBurst;
  uint64_t steady_ns = 0;
  if (good.ok()) good = put(orders, order);
  if (good.ok()) good = move_burst(way, false, TrialLimits().step_ms, &steady_ns);
  if (!good.ok()) return good;
  std::sort(trips_us.begin(), trips_us.end());
  return Measured{trips_us[trips_us.size() / 2],
                  double(kBurstBytes) * 3 / 4 / double(std::max<uint64_t>(steady_ns, 1))};
}

Result<bool> tell_choice(Channel* orders, const WayChoice& choice, const Measured& over_fabric,
                         const Measured& over_connections) {
  Order order;
  order.kind = OrderKind::kChoose;
  order.calls = choice.calls ? 1 : 0;
  order.bulk = choice.bulk ? 1 : 0;
  order.fabric = over_fabric;
  order.connections = over_connections;
  Status good = put(orders, order);
  if (good.ok()) good = get(orders, &order);
  if (!good.ok()) return good;
  return order.calls == 1 || order.bulk == 1;
}

Result<WayChoice> serve_trial(Channel* orders, const TrialWays& ways,
                              const std::function<bool(const WayChoice&)>& moves,
                              const TrialLimits& limits) {
  uint32_t had[4][2] = {};
  const Deadline deadline(limits.in_all_ms);
  const auto patience_ms = [&] { return std::min(limits.step_ms, deadline.left_ms()); };
  for (;;) {
    Order order;
    Status good = get(orders, &order, patience_ms());
    if (!good.ok()) return good;
    const auto kind = uint32_t(order.kind);
    if (order.mark != kMark || kind < 1 || kind > 3 || order.calls > 1 || order.bulk > 1 ||
        !is_sensible(order.fabric) || !is_sensible(order.connections) ||
        ++had[kind][order.calls] > kOrdersMost)
      break;
    const Way& way = order.calls == uint32_t(WayKind::kFabric) ? ways.fabric : ways.connections;
    if (order.kind == OrderKind::kChoose) {
      WayChoice choice =
          choose_way(ways.fabric_kind, order.fabric, ways.connections_kind, order.connections);
      choice.calls = order.calls != 0;
      choice.bulk = order.bulk != 0;
      if (!moves(choice)) order.calls = order.bulk = 0;
      good = put(orders, order);
      if (good.ok() && order.calls == 0 && order.bulk == 0) choice.brief = ways.connections_kind;
      return good.ok() ? Result<WayChoice>(choice) : good;
    }
    uint64_t unused_ns = 0;
    if (order.kind == OrderKind::kBurst) good = move_burst(way, true, patience_ms(), &unused_ns);
    for (uint32_t i = 0; order.kind == OrderKind::kEchoes && i < kEchoes && good.ok(); ++i) {
      Order echo;
      good = get(way.calls, &echo, patience_ms());
      if (good.ok()) good = put(way.calls, echo);
    }
    if (!good.ok()) return good;
  }
  return Status(Code::kInvalid, "the client's trial of its connections makes no sense");
}

}  // namespace tendril::session
