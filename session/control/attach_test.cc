// SPDX-License-Identifier: Apache-2.0
// Attaching against a small server in this process: every refusal with its own message, leases that
// end with their connection, bulk joins, the move to shared memory, half-open and hostile
// connections.
#include "session/control/attach.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "session/control/test_server.h"
#include "transport/tcp/listener.h"

namespace tendril::session {
namespace {

using base::Code;

std::string this_boot() {
  FILE* file = fopen("/proc/sys/kernel/random/boot_id", "r");
  char text[64] = {};
  if (file != nullptr) {
    if (fgets(text, sizeof text, file) == nullptr) text[0] = 0;
    fclose(file);
  }
  return std::string(text).substr(0, 36);
}

class AttachTest : public ::testing::Test {
 protected:
  void SetUp() override { alarm(240); }
  void TearDown() override { alarm(0); }
};

TEST_F(AttachTest, ParsesEndpoints) {
  EXPECT_EQ(at("gpu1").host, "gpu1");
  EXPECT_EQ(at("gpu1").port, wire::kDefaultPort);
  EXPECT_EQ(at("gpu1:99").port, 99);
  EXPECT_EQ(at("[::1]:99").host, "::1");
  EXPECT_EQ(at("[::1]:99").port, 99);
  EXPECT_EQ(at("fe80::1").host, "fe80::1");
  EXPECT_EQ(at("unix:/run/x").unix_path, "/run/x");
  EXPECT_EQ(at("gpu1").name, "");
  EXPECT_EQ(at("gpu1=[::1]:99").name, "gpu1");
  EXPECT_EQ(at("gpu1=[::1]:99").host, "::1");
  EXPECT_EQ(at("gpu1=[::1]:99").text, "gpu1=[::1]:99");
  for (const char* bad : {"", ":1", "a:", "a:0", "a:70000", "a:1x", "[::1", "[::1]x",
                          "unix:", "unix:x", "a b", "=a", "a=", "a=:1", "a=b=c", "a=unix:/run/x"}) {
    EXPECT_FALSE(parse_endpoint(bad).ok()) << bad;
  }
}

TEST_F(AttachTest, HelloPingListLease) {
  SmallServer server;
  {
    auto control = Control::connect(at(server.address()), quick());
    ASSERT_TRUE(control.ok()) << control.status().message();
    EXPECT_EQ((*control)->server_hello().product_version, "9.9");
    EXPECT_TRUE((*control)->ping_us().ok());
    EXPECT_EQ((*control)->list()->server, "small");
    wire::LeaseRequest request;
    request.count = 2;
    EXPECT_EQ((*control)->lease(request)->slices.size(), 2u);
    request.count = 9;
    auto refused = (*control)->lease(request);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find("only 4 GPUs"), std::string::npos);
    EXPECT_TRUE((*control)->release(77).ok());
    EXPECT_EQ((*control)->release(78).code(), Code::kNotFound);
    wire::ChangeRequest change;
    change.lease_id = 77;
    change.sets_priority = true;
    change.terms.priority = -3;
    EXPECT_TRUE((*control)->change(change).ok());
    change.lease_id = 78;
    EXPECT_EQ((*control)->change(change).code(), Code::kNotFound);
    EXPECT_EQ(server.closed_lease.load(), 0u);
  }
  for (int i = 0; i < 1000 && server.closed_lease.load() == 0; ++i) usleep(1000);
  EXPECT_EQ(server.closed_lease.load(), 77u);
}

TEST_F(AttachTest, TellsTheRefusalsApart) {
  auto message = [](const std::string& address, const ConnectOptions& options) {
    auto control = Control::connect(at(address), options);
    return control.ok() ? std::string("connected")
                        : std::string(code_name(control.status().code())) + ": " +
                              control.status().message();
  };
  ConnectOptions options = quick();
  EXPECT_NE(message("no-such-host.invalid", options).find("cannot be resolved"), std::string::npos);
  uint16_t free_port = listen_here().port;
  EXPECT_NE(message("127.0.0.1:" + std::to_string(free_port), options).find("refused"),
            std::string::npos);
  EXPECT_NE(message("unix:/no/such/socket", options).find("there is no socket"), std::string::npos);
  {
    SmallServer server("right");
    EXPECT_NE(message(server.address(), options).find("wants a token"), std::string::npos);
    options.token = "wrong";
    EXPECT_NE(message(server.address(), options).find("token is wrong"), std::string::npos);
    options.token = "right";
    EXPECT_EQ(message(server.address(), options), "connected");
  }
  {
    SmallServer server("", 7, 8);
    std::string text = message(server.address(), options);
    EXPECT_NE(text.find("mismatch"), std::string::npos) << text;
    EXPECT_NE(text.find("7 to 8"), std::string::npos) << text;
    EXPECT_NE(text.find("9.9"), std::string::npos) << text;
    EXPECT_NE(text.find(wire::product_version()), std::string::npos) << text;
  }
  {
    SmallServer server;
    wire::AttachRequest other = for_echo();
    other.api_digest = 12;
    auto attached = attach(at(server.address()), quick(), other);
    ASSERT_FALSE(attached.ok());
    EXPECT_EQ(attached.status().code(), Code::kMismatch);
    for (const char* said : {"9.9", "echo", wire::product_version(), "same version on both"})
      EXPECT_NE(attached.status().message().find(said), std::string::npos) << said;
    other.api = "unheard-of";
    attached = attach(at(server.address()), quick(), other);
    ASSERT_FALSE(attached.ok());
    EXPECT_EQ(attached.status().code(), Code::kUnsupported);
    for (const char* said : {"'unheard-of'", "echo, other", "9.9", wire::product_version()})
      EXPECT_NE(attached.status().message().find(said), std::string::npos) << said;
  }
}

TEST_F(AttachTest, RecognisesStrangers) {
  struct Stranger {
    const char* says;
    bool hangs;
    const char* wanted;
  };
  for (const Stranger& stranger :
       {Stranger{"HTTP/1.1 400 Bad Request\r\n\r\n", false, "not a Tendril server"},
        Stranger{"", false, "not a Tendril server"}, Stranger{"", true, "did not answer"}}) {
    transport::Listener listening = listen_here();
    std::thread thread([&] {
      bool local;
      base::Fd fd = transport::accept_on(listening, 5000, &local).take();
      (void)!write(fd.get(), stranger.says, strlen(stranger.says));
      if (stranger.hangs) usleep(600'000);
      char drain[1000];
      recv(fd.get(), drain, sizeof drain, 0);
    });
    ConnectOptions options = quick();
    options.timeout_ms = 300;
    auto control = Control::connect(at(listening.text), options);
    ASSERT_FALSE(control.ok());
    EXPECT_NE(control.status().message().find(stranger.wanted), std::string::npos)
        << control.status().message();
    thread.join();
  }
}

TEST_F(AttachTest, AttachesOverTcp) {
  SmallServer server;
  ConnectOptions options = quick();
  options.transport = "tcp";
  auto attached = attach(at(server.address()), options, for_echo());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  EXPECT_EQ(attached->transport, "tcp");
  EXPECT_EQ(attached->bulk.size(), 3u);
  EXPECT_NE(attached->reason.find("switched off"), std::string::npos);
  use_session(*attached);
  EXPECT_EQ(server.peer_seen.find("127.0.0.1:"), 0u) << server.peer_seen;
}

TEST_F(AttachTest, MovesToSharedMemory) {
  if (this_boot().empty()) GTEST_SKIP();
  SmallServer server;
  auto attached = attach(at(server.address()), quick(), for_echo());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  EXPECT_EQ(attached->transport, "shm") << attached->reason;
  use_session(*attached);
}

TEST_F(AttachTest, StaysOnTcpWhenSharingFails) {
  SmallServer server("", 2, 2, true);
  auto attached = attach(at(server.address()), quick(), for_echo());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  EXPECT_EQ(attached->transport, "tcp");
  if (!this_boot().empty()) {
    EXPECT_NE(attached->reason.find("broken today"), std::string::npos) << attached->reason;
  }
  use_session(*attached);
}

TEST_F(AttachTest, HostileConnectionsEndAlone) {
  SmallServer server;
  auto raw = [&](const std::string& bytes) {
    Endpoint endpoint = at(server.address());
    base::Fd fd(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
    shutdown(fd.get(), SHUT_WR);
    pollfd p{fd.get(), POLLIN, 0};
    EXPECT_EQ(poll(&p, 1, 3000), 1);  // the server ends it
  };
  raw("GET / HTTP/1.1\r\n\r\n");
  raw("");
  raw(std::string("TNRD\xff\xff\xff\xff", 8) + std::string(100, 'x'));
  wire::ControlHeader header;
  header.bytes = wire::kControlBytesMax;
  raw(std::string(reinterpret_cast<char*>(&header), sizeof header) + "short");
  auto control = Control::connect(at(server.address()), quick());
  EXPECT_TRUE(control.ok());
}

TEST_F(AttachTest, HalfOpenConnectionsDoNotPinTheServer) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  SmallServer server;
  base::Fd mine(ends[0]);
  ASSERT_EQ(write(mine.get(), "TN", 2), 2);
  uint64_t start = base::now_ns();
  serve_connection(Connection(base::Fd(ends[1])), &server);  // returns by itself
  EXPECT_LT(base::now_ns() - start, 8'000'000'000u);
}

TEST_F(AttachTest, PassesDescriptors) {
  int ends[2], pipes[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  ASSERT_EQ(pipe(pipes), 0);
  base::Fd a(ends[0]), b(ends[1]), read_end(pipes[0]), write_end(pipes[1]);
  char message[100] = "take this";
  ASSERT_TRUE(send_descriptors(a.get(), message, sizeof message, pipes, 2).ok());
  char got[100] = {};
  size_t bytes = 0;
  auto fds = receive_descriptors(b.get(), got, sizeof got, &bytes);
  ASSERT_TRUE(fds.ok());
  ASSERT_EQ(bytes, sizeof message);
  ASSERT_EQ(fds->size(), 2u);
  base::Fd read_copy((*fds)[0]), write_copy((*fds)[1]);
  ASSERT_EQ(write(write_copy.get(), "x", 1), 1);
  char c = 0;
  ASSERT_EQ(read(read_copy.get(), &c, 1), 1);
  a.reset();
  fds = receive_descriptors(b.get(), got, sizeof got, &bytes);
  ASSERT_TRUE(fds.ok());
  EXPECT_EQ(bytes, 0u);
}

}  // namespace
}  // namespace tendril::session
