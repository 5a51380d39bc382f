// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes as the orders of a client's trial, and as a worker's answers.
// Either end may leave the trial. No way is used that was not there, and no port that was not told.
#include <cstdlib>
#include <cstring>
#include <string>

#include "session/choice/trial.h"
#include "transport/testing/test_channels.h"

using namespace tendril;             // NOLINT: a program
using namespace tendril::transport;  // NOLINT

namespace {

void serve(Channel* orders, Channel* fabric) {
  uint32_t pairs = 0;
  session::TrialServer server;
  server.fabric_kind = "rdma";
  server.connections_kind = "tcp";
  server.ways[0] = {orders, {orders}};
  server.ways[1] = {fabric, {fabric}};
  server.ports = [] {
    return std::vector<Port>(6, Port{std::string(50, 'p'), std::string(20, 'n'), 1});
  };
  server.pair = [&](session::WayKind way, const Port& port, const std::string& blob) {
    if (way == session::WayKind::kConnections || port.name.size() != 50 || blob.empty() ||
        blob.size() > kBlobBytesMax || ++pairs > 5)
      abort();
    return base::Result<std::string>(base::Status(base::Code::kUnavailable, "none"));
  };
  server.moves = [&](const session::WayChoice& choice) {
    if (choice.striped || choice.second) abort();
    return true;
  };
  (void)session::serve_trial(orders, &server, {5, 5, 50});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  ChannelSet near, far, fabric, unused;
  make_channels("loopback", 0, &near, &far);
  make_channels("loopback", 0, &fabric, &unused);
  const iovec part{const_cast<uint8_t*>(data + 1), size - 1};
  if (size > 1 && !near.command->send(&part, 1).ok()) abort();
  unused = {};
  if (data[0] % 2 == 0) {
    near = {};
    serve(far.command.get(), fabric.command.get());
    return 0;
  }
  near.command->shutdown();
  base::Result<std::vector<Port>> ports = session::ask_ports(far.command.get());
  if (ports.ok() && ports->size() > kPortsMost) abort();
  base::Result<std::string> blob =
      session::ask_pair(far.command.get(), session::WayKind::kFabric, 0, "mine");
  if (blob.ok() && blob->size() > kBlobBytesMax) abort();
  (void)session::tell_choice(far.command.get(), session::WayChoice(), {}, {});
  return 0;
}
