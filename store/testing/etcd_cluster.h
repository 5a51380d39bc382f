// SPDX-License-Identifier: Apache-2.0
// For tests: members of an etcd on loopback, which can be killed and started again. They end with
// the test's process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "store/testing/folder.h"

namespace tendril::store {

class EtcdCluster {
 public:
  // Whether this machine has etcd.
  static bool is_available();

  // `more`: options for all members. Starts them.
  explicit EtcdCluster(size_t members, std::vector<std::string> more = {}, bool secure = false);
  EtcdCluster(const EtcdCluster&) = delete;
  EtcdCluster& operator=(const EtcdCluster&) = delete;
  ~EtcdCluster();

  void start(size_t member);
  // At once, as by a loss of power.
  void kill(size_t member);
  void pause(size_t member);
  void resume(size_t member);

  const std::vector<std::string>& members() const { return clients_; }  // "127.0.0.1:port"
  std::string log(size_t member) const;  // where it writes what it says

 private:
  Folder folder_;
  std::vector<std::string> clients_, peers_, more_;
  const std::string scheme_;
  std::vector<pid_t> processes_;
};

// A port of loopback that nobody uses.
uint16_t free_port();

}  // namespace tendril::store
