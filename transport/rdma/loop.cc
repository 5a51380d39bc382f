// SPDX-License-Identifier: Apache-2.0
// See loop.h.
#include "transport/rdma/loop.h"

#include <algorithm>

#include "base/clock.h"
#include "transport/rdma/line.h"

namespace tendril::transport::rdma {

using base::Code;
using base::Result;
using base::Status;

namespace {
// Stops the pair, and gives up what is under way: nothing moves after that.
void stop(Pair* pair, uint64_t posted, uint64_t over) {
  pair->stop();
  const base::Deadline deadline(kCardTrialMs);
  while (over < posted && !deadline.passed()) {
    Completion report;
    const int count = pair->poll(&report, 1);
    if (count < 0) return;
    if (count == 1) over = std::max(over, report.id);
  }
}

// What was posted last is over.
Status wait_for(Pair* pair, uint64_t id, uint64_t* over, const base::Deadline& deadline) {
  while (*over < id) {
    Completion report;
    const int count = pair->poll(&report, 1);
    if (count < 0 || (count == 1 && report.fate != Fate::kDone))
      return Status(Code::kUnavailable, "the card could not move the memory by itself");
    if (count == 1) *over = report.id;
    if (count == 0 && deadline.passed())
      return Status(Code::kTimeout, "the card took too long to move the memory by itself");
    if (count == 0) base::cpu_pause();
  }
  return Status();
}

}  // namespace

Result<uint64_t> move_by_card(Device* device, const Remote& from, const Remote& to,
                              uint64_t bytes) {
  constexpr PairLimits kLimits{kReadsAhead + 2, 1};
  Result<std::unique_ptr<Pair>> reader = device->make_pair(kLimits);
  if (!reader.ok()) return reader.status();
  Result<std::unique_ptr<Pair>> owner = device->make_pair(kLimits);
  if (!owner.ok()) return owner.status();
  Status good = (*owner)->connect((*reader)->address());
  if (good.ok()) good = (*reader)->connect((*owner)->address());
  if (!good.ok()) return good;
  const base::Deadline deadline(kCardTrialMs);
  const uint64_t begin_ns = base::now_ns();
  uint64_t posted = 0, over = 0;
  for (uint64_t done = 0; done < bytes && good.ok();) {
    Work work;
    work.kind = WorkKind::kRead;
    work.id = posted + 1;
    work.bytes = uint32_t(std::min<uint64_t>(bytes - done, kReadBytes));
    work.local = reinterpret_cast<void*>(to.address + done);
    work.local_key = to.key;
    work.remote = {from.address + done, from.key};
    if (posted >= kReadsAhead)
      good = wait_for(reader->get(), posted - kReadsAhead + 1, &over, deadline);
    if (good.ok()) good = (*reader)->post(work);
    if (good.ok()) ++posted;
    done += work.bytes;
  }
  if (good.ok()) good = wait_for(reader->get(), posted, &over, deadline);
  if (good.ok()) return std::max<uint64_t>(base::now_ns() - begin_ns, 1);
  stop(reader->get(), posted, over);
  return good;
}

}  // namespace tendril::transport::rdma
