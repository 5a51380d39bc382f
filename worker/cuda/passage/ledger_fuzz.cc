// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as what another server's worker says, among calls of this session's client. What
// a receiver takes must lie in what its client named.
#include <cstdlib>
#include <cstring>
#include <map>

#include "worker/cuda/passage/ledger.h"
#include "worker/cuda/passage/shape.h"

namespace {

using tendril::worker::cuda::PassageFrame;
using tendril::worker::cuda::PassageLedger;
using tendril::worker::cuda::PassageRole;
using tendril::worker::cuda::PassageShape;

void check(PassageLedger* ledger, std::map<uint64_t, uint64_t>* sizes,
           const PassageLedger::Steps& steps) {
  for (const PassageLedger::Step& step : steps) {
    if (step.kind != PassageLedger::Step::Kind::kMove || step.frame.bytes == 0) continue;
    const uint64_t size = (*sizes)[step.operation];
    if (step.frame.value > size || step.frame.bytes > size - step.frame.value) abort();
    PassageLedger::Steps more;
    ledger->moved(step.operation, step.frame.bytes, &more);
    check(ledger, sizes, more);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  PassageLedger ledger;
  std::map<uint64_t, uint64_t> sizes;
  for (; bytes >= sizeof(PassageFrame) + 2; data += sizeof(PassageFrame) + 2) {
    PassageFrame frame;
    std::memcpy(&frame, data + 2, sizeof frame);
    bytes -= sizeof frame + 2;
    const uint64_t operation = data[1] % 8;
    frame.operation %= 8;
    PassageLedger::Steps steps;
    switch (data[0] % 8) {
      case 0:
        if (ledger.find(operation) == nullptr) {
          sizes[operation] = frame.value;
          ledger.add(operation, static_cast<PassageRole>(frame.bytes % 4), frame.value, &steps);
        }
        break;
      case 1:
        ledger.arrived(operation, &steps);
        break;
      case 2:
        ledger.fail(operation, data[1], &steps);
        break;
      case 3: {
        const PassageShape shape = {frame.value, frame.operation + 1, frame.bytes,
                                    data[1],     frame.value % 4096,  frame.value % 65'536};
        uint64_t all = 0, span = 0;
        if (measure(shape, &all, &span)) {
          const auto part = part_at(shape, frame.value % all, 1 + data[1]);
          if (part.bytes() == 0 || part.address - shape.address >= span) abort();
        }
        break;
      }
      default:
        if (is_sound(frame)) ledger.heard(frame, &steps);
    }
    check(&ledger, &sizes, steps);
  }
  PassageLedger::Steps steps;
  ledger.lose(46, &steps);
  if (ledger.size() != 0) abort();
  return 0;
}
