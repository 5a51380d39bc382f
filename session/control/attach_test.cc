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
#include "session/control/adopt.h"
#include "session/lane/lane.h"
#include "session/lane/service.h"
#include "session/lane/test_pair.h"
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

transport::Listener listen_here() {
  return std::move(transport::listen_tcp("127.0.0.1:0", 0).take()[0]);
}

// One session at a time; its worker is a thread that echoes.
class SmallServer : public ControlHandler {
 public:
  explicit SmallServer(const std::string& token = "", uint16_t oldest = 2, uint16_t newest = 2,
                       bool broken = false)
      : token_(token), break_sharing_(broken) {
    hello_.protocol_oldest = oldest;
    hello_.protocol_newest = newest;
    hello_.product_version = "9.9";
    hello_.boot_id = this_boot();
    listening_ = listen_here();
    unsigned char salt[8];
    base::random_bytes(salt, sizeof salt);
    share_name_ = "@tendril-test-" + base::hex(salt, sizeof salt);
    sharing_ = transport::listen_unix(share_name_).take();
    acceptors_[0] = std::thread([this] { accept_loop(listening_); });
    acceptors_[1] = std::thread([this] { accept_loop(sharing_); });
  }
  ~SmallServer() override {
    stop_ = true;
    for (std::thread& thread : acceptors_) thread.join();
    for (std::thread& thread : threads_) thread.join();
    if (worker_.joinable()) worker_.join();
  }
  std::string address() const { return listening_.text; }

  wire::Hello hello() override { return hello_; }
  std::vector<wire::ApiRecord> apis() override { return {{"echo", 11}, {"other", 12}}; }
  bool token_matches(const std::string& token, bool* required) override {
    *required = !token_.empty();
    return token == token_;
  }
  base::Result<wire::ListReply> list() override {
    wire::ListReply reply;
    reply.server = "small";
    return reply;
  }
  base::Result<wire::LeaseReply> lease(const wire::LeaseRequest& request) override {
    if (request.count > 4) return base::Status(Code::kUnavailable, "only 4 GPUs are here");
    wire::LeaseReply reply;
    reply.lease_id = 77;
    reply.slices.resize(request.count);
    return reply;
  }
  base::Status release(uint64_t lease_id) override {
    return lease_id == 77 ? base::Status() : base::Status(Code::kNotFound, "no such lease");
  }
  base::Status change(const wire::ChangeRequest& request) override {
    if (request.lease_id != 77) return base::Status(Code::kNotFound, "no such lease");
    const bool whole = request.sets_priority && request.terms.priority == -3;
    return whole ? base::Status() : base::Status(Code::kInternal, "something was lost");
  }
  void lease_connection_closed(uint64_t lease_id) override { closed_lease = lease_id; }
  base::Result<wire::AttachReply> attach(const wire::AttachRequest& request) override {
    wire::AttachReply reply;
    reply.session_id = 5;
    reply.session_secret = "hush";
    reply.bulk_channels = std::min<uint16_t>(request.bulk_channels, 3);
    if (request.shared_memory) reply.shared_memory_socket = share_name_;
    granted_ = reply.bulk_channels;
    return reply;
  }
  void attached(uint64_t, int command_fd) override {
    std::lock_guard<std::mutex> guard(mutex_);
    command_.reset(command_fd);
    start_if_whole();
  }
  base::Status join(const wire::JoinRequest& request) override {
    return request.session_secret == "hush" && request.session_id == 5
               ? base::Status()
               : base::Status(Code::kRefused, "no such session");
  }
  void joined(const wire::JoinRequest& request, int fd) override {
    std::lock_guard<std::mutex> guard(mutex_);
    more_.resize(std::max<size_t>(more_.size(), request.channel + 1u));
    more_[request.channel].reset(fd);
    ++joined_;
    start_if_whole();
  }
  base::Result<int> share(const wire::JoinRequest& request) override {
    if (!join(request).ok() || break_sharing_)
      return base::Status(Code::kRefused, "sharing is broken today");
    if (!memory_.valid()) memory_ = create_shared_memory(granted_).take();
    return memory_.get();
  }
  base::Status shared(const wire::JoinRequest& request) override {
    if (!join(request).ok() || !memory_.valid())
      return base::Status(Code::kRefused, "no such session");
    std::lock_guard<std::mutex> guard(mutex_);
    more_.clear();
    more_.push_back(std::move(memory_));
    joined_ = granted_;
    start_if_whole();
    return base::Status();
  }

  std::atomic<uint64_t> closed_lease{0};

 private:
  void accept_loop(const transport::Listener& listening) {
    while (!stop_) {
      bool local = false;
      base::Result<base::Fd> fd = transport::accept_on(listening, 50, &local);
      if (!fd.ok()) continue;
      std::lock_guard<std::mutex> guard(threads_mutex_);
      threads_.emplace_back(
          [this, raw = fd->release(), local] { serve_connection(raw, local, this); });
    }
  }
  void start_if_whole() {
    if (!command_.valid() || joined_ != granted_) return;
    worker_ = std::thread([command = std::move(command_), more = std::move(more_)]() mutable {
      Adopted adopted = adopt_channels(std::move(command), std::move(more)).take();
      auto service = Service::open(std::move(adopted.command), adopted.bulk.data(),
                                   adopted.bulk.size(), SlotPool());
      for (;;) {
        base::Result<Call> call = service->next({0, -1});
        if (!call.ok()) return;
        if (call->opcode == kEcho) service->reply(call->reply_id, 7, call->body, call->bytes);
        if (call->opcode == kTake) {
          uint64_t ask[2], got = 0;
          memcpy(ask, call->body, sizeof ask);
          Piece piece;
          while (got < ask[1] && service->take(ask[0], &piece)) {
            got += piece.bytes;
            service->release(piece);
          }
          service->reply(call->reply_id, 0, nullptr, 0);
        }
      }
    });
  }

  wire::Hello hello_;
  const std::string token_;
  const bool break_sharing_;
  transport::Listener listening_, sharing_;
  std::string share_name_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_, threads_mutex_;
  std::thread acceptors_[2];
  std::vector<std::thread> threads_;
  base::Fd command_, memory_;
  std::vector<base::Fd> more_;
  uint16_t granted_ = 0, joined_ = 0;
  std::thread worker_;
};

class AttachTest : public ::testing::Test {
 protected:
  void SetUp() override { alarm(240); }
  void TearDown() override { alarm(0); }
  static Endpoint at(const std::string& text) { return parse_endpoint(text).take(); }
  static ConnectOptions quick() {
    ConnectOptions options;
    options.timeout_ms = 2000;
    return options;
  }
  static wire::AttachRequest for_echo() {
    wire::AttachRequest request;
    request.api = "echo";
    request.api_digest = 11;
    return request;
  }
};

TEST_F(AttachTest, ParsesEndpoints) {
  EXPECT_EQ(at("gpu1").host, "gpu1");
  EXPECT_EQ(at("gpu1").port, wire::kDefaultPort);
  EXPECT_EQ(at("gpu1:99").port, 99);
  EXPECT_EQ(at("[::1]:99").host, "::1");
  EXPECT_EQ(at("[::1]:99").port, 99);
  EXPECT_EQ(at("fe80::1").host, "fe80::1");
  EXPECT_EQ(at("unix:/run/x").unix_path, "/run/x");
  for (const char* bad :
       {"", ":1", "a:", "a:0", "a:70000", "a:1x", "[::1", "[::1]x", "unix:", "unix:x", "a b"}) {
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

void use_session(Attached& attached) {
  TestEvents events;
  auto lane =
      Lane::open(std::move(attached.command), attached.bulk.data(), attached.bulk.size(), &events);
  auto post = [&](uint16_t opcode, const void* body, uint32_t bytes) {
    uint32_t id = lane->new_reply_id();
    uint8_t* at = lane->begin(opcode, 0, bytes, id);
    if (at != nullptr) memcpy(at, body, bytes), lane->commit();
    return id;
  };
  Reply reply = lane->wait(post(kEcho, "hello", 5));
  ASSERT_FALSE(reply.lost);
  EXPECT_EQ(reply.bytes, 5u);
  std::vector<uint8_t> data(9u << 20);
  uint64_t ask[2] = {lane->new_transfer_id(), data.size()};
  uint32_t id = post(kTake, ask, sizeof ask);
  EXPECT_TRUE(lane->send_bulk(ask[0], data.data(), data.size()));
  EXPECT_FALSE(lane->wait(id).lost);
  lane->close(2000);
}

TEST_F(AttachTest, AttachesOverTcp) {
  SmallServer server;
  ConnectOptions options = quick();
  options.allow_shared_memory = false;
  auto attached = attach(at(server.address()), options, for_echo());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  EXPECT_EQ(attached->transport, "tcp");
  EXPECT_EQ(attached->bulk.size(), 3u);
  EXPECT_NE(attached->reason.find("switched off"), std::string::npos);
  use_session(*attached);
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
  serve_connection(ends[1], true, &server);  // returns by itself
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
