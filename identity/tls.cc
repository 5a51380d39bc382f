// SPDX-License-Identifier: Apache-2.0
// See tls.h. A server lets the handshake of a client with a bad certificate come to its end, and
// then refuses it: only inside TLS can it say why.
#include "identity/tls.h"

#include <arpa/inet.h>
#include <strings.h>

#include <cstring>

#include "base/text.h"
#include "identity/secrets.h"
#include "identity/tls_seal.h"
#include "session/control/attach.h"
#include "session/control/control_io.h"
#include "wire/control.h"

namespace tendril::identity {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr char kSecretLabel[] = "tendril control, one secret";
constexpr size_t kClearBytesMax = 4096;
constexpr int kAlert = 1000;  // OpenSSL's reason for an alert that came is this plus its number
constexpr int kHandshakeFailure = 40, kIllegalParameter = 47;

// A message of the plain protocol that refuses a hello.
std::vector<uint8_t> refusal(const Status& why) {
  return session::pack(wire::kHelloKind, why.code(), why.message().data(), why.message().size());
}

Status use_own(SSL_CTX* context, const OwnIdentity& own) {
  if (SSL_CTX_use_certificate(context, own.certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, own.key.get()) != 1 ||
      SSL_CTX_add1_chain_cert(context, own.authority.get()) != 1) {
    return openssl_status("using the certificate of " + own.facts.name.text());
  }
  return Status();
}

bool is_self_signed(X509* certificate) {
  const bool signed_by_itself = X509_verify(certificate, X509_get0_pubkey(certificate)) == 1;
  ERR_clear_error();
  return signed_by_itself;
}

Certificate shared(X509* certificate) {
  X509_up_ref(certificate);
  return Certificate(certificate, X509_free);
}

bool is_address(const std::string& host) {
  unsigned char bytes[16];
  const std::string plain = host.substr(0, host.find('%'));  // less the zone of an IPv6 address
  return inet_pton(AF_INET, plain.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, plain.c_str(), bytes) == 1;
}

// A server has the name of its host, with or without the domain.
bool is_name_of(const std::string& host, const std::string& name) {
  const auto same = [](const std::string& one, const std::string& other) {
    return strcasecmp(one.c_str(), other.c_str()) == 0;
  };
  const auto first = [](const std::string& text) { return text.substr(0, text.find('.')); };
  return same(host, name) || same(first(host), name) || same(host, first(name));
}

// Whether the user may have meant the server with this name. Otherwise any server of a pool could
// stand in for another.
Status check_meant(const session::Endpoint& endpoint, const Name& name) {
  const bool named = !endpoint.name.empty();
  if (!named && (is_address(endpoint.host) || endpoint.host == "localhost")) return Status();
  if (named ? endpoint.name == name.name : is_name_of(endpoint.host, name.name)) return Status();
  const std::string meant = named ? endpoint.name : endpoint.host;
  const std::string where =
      named ? endpoint.text.substr(endpoint.text.find('=') + 1) : endpoint.text;
  return Status(Code::kRefused, "the server has proven to be '" + name.name + "' of the pool '" +
                                    name.pool + "', and not '" + meant + "'. If '" + name.name +
                                    "' is the one you mean, write " + name.name + "=" + where);
}

}  // namespace

// ---- the server's half ----

class ServerSeal final : public TlsSeal {
 public:
  ServerSeal(std::shared_ptr<TlsServer> server, const std::shared_ptr<SSL_CTX>& context,
             Certificate authority, std::function<void()> wrong_secret, TlsServer::Words words)
      : TlsSeal(context.get(), End::kServer),
        server_(std::move(server)),
        authority_(std::move(authority)),
        wrong_secret_(std::move(wrong_secret)),
        words_(words) {}

  Status receive(const void* data, size_t bytes, std::vector<uint8_t>* plain,
                 std::vector<uint8_t>* network) override {
    // During the handshake `opened` says so, inside TLS.
    Status stands = is_open() ? check_standing() : Status();
    return stands.ok() ? TlsSeal::receive(data, bytes, plain, network) : stands;
  }
  std::string identity() const override {
    return facts_.serial.empty() ? std::string() : facts_.name.uri();
  }
  std::string proof() const override {
    if (!server_->secret_key_.empty()) return "token";
    return facts_.serial.empty() ? "" : "certificate";
  }

  // Callbacks of OpenSSL.
  static int judge_client(X509_STORE_CTX* store, void*) {
    auto* const seal = of(
        static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx())));
    Result<Facts> facts =
        judge(shared(X509_STORE_CTX_get0_cert(store)), seal->authority_, Purpose::kClient,
              seal->server_->clock_(), "the client's certificate");
    if (facts.ok()) {
      seal->facts_ = facts.take();
      seal->refused_ = seal->check_standing();
    } else {
      seal->refused_ = facts.status();
    }
    X509_STORE_CTX_set_error(store, X509_V_OK);
    return 1;
  }
  static int find_secret(SSL* ssl, const unsigned char* name, size_t bytes, SSL_SESSION** found) {
    *found = nullptr;
    if (bytes != sizeof kSecretIdentity - 1 || std::memcmp(name, kSecretIdentity, bytes) != 0)
      return 1;
    *found = session_of_secret(ssl, of(ssl)->server_->secret_key_).release();
    return *found != nullptr ? 1 : 0;
  }

 protected:
  Status opened(std::vector<uint8_t>* network) override {
    if (refused_.ok()) {
      if (!facts_.serial.empty()) server_->shown(facts_);
      return Status();
    }
    facts_ = Facts();
    const std::vector<uint8_t> words = words_ != nullptr ? words_(refused_) : refusal(refused_);
    Status sent = send(words.data(), words.size(), network);
    if (sent.ok()) finish(network);
    return refused_;
  }
  Status explain(int reason, const std::string& text) const override {
    if (!server_->secret_key_.empty()) {
      if (reason == SSL_R_BINDER_DOES_NOT_VERIFY) {
        if (wrong_secret_) wrong_secret_();
        return Status(Code::kRefused, "its token is wrong");
      }
      if (reason == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM || reason == SSL_R_NO_SHARED_CIPHER)
        return Status(Code::kRefused, "it shows a certificate or nothing, and a token is wanted");
    }
    if (reason > kAlert) {
      return Status(Code::kRefused, "it does not accept this server's proof (" + text + ")");
    }
    return Status(Code::kInvalid, "its TLS is wrong: " + text);
  }

 private:
  static ServerSeal* of(SSL* ssl) {
    return static_cast<ServerSeal*>(static_cast<TlsSeal*>(SSL_get_app_data(ssl)));
  }
  Status check_standing() const {
    return facts_.serial.empty() ? Status() : server_->standing(facts_);
  }

  const std::shared_ptr<TlsServer> server_;
  const Certificate authority_;
  const std::function<void()> wrong_secret_;
  const TlsServer::Words words_;
  Facts facts_;
  Status refused_;
};

// What an open server says to TLS, and one that has heard too many wrong secrets.
class RefusingSeal final : public session::Seal {
 public:
  explicit RefusingSeal(Status why) : why_(std::move(why)) {}
  Status start(std::vector<uint8_t>*) override { return Status(); }
  Status receive(const void*, size_t, std::vector<uint8_t>*,
                 std::vector<uint8_t>* network) override {
    const std::vector<uint8_t> words = refusal(why_);
    network->insert(network->end(), words.begin(), words.end());
    return why_;
  }
  Status send(const void*, size_t, std::vector<uint8_t>*) override { return Status(); }
  void finish(std::vector<uint8_t>*) override {}
  bool is_open() const override { return false; }
  bool has_ended() const override { return false; }
  std::string identity() const override { return std::string(); }
  std::string proof() const override { return std::string(); }

 private:
  const Status why_;
};

Status TlsServer::open_server() {
  return Status(Code::kUnsupported, "this server serves its own machine only, and speaks no TLS");
}

std::unique_ptr<session::Seal> TlsServer::refuse_tls(const Status& why) {
  return std::make_unique<RefusingSeal>(why);
}

Result<std::shared_ptr<TlsServer>> TlsServer::with_identity(const OwnIdentity& own, Clock clock) {
  std::shared_ptr<TlsServer> server(new TlsServer);
  server->clock_ = clock;
  Status ready = server->replace(own);
  if (!ready.ok()) return ready;
  return server;
}

Result<std::shared_ptr<TlsServer>> TlsServer::with_secret(const std::string& secret) {
  std::shared_ptr<TlsServer> server(new TlsServer);
  server->context_ = make_context();
  server->secret_key_ = key_from_secret(secret, kSecretLabel);
  if (server->context_ == nullptr || server->secret_key_.empty())
    return openssl_status("preparing TLS");
  SSL_CTX_set_ciphersuites(server->context_.get(), "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set_psk_find_session_callback(server->context_.get(), ServerSeal::find_secret);
  return server;
}

Status TlsServer::replace(const OwnIdentity& own) {
  std::shared_ptr<SSL_CTX> context = make_context();
  if (context == nullptr) return openssl_status("preparing TLS");
  Status used = use_own(context.get(), own);
  if (!used.ok()) return used;
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_cert_verify_callback(context.get(), ServerSeal::judge_client, nullptr);
  std::lock_guard<std::mutex> hold(mutex_);
  context_ = std::move(context);
  authority_ = own.authority;
  return Status();
}

std::unique_ptr<session::Seal> TlsServer::accept(std::function<void()> wrong_secret, Words words) {
  std::lock_guard<std::mutex> hold(mutex_);
  return std::make_unique<ServerSeal>(shared_from_this(), context_, authority_,
                                      std::move(wrong_secret), words);
}

void TlsServer::deny(const DenyList& list) {
  std::lock_guard<std::mutex> hold(mutex_);
  denied_ = list;
}

bool TlsServer::is_denied(const std::string& serial) const {
  std::lock_guard<std::mutex> hold(mutex_);
  return denied_.has(serial);
}

void TlsServer::set_grace(int64_t seconds) {
  std::lock_guard<std::mutex> hold(mutex_);
  grace_s_ = seconds;
}

void TlsServer::shown(const Facts& facts) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto [latest, fresh] = latest_.try_emplace(facts.name.uri(), facts);
  if (!fresh && latest->second.ends_s < facts.ends_s) latest->second = facts;
  if (!fresh) return;
  for (auto at = latest_.begin(); at != latest_.end();)
    at = at->second.ends_s + kGraceMaxS < clock_() ? latest_.erase(at) : std::next(at);
}

Status TlsServer::standing(const Facts& facts) const {
  std::lock_guard<std::mutex> hold(mutex_);
  const Status revoked(Code::kRefused, "the certificate of " + facts.name.text() +
                                           " was revoked; ask an administrator for a new "
                                           "invitation");
  if (denied_.has(facts.serial)) return revoked;
  const int64_t earliest_end_s = clock_() - grace_s_;
  if (facts.ends_s >= earliest_end_s) return Status();
  const auto latest = latest_.find(facts.name.uri());
  if (latest != latest_.end() && denied_.has(latest->second.serial)) return revoked;
  if (latest != latest_.end() && latest->second.ends_s >= earliest_end_s) return Status();
  return Status(Code::kRefused, "the certificate of " + facts.name.text() + " ended at " +
                                    time_text(facts.ends_s) +
                                    ", and this server was shown no newer one since; renew it, or "
                                    "join or log in again");
}

// ---- the client's half ----

class ClientSeal final : public TlsSeal {
 public:
  ClientSeal(std::shared_ptr<const TlsClient> client, session::Endpoint endpoint)
      : TlsSeal(client->context_.get(), End::kClient),
        client_(std::move(client)),
        endpoint_(std::move(endpoint)) {}

  Status receive(const void* data, size_t bytes, std::vector<uint8_t>* plain,
                 std::vector<uint8_t>* network) override {
    const auto* const at = static_cast<const uint8_t*>(data);
    const uint32_t magic = wire::kHelloMagic;
    const uint8_t first = *reinterpret_cast<const uint8_t*>(&magic);
    if (!clear_.empty() || (!begun_ && bytes > 0 && at[0] == first)) return clear(at, bytes);
    begun_ = true;
    return TlsSeal::receive(data, bytes, plain, network);
  }
  std::string identity() const override { return facts_.serial.empty() ? "" : facts_.name.uri(); }
  std::string proof() const override { return facts_.serial.empty() ? "token" : "certificate"; }

  static int judge_server(X509_STORE_CTX* store, void*) {
    auto* const seal = of(
        static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx())));
    seal->wrong_ = seal->judge_chain(store);
    X509_STORE_CTX_set_error(store, seal->wrong_.ok() ? X509_V_OK : X509_V_ERR_CERT_REJECTED);
    return seal->wrong_.ok() ? 1 : 0;
  }
  // The server asks for a certificate; its own was judged before.
  static int choose_own(SSL* ssl, void*) {
    const OwnIdentity* const own = of(ssl)->own_;
    if (own == nullptr) return 1;
    return SSL_use_certificate(ssl, own->certificate.get()) == 1 &&
           SSL_use_PrivateKey(ssl, own->key.get()) == 1;
  }
  static int use_secret(SSL* ssl, const EVP_MD* digest, const unsigned char** name, size_t* bytes,
                        SSL_SESSION** session) {
    *session = nullptr;
    if (digest != nullptr && EVP_MD_get_type(digest) != NID_sha256) return 1;
    *session = session_of_secret(ssl, of(ssl)->client_->secret_key_).release();
    *name = reinterpret_cast<const unsigned char*>(kSecretIdentity);
    *bytes = sizeof kSecretIdentity - 1;
    return *session != nullptr ? 1 : 0;
  }

 protected:
  Status opened(std::vector<uint8_t>*) override {
    // Either way of proof leaves its mark. Without one nothing was proven.
    if (client_->secret_key_.empty() ? !facts_.serial.empty() : SSL_session_reused(ssl()) == 1)
      return Status();
    return Status(Code::kRefused, "the server has proven nothing");
  }
  Status explain(int reason, const std::string& text) const override {
    if (!wrong_.ok()) return wrong_;
    const bool token = !client_->secret_key_.empty();
    if (token && reason == kAlert + kIllegalParameter) {
      return Status(Code::kRefused,
                    "the token is wrong: it is not the one this server was started with");
    }
    if (!token && !is_open() && reason == kAlert + kHandshakeFailure) {
      return Status(Code::kRefused,
                    "the server wants a token and no certificate; set it in "
                    "TENDRIL_TOKEN_FILE or --token-file");
    }
    return Status(Code::kRefused, "the server ended TLS: " + text);
  }

 private:
  static ClientSeal* of(SSL* ssl) {
    return static_cast<ClientSeal*>(static_cast<TlsSeal*>(SSL_get_app_data(ssl)));
  }

  // The server answers in clear: it has refused TLS, and says why.
  Status clear(const uint8_t* data, size_t bytes) {
    clear_.append(reinterpret_cast<const char*>(data), std::min(bytes, kClearBytesMax));
    wire::ControlHeader header;
    if (clear_.size() < sizeof header) return Status();
    std::memcpy(&header, clear_.data(), sizeof header);
    const bool strange = !wire::believable(header) || header.bytes > kClearBytesMax ||
                         header.kind != wire::kHelloKind;
    if (!strange && clear_.size() < sizeof header + header.bytes) return Status();
    const std::string why =
        strange ? "something else" : base::printable(clear_.substr(sizeof header, header.bytes));
    if (!strange && header.code == uint16_t(Code::kRefused)) return Status(Code::kRefused, why);
    return Status(Code::kUnsupported, "the server answers TLS in clear: " + why);
  }

  Status judge_chain(X509_STORE_CTX* store) {
    const Certificate shown = shared(X509_STORE_CTX_get0_cert(store));
    const std::string whose = std::string("the server's certificate");
    const int64_t now_s = client_->clock_();
    if (!client_->secret_key_.empty()) {
      return Status(Code::kRefused,
                    "the server wants a certificate and no token; run `tendril join` "
                    "with an invitation of its pool");
    }
    if (!client_->pin_.empty()) {
      STACK_OF(X509)* const chain = X509_STORE_CTX_get0_untrusted(store);
      for (int i = 0; i < sk_X509_num(chain); ++i) {
        const Certificate each = shared(sk_X509_value(chain, i));
        if (pin_of(each) != client_->pin_ || !is_self_signed(each.get())) continue;
        std::lock_guard<std::mutex> hold(client_->mutex_);
        client_->authority_ = each;
        return accept(judge(shown, each, Purpose::kServer, now_s, whose));
      }
      return Status(
          Code::kRefused,
          "the server is not of the pool that gave out this token: its authority does not "
          "match the token's pin. The token was not sent. Is the address right? If "
          "it is, somebody stands in for the server");
    }
    Status worst;
    for (const OwnIdentity& own : client_->identities_) {
      Result<Facts> facts = judge(shown, own.authority, Purpose::kServer, now_s, whose);
      if (facts.ok()) {
        const Status meant = check_meant(endpoint_, facts->name);
        if (!meant.ok()) return meant;
        own_ = &own;
        return accept(std::move(facts));
      }
      if (worst.ok() || facts.status().code() != Code::kMismatch) worst = facts.status();
    }
    if (!worst.ok()) return worst;
    return Status(Code::kRefused,
                  "this user has no identity for the server; run `tendril join` with an invitation "
                  "of its pool");
  }

  Status accept(Result<Facts> facts) {
    if (!facts.ok()) return facts.status();
    facts_ = facts.take();
    return Status();
  }

  const std::shared_ptr<const TlsClient> client_;
  const session::Endpoint endpoint_;
  const OwnIdentity* own_ = nullptr;
  Facts facts_;
  Status wrong_;
  bool begun_ = false;
  std::string clear_;
};

Status TlsClient::prepare() {
  context_ = make_context();
  if (context_ == nullptr) return openssl_status("preparing TLS");
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_cert_verify_callback(context_.get(), ClientSeal::judge_server, nullptr);
  SSL_CTX_set_cert_cb(context_.get(), ClientSeal::choose_own, nullptr);
  return Status();
}

Result<std::shared_ptr<TlsClient>> TlsClient::with_identities(
    const std::vector<OwnIdentity>& identities, Clock clock) {
  std::shared_ptr<TlsClient> client(new TlsClient);
  client->identities_ = identities;
  client->clock_ = clock;
  Status ready = client->prepare();
  if (!ready.ok()) return ready;
  return client;
}

Result<std::shared_ptr<TlsClient>> TlsClient::with_secret(const std::string& secret) {
  std::shared_ptr<TlsClient> client(new TlsClient);
  client->secret_key_ = key_from_secret(secret, kSecretLabel);
  Status ready = client->prepare();
  if (!ready.ok()) return ready;
  if (client->secret_key_.empty()) return openssl_status("preparing TLS");
  SSL_CTX_set_ciphersuites(client->context_.get(), "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set_psk_use_session_callback(client->context_.get(), ClientSeal::use_secret);
  return client;
}

Result<std::shared_ptr<TlsClient>> TlsClient::with_pin(const std::string& pin, Clock clock) {
  std::shared_ptr<TlsClient> client(new TlsClient);
  client->pin_ = pin;
  client->clock_ = clock;
  Status ready = client->prepare();
  if (!ready.ok()) return ready;
  return client;
}

Result<std::unique_ptr<session::Seal>> TlsClient::secure(const session::Endpoint& endpoint) const {
  if (!endpoint.unix_path.empty()) return std::unique_ptr<session::Seal>();
  return std::unique_ptr<session::Seal>(std::make_unique<ClientSeal>(shared_from_this(), endpoint));
}

Certificate TlsClient::authority() const {
  std::lock_guard<std::mutex> hold(mutex_);
  return authority_;
}

}  // namespace tendril::identity
