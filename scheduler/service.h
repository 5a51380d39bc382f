// SPDX-License-Identifier: Apache-2.0
// The process behind `tendril pool serve`: its way in, the loop of its connections, the Core and
// the store's thread. Used by the command line and by tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool/policy/zone.h"
#include "reception/front.h"
#include "scheduler/store_thread.h"
#include "store/store.h"

namespace tendril::scheduler {

struct ServiceOptions {
  reception::FrontOptions front;
  std::string store;        // an address of store/open.h; empty: SQLite in this user's state
  std::string policy_file;  // of the pool; for a store without a policy, and on reload
  std::string name;         // of this scheduler; empty: this host's
  std::string advertise;    // where others reach it: "HOST[:PORT]"; empty: this host and the port
  std::string metrics;      // HOST:PORT that serves metrics over HTTP; empty: none
  std::string metrics_token_file;  // what scrapers must know; empty: nothing, on loopback only
  std::string page;                // HOST:PORT that shows the page; empty: none
  std::string product_version;
  pool::ZoneReader zones;
  StoreThreadOptions timing;  // `holder` is not looked at
};

class Service {
 public:
  // `opened`: for tests, a store instead of the address.
  static base::Result<std::unique_ptr<Service>> start(
      ServiceOptions options, std::unique_ptr<store::Store> opened = nullptr);
  virtual ~Service() = default;
  // Serves until `stop_fd` becomes readable. Then gives up its term and returns.
  virtual void serve(int stop_fd) = 0;
  // Reads credentials and limits again, and applies the policy file. After an error everything
  // stays as it was. Any thread.
  virtual base::Status reload() = 0;
  virtual uint16_t port() const = 0;
  virtual std::vector<std::string> addresses() const = 0;
  virtual uint16_t metrics_port() const = 0;  // 0: it has none
  virtual uint16_t page_port() const = 0;     // the same
};

}  // namespace tendril::scheduler
