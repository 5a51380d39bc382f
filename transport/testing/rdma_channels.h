// SPDX-License-Identifier: Apache-2.0
// For tests: the connected channels of one session over RDMA, with a double of the verbs. Whoever
// includes it links tendril_verbs_double.
#pragma once

#include "transport/rdma/end.h"
#include "transport/rdma/ibverbs.h"
#include "transport/testing/test_channels.h"
#include "transport/testing/verbs_double.h"

namespace tendril::transport {

// What the ends of such a session share with a test.
struct RdmaParts {
  std::shared_ptr<rdma::ProgramMemory> client_memory, worker_memory;
  std::shared_ptr<rdma::CopyCounts> client_counts, worker_counts;
};

inline base::Status rdma_pair(rdma::Verbs* verbs, const rdma::Sizes& sizes, ChannelSet* client,
                              ChannelSet* worker, RdmaParts* shared = nullptr) {
  auto here_device = verbs->open(""), there_device = verbs->open("");
  if (!here_device.ok() || !there_device.ok()) return here_device.status();
  auto here = rdma::End::make(here_device.take(), sizes);
  if (!here.ok()) return here.status();
  auto there = rdma::End::make(there_device.take(), sizes);
  if (!there.ok()) return there.status();
  base::Status good = (*there)->connect((*here)->blob());
  if (good.ok()) good = (*here)->connect((*there)->blob());
  if (good.ok()) good = (*here)->try_out().status();
  if (!good.ok()) return good;
  if (shared != nullptr)
    *shared = {(*here)->memory(), (*there)->memory(), (*here)->counts(), (*there)->counts()};
  base::Fd worker_end, client_end = tcp_sockets(&worker_end);
  const auto put = [](std::vector<std::unique_ptr<Carrier>> all, ChannelSet* set) {
    set->command = std::move(all[0]);
    for (size_t i = 1; i < all.size(); ++i) set->bulk.push_back(std::move(all[i]));
  };
  put((*here)->channels(std::move(client_end)), client);
  put((*there)->channels(std::move(worker_end)), worker);
  return base::Status();
}

// make_channels, which also knows "rdma", and "rdma_card": over a card of this machine.
inline void make_any_channels(const char* name, size_t bulk, ChannelSet* client,
                              ChannelSet* worker) {
  if (strncmp(name, "rdma", 4) != 0) return make_channels(name, bulk, client, worker);
  rdma::VerbsDouble verbs;
  rdma::Sizes sizes;
  sizes.channels = uint32_t(1 + bulk);
  rdma::Verbs* wanted = &verbs;
  if (strcmp(name, "rdma_card") == 0) wanted = &rdma::system_verbs();
  (void)rdma_pair(wanted, sizes, client, worker);
}

}  // namespace tendril::transport
