// SPDX-License-Identifier: Apache-2.0
// See policy_file.h. Names are collected first, because tables may name what stands below them.
// Then each table is read, then what tables say of each other is checked.
#include "pool/policy/policy_file.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "config/toml.h"
#include "pool/filter/nearest.h"
#include "pool/policy/dates.h"
#include "pool/policy/policy_rules.h"
#include "pool/policy/policy_values.h"
#include "pool/policy/rules_reader.h"

namespace tendril::pool {
namespace {

using base::Code;
using base::Status;
using Keys = std::vector<std::string>;
using Tables = std::vector<const toml::table*>;

constexpr size_t kGpuClassesMax = 32, kAccountsMax = 1024, kUserClassesMax = 64;
constexpr size_t kAssignmentsMax = 1024, kOthersMax = 256;

Keys with(Keys keys, const Keys& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

class PolicyReader {
 public:
  PolicyReader(const std::string& path, const ZoneReader& zones) : in_(path), zones_(zones) {}

  base::Result<PoolPolicy> read(const toml::table& file);

 private:
  const toml::node& at(const toml::table& table, const char* key) const {
    const toml::node* const node = table.get(key);
    return node != nullptr ? *node : static_cast<const toml::node&>(table);
  }
  // Names of all records of a table; an error if one has none, or another's.
  template <typename Record>
  void names(const char* table, const Tables& tables, std::vector<Record>* records);
  void collect(const toml::table& file);
  void add_defaults();
  void pool_table(const toml::table& table);
  void pool_key(const std::string& key, const toml::node& node, bool* known);
  void groups(const toml::table& table);
  void gpu_class(const toml::table& table, GpuClass* gpu_class);
  void order_accounts();
  void account(const toml::table& table, Account* account);
  void user_class(const toml::table& table, UserClass* user_class);
  void assignment(const toml::table& table);
  void reservation(const toml::table& table, Reservation* reservation);
  void schedule(const toml::table& table);
  template <typename Records, typename Rules>
  void schedule_rules(const std::string& table_name, const toml::node& node, const Records& records,
                      const Keys& known, std::vector<std::pair<uint32_t, Rules>>* rules);
  void move(const toml::table& table);
  void move_time(const std::string& key, const toml::node& node, Move* move);
  void check();
  void check_account(uint32_t number);
  void check_user_class(uint32_t number);

  PolicyValues in_;
  const ZoneReader& zones_;
  PoolPolicy policy_;
  // In the order of the records; empty where a default stands in.
  Tables gpu_classes_, accounts_, user_classes_, assignments_, reservations_, schedules_, moves_;
};

template <typename Record>
void PolicyReader::names(const char* table_name, const Tables& tables,
                         std::vector<Record>* records) {
  std::set<std::string> seen;
  for (const toml::table* const table : tables) {
    const toml::node* const node = table->get("name");
    if (node == nullptr) {
      in_.fail(*table,
               std::string("this [[") + table_name + "]] needs a name, as in name = \"one\"");
      return;
    }
    Record record;
    record.name = in_.name("name", *node);
    if (in_.ok() && !seen.insert(record.name).second)
      in_.fail(*node, std::string("another [[") + table_name + "]] has the name '" + record.name +
                          "' already");
    if (!in_.ok()) return;
    records->push_back(std::move(record));
  }
}

void PolicyReader::collect(const toml::table& file) {
  static const Keys kTables = {"pool",        "gpu_class", "account", "user_class", "assignment",
                               "reservation", "schedule",  "move",    "groups"};
  in_.keys("a policy", file, kTables, [this](const std::string& key, const toml::node& node) {
    struct {
      const char* key;
      Tables* tables;
      size_t most;
    } const places[] = {{"gpu_class", &gpu_classes_, kGpuClassesMax},
                        {"account", &accounts_, kAccountsMax},
                        {"user_class", &user_classes_, kUserClassesMax},
                        {"assignment", &assignments_, kAssignmentsMax},
                        {"reservation", &reservations_, kOthersMax},
                        {"schedule", &schedules_, kOthersMax},
                        {"move", &moves_, kOthersMax}};
    if (key == "pool") {
      const toml::table* const table = in_.table(key, node);
      if (table != nullptr) pool_table(*table);
      return true;
    }
    if (key == "groups") {
      const toml::table* const table = in_.table(key, node);
      if (table != nullptr) groups(*table);
      return true;
    }
    for (const auto& place : places) {
      if (key != place.key) continue;
      *place.tables = in_.tables(key, node, place.most);
      return true;
    }
    return false;
  });
  if (in_.ok()) names("gpu_class", gpu_classes_, &policy_.gpu_classes);
  if (in_.ok()) names("account", accounts_, &policy_.accounts);
  if (in_.ok()) names("user_class", user_classes_, &policy_.user_classes);
  if (in_.ok()) names("reservation", reservations_, &policy_.reservations);
}

// A table that is left out has the record that it has without a file.
void PolicyReader::add_defaults() {
  const PoolPolicy otherwise = default_policy();
  if (policy_.gpu_classes.empty()) policy_.gpu_classes = otherwise.gpu_classes;
  if (policy_.accounts.empty()) policy_.accounts = otherwise.accounts;
  if (policy_.user_classes.empty()) policy_.user_classes = otherwise.user_classes;
  const size_t classes = policy_.gpu_classes.size();
  for (Account& account : policy_.accounts) {
    account.quota.assign(classes, 0);
    account.quota_is_sum.assign(classes, false);
    account.limit.assign(classes, kUnlimited);
    account.lending_limit.assign(classes, kUnlimited);
  }
  for (UserClass& user_class : policy_.user_classes) {
    user_class.gpu_classes.clear();
    for (size_t i = 0; i < classes; ++i) user_class.gpu_classes.push_back(static_cast<uint32_t>(i));
  }
  for (Reservation& reservation : policy_.reservations) reservation.gpus.assign(classes, 0);
}

void PolicyReader::pool_key(const std::string& key, const toml::node& node, bool* known) {
  if (key == "name") {
    policy_.name = in_.name(key, node);
  } else if (key == "store") {
    policy_.store = in_.text(key, node, "the address of a store, as in \"sqlite:/var/pool.db\"");
  } else if (key == "timezone") {
    policy_.timezone = in_.text(key, node, "a time zone, as in \"Europe/Berlin\"");
    if (!in_.ok()) return;
    auto zone = zones_(policy_.timezone);
    if (!zone.ok()) return in_.fail(node, "in 'timezone': " + zone.status().message());
    policy_.zone = zone.take();
  } else if (key == "fair_share_half_life") {
    policy_.fair_share_half_life_s = in_.seconds(key, node, false);
    if (in_.ok() && policy_.fair_share_half_life_s < 60) in_.expected(key, node, "at least \"1m\"");
  } else if (key == "longest_wait") {
    policy_.longest_wait_s = in_.seconds(key, node, true);
  } else if (key == "pause_limit") {
    policy_.pause_limit_s = in_.seconds(key, node, false);
  } else if (key == "when_no_scheduler") {
    const std::string text = node.value_exact<std::string>().value_or("");
    if (text == "refuse") {
      policy_.when_no_scheduler = WithoutScheduler::kRefuse;
    } else if (text != "local") {
      in_.expected(key, node, "\"local\" or \"refuse\"");
    }
  } else if (key == "servers_are_peers") {
    policy_.servers_are_peers = in_.flag(key, node);
  } else {
    *known = false;
  }
}

void PolicyReader::pool_table(const toml::table& table) {
  in_.keys("[pool]", table,
           {"name", "store", "timezone", "fair_share_half_life", "longest_wait", "pause_limit",
            "when_no_scheduler", "servers_are_peers"},
           [this](const std::string& key, const toml::node& node) {
             bool known = true;
             pool_key(key, node, &known);
             return known;
           });
}

void PolicyReader::groups(const toml::table& table) {
  for (auto&& [key, node] : table) {
    const std::string group(key.str());
    if (!in_.ok()) return;
    if (!is_name(group))
      return in_.fail(key.source().begin,
                      "a group has a name of up to 64 letters, digits and - _ . @");
    std::vector<std::string>& users = policy_.groups[group];
    if (!node.is_array())
      return in_.expected(group, node, "a list of names of users, as in [\"alice\", \"bob\"]");
    for (const toml::node& one : *node.as_array())
      users.push_back(in_.text(group, one, "a list of names of users"));
  }
}

void PolicyReader::gpu_class(const toml::table& table, GpuClass* gpu_class) {
  in_.keys("[[gpu_class]]", table, {"name", "match", "usage_weight"},
           [&](const std::string& key, const toml::node& node) {
             if (key == "match") {
               gpu_class->match = in_.filter(key, node, Filter::Subject::kGpu);
               if (in_.ok() && gpu_class->match.looks_at_load())
                 in_.fail(node, "a GPU's class cannot depend on its tenants");
             } else if (key == "usage_weight") {
               gpu_class->usage_weight = in_.factor(key, node);
             } else {
               return key == "name";
             }
             return true;
           });
}

// Finds parents, and puts each account after its parent.
void PolicyReader::order_accounts() {
  const size_t count = accounts_.size();
  std::vector<uint32_t> parents(count, kNoAccount);
  for (size_t i = 0; i < count && in_.ok(); ++i) {
    const toml::node* const node = accounts_[i]->get("parent");
    if (node != nullptr) parents[i] = in_.position("parent", *node, policy_.accounts, "account");
  }
  std::vector<uint32_t> depth(count, 0);
  for (size_t i = 0; i < count && in_.ok(); ++i) {
    for (uint32_t above = parents[i]; above != kNoAccount; above = parents[above]) {
      if (++depth[i] <= count) continue;
      return in_.fail(at(*accounts_[i], "parent"),
                      "'" + policy_.accounts[i].name +
                          "' is above itself: follow the parents, and end with one that has none");
    }
  }
  if (!in_.ok()) return;
  std::vector<uint32_t> order(count), place(count);
  for (size_t i = 0; i < count; ++i) order[i] = static_cast<uint32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return depth[a] < depth[b]; });
  for (size_t i = 0; i < count; ++i) place[order[i]] = static_cast<uint32_t>(i);
  std::vector<Account> sorted;
  Tables tables;
  for (const uint32_t number : order) {
    sorted.push_back(policy_.accounts[number]);
    if (parents[number] != kNoAccount) sorted.back().parent = place[parents[number]];
    tables.push_back(accounts_[number]);
  }
  policy_.accounts = std::move(sorted);
  accounts_ = std::move(tables);
}

void PolicyReader::account(const toml::table& table, Account* account) {
  AccountRules rules;
  in_.keys("[[account]]", table, with({"name", "parent"}, account_rule_keys()),
           [&](const std::string& key, const toml::node& node) {
             return key == "name" || key == "parent" || read_rule(&in_, key, node, policy_, &rules);
           });
  if (!in_.ok()) return;
  const auto number = static_cast<uint32_t>(account - policy_.accounts.data());
  const bool has_children =
      std::any_of(policy_.accounts.begin(), policy_.accounts.end(),
                  [number](const Account& other) { return other.parent == number; });
  account->quota_is_sum.assign(policy_.gpu_classes.size(), has_children);
  apply(rules, account);
}

void PolicyReader::user_class(const toml::table& table, UserClass* user_class) {
  UserClassRules rules;
  in_.keys("[[user_class]]", table, with({"name"}, user_class_rule_keys()),
           [&](const std::string& key, const toml::node& node) {
             return key == "name" || read_rule(&in_, key, node, policy_, &rules);
           });
  if (!in_.ok()) return;
  if (rules.default_wall_s && rules.max_wall_s && *rules.default_wall_s > *rules.max_wall_s)
    in_.fail(at(table, "default_wall"), "'default_wall' must be at most 'max_wall'");
  apply(rules, user_class);
}

void PolicyReader::assignment(const toml::table& table) {
  Assignment assignment;
  bool has_account = policy_.accounts.size() == 1;
  for (size_t i = 0; i < policy_.user_classes.size(); ++i)
    assignment.user_classes.push_back(static_cast<uint32_t>(i));
  in_.keys("[[assignment]]", table, {"match", "account", "user_classes"},
           [&](const std::string& key, const toml::node& node) {
             if (key == "match") {
               assignment.match = in_.filter(key, node, Filter::Subject::kUser);
             } else if (key == "account") {
               assignment.account = in_.position(key, node, policy_.accounts, "account");
               has_account = true;
             } else if (key == "user_classes") {
               assignment.user_classes =
                   in_.positions(key, node, policy_.user_classes, "user_class");
               if (in_.ok() && assignment.user_classes.empty())
                 in_.expected(key, node, "a list with at least one class");
             } else {
               return false;
             }
             return true;
           });
  if (in_.ok() && !has_account) in_.fail(table, "this [[assignment]] needs an account");
  if (in_.ok()) policy_.assignments.push_back(std::move(assignment));
}

void PolicyReader::reservation(const toml::table& table, Reservation* reservation) {
  in_.keys(
      "[[reservation]]", table, {"name", "gpus", "when", "accounts", "users"},
      [&](const std::string& key, const toml::node& node) {
        if (key == "gpus") {
          for (const auto& [number, amount] : in_.amounts(key, node, policy_.gpu_classes, false))
            reservation->gpus[number] = amount;
        } else if (key == "when") {
          reservation->when = in_.when(key, node);
        } else if (key == "accounts") {
          reservation->accounts = in_.positions(key, node, policy_.accounts, "account");
        } else if (key == "users") {
          reservation->users = in_.texts(key, node, "a list of names of users");
        } else {
          return key == "name";
        }
        return true;
      });
  if (!in_.ok()) return;
  if (table.get("when") == nullptr)
    return in_.fail(table, "this [[reservation]] needs 'when', as in \"Mon-Fri 08:00-18:00\"");
  if (reservation->accounts.empty() && reservation->users.empty())
    return in_.fail(table, "this [[reservation]] needs 'accounts' or 'users' that may use it");
  if (std::all_of(reservation->gpus.begin(), reservation->gpus.end(),
                  [](uint64_t amount) { return amount == 0; }))
    in_.fail(at(table, "gpus"), "this [[reservation]] needs 'gpus' above 0, as in { " +
                                    policy_.gpu_classes[0].name + " = 4 }");
}

// account.NAME.KEY, user_class.NAME.KEY
template <typename Records, typename Rules>
void PolicyReader::schedule_rules(const std::string& table_name, const toml::node& node,
                                  const Records& records, const Keys& known,
                                  std::vector<std::pair<uint32_t, Rules>>* rules) {
  const toml::table* const all = in_.table(table_name, node);
  if (all == nullptr) return;
  Keys record_names;
  for (const auto& record : records) record_names.push_back(record.name);
  in_.keys("'" + table_name + "' of a schedule, which has names of [[" + table_name + "]]", *all,
           record_names, [&](const std::string& name, const toml::node& inner) {
             const auto found = std::find(record_names.begin(), record_names.end(), name);
             if (found == record_names.end()) return false;
             const toml::table* const section = in_.table(table_name + "." + name, inner);
             if (section == nullptr) return true;
             Rules one;
             in_.keys("'" + table_name + "." + name + "' of a schedule", *section, known,
                      [&](const std::string& key, const toml::node& value) {
                        return read_rule(&in_, key, value, policy_, &one);
                      });
             rules->emplace_back(static_cast<uint32_t>(found - record_names.begin()), one);
             return true;
           });
}

void PolicyReader::schedule(const toml::table& table) {
  Schedule schedule;
  const auto rules = std::make_shared<ScheduleRules>();
  in_.keys("[[schedule]]", table, {"name", "when", "account", "user_class"},
           [&](const std::string& key, const toml::node& node) {
             if (key == "name") {
               schedule.name = in_.name(key, node);
             } else if (key == "when") {
               schedule.when = in_.when(key, node);
             } else if (key == "account") {
               schedule_rules(key, node, policy_.accounts, account_rule_keys(), &rules->accounts);
             } else if (key == "user_class") {
               schedule_rules(key, node, policy_.user_classes, user_class_rule_keys(),
                              &rules->user_classes);
             } else {
               return false;
             }
             return true;
           });
  if (!in_.ok()) return;
  if (table.get("when") == nullptr)
    return in_.fail(table, "this [[schedule]] needs 'when', as in \"Mon-Fri 08:00-18:00\"");
  if (rules->accounts.empty() && rules->user_classes.empty())
    return in_.fail(table,
                    "this [[schedule]] needs something to set, as in user_class.batch.max_wall = "
                    "\"8h\"");
  schedule.rules = rules;
  policy_.schedules.push_back(std::move(schedule));
}

// With an offset it is what it says, without one it is a time of the pool's zone.
void PolicyReader::move_time(const std::string& key, const toml::node& node, Move* move) {
  const toml::date_time* const time = node.is_date_time() ? &node.as_date_time()->get() : nullptr;
  const Date date = time == nullptr ? Date{0, 0, 0}
                                    : Date{time->date.year, static_cast<int32_t>(time->date.month),
                                           static_cast<int32_t>(time->date.day)};
  if (!is_date(date)) return in_.expected(key, node, "a time, as in 2026-12-24T18:00:00");
  const int64_t local =
      days_of(date) * kDayS + time->time.hour * 3600 + time->time.minute * 60 + time->time.second;
  move->at_s =
      time->offset ? local - time->offset->minutes * 60 : policy_.zone.wall_of(local, false);
}

void PolicyReader::move(const toml::table& table) {
  Move move;
  in_.keys(
      "[[move]]", table, {"from", "to", "gpus", "at"},
      [&](const std::string& key, const toml::node& node) {
        if (key == "from") {
          move.from = in_.name(key, node);
        } else if (key == "to") {
          move.to = in_.name(key, node);
        } else if (key == "gpus") {
          for (const auto& [number, amount] : in_.amounts(key, node, policy_.gpu_classes, false))
            move.gpus[policy_.gpu_classes[number].name] = amount;
        } else if (key == "at") {
          move_time(key, node, &move);
        } else {
          return false;
        }
        return true;
      });
  if (in_.ok()) policy_.moves.push_back(std::move(move));
}

void PolicyReader::check_account(uint32_t number) {
  const Account& account = policy_.accounts[number];
  for (size_t c = 0; c < policy_.gpu_classes.size() && in_.ok(); ++c) {
    const std::string& of = policy_.gpu_classes[c].name;
    uint64_t below = 0;
    for (const Account& other : policy_.accounts) {
      if (other.parent == number) below += other.quota[c];
    }
    if (below > account.quota[c]) {
      in_.fail(at(*accounts_[number], "quota"),
               "'" + account.name + "' has a quota of " + gpus_text(account.quota[c]) + " " + of +
                   ", but the accounts below it have " + gpus_text(below) +
                   "; give it at least that, or leave its quota out");
    } else if (account.limit[c] < account.quota[c]) {
      in_.fail(at(*accounts_[number], "limit"),
               "'" + account.name + "' has a limit of " + gpus_text(account.limit[c]) + " " + of +
                   ", which is below its quota of " + gpus_text(account.quota[c]));
    } else if (account.lending_limit[c] != kUnlimited &&
               account.lending_limit[c] > account.quota[c]) {
      in_.fail(at(*accounts_[number], "lending_limit"),
               "'" + account.name + "' cannot lend " + gpus_text(account.lending_limit[c]) + " " +
                   of + " of a quota of " + gpus_text(account.quota[c]));
    }
  }
}

void PolicyReader::check_user_class(uint32_t number) {
  const UserClass& of = policy_.user_classes[number];
  for (const uint32_t other : of.preempts) {
    if (policy_.user_classes[other].priority < of.priority) continue;
    in_.fail(at(*user_classes_[number], "preempts"),
             "'" + of.name + "' preempts '" + policy_.user_classes[other].name +
                 "', whose priority is not lower; give it a lower one");
  }
}

void PolicyReader::check() {
  for (size_t i = 0; i + 1 < gpu_classes_.size() && in_.ok(); ++i) {
    if (policy_.gpu_classes[i].match.matches_everything())
      in_.fail(*gpu_classes_[i + 1], "no GPU reaches this class, because '" +
                                         policy_.gpu_classes[i].name +
                                         "' before it matches every GPU; put that one last");
  }
  for (size_t i = 0; i < accounts_.size() && in_.ok(); ++i) check_account(static_cast<uint32_t>(i));
  for (size_t i = 0; i < user_classes_.size() && in_.ok(); ++i)
    check_user_class(static_cast<uint32_t>(i));
  // Moves must be possible one after the other.
  std::vector<size_t> order(policy_.moves.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
    return policy_.moves[a].at_s < policy_.moves[b].at_s;
  });
  PoolPolicy moved = policy_;
  std::vector<Move> sorted;
  for (const size_t number : order) {
    if (!in_.ok()) return;
    const Status made = make_move(policy_.moves[number], &moved);
    if (!made.ok()) in_.fail(*moves_[number], "this [[move]] cannot be made: " + made.message());
    sorted.push_back(policy_.moves[number]);
  }
  policy_.moves = std::move(sorted);
}

base::Result<PoolPolicy> PolicyReader::read(const toml::table& file) {
  collect(file);
  if (in_.ok()) order_accounts();
  if (!in_.ok()) return in_.status();
  add_defaults();
  for (size_t i = 0; i < gpu_classes_.size() && in_.ok(); ++i)
    gpu_class(*gpu_classes_[i], &policy_.gpu_classes[i]);
  for (size_t i = 0; i < accounts_.size() && in_.ok(); ++i)
    account(*accounts_[i], &policy_.accounts[i]);
  sum_quotas(&policy_);
  for (size_t i = 0; i < user_classes_.size() && in_.ok(); ++i)
    user_class(*user_classes_[i], &policy_.user_classes[i]);
  for (const toml::table* const table : assignments_) {
    if (in_.ok()) assignment(*table);
  }
  for (size_t i = 0; i < reservations_.size() && in_.ok(); ++i)
    reservation(*reservations_[i], &policy_.reservations[i]);
  for (const toml::table* const table : schedules_) {
    if (in_.ok()) schedule(*table);
  }
  for (const toml::table* const table : moves_) {
    if (in_.ok()) move(*table);
  }
  if (in_.ok() && assignments_.empty()) {
    if (accounts_.size() > 1) {
      in_.fail(*accounts_[0],
               "there are accounts, but no [[assignment]] says who is in which; write one with "
               "'match' and 'account'");
    }
    Assignment everybody;
    for (size_t i = 0; i < policy_.user_classes.size(); ++i)
      everybody.user_classes.push_back(static_cast<uint32_t>(i));
    policy_.assignments.push_back(everybody);
  }
  if (in_.ok()) check();
  if (!in_.ok()) return in_.status();
  return std::move(policy_);
}

// "2026-11-24T17:00:00Z"
std::string toml_time(int64_t wall_s) {
  std::string text = format_moment(wall_s, Zone());
  text[10] = 'T';
  return text + base::format(":%02dZ", static_cast<int>(wall_s % 60));
}

}  // namespace

base::Result<PoolPolicy> parse_pool_policy(const std::string& text, const std::string& path,
                                           const ZoneReader& zones) {
  if (text.size() > kPoolPolicyBytesMax)
    return Status(Code::kInvalid, path + ": a policy has at most 256 KiB");
  base::Result<toml::table> parsed = config::parse_toml(text, path);
  return parsed.ok() ? PolicyReader(path, zones).read(*parsed) : parsed.status();
}

base::Result<std::string> with_move(const std::string& text, const Move& move,
                                    const ZoneReader& zones) {
  base::Result<PoolPolicy> before = parse_pool_policy(text, "policy", zones);
  if (!before.ok()) return before.status();
  // It is made after those that are due before it, so ask as if it were made last.
  PoolPolicy then = before.take();
  const std::vector<Move> moves = then.moves;
  for (const Move& earlier : moves) {
    if (earlier.at_s > move.at_s) break;
    const Status made = make_move(earlier, &then);
    if (!made.ok()) return made;
  }
  const Status possible = make_move(move, &then);
  if (!possible.ok()) return possible;
  std::string gpus;
  for (const auto& [name, amount] : move.gpus)
    gpus += (gpus.empty() ? "" : ", ") + ("\"" + name + "\" = ") + gpus_text(amount);
  std::string longer = text;
  if (!longer.empty() && longer.back() != '\n') longer += '\n';
  longer += "\n[[move]]\nfrom = \"" + move.from + "\"\nto = \"" + move.to + "\"\ngpus = { " + gpus +
            " }\nat = " + toml_time(move.at_s) + "\n";
  base::Result<PoolPolicy> after = parse_pool_policy(longer, "policy", zones);
  if (!after.ok()) return after.status();
  return longer;
}

}  // namespace tendril::pool
