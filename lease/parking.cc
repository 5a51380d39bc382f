// SPDX-License-Identifier: Apache-2.0
// See parking.h.
#include "lease/parking.h"

#include <algorithm>
#include <utility>

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

Status Parking::begin(uint64_t now_ns, uint64_t lease_id, uint64_t host_bytes, bool in_file) {
  const Standing now = standing(lease_id);
  const std::string who = "lease " + std::to_string(lease_id);
  if (now != Standing::kGranted)
    return Status(Code::kRefused, who + " is " + standing_name(now) + " already");
  Status may = book_->may_park(lease_id);
  if (!may.ok()) return may;
  const uint64_t kept = kept_bytes(lease_id);
  const uint64_t budget = in_file ? file_budget_bytes_ : host_budget_bytes_;
  const uint64_t used = in_file ? file_used_bytes_ : host_used_bytes_ - kept;
  const uint64_t left = budget - std::min(budget, used);
  if (host_bytes > left) {
    return Status(Code::kRefused,
                  who + " has " + config::format_size(host_bytes) +
                      " on its GPUs, and this server's " + (in_file ? "disk" : "host memory") +
                      " for parked leases has " + config::format_size(left) + " of " +
                      config::format_size(budget) +
                      " left; wake or end another parked lease, or start 'tendril serve' with a "
                      "larger " +
                      (in_file ? "--park-file-size" : "--park-memory"));
  }
  Parked& parked = leases_[lease_id];
  host_used_bytes_ -= kept;
  parked.host_bytes = host_bytes;
  parked.in_file = in_file;
  parked.kept_bytes = 0;
  parked.new_bytes = in_file ? 0 : host_bytes - std::min(host_bytes, kept);
  parked.wake_wanted = false;
  used_of(parked) += host_bytes;
  stand(&parked, Standing::kParking, now_ns);
  return Status();
}

void Parking::parked(uint64_t now_ns, uint64_t lease_id, uint64_t host_bytes,
                     const std::vector<uint64_t>& stays_bytes) {
  Parked& parked = leases_.at(lease_id);
  TENDRIL_CHECK(parked.standing == Standing::kParking);
  // A worker is not believed beyond what it was given.
  host_bytes = std::min(host_bytes, parked.host_bytes);
  used_of(parked) -= parked.host_bytes - host_bytes;
  parked.host_bytes = host_bytes;
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
  used_of(parked) -= parked.host_bytes;
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
  if (parked.in_file)
    file_used_bytes_ -= parked.host_bytes;
  else
    parked.kept_bytes = parked.host_bytes;
  parked.kept_ns = now_ns;
  parked.host_bytes = 0;
  parked.waited_ns += now_ns - std::min(now_ns, parked.asked_ns);
  ++parked.wakes;
  stand(&parked, Standing::kGranted, now_ns);
}

void Parking::end(uint64_t lease_id) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return;
  used_of(found->second) -= found->second.host_bytes;
  host_used_bytes_ -= found->second.kept_bytes;
  leases_.erase(found);
}

uint64_t Parking::kept_bytes(uint64_t lease_id) const {
  const Parked* const parked = find(lease_id);
  return parked == nullptr ? 0 : parked->kept_bytes;
}

std::vector<uint64_t> Parking::to_forget(uint64_t lease_id, uint64_t host_bytes,
                                         uint64_t more_bytes) const {
  const uint64_t used = host_used_bytes_ - kept_bytes(lease_id);
  const uint64_t left = host_budget_bytes_ - std::min(host_budget_bytes_, used);
  uint64_t lacks = std::max(host_bytes - std::min(host_bytes, left), more_bytes);
  std::vector<std::pair<uint64_t, uint64_t>> kept;  // since when, who
  for (const auto& [id, parked] : leases_)
    if (id != lease_id && parked.kept_bytes != 0) kept.push_back({parked.kept_ns, id});
  std::sort(kept.begin(), kept.end());
  std::vector<uint64_t> chosen;
  for (size_t i = 0; i < kept.size() && lacks != 0; ++i) {
    chosen.push_back(kept[i].second);
    lacks -= std::min(lacks, kept_bytes(kept[i].second));
  }
  return chosen;
}

uint64_t Parking::forget(uint64_t lease_id) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return 0;
  const uint64_t bytes = found->second.kept_bytes;
  found->second.kept_bytes = 0;
  host_used_bytes_ -= bytes;
  return bytes;
}

bool Parking::copy_ahead(uint64_t now_ns, uint64_t lease_id, uint64_t host_bytes) {
  if (standing(lease_id) != Standing::kGranted || !book_->may_park(lease_id).ok()) return false;
  const uint64_t used = host_used_bytes_ - kept_bytes(lease_id);
  if (host_bytes > host_budget_bytes_ - std::min(host_budget_bytes_, used)) return false;
  Parked& parked = leases_[lease_id];
  host_used_bytes_ = used + host_bytes;
  parked.kept_bytes = host_bytes;
  parked.kept_ns = now_ns;
  return true;
}

uint64_t Parking::host_coming_bytes() const {
  uint64_t sum = 0;
  for (const auto& [id, parked] : leases_)
    sum += parked.standing == Standing::kParking ? parked.new_bytes : 0;
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
    return std::pair(left.idle_ns, left.stay_ns) > std::pair(right.idle_ns, right.stay_ns);
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
