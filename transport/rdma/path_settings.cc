// SPDX-License-Identifier: Apache-2.0
// See path_settings.h.
#include "transport/rdma/path_settings.h"

#include <stdlib.h>

#include "base/text.h"

namespace tendril::transport::rdma {

using base::Code;
using base::Result;
using base::Status;

namespace {

Status read_number(const char* name, const char* text, int least, int most, const char* wanted,
                   uint8_t* into) {
  if (text == nullptr || *text == 0) return Status();
  char* end = nullptr;
  const long number = strtol(text, &end, 10);
  if (*end != 0 || number < least || number > most) {
    return Status(Code::kInvalid, base::format("%s is '%s'; write %s", name,
                                               base::printable(text).c_str(), wanted));
  }
  *into = uint8_t(number);
  return Status();
}

}  // namespace

Result<PathSettings> read_path_settings(const char* traffic_class, const char* mtu,
                                        const char* timer, const char* repetitions) {
  PathSettings settings;
  Status good = read_number("TENDRIL_RDMA_TRAFFIC_CLASS", traffic_class, 0, 255,
                            "a number up to 255 (four times the DSCP)", &settings.traffic_class);
  if (good.ok()) {
    good = read_number("TENDRIL_RDMA_TIMEOUT", timer, 1, 31,
                       "1 to 31: a card repeats after 4.096 us * 2^that", &settings.answer_timer);
  }
  if (good.ok()) {
    good = read_number("TENDRIL_RDMA_RETRIES", repetitions, 1, 7, "1 to 7 repetitions",
                       &settings.repetitions);
  }
  if (!good.ok()) return good;
  if (mtu == nullptr || *mtu == 0) return settings;
  for (uint8_t code = 1; code <= 5; ++code) {
    if (base::format("%u", 128u << code) != mtu) continue;
    settings.mtu_code = code;
    return settings;
  }
  return Status(Code::kInvalid,
                base::format("TENDRIL_RDMA_MTU is '%s'; write 256, 512, 1024, 2048 or 4096",
                             base::printable(mtu).c_str()));
}

Result<PathSettings> path_settings() {
  return read_path_settings(getenv("TENDRIL_RDMA_TRAFFIC_CLASS"), getenv("TENDRIL_RDMA_MTU"),
                            getenv("TENDRIL_RDMA_TIMEOUT"), getenv("TENDRIL_RDMA_RETRIES"));
}

}  // namespace tendril::transport::rdma
