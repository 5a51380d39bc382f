// SPDX-License-Identifier: Apache-2.0
// See worker.h.
#include "tests/third_api/worker.h"

#include <cstring>

#include "api/abacus_handlers.gen.h"
#include "worker/core/slot_memory.h"

namespace tendril::worker::abacus {

int Executor::run() {
  for (;;) {
    base::Result<session::Call> call = service_->next({});
    if (!call.ok()) return 0;
    replies_.begin();
    if (!dispatch(*this, *call)) {
      service_->end("a malformed call");
      return 1;
    }
  }
}

abacusResult handle(Executor& w, const wire::abacus::column_fill_request& m) {
  Scope scope(w);
  auto column = scope.get<abacusColumn>(Kind::kColumn, m.column);
  if (!scope.ok()) return scope.error();
  if (m.order == wire::abacus::FillOrder::kBackwards) return ABACUS_UNSUPPORTED;
  return w.driver().abacusColumnFill(column, m.span.first, m.span.count, m.value);
}

abacusResult handle(Executor& w, const wire::abacus::column_write_request& m) {
  Scope scope(w);
  auto column = scope.get<abacusColumn>(Kind::kColumn, m.column);
  void* into = scope.ok() ? numbers_of(column, m.bytes) : nullptr;
  if (into == nullptr) {
    w.service().discard(m.transfer);
    return ABACUS_INVALID;
  }
  for (uint64_t left = m.bytes; left != 0;) {
    session::Piece piece;
    if (!w.service().take(m.transfer, &piece)) return ABACUS_LOST;
    const bool inside = piece.bytes != 0 && piece.bytes <= left && piece.offset <= m.bytes &&
                        piece.bytes <= m.bytes - piece.offset;
    if (inside) std::memcpy(static_cast<uint8_t*>(into) + piece.offset, piece.data, piece.bytes);
    w.service().release(piece);
    if (!inside) {
      w.service().end("a bulk transfer does not fit the write that announced it");
      return ABACUS_INVALID;
    }
    left -= piece.bytes;
  }
  return ABACUS_SUCCESS;
}

abacusResult handle(Executor& w, const wire::abacus::column_read_request& m,
                    wire::abacus::column_read_reply&) {
  Scope scope(w);
  auto column = scope.get<abacusColumn>(Kind::kColumn, m.column);
  if (!scope.ok()) return scope.error();
  const void* from = numbers_of(column, m.bytes);
  if (from == nullptr) return ABACUS_INVALID;
  if (!w.service().send_bulk(m.transfer, 0, from, m.bytes)) return ABACUS_LOST;
  w.service().transfer_sent(m.transfer);
  return ABACUS_SUCCESS;
}

namespace {

class AbacusWorker final : public Worker {
 public:
  base::Status warm(uint32_t) override { return {}; }
  session::SlotPool slot_pool() override { return slots_.pool(); }
  int run(session::Service* service, const wire::Assignment&, wire::AccountingPage*,
          transport::HostWindow, Exports*, Turns) override {
    return Executor(service).run();
  }

 private:
  SlotMemory slots_;
};

base::Result<std::unique_ptr<Worker>> create(const std::string&) {
  return std::unique_ptr<Worker>(new AbacusWorker);
}

}  // namespace

Api api() { return {wire::abacus::kApiName, wire::abacus::kSchemaDigest, &create}; }

}  // namespace tendril::worker::abacus
