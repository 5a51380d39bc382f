// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes as a client's command lane and bulk channel. The worker's side
// must end the session or run calls. It must never crash, hang or read beyond the input.
#include <unistd.h>

#include <cstring>
#include <vector>

#include "session/lane/service.h"
#include "transport/testing/test_channels.h"

using namespace tendril;  // NOLINT: a program

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < 2 || bytes > 60000) return 0;
  // The first byte: with or without a bulk channel, and how the rest is divided.
  size_t channels = data[0] & 1;
  size_t split = channels == 0 ? bytes - 1 : (bytes - 1) * (data[0] >> 1) / 128;
  transport::ChannelSet client, worker;
  transport::make_channels("unix", channels, &client, &worker);
  // Half closed: replies still leave, so that the calls after the first reply are reached, too.
  transport::SpentClient lane(data + 1, split);
  auto service = session::Service::open(lane.take_worker_end(), worker.bulk.data(),
                                        worker.bulk.size(), session::SlotPool());
  auto feed = [](transport::Channel* channel, const uint8_t* from, size_t count) {
    iovec part{const_cast<uint8_t*>(from), count};
    if (count != 0) (void)channel->send_some(&part, 1, 0);
  };
  if (channels != 0) feed(client.bulk[0].get(), data + 1 + split, bytes - 1 - split);
  if (channels != 0) client.bulk[0]->shutdown();
  for (;;) {
    auto call = service->next({0, 1000});
    if (!call.ok()) break;
    // Every byte of a body must be readable, also after similar calls have been taken.
    session::Call calls[4] = {*call};
    const size_t count = 1 + service->take_alike(*call, calls + 1, 3);
    uint64_t sum = 0;
    for (size_t one = 0; one < count; ++one) {
      for (uint32_t i = 0; i < calls[one].bytes; ++i) sum += calls[one].body[i];
    }
    service->reply(call->reply_id, int32_t(sum), call->body, call->bytes < 64 ? call->bytes : 64);
    session::Piece piece;
    uint64_t transfer = 0;
    if (call->bytes >= 8) memcpy(&transfer, call->body, 8);
    if ((call->opcode & 3) == 1) service->discard(transfer);
    if ((call->opcode & 3) == 2 && channels == 0 && service->take(transfer, &piece))
      service->release(piece);
    // No card of this session puts anything there.
    if ((call->opcode & 7) == 4) service->aim(transfer, uint64_t{3} << 48, call->bytes);
    if ((call->opcode & 7) == 5) service->unaim(transfer);
    uint8_t place[4096];
    if ((call->opcode & 3) == 3 && channels == 0)
      service->take_into(transfer, place, call->bytes % sizeof place);
  }
  service.reset();
  return 0;
}
