// SPDX-License-Identifier: Apache-2.0
// The servers that this server's operator or its pool named, and to whose workers its workers may
// therefore have passages. The file is read again for each passage, so it can change. Any thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "daemon/pool/pool_peers.h"
#include "session/control/attach.h"
#include "session/control/connection.h"
#include "wire/assignment.h"
#include "wire/control.h"

namespace tendril::daemon {

class Peers {
 public:
  // Whether bytes that travel to that peer must be sealed, by this server's own rule.
  using Rule = std::function<base::Result<bool>(const session::Peer& peer)>;
  // `file`: one endpoint a line; empty: no server is named. The error says what is wrong with it.
  // `pool`: the pool's servers, which must outlive this; null: none. Connections are made in the
  // calling thread's network. `interfaces`: they leave by these (--data-interface); empty: the
  // kernel chooses.
  static base::Result<std::unique_ptr<Peers>> open(const std::string& file, const PoolPeers* pool,
                                                   Rule rule,
                                                   std::vector<std::string> interfaces = {});
  // Waits for the connections that are being made.
  ~Peers();

  // As the operator wrote them. Empty: none, or the file cannot be read now.
  std::vector<std::string> names() const;

  // A passage whose other end is `token`'s, with the key and whether it is sealed.
  struct Passage {
    session::Connection connection;
    bool sealed = false;
    std::string server;  // as the operator or the pool wrote it
  };
  using Done = std::function<void(base::Result<Passage>)>;
  // `sealed`: it must be, whatever the rules say. `done` is called once, on another thread or on
  // this one.
  void dial(const wire::PassageToken& token, bool sealed, Done done);

  // The way to the server with that id (kServerIdBytes). Blocks while servers are asked. The error
  // says why passages to it cannot be made from here.
  base::Result<wire::ReachReply> reach(const std::string& server_id);

 private:
  Peers(std::string file, const PoolPeers* pool, Rule rule, std::vector<std::string> interfaces)
      : file_(std::move(file)),
        pool_(pool),
        rule_(std::move(rule)),
        interfaces_(std::move(interfaces)) {}
  base::Result<session::ConnectOptions> options() const;
  base::Result<std::vector<session::Endpoint>> read() const;
  // All that may be meant, the likeliest first.
  base::Result<std::vector<session::Endpoint>> read_for(const std::string& server_id);
  void learn(const std::string& server_id, const session::Endpoint& endpoint);
  base::Result<bool> rules_sealed(const session::Endpoint& endpoint) const;
  base::Result<wire::ReachReply> look_for(const std::string& server_id);
  base::Result<Passage> find(const wire::PassageToken& token, bool sealed);
  base::Result<Passage> ask(const session::Endpoint& endpoint, const wire::PassageToken& token,
                            bool sealed) const;

  const std::string file_;
  const PoolPeers* const pool_;
  const Rule rule_;
  const std::vector<std::string> interfaces_;
  void work();

  std::vector<std::thread> threads_;
  std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false;
  unsigned reaching_ = 0;                     // calls of reach
  std::map<std::string, std::string> known_;  // endpoint of a server by its id
};

}  // namespace tendril::daemon
