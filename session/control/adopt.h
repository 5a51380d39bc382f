// SPDX-License-Identifier: Apache-2.0
// Descriptors into channels. The worker adopts what tendrild passes it; the client does the same
// with what it fetched. In a session over shared memory the command connection stays open beside
// the memory and tells of the peer's death; the memory replaces every bulk channel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "transport/host_window.h"
#include "transport/shm/shm.h"
#include "transport/transport.h"

namespace tendril::session {

struct Adopted {
  std::unique_ptr<transport::Channel> command;
  std::vector<std::unique_ptr<transport::Channel>> bulk;
  transport::HostWindow window;  // valid over shared memory
};

// The worker's side. `command`: the client's connection. `more`: bulk connections in their order,
// or one shared memory descriptor.
base::Result<Adopted> adopt_channels(base::Fd command, std::vector<base::Fd> more);
// The client's side of the same memory, already mapped (transport/shm/shm.h).
Adopted adopt_shared_memory(base::Fd connection, std::shared_ptr<transport::ShmMemory> memory,
                            transport::HostWindow window);

// Memory for one session on one host, as a descriptor to hand to both ends. Cannot be resized by
// either. For tendrild.
base::Result<base::Fd> create_shared_memory(uint16_t bulk_channels);

}  // namespace tendril::session
