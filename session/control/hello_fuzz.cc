// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes as an unknown peer's control connection, beginning with hello.
// The server's half must answer or end it.
#include <sys/socket.h>
#include <unistd.h>

#include "session/control/serve.h"

using namespace tendril;  // NOLINT: a program

namespace {
struct Handler : session::ControlHandler {
  wire::Hello hello() override { return {}; }
  // An empty request names this API, so that most inputs pass the check.
  std::vector<wire::ApiRecord> apis() override { return {{"", 0}}; }
  session::Admission admit(const wire::Hello&, const session::Peer&) override {
    return session::admit_by_token("", "");
  }
  base::Result<wire::ListReply> list(const wire::ListRequest&) override {
    return wire::ListReply();
  }
  base::Result<wire::LeaseReply> lease(const wire::LeaseRequest&) override {
    return wire::LeaseReply();
  }
  base::Status release(uint64_t) override { return base::Status(); }
  base::Status change(const wire::ChangeRequest&) override { return base::Status(); }
  void lease_connection_closed(uint64_t) override {}
  base::Result<wire::AttachReply> attach(const wire::AttachRequest&,
                                         const wire::ConnectionRecord&) override {
    return wire::AttachReply();
  }
  void attached(uint64_t, session::Connection) override {}
  base::Status join(const wire::JoinRequest&) override { return base::Status(); }
  void joined(const wire::JoinRequest&, session::Connection) override {}
};
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  int ends[2];
  if (bytes > 60000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 0;
  // Half of the inputs start behind a good hello.
  if (bytes > 0 && (data[0] & 1) != 0) {
    std::vector<uint8_t> body = wire::encode(wire::Hello());
    wire::ControlHeader header;
    header.bytes = uint32_t(body.size());
    (void)!write(ends[0], &header, sizeof header);
    (void)!write(ends[0], body.data(), body.size());
  }
  if (bytes > 1) (void)!send(ends[0], data + 1, bytes - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  shutdown(ends[0], SHUT_WR);
  Handler handler;
  session::serve_connection(session::Connection(base::Fd(ends[1])), &handler);
  close(ends[0]);
  return 0;
}
