// SPDX-License-Identifier: Apache-2.0
// The way into a process that serves: its listeners and unix sockets, its doors (doors.h), and its
// guard (access/guard.h) with the audit log. tendrild and the scheduler of a pool have one each.
// Opened and closed by the process' main thread; the rest may be called by any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "access/guard.h"
#include "base/result.h"
#include "reception/doors.h"
#include "reception/reception.h"
#include "reception/strangers.h"
#include "transport/tcp/listener.h"

namespace tendril::reception {

struct FrontOptions {
  std::vector<std::string> listen;  // empty: loopback
  uint16_t port = 0;                // 0: the kernel chooses
  std::string port_file;            // the port is written here once the process serves
  std::vector<std::string> unix_paths;
  std::string token_file;
  // Identities (doors.h): their folder, the name of a new pool, the file of providers.
  std::string identity_folder, pool, providers_file;
  std::string policy_file;          // access/policy_file.h; empty: none
  std::string audit_file = "auto";  // "auto", "off" or a file
  std::string sockets = "auto";     // the folder of this process' unix sockets; "auto", "off"
  bool passes_descriptors = false;  // to clients of this host: opens descriptor_socket()
  uint32_t connections_max = 4096;
};

class Front {
 public:
  static base::Result<std::unique_ptr<Front>> open(FrontOptions options);
  ~Front();
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  const std::string& host() const { return host_; }
  uint16_t port() const { return port_; }
  std::vector<std::string> addresses() const;
  const std::vector<transport::Listener>& listeners() const { return listeners_; }
  const std::string& administrators_socket() const { return administrators_socket_; }
  const std::string& descriptor_socket() const { return descriptor_socket_; }
  access::Guard* guard() const { return guard_.get(); }
  const Doors& doors() const { return *doors_; }
  Guesses* guesses() { return &guesses_; }
  Repeats* repeats() { return &repeats_; }

  // Everything of them but the handler.
  ReceptionOptions reception_options();
  // Says how users get in, and writes the port file.
  base::Status greet() const;
  // Reads credentials and limits again. After an error everything stays as it was.
  base::Status reload();
  // Nobody comes any more.
  void close();

 private:
  explicit Front(FrontOptions options);
  base::Status open_listeners();
  base::Status open_unix(const std::string& path, uint32_t mode);
  void open_local_sockets();
  base::Status open_doors();
  base::Status make_guard();

  const FrontOptions options_;
  std::string host_;
  std::vector<transport::Listener> listeners_;
  uint16_t port_ = 0;
  std::string socket_folder_;  // made by this process; removed at the end
  std::string administrators_socket_, descriptor_socket_;
  Guesses guesses_;
  Repeats repeats_;
  std::unique_ptr<access::Guard> guard_;
  std::unique_ptr<Doors> doors_;
};

// This machine's name.
std::string host_name();
// For a process that serves: no SIGPIPE, as many descriptors as allowed, and no dump of its memory,
// which holds secrets.
void prepare_process();

}  // namespace tendril::reception
