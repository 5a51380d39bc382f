// SPDX-License-Identifier: Apache-2.0
// See providers.h.
#include "identity/providers.h"

#include <algorithm>

#include "base/text.h"
#include "config/toml.h"
#include "identity/files.h"
#include "identity/web/fetch.h"

namespace tendril::identity {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr uint64_t kKeysFreshNs = 3600ull * 1'000'000'000, kRetryNs = 10ull * 1'000'000'000;
constexpr size_t kProvidersMax = 32, kFileBytesMax = 1u << 20;
constexpr int64_t kLifetimeHoursMax = 72;
constexpr int kFetchMs = 5000;
constexpr char kFileKeys[] =
    "issuer, audience, keys, name_claim, role, groups_claim, lifetime_hours, ca_file, roles";

// Reads one [[provider]]. The first error stays.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}
  const Status& status() const { return status_; }

  Provider read(const toml::table& section) {
    Provider provider;
    for (const auto& [key, node] : section) take(std::string(key.str()), node, &provider);
    const Expected& e = provider.expected;
    if (e.issuer.empty() || e.audience.empty() || provider.keys.empty())
      fail(section, "a provider needs issuer, audience and keys");
    if (!provider.roles.empty() && e.groups_claim.empty())
      fail(section, "roles of groups need groups_claim, the claim that lists the groups");
    return provider;
  }
  void fail(const toml::node& node, const std::string& why) {
    const toml::source_position at = node.source().begin;
    if (status_.ok()) {
      status_ =
          Status(Code::kInvalid, base::format("%s, line %u, column %u: %s", path_.c_str(),
                                              unsigned(at.line), unsigned(at.column), why.c_str()));
    }
  }

 private:
  void take(const std::string& key, const toml::node& node, Provider* provider) {
    Expected& e = provider->expected;
    if (key == "issuer") {
      text(key, node, &e.issuer);
    } else if (key == "audience") {
      text(key, node, &e.audience);
    } else if (key == "keys") {
      text(key, node, &provider->keys);
      if (!is_fetchable(provider->keys) && provider->keys.rfind('/', 0) != 0)
        fail(node, "'keys' must be https://..., or the full path of a file");
    } else if (key == "name_claim") {
      text(key, node, &e.name_claim);
    } else if (key == "groups_claim") {
      text(key, node, &e.groups_claim);
    } else if (key == "ca_file") {
      text(key, node, &provider->ca_file);
    } else if (key == "role") {
      role(node, &provider->role);
    } else if (key == "lifetime_hours") {
      const std::optional<int64_t> hours = node.value_exact<int64_t>();
      if (!hours || *hours < 1 || *hours > kLifetimeHoursMax)
        return fail(node, "'lifetime_hours' must be a number from 1 to 72");
      provider->lifetime_s = *hours * 3600;
    } else if (key == "roles" && node.is_table()) {
      for (const auto& [group, each] : *node.as_table())
        role(each, &provider->roles[std::string(group.str())]);
    } else {
      fail(node, "'" + base::printable(key, 64) + "' is not known; a provider has " + kFileKeys);
    }
  }
  void text(const std::string& key, const toml::node& node, std::string* into) {
    const std::optional<std::string> value = node.value_exact<std::string>();
    if (!value || value->empty()) return fail(node, "'" + key + "' must be a text in quotes");
    *into = *value;
  }
  void role(const toml::node& node, Role* into) {
    const std::optional<std::string> value = node.value_exact<std::string>();
    if (!value || !read_role(*value, into) || *into == Role::kServer)
      fail(node, "a role must be \"admin\", \"operator\", \"user\" or \"metrics\"");
  }

  const std::string path_;
  Status status_;
};

int width(Role role) {
  switch (role) {
    case Role::kAdmin:
      return 3;
    case Role::kOperator:
      return 2;
    case Role::kUser:
      return 1;
    default:
      return 0;
  }
}

Result<KeySet> read_keys(const Provider& provider) {
  Result<std::string> text = is_fetchable(provider.keys)
                                 ? fetch(provider.keys, provider.ca_file, kFetchMs)
                                 : read_file(provider.keys, Secrecy::kPublic);
  if (!text.ok()) return text.status();
  Result<KeySet> keys = KeySet::read(*text);
  if (keys.ok()) return keys;
  return Status(keys.status().code(), provider.keys + ": " + keys.status().message());
}

}  // namespace

Result<std::vector<Provider>> parse_providers(const std::string& text, const std::string& path) {
  if (text.size() > kFileBytesMax) return Status(Code::kInvalid, path + " is too large");
  Result<toml::table> file = config::parse_toml(text, path);
  if (!file.ok()) return file.status();
  Reader reader(path);
  std::vector<Provider> providers;
  for (const auto& [key, node] : *file) {
    const toml::array* const list = node.as_array();
    if (key.str() != "provider" || list == nullptr || list->size() > kProvidersMax) {
      reader.fail(node, "only sections [[provider]] may be here, 32 at most");
      break;
    }
    for (const toml::node& each : *list) {
      if (each.is_table()) {
        providers.push_back(reader.read(*each.as_table()));
      } else {
        reader.fail(each, "only sections [[provider]] may be here");
      }
    }
  }
  if (!reader.status().ok()) return reader.status();
  return providers;
}

Role role_in_groups(const Provider& provider, const std::vector<std::string>& groups) {
  Role widest = provider.role;
  for (const std::string& group : groups) {
    const auto found = provider.roles.find(group);
    if (found != provider.roles.end() && width(found->second) > width(widest))
      widest = found->second;
  }
  return widest;
}

Result<std::shared_ptr<Providers>> Providers::read(const std::string& path) {
  Result<std::string> text = read_file(path, Secrecy::kPublic);
  if (!text.ok()) return text.status();
  Result<std::vector<Provider>> providers = parse_providers(*text, path);
  if (!providers.ok()) return providers.status();
  const auto made = std::make_shared<Providers>();
  made->providers_ = providers.take();
  made->keys_.resize(made->providers_.size());
  return made;
}

Result<Providers::Admitted> Providers::admit(const std::string& token, int64_t now_s) const {
  Result<std::string> issuer = claimed_issuer(token);
  if (!issuer.ok()) return issuer.status();
  for (size_t i = 0; i < providers_.size(); ++i) {
    const Provider& provider = providers_[i];
    if (provider.expected.issuer != *issuer) continue;
    KeySet keys;
    {
      std::lock_guard<std::mutex> hold(mutex_);
      if (!keys_[i].read) {
        wants_fresh_ = true;
        return Status(Code::kUnavailable, "the keys of the provider '" + *issuer +
                                              "' could not be had yet; try again in a moment");
      }
      keys = keys_[i].set;
    }
    Result<Claims> claims = read_signed_token(token, keys, provider.expected, now_s);
    if (!claims.ok()) {
      std::lock_guard<std::mutex> hold(mutex_);
      wants_fresh_ = true;  // perhaps the provider has a new key
      return claims.status();
    }
    const Status fits = check_name(claims->name);
    if (!fits.ok()) return fits;
    // Not clamped by the token's own end: that is the end of the exchange, not of the identity.
    return Admitted{role_in_groups(provider, claims->groups), claims->name, provider.lifetime_s};
  }
  return Status(Code::kRefused,
                "the provider's token is not accepted: this pool does not know its issuer '" +
                    base::printable(*issuer) + "'");
}

Status Providers::refresh(uint64_t now_ns) {
  Status worst;
  for (size_t i = 0; i < providers_.size(); ++i) {
    {
      std::lock_guard<std::mutex> hold(mutex_);
      Keys& keys = keys_[i];
      const bool wanted = wants_fresh_ || !keys.read;
      const uint64_t age_ns = now_ns - keys.tried_ns;
      if (keys.tried_ns != 0 && age_ns < (wanted ? kRetryNs : kKeysFreshNs)) continue;
      keys.tried_ns = now_ns;
    }
    Result<KeySet> fresh = read_keys(providers_[i]);
    if (!fresh.ok()) {
      worst = fresh.status();
      continue;
    }
    std::lock_guard<std::mutex> hold(mutex_);
    keys_[i].set = fresh.take();
    keys_[i].read = true;
    wants_fresh_ = false;
  }
  return worst;
}

}  // namespace tendril::identity
