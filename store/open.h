// SPDX-License-Identifier: Apache-2.0
// Opens the store that an address names:
//
//   sqlite:PATH                                     a file on this machine
//   etcd://HOST:PORT,HOST:PORT/PREFIX?user=NAME&password-file=PATH
//   etcds://...?ca=PATH                             the same inside TLS
//
// The port is 2379 unless named, the prefix of keys "tendril". Any thread.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "store/etcd.h"
#include "store/store.h"

namespace tendril::store {

// kInvalid: the address is none.
base::Result<std::unique_ptr<Store>> open_store(const std::string& address);

// What an address of etcd says. Reads the file of the password.
base::Result<EtcdOptions> parse_etcd(const std::string& address);

}  // namespace tendril::store
