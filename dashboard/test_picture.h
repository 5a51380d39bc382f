// SPDX-License-Identifier: Apache-2.0
// A small pool for tests of this room: two servers of two GPUs, two leases, one request that waits.
#pragma once

#include <string>

#include "view/picture.h"

namespace tendril::dashboard {

inline view::PictureLease lease_on(uint64_t id, const std::string& server,
                                   const std::string& owner) {
  view::PictureLease lease;
  lease.id = id;
  lease.state = "running";
  lease.owner_id = "id of " + owner;
  lease.owner = owner;
  lease.account = "vision";
  lease.program = "train.py";
  lease.host = "laptop";
  lease.slices = {{server, 0, 500'000, 4ull << 30}};
  lease.granted_at = 1000;
  lease.use.age_ns = 1'000'000'000;
  return lease;
}

inline view::Picture small_pool(int64_t at = 2000) {
  view::Picture picture;
  picture.at = at;
  picture.head.is_pool = true;
  picture.head.name = "lab";
  for (const char* const name : {"gpu1", "gpu2"}) {
    view::PictureServer server;
    server.name = name;
    server.state = "up";
    server.leases = 1;
    for (uint32_t i = 0; i < 2; ++i) {
      view::PictureGpu gpu;
      gpu.index = i;
      gpu.model = "H100";
      gpu.gpu_class = "top";
      gpu.memory_bytes = 80ull << 30;
      server.gpus.push_back(std::move(gpu));
    }
    picture.servers.push_back(std::move(server));
  }
  picture.leases = {lease_on(7, "gpu1", "alice"), lease_on(8, "gpu2", "bob")};
  view::PictureRequest request;
  request.id = 9;
  request.owner_id = "id of bob";
  request.owner = "bob";
  request.reason = "Resources";
  picture.queue = {std::move(request)};
  view::PictureAccount account;
  account.name = "vision";
  picture.accounts = {std::move(account)};
  return picture;
}

}  // namespace tendril::dashboard
