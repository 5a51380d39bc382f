// SPDX-License-Identifier: Apache-2.0
// tendrild lends this machine's GPUs. It connects listeners, inventory, the warm pool of workers,
// leases and sessions. One thread reads and answers all control connections. One supervisor thread
// handles everything that concerns processes. Used by `tendril serve` and by tests. Loads no
// driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/arbiter.h"
#include "daemon/image_store.h"
#include "daemon/pool/pool_member.h"
#include "daemon/worker_pool.h"
#include "gpu/inventory.h"
#include "wire/control.h"

namespace tendril::daemon {

struct DaemonOptions {
  std::vector<std::string> listen;     // empty: loopback
  uint16_t port = wire::kDefaultPort;  // 0: the kernel chooses
  std::string port_file;               // the port is written here once the daemon serves
  std::vector<std::string> unix_paths;
  std::string token_file;
  // Identities (reception/doors.h): their folder, the name of a new pool, the file of providers.
  std::string identity_folder, pool_name, providers_file;
  PoolMember member;                // of a pool
  std::string peers_file;           // servers that copies may go to; empty: none
  std::string policy_file;          // empty: no policy
  std::string audit_file = "auto";  // "auto", "off" or a file (docs/access.md)
  std::string sockets = "auto";     // the folder of this server's unix sockets; "auto", "off"
  std::string encrypt;  // "always", "untrusted" (or empty) or "never" (daemon/sealing.h)
  std::vector<std::string> trusted_networks;
  std::string data_interfaces;  // of NCCL's sockets, with commas; empty: NCCL chooses
  std::string rdma =
      "auto";             // cards that are lent: "any", "off" or names; "auto" (daemon/sealing.h)
  std::string gpudirect;  // TENDRIL_GPUDIRECT of workers; empty: as it is in the environment
  lease::SharingOptions sharing;
  std::string metrics;             // HOST:PORT that serves metrics over HTTP; empty: none
  std::string metrics_token_file;  // what scrapers must know; empty: nothing, on loopback only
  std::string page;                // HOST:PORT that shows the page; empty: none
  bool metrics_dcgm = false;       // also with the names of NVIDIA's exporter
  IsolationWish isolation;
  std::string cgroup = "auto";  // "auto", "off", or the folder of a group (cgroups.h)
  WorkerOptions worker;
  // where the names of system calls go that workers make and that are on no list; empty: nothing
  // is learned, and such calls are denied
  std::string learn_filter;
  ImageOptions images;
  std::string
      packed_control;  // the program behind packed slices; empty: the vendor's, found by PATH
  int64_t context_bytes = -1;  // cost of an empty context; -1: as measured
  int64_t code_bytes =
      -1;  // reserved for a process' code and the driver's objects; -1: a part of context_bytes
  int64_t park_bytes = -1;             // host memory for parked leases; -1: half of the machine's
  std::string park_folder;             // for files of parked leases; empty: none
  uint64_t park_file_bytes = 0;        // of all of them
  uint64_t park_idle_s = 0;            // a lease that did nothing for so long is parked; 0: never
  bool allow_pageable_access = false;  // lend GPUs that reach all memory of their process
  uint32_t connections_max = 4096;
  uint32_t outage_ms = wire::kOutageMs;  // how long cuts may last that sessions outlast; 0: none
  std::string product_version;
};

class Daemon {
 public:
  // Listens, examines the GPUs and starts warming workers. Returns when clients are served.
  static base::Result<std::unique_ptr<Daemon>> start(DaemonOptions options);
  virtual ~Daemon() = default;
  // Serves until `stop_fd` becomes readable. Then ends every session and returns.
  virtual void serve(int stop_fd) = 0;
  // Reads token and policy again and opens the audit log again, without touching a session. After
  // an error everything stays as it was. Any thread.
  virtual base::Status reload() = 0;
  // Takes no new leases from now on, and tells the pool. Any thread, like is_empty.
  virtual void drain() = 0;
  // Whether the thread that all else waits for does a task within this time. Any thread; blocks.
  virtual bool answers(int timeout_ms) = 0;
  virtual bool is_empty() const = 0;  // nobody holds a lease
  virtual uint16_t port() const = 0;
  virtual const gpu::Inventory& inventory() const = 0;
  virtual std::vector<std::string> addresses() const = 0;
};

}  // namespace tendril::daemon
