// SPDX-License-Identifier: Apache-2.0
// See trial.h. Fixed layout, little-endian.
#include "session/choice/trial.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"

namespace tendril::session {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;
using transport::Channel;
using transport::Measured;
using transport::Port;

namespace {

constexpr uint32_t kMark = 0x344c5254;  // "TRL4"
enum class OrderKind : uint32_t {
  kEchoes = 1,
  kBurst = 2,  // its first part
  kChoose = 3,
  kPorts = 4,
  kPair = 5,
  kBurstRest = 6,
};
constexpr size_t kOrderKinds = 7;

struct Order {
  uint32_t mark = kMark;
  OrderKind kind = OrderKind::kEchoes;
  WayKind way = WayKind::kConnections;  // kChoose: the better one of the fabric
  uint32_t calls = 0, bulk = 0;         // kChoose: the fabric carries them; in answers: it is so
  uint32_t striped = 0;                 // kChoose
  uint32_t number = 0;                  // kPorts: how many follow; kPair: the worker's port
  uint32_t bytes = 0;                   // kPair: of what follows
  Measured fabric, connections;         // kChoose
};
static_assert(sizeof(Order) == 64);

struct PortRecord {
  char name[transport::kPortNameBytesMax], network[transport::kPortNetworkBytesMax];
  uint64_t megabits_per_second;
};
static_assert(sizeof(PortRecord) == 64);
constexpr size_t kReasonBytesMax = 256;

constexpr uint32_t kEchoes = 17;  // the first one only wakes the worker
// Over all bulk channels of a way. The first part opens TCP's windows. The other one is measured,
// from the client's order until the client has all of it: what lies in buffers does not count.
constexpr size_t kBurstBytes = 2u << 20, kFirstBytes = kBurstBytes / 4;
constexpr uint32_t kOrdersMost = 2;          // of a kind, for each way
constexpr uint32_t kPairsMadeMost = 6;       // four pairs; one of them again, beside the best
constexpr uint32_t kFirstPort = UINT32_MAX;  // kPair: the worker knows which
constexpr uint32_t kSpinUs = 200;            // as lanes do, then it sleeps
constexpr uint32_t kPauseUs = 50;            // between looks at a burst that stands still

Status put(Channel* channel, const Order& order) {
  const iovec part{const_cast<Order*>(&order), sizeof order};
  return channel->send(&part, 1);
}
// In pieces, because a channel waits for the rest of what has begun, however long.
Status get_bytes(Channel* channel, void* into, size_t bytes, int timeout_ms) {
  const Deadline deadline(timeout_ms);
  for (size_t got = 0; got < bytes;) {
    Result<size_t> step = channel->receive(static_cast<uint8_t*>(into) + got, 1, bytes - got,
                                           {kSpinUs, deadline.left_ms()});
    if (!step.ok()) return step.status();
    got += *step;
  }
  return Status();
}
Status get(Channel* channel, Order* order, int timeout_ms = TrialLimits().step_ms) {
  return get_bytes(channel, order, sizeof *order, timeout_ms);
}

// An order with what follows it.
Status put(Channel* channel, Order order, const std::string& tail) {
  order.bytes = uint32_t(tail.size());
  const iovec parts[2] = {{&order, sizeof order}, {const_cast<char*>(tail.data()), tail.size()}};
  return channel->send(parts, tail.empty() ? 1 : 2);
}
Result<std::string> get_tail(Channel* channel, uint32_t bytes, int timeout_ms) {
  std::string tail(bytes, 0);
  if (bytes == 0) return tail;
  const Status got = get_bytes(channel, &tail[0], bytes, timeout_ms);
  return got.ok() ? Result<std::string>(tail) : got;
}

// On all bulk channels at once.
Status move_bytes(const Way& way, size_t bytes, bool sends, int timeout_ms) {
  const std::vector<Channel*> all = way.bulk.empty() ? std::vector{way.calls} : way.bulk;
  std::vector<size_t> left(all.size(), bytes / all.size());
  std::vector<uint8_t> block(128u << 10);
  const size_t whole = left[0] * all.size();
  const Deadline deadline(timeout_ms);
  base::Spin spin(kSpinUs);
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
  }
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
  order.way = kind;
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
  const int step_ms = TrialLimits().step_ms;
  if (good.ok()) good = put(orders, order);
  if (good.ok()) good = move_bytes(way, kFirstBytes, false, step_ms);
  const uint64_t begin_ns = base::now_ns();
  order.kind = OrderKind::kBurstRest;
  if (good.ok()) good = put(orders, order);
  if (good.ok()) good = move_bytes(way, kBurstBytes - kFirstBytes, false, step_ms);
  if (!good.ok()) return good;
  const double whole_us = double(base::now_ns() - begin_ns) / 1000;
  std::sort(trips_us.begin(), trips_us.end());
  const double trip_us = trips_us[trips_us.size() / 2];
  // The order and the first byte take a round trip. Where that is most of it, it is not known well.
  const double moving_us = std::max({whole_us - trip_us, whole_us / 4, 0.001});
  return Measured{trip_us, double(kBurstBytes - kFirstBytes) / 1000 / moving_us};
}

Result<bool> tell_choice(Channel* orders, const WayChoice& choice, const Measured& over_fabric,
                         const Measured& over_connections) {
  Order order;
  order.kind = OrderKind::kChoose;
  order.way = choice.second ? WayKind::kOtherFabric : WayKind::kFabric;
  order.striped = choice.striped ? 1 : 0;
  order.calls = choice.calls ? 1 : 0;
  order.bulk = choice.bulk ? 1 : 0;
  order.fabric = over_fabric;
  order.connections = over_connections;
  Status good = put(orders, order);
  if (good.ok()) good = get(orders, &order);
  if (!good.ok()) return good;
  return order.calls == 1 || order.bulk == 1;
}

Result<std::vector<Port>> ask_ports(Channel* orders) {
  Order order;
  order.kind = OrderKind::kPorts;
  Status good = put(orders, order);
  if (good.ok()) good = get(orders, &order);
  if (!good.ok()) return good;
  if (order.kind != OrderKind::kPorts || order.number > transport::kPortsMost)
    return Status(Code::kInvalid, "the server's list of ports makes no sense");
  std::vector<Port> ports;
  for (uint32_t i = 0; i < order.number; ++i) {
    PortRecord record;
    good = get_bytes(orders, &record, sizeof record, TrialLimits().step_ms);
    if (!good.ok()) return good;
    ports.push_back(
        {base::printable(std::string(record.name, strnlen(record.name, sizeof record.name)), 40),
         base::printable(
             std::string(record.network, strnlen(record.network, sizeof record.network)), 16),
         record.megabits_per_second});
  }
  return ports;
}

Result<std::string> ask_first(Channel* orders, const std::string& blob) {
  return ask_pair(orders, WayKind::kFabric, kFirstPort, blob);
}

Result<std::string> ask_pair(Channel* orders, WayKind way, size_t port, const std::string& blob) {
  Order order;
  order.kind = OrderKind::kPair;
  order.way = way;
  order.number = uint32_t(port);
  Status good = put(orders, order, blob);
  if (good.ok()) good = get(orders, &order);
  if (!good.ok()) return good;
  if (order.bytes > transport::kBlobBytesMax)
    return Status(Code::kInvalid, "the server's answer about its port makes no sense");
  Result<std::string> tail = get_tail(orders, order.bytes, TrialLimits().step_ms);
  if (!tail.ok() || order.bulk == 1) return tail;
  return Status(Code::kUnavailable, base::printable(*tail, kReasonBytesMax));
}

namespace {

// The worker's end of one trial.
class Serving {
 public:
  Serving(Channel* orders, TrialServer* server, const TrialLimits& limits)
      : orders_(orders), server_(*server), limits_(limits), deadline_(limits.in_all_ms) {}

  Result<WayChoice> run() {
    for (;;) {
      Order order;
      Status good = get(orders_, &order, left_ms(limits_.step_ms));
      if (!good.ok()) return good;
      if (!is_due(order)) break;
      switch (order.kind) {
        case OrderKind::kChoose:
          return choose(order);
        case OrderKind::kPorts:
          good = tell_ports();
          break;
        case OrderKind::kPair:
          good = make_pair(order);
          break;
        case OrderKind::kEchoes:
        case OrderKind::kBurst:
        case OrderKind::kBurstRest:
          good = move(order);
          break;
      }
      if (!good.ok()) return good;
    }
    return Status(Code::kInvalid, "the client's trial of its connections makes no sense");
  }

 private:
  int left_ms(int most_ms) const { return std::min(most_ms, deadline_.left_ms()); }

  bool is_due(const Order& order) {
    const auto kind = size_t(order.kind), way = size_t(order.way);
    if (order.mark != kMark || kind < 1 || kind >= kOrderKinds || way >= kWays || order.calls > 1 ||
        order.bulk > 1 || order.striped > 1 || order.bytes > transport::kBlobBytesMax ||
        !is_sensible(order.fabric) || !is_sensible(order.connections))
      return false;
    if (order.kind == OrderKind::kPair) {
      return order.way != WayKind::kConnections && order.bytes != 0 &&
             ++pairs_made_ <= kPairsMadeMost;
    }
    const bool wants_way = order.kind != OrderKind::kChoose && order.kind != OrderKind::kPorts;
    return ++had_[kind][way] <= kOrdersMost && (!wants_way || server_.ways[way].calls != nullptr);
  }

  Status tell_ports() {
    if (server_.ports) ports_ = server_.ports();
    ports_.resize(std::min(ports_.size(), transport::kPortsMost));
    Order order;
    order.kind = OrderKind::kPorts;
    order.number = uint32_t(ports_.size());
    Status good = put(orders_, order);
    for (size_t i = 0; i < ports_.size() && good.ok(); ++i) {
      PortRecord record = {};
      memcpy(record.name, ports_[i].name.data(),
             std::min(ports_[i].name.size(), sizeof record.name));
      memcpy(record.network, ports_[i].network.data(),
             std::min(ports_[i].network.size(), sizeof record.network));
      record.megabits_per_second = ports_[i].megabits_per_second;
      const iovec part{&record, sizeof record};
      good = orders_->send(&part, 1);
    }
    return good;
  }

  Status make_pair(const Order& order) {
    Result<std::string> blob = get_tail(orders_, order.bytes, left_ms(limits_.step_ms));
    if (!blob.ok()) return blob.status();
    server_.ways[size_t(order.way)] = {};
    for (auto& each : had_) each[size_t(order.way)] = 0;
    Result<std::string> own = Status(Code::kInvalid, "the server has no such port");
    if (order.number == kFirstPort && order.way == WayKind::kFabric && server_.first)
      own = server_.first(*blob);
    else if (order.number < ports_.size() && server_.pair)
      own = server_.pair(order.way, ports_[order.number], *blob);
    Order answer;
    answer.kind = OrderKind::kPair;
    answer.bulk = own.ok() ? 1 : 0;
    return put(orders_, answer,
               own.ok() ? *own : own.status().message().substr(0, kReasonBytesMax));
  }

  // A fabric that fails ends its way, not the trial: another one may work.
  Status move(const Order& order) {
    Way& way = server_.ways[size_t(order.way)];
    const bool fabric = order.way != WayKind::kConnections;
    const int step_ms = fabric ? limits_.fabric_ms : limits_.step_ms;
    Status good;
    if (order.kind != OrderKind::kEchoes) {
      const bool first = order.kind == OrderKind::kBurst;
      good =
          move_bytes(way, first ? kFirstBytes : kBurstBytes - kFirstBytes, true, left_ms(step_ms));
    }
    for (uint32_t i = 0; order.kind == OrderKind::kEchoes && i < kEchoes && good.ok(); ++i) {
      Order echo;
      good = get(way.calls, &echo, left_ms(step_ms));
      if (good.ok()) good = put(way.calls, echo);
    }
    if (good.ok() || !fabric) return good;
    way = {};
    return Status();
  }

  Result<WayChoice> choose(Order order) {
    WayChoice choice = forced_way(server_.fabric_kind);
    const bool measured = order.fabric.gigabytes_per_second > 0;
    if (measured || order.bulk == 0)
      choice = (server_.only_bulk ? choose_bulk : choose_way)(
          server_.fabric_kind, order.fabric, server_.connections_kind, order.connections);
    choice.calls = order.calls != 0;
    choice.bulk = order.bulk != 0;
    choice.second = order.way == WayKind::kOtherFabric;
    choice.striped = order.striped != 0;
    const bool moves = choice.calls || choice.bulk;
    const auto has = [&](WayKind way) { return server_.ways[size_t(way)].calls != nullptr; };
    const bool there = choice.striped
                           ? has(WayKind::kFabric) && has(WayKind::kOtherFabric)
                           : has(choice.second ? WayKind::kOtherFabric : WayKind::kFabric);
    if (moves && (!there || !server_.moves(choice))) order.calls = order.bulk = 0;
    const Status good = put(orders_, order);
    if (good.ok() && order.calls == 0 && order.bulk == 0) choice.brief = server_.connections_kind;
    return good.ok() ? Result<WayChoice>(choice) : good;
  }

  Channel* const orders_;
  TrialServer& server_;
  const TrialLimits limits_;
  const Deadline deadline_;
  std::vector<Port> ports_;
  uint32_t had_[kOrderKinds][kWays] = {};
  uint32_t pairs_made_ = 0;
};

}  // namespace

Result<WayChoice> serve_trial(Channel* orders, TrialServer* server, const TrialLimits& limits) {
  return Serving(orders, server, limits).run();
}

}  // namespace tendril::session
