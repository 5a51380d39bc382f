// SPDX-License-Identifier: Apache-2.0
// See registry.h. The table is constant-initialised: the client library has no constructors.
#include "transport/registry.h"

#include <algorithm>
#include <atomic>

namespace tendril::transport {

using base::Code;
using base::Status;

// Each is defined in its folder.
extern const Transport kRdmaTransport;
extern const Transport kShmTransport;
extern const Transport kTcpTransport;

namespace {

constinit std::atomic<const Transport*> g_table[kTransportsMax] = {&kShmTransport, &kRdmaTransport,
                                                                   &kTcpTransport};

}  // namespace

Status register_transport(const Transport* transport) {
  const std::string kind = transport->kind;
  if (kind.empty() || kind.size() > kKindBytesMax || (transport->abilities & kOrderedStream) == 0) {
    return Status(Code::kInvalid, "the transport '" + kind +
                                      "' cannot be registered: it needs a kind of 1 to 16 bytes "
                                      "and must be an ordered stream");
  }
  if (find_transport(kind) != nullptr) {
    return Status(Code::kInvalid, "a transport of the kind '" + kind + "' is registered already");
  }
  for (std::atomic<const Transport*>& entry : g_table) {
    const Transport* none = nullptr;
    if (entry.compare_exchange_strong(none, transport)) return Status();
  }
  return Status(Code::kExhausted, "too many transports are registered; raise kTransportsMax");
}

TransportList transports() {
  TransportList list;
  for (const std::atomic<const Transport*>& entry : g_table) {
    const Transport* transport = entry.load(std::memory_order_acquire);
    if (transport != nullptr) list.all[list.count++] = transport;
  }
  // Sorted by hand, because std::stable_sort allocates.
  for (size_t i = 1; i < list.count; ++i) {
    for (size_t j = i; j > 0 && list.all[j]->latency < list.all[j - 1]->latency; --j)
      std::swap(list.all[j], list.all[j - 1]);
  }
  return list;
}

const Transport* find_transport(const std::string& kind) {
  for (const Transport* transport : transports()) {
    if (kind == transport->kind) return transport;
  }
  return nullptr;
}

}  // namespace tendril::transport
