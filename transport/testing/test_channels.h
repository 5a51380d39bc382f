// SPDX-License-Identifier: Apache-2.0
// For tests and benchmarks: the connected channels of one session, by the name of a transport.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "transport/lasting/lasting.h"
#include "transport/sealed/sealed.h"
#include "transport/shm/shm.h"
#include "transport/tcp/socket.h"
#include "transport/testing/faulty.h"
#include "transport/testing/shaped.h"

namespace tendril::transport {

// "lasting": TCP that could be connected again, "sealed_lasting": the same in records (lasting.h
// has sessions that are cut). "shaped": a unix socket with 100 us each way and 4 GB/s. "faulty": a
// channel that moves bytes in shreds. "sealed": TCP in records. "sealed_faulty": the same in
// shreds, with a new key after every third record.
inline constexpr const char* kTransports[] = {"unix",    "tcp",           "shm",    "loopback",
                                              "shaped",  "faulty",        "sealed", "sealed_faulty",
                                              "lasting", "sealed_lasting"};

struct ChannelSet {
  std::unique_ptr<Channel> command;
  std::vector<std::unique_ptr<Channel>> bulk;
};

inline base::Fd tcp_sockets(base::Fd* other) {
  base::Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes);
  listen(listener.get(), 1);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  base::Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(client.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0) return base::Fd();
  *other = base::Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return client;
}

inline std::unique_ptr<Channel> tcp_pair(std::unique_ptr<Channel>* other) {
  base::Fd there, here = tcp_sockets(&there);
  if (!here.valid()) return nullptr;
  *other = socket_channel(std::move(there));
  return socket_channel(std::move(here));
}

// Both ends of a lasting session of so many channels. Nobody connects again after a cut.
inline void lasting_pair(size_t lines, ChannelSet* client, ChannelSet* worker) {
  std::vector<base::Fd> here(lines), there(lines);
  for (size_t i = 0; i < lines; ++i) here[i] = tcp_sockets(&there[i]);
  base::Fd acks_there, acks_here = tcp_sockets(&acks_there);
  auto one = Lasting::make(std::move(here), std::move(acks_here), {}).take();
  auto other = Lasting::make(std::move(there), std::move(acks_there), {}).take();
  client->command = lasting_channel(one, 0);
  worker->command = lasting_channel(other, 0);
  for (size_t i = 1; i < lines; ++i) {
    client->bulk.push_back(lasting_channel(one, i));
    worker->bulk.push_back(lasting_channel(other, i));
  }
}

inline std::unique_ptr<Channel> in_shreds(std::unique_ptr<Channel> inner) {
  Faults faults;
  faults.short_pieces = true;
  return faulty(std::move(inner), faults);
}

// Both ends of a sealed channel over the ends of another.
inline std::unique_ptr<Channel> sealed_pair(std::unique_ptr<Channel> here,
                                            std::unique_ptr<Channel>* there, uint16_t number = 0,
                                            uint64_t records_per_key = 3) {
  const std::string key(kSessionKeyBytes, 'k');
  *there = sealed(std::move(*there), key, number, SealedEnd::kWorker, records_per_key).take();
  return sealed(std::move(here), key, number, SealedEnd::kClient, records_per_key).take();
}

inline void make_channels(const char* name, size_t bulk, ChannelSet* client, ChannelSet* worker) {
  if (strcmp(name, "shm") == 0) {
    ShmSizes sizes;
    sizes.channels = uint32_t(1 + bulk);
    base::Fd memory = create_shm(sizes).take();
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
    auto there = shm_channels(map_shm(memory).take(), ShmSide::kWorker, base::Fd(ends[1]));
    auto here = shm_channels(map_shm(memory).take(), ShmSide::kClient, base::Fd(ends[0]));
    client->command = std::move(here[0]);
    worker->command = std::move(there[0]);
    for (size_t i = 1; i <= bulk; ++i) {
      client->bulk.push_back(std::move(here[i]));
      worker->bulk.push_back(std::move(there[i]));
    }
    return;
  }
  if (strcmp(name, "lasting") == 0) return lasting_pair(1 + bulk, client, worker);
  if (strcmp(name, "sealed_lasting") == 0) {
    lasting_pair(1 + bulk, client, worker);
    client->command = sealed_pair(std::move(client->command), &worker->command);
    for (size_t i = 0; i < bulk; ++i) {
      client->bulk[i] = sealed_pair(std::move(client->bulk[i]), &worker->bulk[i], uint16_t(1 + i));
    }
    return;
  }
  auto one = [&](std::unique_ptr<Channel>* there) {
    if (strcmp(name, "tcp") == 0) return tcp_pair(there);
    if (strcmp(name, "loopback") == 0) return loopback_pair(there).take();
    if (strncmp(name, "sealed", 6) == 0) {
      std::unique_ptr<Channel> here = tcp_pair(there);
      if (strcmp(name, "sealed") == 0)
        return sealed_pair(std::move(here), there, 0, kRecordsPerKey);
      return sealed_pair(in_shreds(std::move(here)), there);
    }
    std::unique_ptr<Channel> here = unix_pair(there).take();
    if (strcmp(name, "shaped") == 0) return shaped(std::move(here), {100, 4'000'000'000});
    if (strcmp(name, "faulty") == 0) return in_shreds(std::move(here));
    return here;
  };
  client->command = one(&worker->command);
  for (size_t i = 0; i < bulk; ++i) {
    worker->bulk.emplace_back();
    client->bulk.push_back(one(&worker->bulk.back()));
  }
}

// A client that has sent everything on its command lane. It reads all answers until the worker's
// end closes. For fuzzing.
class SpentClient {
 public:
  // `said` must fit a socket's buffer: 100,000 bytes do.
  SpentClient(const uint8_t* said, size_t bytes) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) abort();
    end_ = base::Fd(ends[0]);
    worker_ = socket_channel(base::Fd(ends[1]));
    if (bytes != 0 && ::send(end_.get(), said, bytes, MSG_NOSIGNAL) != ssize_t(bytes)) abort();
    ::shutdown(end_.get(), SHUT_WR);
    if (pthread_create(&reader_, nullptr, read_all, &end_) != 0) abort();
  }
  ~SpentClient() {
    worker_.reset();
    pthread_join(reader_, nullptr);
  }
  std::unique_ptr<Channel> take_worker_end() { return std::move(worker_); }

 private:
  static void* read_all(void* end) {
    char bytes[4096];
    while (read(static_cast<base::Fd*>(end)->get(), bytes, sizeof bytes) > 0) {
    }
    return nullptr;
  }
  base::Fd end_;
  std::unique_ptr<Channel> worker_;
  pthread_t reader_{};
};

}  // namespace tendril::transport
