// SPDX-License-Identifier: Apache-2.0
// What a program's environment says about its GPUs: where they are, which part of them it gets, and
// how to reach them. The client libraries read it once, at cuInit or nvmlInit. So both see the same
// devices in the same order. Any thread. It reads the environment and small files, and opens no
// connection.
//
//   TENDRIL_LEASES      "<endpoint>=<lease id>:<secret in hex>,...", in device order. `tendril run`
//                       sets it. It overrides the variables down to TENDRIL_PRIORITY.
//   TENDRIL_SERVERS, TENDRIL_SERVERS_CONF: see config/servers.h
//   TENDRIL_GPUS        how many slices, 1 to 64; default 1
//   TENDRIL_SLICE       part of a GPU: 0.5, 1/3 or 35%; default all of it
//   TENDRIL_MEMORY      memory of a slice: 512M, 10G (config/quantity.h); alone, the server derives
//                       the share of time from it
//   TENDRIL_CAP         1: never more than that share of time, even if the GPU is idle; default 0
//   TENDRIL_PRIORITY    -100 to 100, default 0: higher is served first, and gets no more
//   TENDRIL_FILTER and what else is asked of a pool: see config/pool_settings.h
//   TENDRIL_TOKEN, TENDRIL_TOKEN_FILE: see config/credentials.h
//   TENDRIL_ENCRYPT     auto (default): the server decides. always: no data in clear over a network
//   TENDRIL_TRANSPORT   auto (default), or kinds of transport with commas: tcp, shm, rdma
//   TENDRIL_PASSAGES    auto (default): copies go from server to server where the servers can. off:
//                       all go through this machine
//   TENDRIL_WINDOWS     auto (default): parts of GPUs on several servers have their turns together.
//                       off: each server gives turns by itself
//   TENDRIL_OUTAGE      how long a cut of the network may last before the program loses its GPUs:
//                       30s (default); off: any cut ends it. The server may allow less
//   TENDRIL_LINK        "<us>:<MB/s>": behave as if the servers were that far away, each way; 0 is
//                       no limit; for tests and planning
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "config/servers.h"
#include "wire/control.h"

namespace tendril::config {

// What is asked of a pool (config/pool_settings.h).
inline constexpr uint64_t kWaitsForEver = UINT64_MAX;
struct PoolSettings {
  wire::PoolWish wish;
  uint64_t wait_s = kWaitsForEver;  // in the queue
};

// All values of the TENDRIL_* variables and files.
struct Configuration : ServerList {  // in device order; a server appears once per lease
  uint32_t slice_count = 1;          // over all servers; ignored with leases
  wire::SliceSpec slice;             // each; ignored with leases
  wire::LeaseTerms terms;            // ignored with leases
  PoolSettings pool;                 // ignored with leases
  std::string token;                 // never logged
  bool insists_on_sealing = false;
  bool uses_passages = true;
  bool uses_windows = true;
  std::string transport;  // a kind; empty: the nearest
  uint32_t outage_ms = wire::kOutageMs;
  uint32_t link_delay_us = 0;
  uint32_t link_megabytes_per_s = 0;

  bool leased() const { return !servers.empty() && servers.front().lease_id != 0; }
};

// A text and the name under which the user knows it: "TENDRIL_MEMORY", "-m".
struct Named {
  const char* name;
  std::string text;
};
// A slice as the environment and the command line write it. If neither is given: a whole GPU. With
// memory alone the server derives the share.
base::Result<wire::SliceSpec> read_slice(const Named& share, const Named& memory);

// "<endpoint>=<lease id>:<secret in hex>,...", each a server with a lease. Empty: none. The error
// does not quote the text, because it holds secrets.
base::Result<std::vector<Server>> read_leases(const Named& leases);

// How long a cut may last, in milliseconds. Empty: 30 s. "off" or 0: no cut is outlasted.
base::Result<uint32_t> read_outage(const Named& outage);

// TENDRIL_TRANSPORT: a kind; empty: the nearest. Kinds are not checked here. The registry knows
// them where the client attaches (transport/registry.h).
std::string wanted_transport();

// kNotFound: a named file does not exist. kInvalid: a variable or a file is malformed; the message
// names it and says what is expected.
base::Result<Configuration> load_configuration();

}  // namespace tendril::config
