// SPDX-License-Identifier: Apache-2.0
// See tls_seal.h.
#include "identity/tls_seal.h"

namespace tendril::identity {

using base::Code;
using base::Status;

namespace {

constexpr size_t kPieceBytes = 16'384;  // a TLS record
constexpr long kCertificateListBytesMax = 16'384;
constexpr unsigned char kCipher[2] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256

}  // namespace

std::shared_ptr<SSL_CTX> make_context() {
  prepare_openssl();
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  if (context == nullptr) return nullptr;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_max_proto_version(context.get(), TLS1_3_VERSION);
  // A resumed session would pass by the list of certificates that were taken back.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_max_cert_list(context.get(), kCertificateListBytesMax);
  return context;
}

SessionOwner session_of_secret(SSL* ssl, const std::string& key) {
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kCipher);
  SessionOwner session(SSL_SESSION_new());
  if (cipher == nullptr || session == nullptr ||
      SSL_SESSION_set1_master_key(session.get(), reinterpret_cast<const unsigned char*>(key.data()),
                                  key.size()) != 1 ||
      SSL_SESSION_set_cipher(session.get(), cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1) {
    return nullptr;
  }
  return session;
}

TlsSeal::TlsSeal(SSL_CTX* context, End end) : ssl_(SSL_new(context)) {
  in_ = BIO_new(BIO_s_mem());
  out_ = BIO_new(BIO_s_mem());
  if (ssl_ == nullptr || in_ == nullptr || out_ == nullptr) {
    BIO_free(in_);
    BIO_free(out_);
    ssl_.reset();
    return;
  }
  BIO_set_mem_eof_return(in_, -1);  // more may come
  SSL_set_bio(ssl_.get(), in_, out_);
  SSL_set_app_data(ssl_.get(), this);
  if (end == End::kServer) {
    SSL_set_accept_state(ssl_.get());
  } else {
    SSL_set_connect_state(ssl_.get());
  }
}

void TlsSeal::collect(std::vector<uint8_t>* network) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(out_, &data);
  if (bytes > 0) network->insert(network->end(), data, data + bytes);
  (void)BIO_reset(out_);
}

Status TlsSeal::start(std::vector<uint8_t>* network) {
  std::vector<uint8_t> none;
  return advance(&none, network);
}

Status TlsSeal::receive(const void* data, size_t bytes, std::vector<uint8_t>* plain,
                        std::vector<uint8_t>* network) {
  const auto* at = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    if (ssl_ == nullptr || ended_) return Status();  // nothing counts behind a goodbye
    const size_t piece = bytes < kPieceBytes ? bytes : kPieceBytes;
    if (BIO_write(in_, at, int(piece)) != int(piece))
      return Status(Code::kExhausted, "no memory for what the peer sent");
    Status done = advance(plain, network);
    if (!done.ok()) return done;
    at += piece;
    bytes -= piece;
  }
  return Status();
}

Status TlsSeal::advance(std::vector<uint8_t>* plain, std::vector<uint8_t>* network) {
  if (ssl_ == nullptr) return Status(Code::kExhausted, "no memory for a TLS connection");
  ERR_clear_error();
  if (!open_) {
    const int done = SSL_do_handshake(ssl_.get());
    const int why = done == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_.get(), done);
    collect(network);
    if (why == SSL_ERROR_WANT_READ) return Status();
    if (why != SSL_ERROR_NONE) return failed(network);
    open_ = true;
    Status good = opened(network);
    if (!good.ok()) return good;
  }
  for (;;) {
    uint8_t piece[kPieceBytes];
    const int got = SSL_read(ssl_.get(), piece, sizeof piece);
    if (got > 0) {
      plain->insert(plain->end(), piece, piece + got);
      continue;
    }
    const int why = SSL_get_error(ssl_.get(), got);
    collect(network);
    if (why == SSL_ERROR_WANT_READ) return Status();
    if (why != SSL_ERROR_ZERO_RETURN) return failed(network);
    ended_ = true;
    return Status();
  }
}

Status TlsSeal::failed(std::vector<uint8_t>* network) {
  collect(network);
  const unsigned long error = ERR_get_error();
  const char* const text = error != 0 ? ERR_reason_error_string(error) : nullptr;
  ERR_clear_error();
  return explain(error != 0 ? ERR_GET_REASON(error) : 0,
                 text != nullptr ? text : "the bytes are not TLS");
}

Status TlsSeal::send(const void* data, size_t bytes, std::vector<uint8_t>* network) {
  if (!open_) return Status(Code::kInternal, "bytes for a peer that has proven nothing yet");
  ERR_clear_error();
  size_t done = 0;
  while (done < bytes) {
    size_t put = 0;
    if (SSL_write_ex(ssl_.get(), static_cast<const uint8_t*>(data) + done, bytes - done, &put) != 1)
      return failed(network);
    done += put;
  }
  collect(network);
  return Status();
}

void TlsSeal::finish(std::vector<uint8_t>* network) {
  if (ssl_ == nullptr) return;
  ERR_clear_error();
  if (open_) SSL_shutdown(ssl_.get());
  ERR_clear_error();
  collect(network);
}

}  // namespace tendril::identity
