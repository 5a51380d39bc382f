// SPDX-License-Identifier: Apache-2.0
// The environment contract of the client libraries: where the GPUs are, which part of them the
// program gets, and how to reach them. Read once, at cuInit or nvmlInit, by libcuda and
// libnvidia-ml alike, so that both see the same devices in the same order. Any thread; reads the
// environment and small files, opens no connection.
//
//   TENDRIL_LEASES       "<endpoint>=<lease id>:<secret in hex>,...", in device order; set by
//   `tendril run`, wins over all below TENDRIL_SERVERS      "<endpoint>,<endpoint>,..."
//   TENDRIL_SERVERS_CONF a file instead of ~/.config/tendril/servers.conf and
//   /etc/tendril/servers.conf: one endpoint per line, # comment TENDRIL_GPUS         how many
//   slices (1 to 64, default 1) TENDRIL_SLICE        part of a GPU: 0.5, 1/3 or 35% (default: all
//   of it) TENDRIL_MEMORY       memory of a slice: bytes, or 512M, 10G (powers of 1024); alone, the
//   server derives the share of time from it TENDRIL_CAP          1: never more than that share of
//   time, also when the GPU is idle (default: 0) TENDRIL_PRIORITY     -100 to 100: higher is served
//   first, and gets no more (default: 0) TENDRIL_TOKEN, TENDRIL_TOKEN_FILE   the servers' shared
//   secret, or a file that holds it TENDRIL_TRANSPORT    auto (default), tcp or shm TENDRIL_LINK
//   "<us>:<MB/s>": behave as if the servers were that far away, each way (0: no limit); for tests
//   and planning
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "wire/control.h"

namespace tendril::client {

inline constexpr uint32_t kSlicesMax = 64;

struct Server {
  std::string endpoint;      // as written; session::parse_endpoint reads it
  uint64_t lease_id = 0;     // 0: no lease yet, ask for one
  std::string lease_secret;  // raw bytes; never logged
};

enum class Transport : uint8_t { kAuto, kTcp, kShm };

struct Configuration {
  std::vector<Server>
      servers;  // at least one, in device order; with leases a server appears once per lease
  uint32_t slice_count = 1;  // over all servers; meaningless with leases
  wire::SliceSpec slice;     // each; meaningless with leases
  wire::LeaseTerms terms;    // meaningless with leases
  std::string token;         // never logged
  Transport transport = Transport::kAuto;
  uint32_t link_delay_us = 0;
  uint32_t link_megabytes_per_s = 0;
  std::string source;  // where `servers` came from, for messages: "TENDRIL_SERVERS", a path, ...

  bool leased() const { return !servers.empty() && servers.front().lease_id != 0; }
};

// kNotFound: nothing names a server. kInvalid: a variable or a file is malformed; the message names
// it and says what is expected.
base::Result<Configuration> load_configuration();

// The pieces, for other readers of the same notations. `what` names the value in messages.
base::Result<uint32_t> parse_share_millionths(const char* what, const std::string& text);
base::Result<uint64_t> parse_bytes(const char* what, const std::string& text);

}  // namespace tendril::client
