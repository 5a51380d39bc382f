// SPDX-License-Identifier: Apache-2.0
// See adopt.h.
#include "session/control/adopt.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/clock.h"
#include "session/control/attach.h"
#include "transport/shm/shm.h"
#include "transport/tcp/socket.h"

namespace tendril::session {

using base::Code;
using base::Result;
using base::Status;

namespace {

// One thread on either side of a ring copies some 10 GB/s to memory that no cache holds. On a small
// machine more of them only take processors from the program.
constexpr uint16_t kSharedBulkFew = 2, kSharedBulkMany = 4;
constexpr unsigned kManyCpus = 8;

bool is_memory(const base::Fd& fd) {
  struct stat about;
  return fstat(fd.get(), &about) == 0 && S_ISREG(about.st_mode);
}

Adopted split(std::vector<std::unique_ptr<transport::Channel>> channels) {
  Adopted adopted;
  adopted.command = std::move(channels[0]);
  for (size_t i = 1; i < channels.size(); ++i) adopted.bulk.push_back(std::move(channels[i]));
  return adopted;
}

}  // namespace

Result<base::Fd> create_shared_memory(uint16_t bulk_channels) {
  transport::ShmSizes sizes;
  sizes.channels = 1u + std::min(bulk_channels, base::usable_cpus() >= kManyCpus ? kSharedBulkMany
                                                                                 : kSharedBulkFew);
  return transport::create_shm(sizes);
}

Adopted adopt_shared_memory(base::Fd connection, std::shared_ptr<transport::ShmMemory> memory,
                            transport::HostWindow window) {
  Adopted adopted = split(transport::shm_channels(std::move(memory), transport::ShmSide::kClient,
                                                  std::move(connection)));
  adopted.window = std::move(window);
  return adopted;
}

Result<Adopted> adopt_channels(base::Fd command, std::vector<base::Fd> more) {
  if (more.size() == 1 && is_memory(more[0])) {
    Result<std::shared_ptr<transport::ShmMemory>> memory = transport::map_shm(more[0]);
    if (!memory.ok()) return memory.status();
    Adopted adopted = split(
        transport::shm_channels(memory.take(), transport::ShmSide::kWorker, std::move(command)));
    adopted.window = transport::host_window(std::move(more[0]));
    return adopted;
  }
  Adopted adopted;
  adopted.command = transport::socket_channel(std::move(command));
  for (base::Fd& fd : more) adopted.bulk.push_back(transport::socket_channel(std::move(fd)));
  return adopted;
}

}  // namespace tendril::session
