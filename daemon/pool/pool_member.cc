// SPDX-License-Identifier: Apache-2.0
// See pool_member.h.
#include "daemon/pool/pool_member.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "base/text.h"
#include "identity/store.h"
#include "identity/tls.h"
#include "transport/registry.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

constexpr size_t kLabelBytesMax = 128, kLabelsMax = 64;

bool is_label(const std::string& label) {
  const size_t equals = label.find('=');
  if (equals == 0 || equals == std::string::npos || label.size() > kLabelBytesMax) return false;
  const auto plain = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '.' || letter == '_' || letter == '-';
  };
  const auto key_end = label.begin() + static_cast<ptrdiff_t>(equals);
  return std::all_of(label.begin(), key_end, plain) &&
         std::all_of(key_end + 1, label.end(),
                     [&](char letter) { return plain(letter) || letter == '/' || letter == ':'; });
}

std::string machine_id() {
  char text[64] = {};
  const base::Fd file(open("/etc/machine-id", O_RDONLY | O_CLOEXEC));
  const ssize_t got = file.valid() ? read(file.get(), text, sizeof text - 1) : 0;
  return std::string(text, got > 0 ? static_cast<size_t>(got) : 0);
}

// 16 bytes that are the same whenever a server of that name runs on this machine: two rounds of
// FNV-1a. Nobody proves anything with it.
std::string id_of(const std::string& text) {
  std::string id;
  for (const uint64_t basis : {0xcbf29ce484222325u, 0x84222325cbf29ce4u}) {
    uint64_t hash = basis;
    for (const char letter : text) {
      hash ^= static_cast<uint8_t>(letter);
      hash *= 0x100000001b3u;
    }
    for (int shift = 56; shift >= 0; shift -= 8) id += static_cast<char>(hash >> shift);
  }
  return id;
}

// An address that was given without a port has the one that this server listens at.
std::string with_port(const std::string& address, uint16_t port) {
  auto endpoint = session::parse_endpoint(address);
  if (!endpoint.ok() || !endpoint->unix_path.empty() || endpoint->has_port) return address;
  const bool is_v6 = endpoint->host.find(':') != std::string::npos;
  return (endpoint->name.empty() ? "" : endpoint->name + "=") +
         (is_v6 ? "[" + endpoint->host + "]" : endpoint->host) + ":" + std::to_string(port);
}

}  // namespace

Status check_member(const PoolMember& member) {
  for (const std::string& address : member.pools) {
    const auto endpoint = session::parse_endpoint(address);
    if (!endpoint.ok()) return Status(Code::kInvalid, "--pool: " + endpoint.status().message());
  }
  if (!member.advertise.empty()) {
    const auto endpoint = session::parse_endpoint(member.advertise);
    if (!endpoint.ok())
      return Status(Code::kInvalid, "--advertise: " + endpoint.status().message());
  }
  if (member.name.size() > wire::kPoolNameBytesMax || base::printable(member.name) != member.name)
    return Status(Code::kInvalid, "--name: a server's name has at most 64 printable characters");
  if (member.labels.size() > kLabelsMax)
    return Status(Code::kInvalid, "--label: a server has at most 64 labels");
  for (const std::string& label : member.labels) {
    if (is_label(label)) continue;
    return Status(Code::kInvalid, "--label '" + base::printable(label, kLabelBytesMax) +
                                      "': write KEY=VALUE, of letters, digits, '.', '_' and '-', "
                                      "such as rack=b7");
  }
  return Status();
}

std::vector<std::string> offered_transports(bool lends_cards) {
  std::vector<std::string> kinds;
  for (const transport::Transport* transport : transport::transports()) {
    const bool needs_card = (transport->abilities & transport::kRegistersMemory) != 0;
    if (!needs_card || (lends_cards && transport->offer({1, false}).ok()))
      kinds.emplace_back(transport->kind);
  }
  return kinds;
}

wire::ServerFacts facts_of_member(const PoolMember& member, const std::string& host, uint16_t port,
                                  bool others_may_come, const gpu::Inventory& inventory) {
  wire::ServerFacts facts;
  const std::string at = port == wire::kDefaultPort ? std::string() : ":" + std::to_string(port);
  facts.name = member.name.empty() ? host + at : member.name;
  facts.endpoint = with_port(member.advertise, port);
  if (facts.endpoint.empty())
    facts.endpoint = (others_may_come ? host : "127.0.0.1") + ":" + std::to_string(port);
  facts.server_id = id_of(machine_id() + "\n" + facts.name + "\n" + facts.endpoint);
  facts.driver = inventory.driver_path;
  facts.driver_version = inventory.driver_version;
  for (const gpu::ApiRecord& api : inventory.apis) facts.apis.push_back({api.name, api.digest});
  facts.labels = member.labels;
  return facts;
}

base::Result<session::ConnectOptions> credentials_of_member(const access::Settings& settings,
                                                            const std::string& identity_folder) {
  session::ConnectOptions options;
  if (settings.mode == access::Mode::kOpen) return options;
  if (settings.mode == access::Mode::kSecret) {
    auto client = identity::TlsClient::with_secret(settings.token);
    if (!client.ok()) return client.status();
    options.token = settings.token;
    options.securer = client.take();
    return options;
  }
  auto all = identity::load_identities(identity::identity_folder(identity_folder));
  if (!all.ok()) return all.status();
  const auto others = std::remove_if(all->begin(), all->end(), [](const auto& own) {
    return own.facts.name.role != identity::Role::kServer;
  });
  all->erase(others, all->end());
  auto client = identity::TlsClient::with_identities(*all);
  if (!client.ok()) return client.status();
  options.securer = client.take();
  return options;
}

std::string lacking_certificate(const access::Settings& settings,
                                const std::string& identity_folder) {
  if (settings.mode != access::Mode::kIdentity) return "";
  const std::string folder = identity::identity_folder(identity_folder);
  const auto all = identity::load_identities(folder);
  if (!all.ok()) return "";  // the links say so
  for (const identity::OwnIdentity& own : all.value()) {
    const auto is_server_of_its_pool = [&own](const identity::OwnIdentity& other) {
      return other.facts.name.role == identity::Role::kServer &&
             other.facts.name.pool == own.facts.name.pool;
    };
    if (own.issuer.empty() ||
        std::any_of(all.value().begin(), all.value().end(), is_server_of_its_pool))
      continue;
    const std::string pool = base::printable(own.facts.name.pool);
    return folder + " has the certificate of " + base::printable(own.facts.name.text()) +
           " and no server's of pool " + pool +
           ", so the pool will not let this server in. Write "
           "'tendril identity invite NAME --role server' on the pool, join here with what it "
           "prints and --identity of a folder of the server's own, and serve with that";
  }
  return "";
}

}  // namespace tendril::daemon
