// SPDX-License-Identifier: Apache-2.0
// How the workers of one server let each other open memory and events: through tendrild, which
// keeps what each shares under a token (wire/assignment.h). Implemented by
// worker/process/control.h; called by the executor thread only, which waits for the answer, since
// tendrild answers at once.
#pragma once

#include "base/fd.h"
#include "wire/assignment.h"

namespace tendril::worker {

class Exports {
 public:
  virtual ~Exports() = default;
  // `record` says what it is; its token is filled in. `fd`: what the driver exported, or -1; stays
  // the caller's.
  virtual wire::ExportAnswer publish(wire::ExportRecord* record, int fd) = 0;
  // `record` names token and kind; the rest and `fd` are filled in.
  virtual wire::ExportAnswer fetch(wire::ExportRecord* record, base::Fd* fd) = 0;
  // Nobody may open it any more, and tendrild holds nothing of it: a driver keeps memory while a
  // descriptor of it is open. `freed`: and its memory went back to the driver.
  virtual void withdraw(const wire::ExportRecord& record, bool freed) = 0;
  // What was fetched is closed again.
  virtual void release(const wire::ExportRecord& record) = 0;
};

}  // namespace tendril::worker
