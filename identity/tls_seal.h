// SPDX-License-Identifier: Apache-2.0
// What both halves of a TLS connection share: OpenSSL between two buffers in memory. Private to
// identity/; tls.h makes the halves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "identity/openssl.h"
#include "session/control/seal.h"

namespace tendril::identity {

class TlsSeal : public session::Seal {
 public:
  base::Status start(std::vector<uint8_t>* network) override;
  base::Status receive(const void* data, size_t bytes, std::vector<uint8_t>* plain,
                       std::vector<uint8_t>* network) override;
  base::Status send(const void* data, size_t bytes, std::vector<uint8_t>* network) override;
  void finish(std::vector<uint8_t>* network) override;
  bool is_open() const override { return open_; }
  bool has_ended() const override { return ended_; }

 protected:
  enum class End : uint8_t { kClient, kServer };
  // The object belongs to a seal: callbacks find it by SSL_get_app_data.
  TlsSeal(SSL_CTX* context, End end);
  SSL* ssl() const { return ssl_.get(); }
  // The handshake is over. An error refuses the peer, after what `network` holds.
  virtual base::Status opened(std::vector<uint8_t>* network) = 0;
  // What OpenSSL's reason means, for people. `reason`: ERR_GET_REASON, or 0.
  virtual base::Status explain(int reason, const std::string& text) const = 0;

 private:
  base::Status advance(std::vector<uint8_t>* plain, std::vector<uint8_t>* network);
  base::Status failed(std::vector<uint8_t>* network);
  void collect(std::vector<uint8_t>* network);

  SslOwner ssl_;
  BIO *in_ = nullptr, *out_ = nullptr;  // owned by ssl_
  bool open_ = false, ended_ = false;
};

// A context for TLS 1.3 without resumption. Both halves begin with it.
std::shared_ptr<SSL_CTX> make_context();
// The external key of a secret, as OpenSSL wants it. Null: OpenSSL failed.
SessionOwner session_of_secret(SSL* ssl, const std::string& key);
inline constexpr char kSecretIdentity[] = "tendril secret";

}  // namespace tendril::identity
