// SPDX-License-Identifier: Apache-2.0
// See policy_file.h.
#include "access/policy_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>

#include "base/fd.h"
#include "base/text.h"
#include "config/quantity.h"
#include "config/toml.h"
#include "wire/control.h"

namespace tendril::access {
namespace {

using base::Code;
using base::Status;

constexpr double kGpusMax = 1e6;
constexpr uint64_t kCountMax = 1'000'000;
constexpr uint64_t kTenYearsS = 10ull * 365 * 24 * 3600;
constexpr uint64_t kGraceMaxS = 86'400;  // identity/deny_list.h
constexpr char kLimitKeys[] =
    "shares, leases, sessions, priority, cap, rdma, longest_lease, unattached, idle";

// Reads one file. The first error stays.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  base::Result<Policy> read(const toml::table& file);

 private:
  bool ok() const { return status_.ok(); }
  void fail(const toml::source_region& where, const std::string& why);
  void expected(const std::string& key, const toml::node& node, const std::string& what) {
    fail(node.source(), "'" + base::printable(key, 64) + "' must be " + what);
  }

  const toml::table* table(const std::string& key, const toml::node& node);
  std::string choice(const std::string& key, const toml::node& node, const std::string& what);
  bool flag(const std::string& key, const toml::node& node);
  std::vector<std::string> users(const std::string& key, const toml::node& node);
  void networks(const std::string& key, const toml::node& node);
  void top(const std::string& key, const toml::node& node);
  void unix_section(const toml::table& section);
  void sections(const std::string& key, const toml::node& node);
  void limits(const toml::table& section, LimitRules* rules);
  void limit(const std::string& key, const toml::node& node, LimitRules* rules);
  template <typename Value>
  bool is_none(const toml::node& node, LimitRules::Rule<Value>* rule);
  void shares(const std::string& key, const toml::node& node, LimitRules::Rule<uint64_t>* rule);
  void count(const std::string& key, const toml::node& node, LimitRules::Rule<uint32_t>* rule);
  void duration(const std::string& key, const toml::node& node, LimitRules::Rule<uint64_t>* rule);
  std::optional<uint64_t> seconds(const toml::node& node);
  void grace(const std::string& key, const toml::node& node);

  const std::string path_;
  Status status_;
  Policy policy_;
};

void Reader::fail(const toml::source_region& where, const std::string& why) {
  if (!ok()) return;
  status_ =
      Status(Code::kInvalid, base::format("%s, line %u, column %u: %s", path_.c_str(),
                                          static_cast<unsigned>(where.begin.line),
                                          static_cast<unsigned>(where.begin.column), why.c_str()));
}

const toml::table* Reader::table(const std::string& key, const toml::node& node) {
  if (node.is_table()) return node.as_table();
  expected(key, node, "a section, as in [" + base::printable(key, 64) + "]");
  return nullptr;
}

std::string Reader::choice(const std::string& key, const toml::node& node,
                           const std::string& what) {
  const std::optional<std::string> text = node.value_exact<std::string>();
  if (!text) expected(key, node, what);
  return text.value_or("");
}

bool Reader::flag(const std::string& key, const toml::node& node) {
  const std::optional<bool> value = node.value_exact<bool>();
  if (!value) expected(key, node, "true or false");
  return value.value_or(false);
}

// Names and numbers of this host's users.
std::vector<std::string> Reader::users(const std::string& key, const toml::node& node) {
  const char* const what = "a list of names and numbers of users, as in [\"alice\", 1000]";
  std::vector<std::string> found;
  if (!node.is_array()) {
    expected(key, node, what);
    return found;
  }
  for (const toml::node& one : *node.as_array()) {
    const std::optional<std::string> name = one.value_exact<std::string>();
    const std::optional<int64_t> number = one.value_exact<int64_t>();
    if (name && !name->empty()) {
      found.push_back(*name);
    } else if (number && *number >= 0 && *number <= UINT32_MAX) {
      found.push_back(std::to_string(*number));
    } else {
      expected(key, one, what);
    }
  }
  return found;
}

void Reader::networks(const std::string& key, const toml::node& node) {
  const char* const what = "a list of networks, as in [\"10.0.0.0/8\"]";
  if (!node.is_array()) return expected(key, node, what);
  for (const toml::node& one : *node.as_array()) {
    const std::optional<std::string> text = one.value_exact<std::string>();
    if (!text) return expected(key, one, what);
    const auto network = parse_network(*text);
    if (!network.ok()) return fail(one.source(), base::printable(network.status().message(), 400));
    policy_.trusted_networks.push_back(network.value());
  }
}

template <typename Value>
bool Reader::is_none(const toml::node& node, LimitRules::Rule<Value>* rule) {
  rule->given = true;
  const std::optional<std::string> text = node.value_exact<std::string>();
  return text && *text == "none";
}

void Reader::shares(const std::string& key, const toml::node& node,
                    LimitRules::Rule<uint64_t>* rule) {
  if (is_none(node, rule)) return;
  const std::optional<double> gpus = node.value<double>();
  if (node.is_number() && gpus && *gpus > 0 && *gpus <= kGpusMax) {
    rule->value = static_cast<uint64_t>(std::llround(*gpus * config::kWholeGpu));
    return;
  }
  const std::optional<std::string> text = node.value_exact<std::string>();
  const auto fraction = config::parse_fraction(text.value_or(""));
  if (!fraction.ok()) {
    return expected(key, node, "a number of GPUs above 0, as in 0.5, 4 or \"1/3\", or \"none\"");
  }
  rule->value = fraction.value();
}

void Reader::count(const std::string& key, const toml::node& node,
                   LimitRules::Rule<uint32_t>* rule) {
  if (is_none(node, rule)) return;
  const std::optional<int64_t> number = node.value_exact<int64_t>();
  if (!number || *number < 0 || *number > static_cast<int64_t>(kCountMax))
    return expected(key, node, "a whole number from 0 to 1000000, or \"none\"");
  rule->value = static_cast<uint32_t>(*number);
}

std::optional<uint64_t> Reader::seconds(const toml::node& node) {
  const std::string text = node.value_exact<std::string>().value_or("");
  if (text.size() < 2 || text.size() > 10) return std::nullopt;
  uint64_t number = 0;
  for (const char c : text.substr(0, text.size() - 1)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<uint64_t>(c - '0');
  }
  switch (text.back()) {
    case 's':
      return number;
    case 'm':
      return number * 60;
    case 'h':
      return number * 3600;
    case 'd':
      return number * 86'400;
    default:
      return std::nullopt;
  }
}

void Reader::duration(const std::string& key, const toml::node& node,
                      LimitRules::Rule<uint64_t>* rule) {
  if (is_none(node, rule)) return;
  const std::optional<uint64_t> time_s = seconds(node);
  if (!time_s) {
    return expected(key, node, "a time, as in \"90s\", \"15m\", \"12h\" or \"7d\", or \"none\"");
  }
  if (*time_s == 0 || *time_s > kTenYearsS) {
    return expected(key, node, "a time above 0 and of at most ten years, or \"none\"");
  }
  rule->value = *time_s;
}

void Reader::grace(const std::string& key, const toml::node& node) {
  const std::optional<uint64_t> time_s = seconds(node);
  if (!time_s || *time_s == 0 || *time_s > kGraceMaxS)
    return expected(key, node, "a time above 0 and of at most a day, as in \"15m\" or \"1h\"");
  policy_.certificate_grace_s = *time_s;
}

void Reader::limit(const std::string& key, const toml::node& node, LimitRules* rules) {
  if (key == "shares") return shares(key, node, &rules->share_millionths);
  if (key == "leases") return count(key, node, &rules->leases);
  if (key == "sessions") return count(key, node, &rules->sessions);
  if (key == "longest_lease") return duration(key, node, &rules->longest_s);
  if (key == "unattached") return duration(key, node, &rules->unattached_s);
  if (key == "idle") return duration(key, node, &rules->idle_s);
  if (key == "cap" || key == "rdma") {
    LimitRules::Rule<bool>& rule = key == "cap" ? rules->capped : rules->rdma;
    rule.given = true;
    rule.value = flag(key, node);
    return;
  }
  if (key != "priority")
    return fail(node.source(),
                "unknown limit '" + base::printable(key, 64) + "'; the limits are " + kLimitKeys);
  if (is_none(node, &rules->priority)) return;
  const std::optional<int64_t> number = node.value_exact<int64_t>();
  if (!number || *number < -wire::kPriorityMax || *number > wire::kPriorityMax)
    return expected(key, node, "a whole number from -100 to 100, or \"none\"");
  rules->priority.value = static_cast<int32_t>(*number);
}

void Reader::limits(const toml::table& section, LimitRules* rules) {
  for (auto&& [key, node] : section) {
    if (ok()) limit(std::string(key.str()), node, rules);
  }
}

void Reader::unix_section(const toml::table& section) {
  for (auto&& [name, node] : section) {
    const std::string key(name.str());
    if (!ok()) return;
    if (key == "admins") {
      policy_.unix_admins = users(key, node);
    } else if (key == "operators") {
      policy_.unix_operators = users(key, node);
    } else if (key == "users" && node.is_array()) {
      policy_.unix_users = UnixUsers::kListed;
      policy_.unix_listed = users(key, node);
    } else if (key == "users") {
      const char* const what = "\"any\", \"none\" or a list of users, as in [\"alice\", 1000]";
      const std::string text = choice(key, node, what);
      policy_.unix_users = text == "any" ? UnixUsers::kAny : UnixUsers::kListed;
      if (text != "any" && text != "none") expected(key, node, what);
    } else {
      fail(node.source(), "unknown key '" + base::printable(key, 64) +
                              "' in [unix]; the keys are users, operators, admins");
    }
  }
}

// [role.NAME] and [user.NAME].
void Reader::sections(const std::string& key, const toml::node& node) {
  const toml::table* const all = table(key, node);
  if (all == nullptr) return;
  for (auto&& [name, inner] : *all) {
    const std::string text(name.str());
    const toml::table* const section = table(key + "." + text, inner);
    if (section == nullptr || !ok()) return;
    if (key == "user") {
      limits(*section, &policy_.users[text]);
      continue;
    }
    const std::optional<Role> role = role_of(text);
    if (!role) {
      return fail(inner.source(), "'" + base::printable(text, 64) +
                                      "' is no role; the roles are admin, operator, user, server, "
                                      "metrics");
    }
    limits(*section, &policy_.roles[*role]);
  }
}

void Reader::top(const std::string& key, const toml::node& node) {
  if (key == "encrypt") {
    const char* const what = "\"always\", \"untrusted\" or \"never\"";
    const std::string text = choice(key, node, what);
    policy_.encrypt_given = true;
    if (text == "always") {
      policy_.encrypt = Encrypt::kAlways;
    } else if (text == "never") {
      policy_.encrypt = Encrypt::kNever;
    } else if (text != "untrusted") {
      expected(key, node, what);
    }
  } else if (key == "trusted_networks") {
    networks(key, node);
  } else if (key == "metrics") {
    const char* const what = "\"tls\" or \"clear\"";
    const std::string text = choice(key, node, what);
    policy_.metrics = text == "tls" ? Metrics::kTls : Metrics::kClear;
    if (text != "tls" && text != "clear") expected(key, node, what);
  } else if (key == "audit_required") {
    policy_.audit_required = flag(key, node);
  } else if (key == "certificate_grace") {
    grace(key, node);
  } else if (key == "unix") {
    const toml::table* const section = table(key, node);
    if (section != nullptr) unix_section(*section);
  } else if (key == "limits") {
    const toml::table* const section = table(key, node);
    if (section != nullptr) limits(*section, &policy_.everybody);
  } else if (key == "role" || key == "user") {
    sections(key, node);
  } else {
    fail(node.source(),
         "unknown key '" + base::printable(key, 64) +
             "'; the keys are encrypt, trusted_networks, metrics, audit_required and "
             "certificate_grace, the sections [unix], [limits], [role.NAME] and [user.NAME]");
  }
}

base::Result<Policy> Reader::read(const toml::table& file) {
  for (auto&& [key, node] : file) {
    if (ok()) top(std::string(key.str()), node);
  }
  if (!ok()) return status_;
  return std::move(policy_);
}

}  // namespace

base::Result<Policy> parse_policy(const std::string& text, const std::string& path) {
  if (text.size() > kPolicyBytesMax)
    return Status(Code::kInvalid, path + ": a policy has at most 1 MiB");
  base::Result<toml::table> parsed = config::parse_toml(text, path);
  return parsed.ok() ? Reader(path).read(*parsed) : parsed.status();
}

base::Result<Policy> read_policy(const std::string& path) {
  const std::string doing = "cannot read the policy '" + path + "'";
  const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts;
  if (!file.valid() || fstat(file.get(), &facts) != 0)
    return base::errno_status(Code::kNotFound, doing.c_str(), errno);
  if (!S_ISREG(facts.st_mode)) return Status(Code::kInvalid, doing + ": it is no file");
  if ((facts.st_mode & 022) != 0) {
    return Status(Code::kInvalid,
                  "others may write to the policy '" + path + "'; run: chmod go-w " + path);
  }
  std::string text;
  char part[16384];
  for (;;) {
    const ssize_t got = read(file.get(), part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::errno_status(Code::kNotFound, doing.c_str(), errno);
    if (got == 0) break;
    text.append(part, static_cast<size_t>(got));
    if (text.size() > kPolicyBytesMax) break;
  }
  return parse_policy(text, path);
}

}  // namespace tendril::access
