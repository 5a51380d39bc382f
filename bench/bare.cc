// SPDX-License-Identifier: Apache-2.0
// See bare.h.
#include "bench/bare.h"

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "bench/figures.h"
#include "transport/testing/test_channels.h"

namespace tendril::bench {
namespace {

using transport::ChannelSet;

constexpr int kTrips = 2000, kLargeTrips = 200;
constexpr uint32_t kSpinUs = 1'000'000;
constexpr uint64_t kBulkBytes = 64u << 20;
constexpr int kBulkTimes = 4;
constexpr int kRounds = 3;

}  // namespace

double undisturbed_us(std::vector<double>* trips_us) {
  std::sort(trips_us->begin(), trips_us->end());
  return (*trips_us)[trips_us->size() / 10];
}

std::vector<double> bare_trips_us(const char* transport, size_t bytes) {
  ChannelSet a, b;
  transport::make_channels(transport, 0, &a, &b);
  const int count = bytes > kAnswerBytes ? kLargeTrips : kTrips;
  std::thread answers([&] {
    std::vector<char> message(bytes);
    for (int i = 0; i < count; ++i) {
      if (!b.command->receive(message.data(), bytes, bytes, {kSpinUs, -1}).ok()) return;
      iovec part{message.data(), kAnswerBytes};
      if (!b.command->send(&part, 1).ok()) return;
    }
  });
  std::vector<char> message(bytes);
  std::vector<double> trips;
  for (int i = 0; i < count; ++i) {
    uint64_t start = base::now_ns();
    iovec part{message.data(), bytes};
    (void)a.command->send(&part, 1);
    (void)a.command->receive(message.data(), kAnswerBytes, kAnswerBytes, {kSpinUs, -1});
    trips.push_back(double(base::now_ns() - start) / 1000.0);
  }
  answers.join();
  return trips;
}

double bare_bulk_gbs(const char* transport, size_t n) {
  ChannelSet a, b;
  transport::make_channels(transport, n, &a, &b);
  uint64_t each = kBulkBytes * kBulkTimes / n;
  std::vector<std::thread> threads;
  std::vector<std::vector<uint8_t>> from(n, std::vector<uint8_t>(kBulkBytes / n));
  std::vector<std::vector<uint8_t>> to(n, std::vector<uint8_t>(16u << 20));
  uint64_t start = base::now_ns();
  for (size_t i = 0; i < n; ++i) {
    threads.emplace_back([&, i] {
      std::vector<uint8_t>& data = from[i];
      for (uint64_t done = 0; done < each; done += 1u << 20) {
        iovec part{data.data() + done % data.size(), 1u << 20};
        if (!a.bulk[i]->send(&part, 1).ok()) return;
      }
    });
    threads.emplace_back([&, i] {
      std::vector<uint8_t>& data = to[i];
      for (uint64_t done = 0; done < each; done += 1u << 20) {
        if (!b.bulk[i]->receive(data.data() + done % data.size(), 1u << 20, 1u << 20, {0, -1}).ok())
          return;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return double(each * n) / double(base::now_ns() - start);
}

void measure_bare(const std::string& transport, size_t channels, Report& report) {
  // The median, because calls and copies are compared by their medians too.
  const auto trip_us = [&](size_t bytes) {
    std::vector<double> all;
    for (int i = 0; i < kRounds; ++i) {
      const std::vector<double> trips = bare_trips_us(transport.c_str(), bytes);
      all.insert(all.end(), trips.begin(), trips.end());
    }
    return median(all);
  };
  double gbs = 0;
  for (int i = 0; i < kRounds; ++i) gbs = std::max(gbs, bare_bulk_gbs(transport.c_str(), channels));
  report.add("round_trip_us", trip_us(kAnswerBytes));
  report.add("round_trip_4k_us", trip_us(4u << 10));
  report.add("round_trip_64k_us", trip_us(64u << 10));
  report.add("round_trip_1m_us", trip_us(1u << 20));
  report.add("gb_per_s", gbs);
}

}  // namespace tendril::bench
