// SPDX-License-Identifier: Apache-2.0
// See control_io.h.
#include "session/control/control_io.h"

#include <cstring>

namespace tendril::session {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

constexpr size_t kTextMax = 4096;

}  // namespace

std::vector<uint8_t> pack(uint16_t kind, Code code, const void* body, size_t bytes) {
  wire::ControlHeader header;
  header.bytes = uint32_t(bytes);
  header.kind = kind;
  header.code = uint16_t(code);
  std::vector<uint8_t> all(sizeof header + bytes);
  std::memcpy(all.data(), &header, sizeof header);
  if (bytes != 0) std::memcpy(all.data() + sizeof header, body, bytes);
  return all;
}

Status send_message(Connection* connection, uint16_t kind, Code code,
                    const std::vector<uint8_t>& body, const Deadline& deadline) {
  if (body.size() > wire::kControlBytesMax)
    return Status(Code::kInternal, "a control message is too large");
  std::vector<uint8_t> all = pack(kind, code, body.data(), body.size());
  return connection->send_all(all.data(), all.size(), deadline);
}

Result<Message> receive_message(Connection* connection, const Deadline& first, int whole_ms) {
  wire::ControlHeader header;
  auto* raw = reinterpret_cast<uint8_t*>(&header);
  size_t got = 0;
  Status status = connection->receive_all(raw, 1, first, &got);
  if (!status.ok()) return status;
  Deadline rest(whole_ms);
  // Magic first, because another protocol's banner may be shorter than a header.
  status = connection->receive_all(raw + 1, sizeof header.magic - 1, rest, &got);
  if (!status.ok() || header.magic != wire::kHelloMagic)
    return Status(Code::kInvalid, "not a Tendril message");
  status = connection->receive_all(raw + sizeof header.magic, sizeof header - sizeof header.magic,
                                   rest, &got);
  if (!status.ok()) return status;
  if (!wire::believable(header))
    return Status(Code::kInvalid, "a control message of impossible size");
  Message message;
  message.kind = header.kind;
  message.code = Code(header.code);
  // Grows as the bytes come, so that a header alone commits no memory.
  for (size_t done = 0; done < header.bytes; done += got) {
    size_t step = header.bytes - done < (64u << 10) ? header.bytes - done : (64u << 10);
    message.body.resize(done + step);
    status = connection->receive_all(message.body.data() + done, step, rest, &got);
    if (!status.ok()) return status;
  }
  return message;
}

std::string cleaned(const std::string& text) {
  std::string out = text.substr(0, kTextMax);
  for (char& c : out) {
    if ((static_cast<unsigned char>(c) < 32 && c != '\n') || c == 127) c = '?';
  }
  return out;
}

}  // namespace tendril::session
