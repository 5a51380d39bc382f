// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the scheduler with arbitrary records of a store, then arbitrary reports,
// requests and commands of peers. Orders that come of them are carried out or not, as the bytes
// say.
#include <algorithm>

#include "pool/scheduler/records.h"
#include "pool/scheduler/scheduler.h"

namespace {

using namespace tendril;  // NOLINT

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t bytes) : at_(data), left_(bytes) {}
  bool empty() const { return left_ == 0; }
  uint8_t byte() { return left_ == 0 ? 0 : (--left_, *at_++); }
  std::string text() {
    const size_t bytes = std::min<size_t>(left_, byte() * 4u);
    std::string text(reinterpret_cast<const char*>(at_), std::min(bytes, left_));
    at_ += text.size();
    left_ -= text.size();
    return text;
  }
  template <typename Message>
  bool message(Message* message) {
    const std::string body = text();
    return wire::decode(body.data(), body.size(), message);
  }

 private:
  const uint8_t* at_;
  size_t left_;
};

// What a server answers to orders: the same that it was told, or not.
void answer(pool::Scheduler& scheduler, const pool::Effects& effects, uint8_t how, pool::Now now) {
  for (const auto& batch : effects.writes) {
    if ((how & 1) == 0) scheduler.stored(batch.number, base::Status(), now);
  }
  for (const auto& given : effects.to_servers) {
    wire::PoolReport report;
    report.boot = how & 2;
    report.number = 2;
    uint64_t lease = 1;
    for (const wire::Order& order : given.orders.orders) {
      wire::OrderResult result;
      result.order_id = order.order_id;
      result.code = (how & 4) != 0 ? base::Code::kRefused : base::Code::kOk;
      result.lease_id = lease++;
      report.results.push_back(result);
    }
    scheduler.reported(given.connection, "", report, now);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  Bytes in(data, bytes);
  pool::Now now{1'000'000'000, 1'700'000'000};
  pool::Scheduler scheduler({});
  std::vector<std::pair<std::string, std::string>> records;
  static const char* const kKeys[] = {"pool/meta",      "pool/policy",  "pool/usage",
                                      "pool/server/a",  "pool/ended/a", "pool/request/1",
                                      "pool/request/2", "pool/grant/3", "pool/grant/4"};
  for (uint8_t count = in.byte() % 6; count != 0; --count) {
    const uint8_t key = in.byte();
    records.emplace_back(kKeys[key % 9], in.text());
  }
  scheduler.recover(records, now);
  pool::Asker who;
  who.id = who.name = "ann";
  while (!in.empty()) {
    const uint8_t what = in.byte(), connection = in.byte() % 8 + 1;
    now.monotonic_ns += uint64_t(in.byte()) * 50'000'000;
    now.wall_s += in.byte() - 100;
    wire::PoolReport report;
    wire::LeaseRequest request;
    wire::PoolCommand command;
    switch (what % 8) {
      case 0:
        if (in.message(&request)) scheduler.submitted(100 + connection, who, request, now);
        break;
      case 1:
        if (in.message(&command)) scheduler.command(200 + connection, who, command, now);
        break;
      case 2:
        scheduler.lost(connection, now);
        break;
      case 3:
        scheduler.left(100 + connection, (what & 8) != 0, now);
        break;
      default:
        if (in.message(&report)) scheduler.reported(connection, "", report, now);
        break;
    }
    answer(scheduler, scheduler.tick(now), what >> 4, now);
  }
  scheduler.list({}, who, now);
  return 0;
}
