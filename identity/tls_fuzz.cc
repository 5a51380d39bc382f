// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: bytes from the network into the seals of TLS. The first byte says what they
// meet: one seal with nobody behind it, or a server and a client with a hostile line between them,
// which changes, drops and repeats what the rest of the bytes says. What arrives in spite of that
// is what was sent.
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "identity/authority.h"
#include "identity/tls.h"
#include "session/control/attach.h"

using namespace tendril;  // NOLINT: a program

namespace {

using Bytes = std::vector<uint8_t>;

constexpr int64_t kNowS = 1'800'000'000;
constexpr char kWords[] = "words of the client";
int64_t now() { return kNowS; }

identity::OwnIdentity issue_to(const identity::Key& key, const identity::Certificate& authority,
                               identity::Role role, const char* who) {
  identity::OwnIdentity own;
  own.key = identity::make_key().take();
  const std::string request = identity::make_request(own.key).take();
  own.certificate =
      identity::issue(authority, key, request, {{"lab", role, who}, kNowS, 86'400}).take();
  own.authority = authority;
  own.facts = identity::read_facts(own.certificate).take();
  return own;
}

// With certificates, with a secret, and a client that joins.
struct Halves {
  std::shared_ptr<identity::TlsServer> servers[2];
  std::shared_ptr<identity::TlsClient> clients[3];
};

const Halves& halves() {
  static const Halves made = [] {
    const identity::Key key = identity::make_key().take();
    const identity::Certificate authority = identity::make_authority(key, "lab", kNowS).take();
    const auto server = issue_to(key, authority, identity::Role::kServer, "gpu1");
    const auto client = issue_to(key, authority, identity::Role::kUser, "alice");
    const std::string secret = "a secret of many letters";
    Halves halves;
    halves.servers[0] = identity::TlsServer::with_identity(server, now).take();
    halves.servers[1] = identity::TlsServer::with_secret(secret).take();
    halves.clients[0] = identity::TlsClient::with_identities({client}, now).take();
    halves.clients[1] = identity::TlsClient::with_secret(secret).take();
    halves.clients[2] = identity::TlsClient::with_pin(identity::pin_of(authority), now).take();
    return halves;
  }();
  return made;
}

std::unique_ptr<session::Seal> near_seal(unsigned kind) {
  static const session::Endpoint endpoint = session::parse_endpoint("gpu1").take();
  return halves().clients[kind % 3]->secure(endpoint).take();
}

// The fuzzer's bytes, as they are used up.
struct Source {
  const uint8_t* at;
  size_t left;
  uint8_t next() {
    if (left == 0) return 0;
    --left;
    return *at++;
  }
};

// Nobody who has no key of ours gets a seal open, or hears more than an alert.
void speak_alone(session::Seal* seal, Source source) {
  Bytes plain, network;
  TENDRIL_CHECK(seal->start(&network).ok());
  while (source.left != 0) {
    const size_t piece = std::min<size_t>(source.left, 1 + source.next());
    const size_t taken = std::min(piece, source.left);
    if (!seal->receive(source.at, taken, &plain, &network).ok()) break;
    source.at += taken;
    source.left -= taken;
  }
  TENDRIL_CHECK(!seal->is_open() && plain.empty() && seal->identity().empty());
}

// What the hostile line makes of a flight of bytes.
void disturb(Source* source, Bytes* flight) {
  for (unsigned changes = source->next() % 4; changes != 0 && !flight->empty(); --changes) {
    const size_t at = (size_t{source->next()} << 8 | source->next()) % flight->size();
    const auto where = flight->begin() + static_cast<ptrdiff_t>(at);
    switch (source->next() % 4) {
      case 0:
        *where ^= source->next();
        break;
      case 1:
        flight->erase(where, flight->end());
        break;
      case 2:
        flight->erase(where);
        break;
      default: {
        const Bytes again(flight->begin(), where);
        flight->insert(flight->end(), again.begin(), again.end());
      }
    }
  }
}

void speak_over_hostile_line(session::Seal* near, session::Seal* far, const char* who,
                             Source source) {
  Bytes to_server, to_client, at_server, at_client;
  base::Status near_status = near->start(&to_server), far_status;
  bool said = false;
  const bool is_quiet = source.left == 0;
  for (int round = 0; round < 8 && (!to_server.empty() || !to_client.empty()); ++round) {
    Bytes flight;
    flight.swap(to_server);
    disturb(&source, &flight);
    if (far_status.ok())
      far_status = far->receive(flight.data(), flight.size(), &at_server, &to_client);
    flight.clear();
    flight.swap(to_client);
    disturb(&source, &flight);
    if (near_status.ok())
      near_status = near->receive(flight.data(), flight.size(), &at_client, &to_server);
    if (near_status.ok() && near->is_open() && !said)
      said = near->send(kWords, sizeof kWords, &to_server).ok();
  }
  const size_t heard = std::min(at_server.size(), sizeof kWords);
  TENDRIL_CHECK(at_server.size() <= sizeof kWords);
  TENDRIL_CHECK(std::equal(at_server.begin(), at_server.end(), kWords, kWords + heard));
  TENDRIL_CHECK(at_server.empty() || said);
  if (is_quiet) TENDRIL_CHECK(near->is_open() && far->is_open() && heard == sizeof kWords);
  if (far->is_open()) TENDRIL_CHECK(far->identity() == who);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  const unsigned kind = data[0] / 3;
  const Source rest = {data + 1, bytes - 1};
  const auto far = halves().servers[kind % 3 == 1 ? 1 : 0]->accept();
  const auto near = near_seal(kind);
  if (data[0] % 3 == 0)
    speak_alone(near.get(), rest);
  else if (data[0] % 3 == 1)
    speak_alone(far.get(), rest);
  else
    speak_over_hostile_line(near.get(), far.get(), kind % 3 == 0 ? "spiffe://lab/user/alice" : "",
                            rest);
  return 0;
}
