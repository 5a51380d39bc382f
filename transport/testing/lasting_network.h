// SPDX-License-Identifier: Apache-2.0
// For tests: a lasting session whose two ends are in this process, the network between them, and
// streams that show a byte that was lost, repeated or moved.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "transport/lasting/lasting.h"
#include "transport/testing/test_channels.h"

namespace tendril::transport {

inline void reset_connection(int fd) {
  sockaddr none = {};
  none.sa_family = AF_UNSPEC;
  (void)!connect(fd, &none, sizeof none);
}

// A session's two ends in this process, and the network between them.
class Network {
 public:
  // `carriers`: of the first lines, the client's and the worker's.
  using Carriers = std::vector<std::unique_ptr<Carrier>>;
  explicit Network(size_t lines, uint32_t patience_ms = 20'000, Carriers clients = {},
                   Carriers workers = {})
      : lines_(lines) {
    std::vector<base::Fd> here = make_connections();
    std::vector<base::Fd> there = std::move(theirs_);
    auto end = [&](std::vector<base::Fd> fds, std::unique_ptr<Redial> redial, Carriers carriers) {
      base::Fd acknowledgements = std::move(fds.back());
      fds.pop_back();
      return Lasting::make(std::move(fds), std::move(acknowledgements),
                           {patience_ms, std::move(redial), true}, std::move(carriers))
          .take();
    };
    worker = end(std::move(there), nullptr, std::move(workers));
    client = end(std::move(here), std::make_unique<Dialler>(this), std::move(clients));
  }

  // Resets some of the connections, at one end or both.
  void cut(uint32_t which) {
    const std::lock_guard<std::mutex> hold(mutex_);
    for (size_t i = 0; i < ends_.size(); ++i) {
      if ((which >> (i % 32) & 1) != 0) reset_connection(ends_[i][i % 2].get());
    }
  }

  // One connection says that nothing more comes: to the client (1), the worker (2), or both (3).
  void half_close(size_t connection, uint32_t to) {
    const std::lock_guard<std::mutex> hold(mutex_);
    for (size_t i = 0; i < 2; ++i) {
      if ((to >> i & 1) != 0) ::shutdown(ends_[connection][1 - i].get(), SHUT_WR);
    }
  }

  ~Network() { client.reset(); }  // it may be connecting again

  // The worker's process is gone; its channels were dropped before.
  void lose_worker() {
    const std::lock_guard<std::mutex> hold(mutex_);
    ends_.clear();
    worker.reset();
  }

  std::shared_ptr<Lasting> client, worker;
  std::function<base::Status(uint32_t attempt)>
      weather;  // whether the network lets an attempt through
  std::atomic<uint32_t> attempts{0}, cuts{0}, carriers_failed{0};

 private:
  class Dialler : public Redial {
   public:
    explicit Dialler(Network* network) : network_(network) {}
    base::Result<std::vector<base::Fd>> dial(uint32_t attempt, int) override {
      ++network_->attempts;
      const base::Status status = network_->weather ? network_->weather(attempt) : base::Status();
      if (!status.ok()) return status;
      std::vector<base::Fd> here = network_->make_connections();
      network_->worker->resume(std::move(network_->theirs_));
      return here;
    }
    void cut(uint32_t) override { ++network_->cuts; }
    void carrier_failed(const std::string&, uint32_t) override { ++network_->carriers_failed; }

   private:
    Network* const network_;
  };

  std::vector<base::Fd> make_connections() {
    std::vector<base::Fd> here(lines_ + 1);
    theirs_ = std::vector<base::Fd>(lines_ + 1);
    const std::lock_guard<std::mutex> hold(mutex_);
    ends_.clear();
    for (size_t i = 0; i <= lines_; ++i) {
      here[i] = tcp_sockets(&theirs_[i]);
      ends_.push_back({base::Fd(dup(here[i].get())), base::Fd(dup(theirs_[i].get()))});
    }
    return here;
  }

  const size_t lines_;
  std::vector<base::Fd> theirs_;
  std::mutex mutex_;
  std::vector<std::array<base::Fd, 2>> ends_;  // copies: the client's, the worker's
};

// Bytes that depend on their position, so that a lost, repeated or moved one shows.
inline uint32_t word_at(uint64_t position, uint32_t stream) {
  uint64_t x = position * 0x9e3779b97f4a7c15u + stream;
  return uint32_t((x ^ x >> 29) * 0xbf58476d1ce4e5b9u >> 32);
}

inline void send_stream(Channel* channel, uint64_t words, uint32_t stream) {
  std::minstd_rand random(stream + 1);
  std::vector<uint32_t> block;
  for (uint64_t done = 0; done < words;) {
    const uint64_t most = random() % 8 == 0 ? 200'000 : 300;
    block.resize(std::min<uint64_t>(words - done, 1 + random() % most));
    for (size_t i = 0; i < block.size(); ++i) block[i] = word_at(done + i, stream);
    iovec part{block.data(), block.size() * sizeof block[0]};
    const base::Status sent = channel->send(&part, 1);
    ASSERT_TRUE(sent.ok()) << sent.message();
    done += block.size();
  }
}

inline void check_stream(Channel* channel, uint64_t words, uint32_t stream) {
  std::minstd_rand random(stream + 99);
  std::vector<uint32_t> block;
  for (uint64_t done = 0; done < words;) {
    block.resize(std::min<uint64_t>(words - done, 1 + random() % 50'000));
    const size_t bytes = block.size() * sizeof block[0];
    const auto got = channel->receive(block.data(), bytes, bytes, {20, -1});
    ASSERT_TRUE(got.ok()) << got.status().message();
    for (size_t i = 0; i < block.size(); ++i)
      ASSERT_EQ(block[i], word_at(done + i, stream)) << "word " << done + i;
    done += block.size();
  }
}

}  // namespace tendril::transport
