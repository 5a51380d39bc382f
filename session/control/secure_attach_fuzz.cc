// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes as a handshake, and behind a good one, as what it carries. The
// first byte chooses the end that reads.
#include "session/control/secure_attach.h"

using namespace tendril;  // NOLINT: a program

namespace {

const session::Hellos kHellos = {{1}, {2}};
const session::AttachProof kProof = {wire::AttachKey::kLeaseSecret, 7, "secret"};

void read_as_server(const std::vector<uint8_t>& body) {
  wire::SecuredAttach request;
  if (!wire::decode(body.data(), body.size(), &request)) return;
  session::SecureAttachAnswer answer(kProof, kHellos);
  (void)answer.read(request);
}

void read_as_client(const std::vector<uint8_t>& body) {
  session::SecureAttach client(kProof, kHellos);
  (void)client.request(wire::AttachRequest());
  (void)client.answer(body);
}

// Inside a handshake that fits, as a hostile client with a lease would send it.
void read_inside(const std::string& payload) {
  const transport::Digest secret = {3};
  session::Handshake hostile(secret, ""), server(secret, "");
  base::Result<std::string> first = hostile.write_first(payload);
  if (!first.ok()) return;
  base::Result<std::string> got = server.read_first(*first);
  if (!got.ok() || *got != payload) __builtin_trap();
  wire::AttachRequest request;
  (void)wire::decode(got->data(), got->size(), &request);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes == 0) return 0;
  const std::vector<uint8_t> body(data + 1, data + bytes);
  if (data[0] % 3 == 0) read_as_server(body);
  if (data[0] % 3 == 1) read_as_client(body);
  if (data[0] % 3 == 2) read_inside(std::string(body.begin(), body.end()));
  return 0;
}
