// SPDX-License-Identifier: Apache-2.0
// A channel that seals another one: what is sent goes out in records (records.h), and what comes in
// is checked before it is given to anybody. Both ends of a session use it over TCP. The keys come
// from the handshake of attaching. Each channel and direction has its own, so a record of one fits
// nowhere else. Sending and receiving allocate nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/sealed/records.h"
#include "transport/transport.h"

namespace tendril::transport {

inline constexpr size_t kSessionKeyBytes = kDigestBytes;

enum class SealedEnd : uint8_t { kClient, kWorker };

// `session_key`: kSessionKeyBytes, the same at both ends. `number`: of the channel in its session,
// 0 for the command lane. Its kind is "sealed(tcp)". An error: the key has another size, or there
// is no memory.
//
// A send that took only a part of what it was given must be continued with the same bytes, because
// they are sealed already. A stream that was tampered with, or that ends inside a record, answers
// every later receive with the reason.
base::Result<std::unique_ptr<Channel>> sealed(std::unique_ptr<Channel> inner,
                                              const std::string& session_key, uint16_t number,
                                              SealedEnd end,
                                              uint64_t records_per_key = kRecordsPerKey);

}  // namespace tendril::transport
