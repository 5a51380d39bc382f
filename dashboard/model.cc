// SPDX-License-Identifier: Apache-2.0
// See model.h.
#include "dashboard/model.h"

#include <algorithm>
#include <cstdlib>
#include <type_traits>

#include "dashboard/rows.h"

namespace tendril::dashboard {
namespace {

constexpr size_t kGoneMax = 50'000;
constexpr uint64_t kPaceNs = 1'500'000'000;  // a rate needs that much time between two pictures
constexpr int64_t kSteadyS = 3;              // moments that differ by less are the same
constexpr int32_t kSteadyPercent = 2;

int64_t per_time(uint64_t from, uint64_t to, uint64_t time_ns, double unit) {
  if (to < from) return -1;
  return static_cast<int64_t>(static_cast<double>(to - from) * unit / static_cast<double>(time_ns));
}

// To a whole per cent, so that noise changes nothing.
int64_t rounded(int64_t millionths) {
  return millionths < 0 ? millionths : (millionths + 5'000) / 10'000 * 10'000;
}

void keep_steady(int64_t before, int64_t* moment) {
  if (before == view::kNoMoment || *moment == view::kNoMoment) return;
  if (std::llabs(before - *moment) <= kSteadyS) *moment = before;
}

Pace pace_of(const view::PictureUse& before, const view::PictureUse& use) {
  Pace pace;
  const uint64_t time_ns = use.age_ns - before.age_ns;
  if (use.measured) {
    pace.had_millionths = rounded(per_time(before.used_ns, use.used_ns, time_ns, 1e6));
    pace.waited_millionths = rounded(per_time(before.waited_ns, use.waited_ns, time_ns, 1e6));
  }
  if (use.counts_calls && before.counts_calls) {
    pace.in_bytes_s = per_time(before.bytes_in, use.bytes_in, time_ns, 1e9);
    pace.out_bytes_s = per_time(before.bytes_out, use.bytes_out, time_ns, 1e9);
    pace.round_trips_s = per_time(before.round_trips, use.round_trips, time_ns, 1e9);
    pace.awaited_millionths = rounded(per_time(before.awaited_ns, use.awaited_ns, time_ns, 1e6));
  }
  return pace;
}

// What the short text of a server shows besides its GPUs.
bool looks_alike(const view::PictureServer& a, const view::PictureServer& b) {
  return a.state == b.state && a.draining == b.draining && a.leases == b.leases && a.gpus == b.gpus;
}

}  // namespace

bool Model::knows_since(uint64_t version) const {
  return version <= version_ && version >= servers_gone_.complete_after &&
         version >= leases_gone_.complete_after && version >= queue_gone_.complete_after &&
         version >= accounts_gone_.complete_after;
}

template <typename Rows, typename Key>
void Model::drop_unseen(Rows* rows, Gone<Key>* gone) {
  for (auto row = rows->begin(); row != rows->end();) {
    if (row->second.seen == version_) {
      ++row;
      continue;
    }
    if constexpr (std::is_same_v<Rows, std::map<std::string, ServerRow>>)
      gone->keys.emplace_back(version_, row->second.number);
    else
      gone->keys.emplace_back(version_, row->first);
    row = rows->erase(row);
  }
  while (gone->keys.size() > kGoneMax) {
    gone->complete_after = gone->keys.front().first;
    gone->keys.pop_front();
  }
}

void Model::take_server(view::PictureServer* server) {
  ServerRow& row = servers_[server->name];
  row.seen = version_;
  keep_steady(row.server.silent_since_at, &server->silent_since_at);
  const bool fresh = row.number == 0;
  if (!fresh && row.server == *server) return;
  if (fresh || !looks_alike(row.server, *server)) {
    row.version = version_;
    row.bare.clear();
  }
  if (fresh) row.number = next_number_++;
  row.info_version = version_;
  row.info.clear();
  row.server = std::move(*server);
  row.busy_percent.resize(row.server.gpus.size(), -1);
}

void Model::take_lease(view::PictureLease* lease) {
  LeaseRow& row = leases_[lease->id];
  const bool fresh = row.seen == 0;
  row.seen = version_;
  keep_steady(row.lease.idle_since_at, &lease->idle_since_at);
  keep_steady(row.lease.granted_at, &lease->granted_at);
  keep_steady(row.lease.standing_since_at, &lease->standing_since_at);
  if (!fresh && row.lease == *lease) return;
  if (fresh || row.lease.slices != lease->slices) {
    row.servers.clear();
    for (const view::PictureSlice& slice : lease->slices) {
      const auto server = servers_.find(slice.server);
      if (server != servers_.end()) row.servers.push_back(server->second.number);
    }
  }
  if (fresh || lease->use.age_ns < row.before.age_ns) {
    row.before = lease->use;
    row.pace = Pace();
  } else if (lease->use.age_ns - row.before.age_ns >= kPaceNs) {
    row.pace = pace_of(row.before, lease->use);
    row.before = lease->use;
  }
  if (lease->idle_since_at != view::kNoMoment && lease->use.measured)
    row.pace.had_millionths = row.pace.waited_millionths = 0;
  row.version = version_;
  row.named.clear();
  row.bare.clear();
  row.lease = std::move(*lease);
}

// How busy each GPU is: as its monitor says, or by what its leases had.
void Model::take_busy() {
  std::unordered_map<std::string, ServerRow*> by_name;
  std::unordered_map<const ServerRow*, std::vector<int64_t>> had;
  for (auto& [name, row] : servers_) {
    by_name[name] = &row;
    had[&row].resize(row.server.gpus.size());
  }
  for (const auto& [id, row] : leases_) {
    if (row.lease.slices.empty()) continue;
    const auto of_slice = row.pace.had_millionths / static_cast<int64_t>(row.lease.slices.size());
    for (const view::PictureSlice& slice : row.lease.slices) {
      const auto server = by_name.find(slice.server);
      if (server == by_name.end()) continue;
      std::vector<int64_t>& sums = had[server->second];
      const auto& gpus = server->second->server.gpus;
      for (size_t i = 0; i < gpus.size(); ++i) {
        if (gpus[i].index != slice.gpu) continue;
        if (row.pace.had_millionths < 0)
          sums[i] = -1;
        else if (sums[i] >= 0)
          sums[i] += of_slice;
      }
    }
  }
  for (auto& [name, row] : servers_) {
    for (size_t i = 0; i < row.server.gpus.size(); ++i) {
      const int64_t sum = had[&row][i];
      int32_t percent = row.server.gpus[i].utilization_percent;
      if (percent < 0 && sum >= 0)
        percent = static_cast<int32_t>(std::min<int64_t>((sum + 5'000) / 10'000, 100));
      int32_t& shown = row.busy_percent[i];
      const bool edge = (percent <= 0) != (shown <= 0);
      if (!edge && std::abs(percent - shown) < kSteadyPercent) continue;
      if (percent == shown) continue;
      shown = percent;
      row.version = version_;
      row.bare.clear();
    }
  }
}

void Model::take(view::Picture picture) {
  ++version_;
  at_ = picture.at;
  for (view::PictureServer& server : picture.servers) take_server(&server);
  drop_unseen(&servers_, &servers_gone_);
  for (view::PictureLease& lease : picture.leases) take_lease(&lease);
  drop_unseen(&leases_, &leases_gone_);
  take_busy();
  size_t rank = 0;
  for (view::PictureRequest& request : picture.queue) {
    RequestRow& row = queue_[request.id];
    const bool fresh = row.seen == 0;
    row.seen = version_;
    keep_steady(row.request.start_from_at, &request.start_from_at);
    keep_steady(row.request.start_to_at, &request.start_to_at);
    const size_t rank_now = rank++;
    if (!fresh && row.request == request && row.rank == rank_now) continue;
    row.version = version_;
    row.rank_before = fresh ? rank_now : row.rank;
    row.rank = rank_now;
    row.named.clear();
    row.bare.clear();
    row.request = std::move(request);
  }
  drop_unseen(&queue_, &queue_gone_);
  for (view::PictureAccount& account : picture.accounts) {
    AccountRow& row = accounts_[account.name];
    const bool fresh = row.seen == 0;
    row.seen = version_;
    account.usage_gpu_s = double(int64_t(account.usage_gpu_s / 60)) * 60;  // it decays all the time
    if (!fresh && row.account == account) continue;
    row.version = version_;
    row.bare.clear();
    row.account = std::move(account);
  }
  drop_unseen(&accounts_, &accounts_gone_);
  const bool same = head_.version != 0 && head_.head == picture.head &&
                    head_.servers == servers_.size() && head_.leases == leases_.size() &&
                    head_.waiting == queue_.size();
  if (!same) {
    head_.head = std::move(picture.head);
    head_.servers = servers_.size();
    head_.leases = leases_.size();
    head_.waiting = queue_.size();
    head_.version = version_;
    head_.bare.clear();
  }
}

namespace {

template <typename Write>
const std::string& cached(std::string& place, Write write) {
  if (place.empty()) place = write();
  return place;
}

}  // namespace

const std::string& Model::text_of(const HeadRow& row) {
  return cached(row.bare, [&] { return head_json(row); });
}
const std::string& Model::text_of(const ServerRow& row) {
  return cached(row.bare, [&] { return server_json(row); });
}
const std::string& Model::info_of(const ServerRow& row) {
  return cached(row.info, [&] { return server_info_json(row); });
}
const std::string& Model::text_of(const LeaseRow& row, bool named) {
  return cached(named ? row.named : row.bare, [&] { return lease_json(row, named); });
}
const std::string& Model::text_of(const RequestRow& row, bool named) {
  return cached(named ? row.named : row.bare, [&] { return request_json(row, named); });
}
const std::string& Model::text_of(const AccountRow& row) {
  return cached(row.bare, [&] { return account_json(row); });
}

}  // namespace tendril::dashboard
