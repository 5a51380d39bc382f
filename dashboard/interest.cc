// SPDX-License-Identifier: Apache-2.0
// See interest.h.
#include "dashboard/interest.h"

#include <algorithm>

#include "config/text.h"
#include "dashboard/rows.h"

namespace tendril::dashboard {
namespace {

using base::Code;
using base::Status;

int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

bool decode(std::string_view text, std::string* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      out->push_back(' ');
    } else if (text[i] != '%') {
      out->push_back(text[i]);
    } else {
      const int high = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return false;
      out->push_back(static_cast<char>(high * 16 + low));
      i += 2;
    }
  }
  return true;
}

Status bad(const std::string& what) { return Status(Code::kInvalid, what); }

// "1-20,31"
Status read_window(const std::string& text, Interest* out) {
  size_t servers = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string range = text.substr(at, end - at);
    at = end + 1;
    if (range.empty()) continue;
    const size_t dash = range.find('-');
    uint64_t from = 0, to = 0;
    const bool good =
        config::read_number(range.substr(0, dash), &from) &&
        (dash == std::string_view::npos || config::read_number(range.substr(dash + 1), &to));
    if (dash == std::string_view::npos) to = from;
    if (!good || from > to || to > UINT32_MAX || out->window.size() >= kRangesMax)
      return bad("window is a list of numbers of servers, such as 1-20,31");
    servers += to - from + 1;
    if (servers > kWindowMax) return bad("a window has at most 200 servers");
    out->window.emplace_back(uint32_t(from), uint32_t(to));
  }
  return Status();
}

// One member of the object: a list of texts that are JSON already.
class List {
 public:
  List(const char* key, std::string* out) : key_(key), out_(out) {}
  void add(const std::string& json) {
    if (count_++ == 0) {
      if (!out_->empty()) *out_ += ',';
      *out_ += '"' + std::string(key_) + "\":[";
    } else {
      *out_ += ',';
    }
    *out_ += json;
  }
  ~List() {
    if (count_ != 0) *out_ += ']';
  }
  List(const List&) = delete;
  List& operator=(const List&) = delete;

 private:
  const char* const key_;
  std::string* const out_;
  size_t count_ = 0;
};

std::string key_json(uint64_t key) { return std::to_string(key); }
std::string key_json(const std::string& key) { return json_text(key); }

template <typename Key>
void add_gone(const char* name, const Gone<Key>& gone, uint64_t since, std::string* out) {
  List list(name, out);
  const auto first =
      std::upper_bound(gone.keys.begin(), gone.keys.end(), since,
                       [](uint64_t version, const auto& each) { return version < each.first; });
  for (auto each = first; each != gone.keys.end(); ++each) list.add(key_json(each->second));
}

template <typename Row>
bool is_named(const Row& row, const Viewer& viewer) {
  return viewer.sees_all || (!viewer.id.empty() && row.owner_id == viewer.id);
}

void add_servers(const Model& model, const Interest& interest, uint64_t since, bool in_full,
                 std::string* out) {
  if (interest.servers) {
    {
      List list("servers", out);
      for (const auto& [name, row] : model.servers()) {
        if (row.version > since) list.add(Model::text_of(row));
      }
    }
    if (since != 0) add_gone("servers_gone", model.servers_gone(), since, out);
  }
  if (interest.window.empty()) return;
  List list("details", out);
  for (const auto& [name, row] : model.servers()) {
    if (!in_full && row.info_version <= since) continue;
    if (interest.in_window(row.number)) list.add(Model::info_of(row));
  }
}

void add_leases(const Model& model, const Interest& interest, const Viewer& viewer, uint64_t since,
                bool in_full, std::string* out) {
  if (interest.window.empty() && interest.lease == 0) return;
  {
    List list("leases", out);
    for (const auto& [id, row] : model.leases()) {
      if (!in_full && row.version <= since) continue;
      const bool shown = id == interest.lease ||
                         std::any_of(row.servers.begin(), row.servers.end(),
                                     [&](uint32_t server) { return interest.in_window(server); });
      if (shown) list.add(Model::text_of(row, is_named(row.lease, viewer)));
    }
  }
  if (since != 0) add_gone("leases_gone", model.leases_gone(), since, out);
}

void add_queue(const Model& model, const Viewer& viewer, uint64_t since, std::string* out) {
  {
    List list("queue", out);
    for (const auto& [id, row] : model.queue()) {
      const bool shown = row.rank < kQueueShown || (since != 0 && row.rank_before < kQueueShown) ||
                         (!viewer.id.empty() && row.request.owner_id == viewer.id);
      if (row.version > since && shown)
        list.add(Model::text_of(row, is_named(row.request, viewer)));
    }
  }
  if (since != 0) add_gone("queue_gone", model.queue_gone(), since, out);
}

}  // namespace

base::Result<std::vector<std::pair<std::string, std::string>>> parse_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> out;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    std::string name, value;
    if (!decode(pair.substr(0, equals), &name) ||
        !decode(pair.substr(std::min(equals + 1, pair.size())), &value))
      return bad("a % in the query is not followed by two hexadecimal digits");
    out.emplace_back(std::move(name), std::move(value));
  }
  return out;
}

bool Interest::in_window(uint32_t server) const {
  return std::any_of(window.begin(), window.end(), [&](const auto& range) {
    return server >= range.first && server <= range.second;
  });
}

base::Result<Interest> parse_interest(std::string_view query, std::string_view epoch) {
  auto pairs = parse_query(query);
  if (!pairs.ok()) return pairs.status();
  Interest out;
  bool same_epoch = false;
  for (const auto& [name, value] : *pairs) {
    Status read;
    if (name == "servers") {
      out.servers = value == "1";
    } else if (name == "queue") {
      out.queue = value == "1";
    } else if (name == "accounts") {
      out.accounts = value == "1";
    } else if (name == "events") {
      out.events = value == "1";
    } else if (name == "epoch") {
      same_epoch = value == epoch;
    } else if (name == "window") {
      read = read_window(value, &out);
    } else if (name == "lease" || name == "since") {
      if (!config::read_number(value, name == "lease" ? &out.lease : &out.since))
        read = bad("'" + name + "' is a number");
    } else {
      read = bad("a stream has servers, queue, accounts, events, window, lease, epoch and since");
    }
    if (!read.ok()) return read;
  }
  if (!same_epoch) out.since = 0;
  return out;
}

std::string changes_json(const Model& model, const Interest& interest, const Viewer& viewer,
                         uint64_t since, bool in_full) {
  std::string out;
  if (model.head().version > since) out += "\"head\":" + Model::text_of(model.head());
  add_servers(model, interest, since, in_full, &out);
  add_leases(model, interest, viewer, since, in_full, &out);
  if (interest.queue) add_queue(model, viewer, since, &out);
  if (interest.accounts) {
    {
      List list("accounts", &out);
      for (const auto& [name, row] : model.accounts()) {
        if (row.version > since) list.add(Model::text_of(row));
      }
    }
    if (since != 0) add_gone("accounts_gone", model.accounts_gone(), since, &out);
  }
  return out;
}

}  // namespace tendril::dashboard
