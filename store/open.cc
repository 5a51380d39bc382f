// SPDX-License-Identifier: Apache-2.0
// See open.h.
#include "store/open.h"

#include <utility>

#include "base/text.h"
#include "config/text.h"
#include "store/sqlite.h"

namespace tendril::store {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr char kSqlite[] = "sqlite:", kEtcd[] = "etcd://", kEtcdSecure[] = "etcds://";

bool begins(const std::string& text, const char* with) { return text.rfind(with, 0) == 0; }

Status wrong(const std::string& address, const std::string& what) {
  return Status(Code::kInvalid, "the store's address '" + base::printable(address) + "': " + what);
}

// One setting after '?'.
Status read_setting(const std::string& setting, EtcdOptions* options) {
  const size_t equals = setting.find('=');
  const std::string name = setting.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : setting.substr(equals + 1);
  if (value.empty()) return Status(Code::kInvalid, "write NAME=VALUE after '?', joined by '&'");
  if (name == "ca") {
    options->ca_file = value;
  } else if (name == "user") {
    options->user = value;
  } else if (name == "password-file") {
    Result<std::string> text = config::read_file(value);
    if (!text.ok()) return text.status();
    options->password = config::trimmed(*text);
    if (options->password.empty()) return Status(Code::kInvalid, "'" + value + "' is empty");
  } else {
    return Status(Code::kInvalid,
                  "there is no '" + base::printable(name) + "'; write ca, user or password-file");
  }
  return Status();
}

}  // namespace

Result<EtcdOptions> parse_etcd(const std::string& address) {
  EtcdOptions options;
  options.secure = begins(address, kEtcdSecure);
  if (!options.secure && !begins(address, kEtcd)) return wrong(address, "it begins with etcd://");
  std::string rest = address.substr(options.secure ? sizeof kEtcdSecure - 1 : sizeof kEtcd - 1);
  const size_t question = rest.find('?');
  if (question != std::string::npos) {
    for (const std::string& setting : config::split(rest.substr(question + 1), '&')) {
      const Status read = read_setting(setting, &options);
      if (!read.ok()) return wrong(address, read.message());
    }
    rest.resize(question);
  }
  if (!options.ca_file.empty() && !options.secure)
    return wrong(address, "a file of authorities is for TLS: write etcds://");
  const size_t slash = rest.find('/');
  if (slash != std::string::npos) {
    if (slash + 1 < rest.size()) options.prefix = rest.substr(slash + 1);
    rest.resize(slash);
  }
  for (std::string member : config::split(rest, ',')) {
    const size_t bracket = member.rfind(']');
    const size_t from = bracket == std::string::npos ? 0 : bracket;
    if (member.find(':', from) == std::string::npos) member += ":2379";
    options.members.push_back(std::move(member));
  }
  if (options.members.empty()) return wrong(address, "name a member, as in etcd://host:2379");
  return options;
}

Result<std::unique_ptr<Store>> open_store(const std::string& address) {
  if (begins(address, kSqlite)) {
    const std::string path = address.substr(sizeof kSqlite - 1);
    if (path.empty()) return wrong(address, "write the file's path after 'sqlite:'");
    return open_sqlite(path);
  }
  if (!begins(address, kEtcd) && !begins(address, kEtcdSecure))
    return wrong(address, "write sqlite:PATH or etcd://HOST:PORT,HOST:PORT");
  Result<EtcdOptions> options = parse_etcd(address);
  if (!options.ok()) return options.status();
  return open_etcd(*options);
}

}  // namespace tendril::store
