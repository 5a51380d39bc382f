// SPDX-License-Identifier: Apache-2.0
// What RDMA would give on a line that is not here: messages, reads and copied bytes of calls and
// copies are counted over a double of the verbs; the rest is arithmetic, whose assumptions it
// prints. `tendril_rdma_model [GBIT [US]]`: gigabits a second, and microseconds one way.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/lane_worker.h"
#include "transport/testing/rdma_channels.h"

namespace {

using namespace tendril;  // NOLINT: a program
using transport::rdma::CopyCounts;

constexpr double kHeaders = 0.95;            // of a line's bytes that are data, at an MTU of 4,096
constexpr double kCopyGigabytesPerS = 10.0;  // of one processor, to memory that no cache holds
constexpr uint32_t kBulkChannels = 4;

struct Line {
  double gigabytes_per_s, one_way_us;
};

struct Counted {
  uint64_t messages = 0, credits = 0, reads = 0, copied = 0;
};
Counted count(const CopyCounts& of) { return {of.messages, of.credits, of.reads, of.copied_bytes}; }
Counted operator-(const Counted& after, const Counted& before) {
  return {after.messages - before.messages, after.credits - before.credits,
          after.reads - before.reads, after.copied - before.copied};
}

class Model {
 public:
  explicit Model(const Line& line) : line_(line) {
    transport::ChannelSet here, there;
    transport::rdma::Sizes sizes;
    sizes.channels = 1 + kBulkChannels;
    const base::Status made = transport::rdma_pair(&verbs_, sizes, &here, &there, &parts_);
    if (!made.ok()) {
      fprintf(stderr, "%s\n", made.message().c_str());
      exit(1);
    }
    worker_ = std::make_unique<bench::Worker>(std::move(here), std::move(there), 1000);
    for (auto* memory : {&worker_->slots(), &worker_->source()})
      (void)parts_.worker_memory->add(memory->data(), memory->size());
    data_.resize(bench::kGivenBytes);
  }

  // `crossings`: of the line, one after the other, before the program goes on.
  template <typename Action>
  void row(const std::string& what, uint64_t times, uint64_t bytes, int crossings,
           const Action& action) {
    const Counted here = count(*parts_.client_counts), there = count(*parts_.worker_counts);
    for (uint64_t i = 0; i < times; ++i) action();
    const Counted client = count(*parts_.client_counts) - here;
    const Counted worker = count(*parts_.worker_counts) - there;
    const auto each = [times](uint64_t sum) { return double(sum) / double(times); };
    // Processors of both ends, and of the channels, copy at the same time.
    const double copied = each(std::max(client.copied, worker.copied)) / kBulkChannels;
    const double line_us = double(bytes) / line_.gigabytes_per_s / 1000;
    const double us =
        crossings * line_.one_way_us + std::max(line_us, copied / kCopyGigabytesPerS / 1000);
    printf("%-34s %8.2f %8.2f %7.2f %7.2f %11.0f %10.0f %10.1f", what.c_str(),
           each(client.messages), each(worker.messages), each(client.credits + worker.credits),
           each(client.reads + worker.reads), each(client.copied), each(worker.copied), us);
    if (bytes != 0) printf(" %8.1f", double(bytes) / us / 1000);
    printf("\n");
  }

  void call() {
    const char body[48] = {};
    worker_->call(bench::kPing, body, sizeof body);
  }
  void enqueue(int calls) {
    const char body[48] = {};
    for (int i = 0; i < calls; ++i) worker_->post(bench::kSink, body, sizeof body, 0);
    call();
  }
  void copy_out(uint64_t bytes) {
    const uint64_t ask[2] = {worker_->lane->new_transfer_id(), bytes};
    const uint32_t id = worker_->lane->new_reply_id();
    worker_->post(bench::kTake, ask, sizeof ask, id);
    worker_->lane->send_bulk(ask[0], data_.data(), bytes);
    worker_->lane->wait(id);
  }
  void copy_in(uint64_t bytes) {
    const uint64_t ask[2] = {worker_->lane->new_transfer_id(), bytes};
    worker_->lane->expect_bulk(ask[0], data_.data(), bytes);
    worker_->post(bench::kGive, ask, sizeof ask, 0);
    worker_->lane->wait_bulk(ask[0]);
  }
  void pin(bool pinned) {
    if (pinned)
      (void)parts_.client_memory->add(data_.data(), data_.size());
    else
      parts_.client_memory->remove(data_.data());
  }

 private:
  const Line line_;
  transport::rdma::VerbsDouble verbs_;
  transport::RdmaParts parts_;
  std::unique_ptr<bench::Worker> worker_;
  std::vector<uint8_t> data_;
};

}  // namespace

int main(int argc, char** argv) {
  const double gigabits = argc > 1 ? strtod(argv[1], nullptr) : 100;
  const double one_way_us = argc > 2 ? strtod(argv[2], nullptr) : 2;
  const Line line{gigabits / 8 * kHeaders, one_way_us};
  printf(
      "Counted over a double of the verbs, for each call or copy. Modelled, not measured: a line\n"
      "of %.0f Gb/s, of which %.0f %% are data; %.1f us one way with both cards; %.0f GB/s for\n"
      "each of %u processors that copy at each end. Nothing else takes time: no GPU, no PCIe.\n",
      gigabits, kHeaders * 100, one_way_us, kCopyGigabytesPerS, kBulkChannels);
  printf("%-34s %8s %8s %7s %7s %11s %10s %10s %8s\n", "", "messages", "back", "credits", "reads",
         "copied here", "there", "model: us", "GB/s");
  Model model(line);
  model.row("a call and its reply", 2000, 0, 2, [&] { model.call(); });
  model.row("1,000 calls in a row, and a reply", 20, 0, 2, [&] { model.enqueue(1000); });
  for (const bool pinned : {true, false}) {
    if (pinned) model.pin(true);
    for (const uint64_t mebibytes : {1, 16, 64}) {
      const std::string of = std::to_string(mebibytes) + (pinned ? " MiB pinned" : " MiB pageable");
      const uint64_t bytes = mebibytes << 20;
      // Named (1), read (2), answered (1); or called (1), named (1), read (2).
      model.row("to the worker, " + of, 4, bytes, 4, [&] { model.copy_out(bytes); });
      model.row("to the client, " + of, 4, bytes, 4, [&] { model.copy_in(bytes); });
    }
    if (pinned) model.pin(false);
  }
  return 0;
}
