// SPDX-License-Identifier: Apache-2.0
// What this session shares with other sessions of the server, and what it has opened of theirs. A
// thing that is exported twice keeps its token, so that programs may compare handles. Tokens come
// from strangers. So tendrild looks them up, and hands out only what a driver gave it. Memory that
// another session exported is charged to that session, never to this one. Executor thread only.
#pragma once

#include <cstring>
#include <string>
#include <unordered_map>

#include "worker/core/exports.h"
#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

class Ipc {
 public:
  // `exports` may be null (tests): then nothing can be shared.
  explicit Ipc(Exports* exports) : exports_(exports) {}

  // The token of the thing that `key` names here (an address, a driver's object). Publishes it if
  // that has not happened yet. `content` is the driver's handle. A different handle under the same
  // key replaces the published one.
  template <typename Handle>
  CUresult publish(uint64_t key, wire::ExportRecord record, const Handle& content,
                   std::string* token) {
    static_assert(sizeof(Handle) <= wire::kExportContentBytes);
    std::memcpy(record.content, &content, sizeof content);
    return publish(key, record, -1, token);
  }
  // The same without a driver's handle: what opens the thing is the descriptor.
  CUresult publish(uint64_t key, const wire::ExportRecord& record, int fd, std::string* token);
  // Whether this session published the token.
  bool owns(const wire::Bytes& token) const;
  // Publishes a descriptor. Every export gets its own token, because every descriptor is closed
  // separately.
  CUresult publish_descriptor(uint64_t key, wire::ExportRecord record, int fd, std::string* token);
  // CUDA_ERROR_INVALID_VALUE: nothing has this token (any more).
  CUresult fetch(wire::ExportKind kind, const wire::Bytes& token, wire::ExportRecord* record,
                 base::Fd* fd);

  // The thing behind `key` is gone. Its tokens are invalid from now on.
  void gone(uint64_t key) {
    if (!published_.empty()) withdraw_all(key);
  }
  // Every copy of a descriptor is closed. False: there is no such token, or it was dropped before.
  bool drop(const wire::Bytes& token, wire::ExportKind* kind, uint64_t* key);

  // Memory of another session is open here, under `key`. Each further opening is counted.
  void opened(uint64_t key, const wire::ExportRecord& record);
  // It was closed once.
  void closed(uint64_t key);

 private:
  struct Published {
    wire::ExportRecord record;
    bool dropped = false;
  };
  struct Opened {
    wire::ExportRecord record;
    uint32_t count;
  };
  void withdraw_all(uint64_t key);

  Exports* exports_;
  std::unordered_multimap<uint64_t, Published> published_;
  std::unordered_map<uint64_t, Opened> opened_;
};

}  // namespace tendril::worker::cuda
