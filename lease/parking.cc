// SPDX-License-Identifier: Apache-2.0
// See parking.h.
#include "lease/parking.h"

#include <algorithm>

#include "base/check.h"
#include "config/quantity.h"

namespace tendril::lease {

using base::Code;
using base::Status;
using wire::standing_name;

void Parking::stand(Parked* parked, Standing standing, uint64_t now_ns) {
  parked->standing = standing;
  parked->since_ns = now_ns;
}

Status Parking::begin(uint64_t now_ns, uint64_t lease_id, uint64_t host_bytes) {
  const Standing now = standing(lease_id);
  const std::string who = "lease " + std::to_string(lease_id);
  if (now != Standing::kGranted)
    return Status(Code::kRefused, who + " is " + standing_name(now) + " already");
  Status may = book_->may_park(lease_id);
  if (!may.ok()) return may;
  const uint64_t left = host_budget_bytes_ - std::min(host_budget_bytes_, host_used_bytes_);
  if (host_bytes > left) {
    return Status(Code::kRefused,
                  who + " has " + config::format_size(host_bytes) +
                      " on its GPUs, and this server's host memory for parked leases has " +
                      config::format_size(left) + " of " + config::format_size(host_budget_bytes_) +
                      " left; wake or end another parked lease, or start 'tendril serve' with a "
                      "larger --park-memory");
  }
  Parked& parked = leases_[lease_id];
  parked.host_bytes = host_bytes;
  parked.wake_wanted = false;
  host_used_bytes_ += host_bytes;
  stand(&parked, Standing::kParking, now_ns);
  return Status();
}

void Parking::parked(uint64_t now_ns, uint64_t lease_id, uint64_t host_bytes,
                     const std::vector<uint64_t>& stays_bytes) {
  Parked& parked = leases_.at(lease_id);
  TENDRIL_CHECK(parked.standing == Standing::kParking);
  // A worker is not believed beyond what it was given.
  host_bytes = std::min(host_bytes, parked.host_bytes);
  host_used_bytes_ -= parked.host_bytes - host_bytes;
  parked.host_bytes = host_bytes;
  parked.moved_bytes += host_bytes;
  ++parked.parks;
  book_->park(lease_id, stays_bytes);
  stand(&parked, Standing::kParked, now_ns);
  if (!parked.wake_wanted) return;
  const uint64_t asked_ns = parked.asked_ns;
  ask(now_ns, lease_id, parked.priority);
  parked.asked_ns = asked_ns;
}

void Parking::failed(uint64_t now_ns, uint64_t lease_id) {
  Parked& parked = leases_.at(lease_id);
  TENDRIL_CHECK(parked.standing == Standing::kParking);
  host_used_bytes_ -= parked.host_bytes;
  parked.host_bytes = 0;
  parked.wake_wanted = false;
  stand(&parked, Standing::kGranted, now_ns);
}

void Parking::ask(uint64_t now_ns, uint64_t lease_id, int32_t priority) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return;
  Parked& parked = found->second;
  if (parked.standing == Standing::kParking) {
    if (!parked.wake_wanted) parked.asked_ns = now_ns;
    parked.wake_wanted = true;
    parked.priority = priority;
  }
  if (parked.standing != Standing::kParked) return;
  parked.wake_wanted = false;
  parked.asked_ns = now_ns;
  book_->await(lease_id, priority);
  stand(&parked, Standing::kWaking, now_ns);
}

std::vector<uint64_t> Parking::grant(uint64_t now_ns) {
  std::vector<uint64_t> woken = book_->wake();
  for (const uint64_t lease_id : woken) stand(&leases_.at(lease_id), Standing::kReturning, now_ns);
  return woken;
}

void Parking::returned(uint64_t now_ns, uint64_t lease_id) {
  Parked& parked = leases_.at(lease_id);
  TENDRIL_CHECK(parked.standing == Standing::kReturning);
  host_used_bytes_ -= parked.host_bytes;
  parked.moved_bytes += parked.host_bytes;
  parked.host_bytes = 0;
  parked.waited_ns += now_ns - std::min(now_ns, parked.asked_ns);
  ++parked.wakes;
  stand(&parked, Standing::kGranted, now_ns);
}

void Parking::end(uint64_t lease_id) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return;
  host_used_bytes_ -= found->second.host_bytes;
  leases_.erase(found);
}

uint64_t Parking::host_coming_bytes() const {
  uint64_t sum = 0;
  for (const auto& [id, parked] : leases_)
    sum += parked.standing == Standing::kParking ? parked.host_bytes : 0;
  return sum;
}

Standing Parking::standing(uint64_t lease_id) const {
  const Parked* const parked = find(lease_id);
  return parked == nullptr ? Standing::kGranted : parked->standing;
}

const Parking::Parked* Parking::find(uint64_t lease_id) const {
  const auto found = leases_.find(lease_id);
  return found == leases_.end() ? nullptr : &found->second;
}

std::vector<uint64_t> Parking::make_room_for(uint64_t waking, std::vector<Idle> idle) const {
  std::map<uint32_t, LeaseBook::Lack> lacks;
  for (uint32_t gpu = 0; gpu < book_->gpu_count(); ++gpu) {
    const LeaseBook::Lack lack = book_->lack(waking, gpu);
    if (lack.any()) lacks[gpu] = lack;
  }
  std::stable_sort(idle.begin(), idle.end(), [](const Idle& left, const Idle& right) {
    return left.idle_ns > right.idle_ns;
  });
  std::vector<uint64_t> chosen;
  for (const Idle& one : idle) {
    if (lacks.empty()) break;
    bool helps = false;
    for (size_t i = 0; i < one.slices.size(); ++i) {
      const auto lack = lacks.find(one.slices[i].gpu_index);
      if (lack == lacks.end()) continue;
      helps |= (lack->second.share_millionths != 0 && one.slices[i].share_millionths != 0) ||
               (lack->second.memory_bytes != 0 && one.leaves_bytes[i] != 0);
      lack->second.share_millionths -=
          std::min(lack->second.share_millionths, one.slices[i].share_millionths);
      lack->second.memory_bytes -= std::min(lack->second.memory_bytes, one.leaves_bytes[i]);
      if (!lack->second.any()) lacks.erase(lack);
    }
    if (helps) chosen.push_back(one.lease_id);
  }
  if (!lacks.empty()) chosen.clear();
  return chosen;
}

}  // namespace tendril::lease
