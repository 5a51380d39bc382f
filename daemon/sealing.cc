// SPDX-License-Identifier: Apache-2.0
// See sealing.h.
#include "daemon/sealing.h"

namespace tendril::daemon {

using access::Encrypt;
using base::Code;
using base::Status;

base::Result<Sealing> read_sealing(const std::string& encrypt,
                                   const std::vector<std::string>& trusted_networks) {
  Sealing sealing;
  sealing.given = !encrypt.empty();
  if (encrypt == "always") {
    sealing.encrypt = Encrypt::kAlways;
  } else if (encrypt == "never") {
    sealing.encrypt = Encrypt::kNever;
  } else if (!encrypt.empty() && encrypt != "untrusted") {
    return Status(Code::kInvalid,
                  "--encrypt is '" + encrypt + "'; write always, untrusted or never");
  }
  for (const std::string& text : trusted_networks) {
    auto network = access::parse_network(text);
    if (!network.ok())
      return Status(Code::kInvalid, "--trusted-network: " + network.status().message());
    sealing.trusted_networks.push_back(network.take());
  }
  return sealing;
}

Sealing with_policy(const Sealing& sealing, const access::Policy& policy) {
  Sealing both = sealing;
  if (!sealing.given) both.encrypt = policy.encrypt;
  both.trusted_networks.insert(both.trusted_networks.end(), policy.trusted_networks.begin(),
                               policy.trusted_networks.end());
  return both;
}

std::string lent_cards(const std::string& option, const std::string& variable,
                       const Sealing& sealing) {
  if (option == "off") return "none";
  if (!option.empty() && option != "auto") return option;
  if (!variable.empty()) return variable;
  const bool trusts = !sealing.trusted_networks.empty() || sealing.encrypt == Encrypt::kNever;
  return trusts && sealing.encrypt != Encrypt::kAlways ? "any" : "";
}

base::Result<bool> must_seal(const Sealing& sealing, const session::Peer& peer, bool has_key,
                             bool client_insists) {
  if (peer.unix_socket) return false;
  const bool trusted = peer.local || access::contains(sealing.trusted_networks, peer.text);
  const bool wanted =
      sealing.encrypt == Encrypt::kAlways || (sealing.encrypt == Encrypt::kUntrusted && !trusted);
  if (client_insists && sealing.encrypt == Encrypt::kNever && !peer.local) {
    return Status(Code::kRefused,
                  "this server seals no data (encrypt is never), and the client insists on it "
                  "(TENDRIL_ENCRYPT=always); change one of them");
  }
  if (wanted && !has_key) {
    return Status(Code::kRefused,
                  "this server seals all data, and this session has no key for it: start the "
                  "server with a token or with identities");
  }
  return wanted || (client_insists && has_key && sealing.encrypt != Encrypt::kNever);
}

}  // namespace tendril::daemon
