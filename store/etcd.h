// SPDX-License-Identifier: Apache-2.0
// A store in etcd 3.4 or newer, for pools with several schedulers: through its JSON gateway, so no
// library of etcd is needed. The lock is a key under an etcd lease, its term the revision that
// created it. Every write is a transaction that compares that revision. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/store.h"

namespace tendril::store {

struct EtcdOptions {
  std::vector<std::string> members;  // "host:port"
  bool secure = false;               // TLS
  std::string ca_file;               // whom to believe; empty: the system's authorities
  std::string prefix = "tendril";    // of all keys: several pools may share an etcd
  std::string user, password;        // empty: etcd asks for none
  uint32_t answer_ms = 2000;         // how long one member has to answer
};

// Does not connect yet: schedulers start before etcd does. kInvalid: the options do not make sense.
base::Result<std::unique_ptr<Store>> open_etcd(const EtcdOptions& options);

}  // namespace tendril::store
