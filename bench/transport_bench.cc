// SPDX-License-Identifier: Apache-2.0
// Lane and service beside bare sockets, in the same run on the same machine: round trip, cost of an
// enqueued call, calls per second, bulk bandwidth each way. Only the ratios matter; absolute
// figures depend on the machine. Each figure is the best of several rounds.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "bench/bare.h"
#include "bench/lane_worker.h"
#include "transport/testing/test_channels.h"

namespace {

using namespace tendril;  // NOLINT: a program
using bench::bare_bulk_gbs;
using bench::bare_trips_us;
using bench::kGive;
using bench::kPing;
using bench::kSink;
using bench::kTake;
using bench::undisturbed_us;
using bench::Worker;
using transport::ChannelSet;

int rounds = 9;
constexpr int kTrips = 2000;
constexpr uint64_t kCalls = 500'000;
constexpr uint64_t kBulkBytes = 64u << 20;
constexpr int kBulkTimes = 4;
uint32_t spin_us = 1'000'000;

// Both ends over a transport of that name.
Worker worker_over(const char* transport, size_t channels) {
  ChannelSet here, there;
  transport::make_channels(transport, channels, &here, &there);
  return Worker(std::move(here), std::move(there), spin_us);
}

// The least disturbed round, because on a shared machine everything else only adds time.
double least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}
double most(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

double lane_trip_us(Worker& worker) {
  char body[48] = {};
  std::vector<double> trips;
  for (int i = 0; i < kTrips; ++i) {
    uint64_t start = base::now_ns();
    worker.call(kPing, body, sizeof body);
    trips.push_back(double(base::now_ns() - start) / 1000.0);
  }
  return undisturbed_us(&trips);
}

double bulk_out_gbs(Worker& worker, std::vector<uint8_t>& data) {
  uint64_t start = base::now_ns();
  for (int i = 0; i < kBulkTimes; ++i) {
    uint64_t ask[2] = {worker.lane->new_transfer_id(), data.size()};
    uint32_t id = worker.lane->new_reply_id();
    worker.post(kTake, ask, sizeof ask, id);
    worker.lane->send_bulk(ask[0], data.data(), data.size());
    worker.lane->wait(id);
  }
  return double(data.size() * kBulkTimes) / double(base::now_ns() - start);
}

double bulk_in_gbs(Worker& worker, std::vector<uint8_t>& data) {
  uint64_t start = base::now_ns();
  for (int i = 0; i < kBulkTimes; ++i) {
    uint64_t ask[2] = {worker.lane->new_transfer_id(), data.size()};
    worker.lane->expect_bulk(ask[0], data.data(), data.size());
    worker.post(kGive, ask, sizeof ask, 0);
    worker.lane->wait_bulk(ask[0]);
  }
  return double(data.size() * kBulkTimes) / double(base::now_ns() - start);
}

struct Enqueue {
  double ns, million_per_s;
};
Enqueue enqueue(Worker& worker) {
  char body[48] = {};
  uint64_t start = base::now_ns();
  // The cost to the caller of a burst that the ring can hold, and the rate that the whole path
  // sustains.
  constexpr uint64_t kBurst = 20'000;
  for (uint64_t i = 0; i < kBurst; ++i) worker.post(kSink, body, sizeof body, 0);
  double ns = double(base::now_ns() - start) / kBurst;
  for (uint64_t i = kBurst; i < kCalls; ++i) worker.post(kSink, body, sizeof body, 0);
  worker.call(kPing, body, sizeof body);
  return {ns, double(kCalls) * 1000.0 / double(base::now_ns() - start)};
}

// Both sides are in this process.
double process_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) / 1e9;
}

template <typename Copy>
double seconds_per_gb_and_side(Copy copy) {
  const double before = process_seconds();
  copy();
  return (process_seconds() - before) / (double(kBulkBytes) * kBulkTimes / 1e9) / 2;
}

// What sealing adds is what it takes beyond plain TCP.
struct Cost {
  double trip_us = 0, seconds_per_gb_out = 0, seconds_per_gb_in = 0;
};

Cost compare(const char* transport, size_t channels) {
  std::vector<double> bare_trip, trip, ns, rate, bare_bulk, out, in, out_seconds, in_seconds;
  std::vector<uint8_t> data(kBulkBytes, 3);
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> bare_trips = bare_trips_us(transport);
    bare_trip.push_back(undisturbed_us(&bare_trips));
    bare_bulk.push_back(bare_bulk_gbs(transport, channels));
    Worker worker = worker_over(transport, channels);
    trip.push_back(lane_trip_us(worker));
    Enqueue e = enqueue(worker);
    ns.push_back(e.ns);
    rate.push_back(e.million_per_s);
    out_seconds.push_back(
        seconds_per_gb_and_side([&] { out.push_back(bulk_out_gbs(worker, data)); }));
    in_seconds.push_back(seconds_per_gb_and_side([&] { in.push_back(bulk_in_gbs(worker, data)); }));
  }
  const Cost cost = {least(trip), least(out_seconds), least(in_seconds)};
  printf("%-9s round trip 64 B   bare %7.2f us   lane %7.2f us   ratio %.2f\n", transport,
         least(bare_trip), least(trip), least(trip) / least(bare_trip));
  printf("%-9s enqueue 64 B      burst %6.0f ns   sustained %6.2f M calls/s\n", transport,
         least(ns), most(rate));
  printf(
      "%-9s bulk, %zu channels  bare %7.2f GB/s to worker %6.2f (%.2f)   to client %6.2f (%.2f)\n",
      transport, channels, most(bare_bulk), most(out), most(out) / most(bare_bulk), most(in),
      most(in) / most(bare_bulk));
  printf("%-9s processor time    per GB and side: to worker %.3f s   to client %.3f s\n", transport,
         cost.seconds_per_gb_out, cost.seconds_per_gb_in);
  fflush(stdout);
  return cost;
}

}  // namespace

// `tendril_transport_bench cost`: nobody looks for messages without sleeping, so processor time is
// what the work takes. Otherwise nobody sleeps, so trips are as short as they can be.
int main(int argc, char** argv) {
  const std::string which = argc > 1 ? argv[1] : "all";
  const bool cost = which == "cost";
  if (cost) {
    spin_us = 0;
    rounds = 3;
  }
  setenv("TENDRIL_WAIT_SPIN_US", cost ? "0" : "1000000", 0);
  const size_t channels = argc > 2 ? size_t(atoi(argv[2])) : 2;
  std::map<std::string, Cost> costs;
  for (const char* transport : {"tcp", "sealed", "unix", "shm"}) {
    if (which == transport || which == "all" || (cost && costs.size() < 2))
      costs[transport] = compare(transport, channels);
  }
  if (costs.count("tcp") == 0 || costs.count("sealed") == 0) return 0;
  const Cost &clear = costs["tcp"], &sealed = costs["sealed"];
  printf("sealing adds: %.2f us to a round trip, %.3f and %.3f s of processor per GB and side\n",
         sealed.trip_us - clear.trip_us, sealed.seconds_per_gb_out - clear.seconds_per_gb_out,
         sealed.seconds_per_gb_in - clear.seconds_per_gb_in);
  return 0;
}
