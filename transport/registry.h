// SPDX-License-Identifier: Apache-2.0
// The transports of this build, and what each can do. A transport describes itself in one record
// and makes both ends' halves of a session. It is a folder beside tcp/ and shm/ and one line in
// registry.cc. Nothing outside that folder names it. session/control/offers.h decides which
// transport a session gets. Register transports before sessions begin. Any thread may look them up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "transport/device_memory.h"
#include "transport/host_window.h"
#include "transport/lasting/lasting.h"
#include "transport/transport.h"

namespace tendril::transport {

// What a transport can do, as bits of `abilities`.
inline constexpr uint32_t kOrderedStream = 1u << 0;    // required, for the command lane
inline constexpr uint32_t kBulkChannels = 1u << 1;     // data beside the lane
inline constexpr uint32_t kSharedPages = 1u << 2;      // Channels::window is valid
inline constexpr uint32_t kRegistersMemory = 1u << 3;  // moves data between registered memory
// Carries lines of a session that outlasts cuts, and takes all of its connections for that
// (Streams). So measuring decides what it carries, and nothing is lost when it fails.
inline constexpr uint32_t kCarriesLines = 1u << 4;

// How far away the peer seems. A nearer transport is preferred.
enum class Latency : uint8_t {
  kSharedMemory,  // below a microsecond
  kFabric,        // a few microseconds
  kNetwork,       // tens of microseconds and more
};

inline constexpr size_t kKindBytesMax = 16;
inline constexpr size_t kBlobBytesMax = 1024;

// What an end of a session knows before it has channels.
struct Setting {
  uint16_t bulk_channels = 0;  // at the client: wished; at the worker: granted
  // At the client: the session's data must be sealed. At the worker: they are.
  bool sealed = false;
};

// The session's connections over the network: the one that attached and, if the transport uses
// them, one for each bulk channel.
struct Streams {
  base::Fd command;
  std::vector<base::Fd> bulk;
  std::string key;  // of the session (sealed/sealed.h); empty: its connections are not sealed
  // If it is valid, the session outlasts cuts (lasting/lasting.h).
  base::Fd acknowledgements;
  LastingSettings lasting;
};

// What was measured between both ends of a session.
struct Measured {
  double round_trip_us = 0;  // of a few bytes
  double gigabytes_per_second = 0;
};

// The program's memory, as a transport with registered memory wants to know of it: data that lie
// there travel without a copy. Any thread.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
  // An error when it cannot be registered: then its data are copied, as those of other memory.
  virtual base::Status add(void* memory, size_t bytes) = 0;
  // Before it is unmapped; waits for what is on the way. Memory that was not added is no error.
  virtual void remove(const void* memory) = 0;
  // The ports that carry data now, which may know GPUs' memory, too. They stay until the last
  // reference goes.
  virtual std::vector<std::shared_ptr<CardPort>> card_ports() { return {}; }
};

// One of a machine's ports to a fabric. Only ports of the same network ("RoCE") may meet.
struct Port {
  std::string name, network;
  uint64_t megabits_per_second = 0;
};
inline constexpr size_t kPortsMost = 4, kPortNameBytesMax = 40, kPortNetworkBytesMax = 16;

// What a session runs on.
struct Channels {
  std::unique_ptr<Channel> command;
  std::vector<std::unique_ptr<Channel>> bulk;
  HostWindow window;                     // valid where the transport shares pages
  std::shared_ptr<Lasting> lasting;      // if the session outlasts cuts
  std::shared_ptr<PinnedMemory> pinned;  // if the transport registers memory
};

// What may carry the lines of a session that runs already on its connections.
struct Carriers {
  std::vector<std::unique_ptr<Carrier>> lines;  // the lane's first
  std::shared_ptr<PinnedMemory> pinned;
};

// One end's part of a session, from the offer until there are channels. The client makes its half
// first, so the worker's half gets the client's blob when it is made. The worker's blob comes back
// to `complete`. A queue pair, for example, exists from the beginning, and its blob is its address.
class Half {
 public:
  virtual ~Half() = default;
  // What the other end must know of this end; at most kBlobBytesMax.
  virtual std::string blob() const { return {}; }
  // Worker's end: a descriptor for the client's end. Only a client on the same host can fetch it.
  virtual base::Fd take_descriptor() { return {}; }
  // Client's end: takes the worker's answer. After an error the session stays on its connections.
  virtual base::Status complete(const std::string& /*blob*/, base::Fd /*descriptor*/) { return {}; }
  // After `complete`: what a person may want to know of it, for doctor. May be empty.
  virtual std::string remark() const { return {}; }
  // The ports at both ends, if this is the other end's blob. Another text, another way: also when a
  // port's link was down meanwhile.
  virtual std::string way(const std::string& /*blob*/) const { return {}; }
  // Whether this end's link has changed since the half was made. Then what was measured means
  // nothing.
  virtual bool link_changed() const { return false; }
  // This end's ports, the half's own first; at most kPortsMost. Waits for the kernel.
  virtual std::vector<Port> ports() const { return {}; }
  // A half of the same session on another port. At the worker `offered` is the blob of the client's
  // other half, which is not trusted.
  virtual base::Result<std::unique_ptr<Half>> on_port(const std::string& /*port*/,
                                                      const std::string& /*offered*/) const {
    return base::Status(base::Code::kUnsupported, "this transport has no ports");
  }
  // Of a transport that carries lines, in place of `open`: for a session that runs. When `witness`
  // ends, the peer is gone.
  virtual Carriers carry(base::Fd /*witness*/) { return {}; }
  // The last step, at both ends. `streams` are the session's connections. A transport with channels
  // of its own gets only the first one, unless it carries lines. When that connection ends, the
  // peer is gone.
  virtual base::Result<Channels> open(Streams streams) = 0;
};

struct Transport {
  const char* kind;  // "tcp": in settings, messages and on the wire; at most kKindBytesMax
  const char* why;   // why it is the right one if possible; for people
  uint32_t abilities;
  Latency latency;
  // True if its channels are the session's own connections: the client joins one for each bulk
  // channel. Every session can fall back on such a transport.
  bool uses_connections;
  // Makes the client's half, or says why this machine cannot have one.
  base::Result<std::unique_ptr<Half>> (*offer)(const Setting& setting);
  // Makes the worker's half for a client that offered this blob, or says why it does not fit. The
  // blob is not trusted.
  base::Result<std::unique_ptr<Half>> (*answer)(const Setting& setting, const std::string& offered);
  // True: no session gets it unless its client names it (TENDRIL_TRANSPORT). For tests' own.
  bool only_by_name = false;
};

inline constexpr size_t kTransportsMax = 8;

// Adds a transport, which must live as long as the process. kInvalid: the record is bad, or the
// kind is taken. kExhausted: there are too many.
base::Status register_transport(const Transport* transport);

// All transports, the nearest first.
struct TransportList {
  const Transport* all[kTransportsMax] = {};
  size_t count = 0;
  const Transport* const* begin() const { return all; }
  const Transport* const* end() const { return all + count; }
};
TransportList transports();
// Null: this build has no transport of that kind.
const Transport* find_transport(const std::string& kind);

}  // namespace tendril::transport
