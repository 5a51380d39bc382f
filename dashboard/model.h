// SPDX-License-Identifier: Apache-2.0
// What the page knows, as rows that remember in which version they last changed. Each new picture
// is compared with the rows; whoever looks gets the rows that are younger than what it has. So an
// update costs what has changed, however large the pool is. Pure; the page's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "view/picture.h"

namespace tendril::dashboard {

// What a lease does now, from two pictures. Rates are over the time between them.
struct Pace {
  int64_t had_millionths = -1;     // of GPUs, over all slices; -1: not known
  int64_t waited_millionths = -1;  // with work but without a turn
  int64_t in_bytes_s = -1, out_bytes_s = -1, round_trips_s = -1;
  int64_t awaited_millionths = -1;  // of time, in which its program waited for replies
  bool operator==(const Pace&) const = default;
};

struct Versioned {
  uint64_t version = 0;  // when it changed last
  uint64_t seen = 0;     // the last picture that has it
  mutable std::string named,
      bare;  // its JSON with and without the names of people; empty: not written yet
};
struct ServerRow : Versioned {
  uint32_t number = 0;  // never used again
  view::PictureServer server;
  std::vector<int32_t> busy_percent;  // by GPU; -1: not known
  uint64_t info_version = 0;          // when something changed that `bare` does not show
  mutable std::string info;
};
struct LeaseRow : Versioned {
  view::PictureLease lease;
  view::PictureUse before;  // of an earlier picture
  Pace pace;
  std::vector<uint32_t> servers;  // numbers
};
struct RequestRow : Versioned {
  view::PictureRequest request;
  size_t rank = 0, rank_before = 0;  // in the order of the queue
};
struct AccountRow : Versioned {
  view::PictureAccount account;
};
struct HeadRow : Versioned {
  view::PictureHead head;
  uint64_t servers = 0, leases = 0, waiting = 0;
};

// Keys of rows that are gone, and in which version they went.
template <typename Key>
struct Gone {
  std::deque<std::pair<uint64_t, Key>> keys;
  uint64_t complete_after = 0;  // what went in this version or before is not known any more
};

class Model {
 public:
  // The next picture.
  void take(view::Picture picture);

  uint64_t version() const { return version_; }
  int64_t at() const { return at_; }
  // Whether what changed after that version is known in full.
  bool knows_since(uint64_t version) const;

  const HeadRow& head() const { return head_; }
  const std::map<std::string, ServerRow>& servers() const { return servers_; }
  const std::map<uint64_t, LeaseRow>& leases() const { return leases_; }
  const std::map<uint64_t, RequestRow>& queue() const { return queue_; }
  const std::map<std::string, AccountRow>& accounts() const { return accounts_; }
  const Gone<uint32_t>& servers_gone() const { return servers_gone_; }
  const Gone<uint64_t>& leases_gone() const { return leases_gone_; }
  const Gone<uint64_t>& queue_gone() const { return queue_gone_; }
  const Gone<std::string>& accounts_gone() const { return accounts_gone_; }

  // Their JSON (rows.h), written when somebody first needs it.
  static const std::string& text_of(const HeadRow& row);
  static const std::string& text_of(const ServerRow& row);  // short
  static const std::string& info_of(const ServerRow& row);  // the rest
  static const std::string& text_of(const LeaseRow& row, bool named);
  static const std::string& text_of(const RequestRow& row, bool named);
  static const std::string& text_of(const AccountRow& row);

 private:
  void take_server(view::PictureServer* server);
  void take_lease(view::PictureLease* lease);
  void take_busy();
  template <typename Rows, typename Key>
  void drop_unseen(Rows* rows, Gone<Key>* gone);

  uint64_t version_ = 0;
  int64_t at_ = 0;
  uint32_t next_number_ = 1;
  HeadRow head_;
  std::map<std::string, ServerRow> servers_;
  std::map<uint64_t, LeaseRow> leases_;
  std::map<uint64_t, RequestRow> queue_;
  std::map<std::string, AccountRow> accounts_;
  Gone<uint32_t> servers_gone_;
  Gone<uint64_t> leases_gone_, queue_gone_;
  Gone<std::string> accounts_gone_;
};

}  // namespace tendril::dashboard
