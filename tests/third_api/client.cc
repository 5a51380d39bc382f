// SPDX-License-Identifier: Apache-2.0
// The bodies of the third API that are written by hand: its attach, what the client knows by
// itself, and bulk data each way.
#include "tests/third_api/client.h"

#include <cstdio>

#include "client/core/attach.h"
#include "client/core/attachment.h"
#include "config/configuration.h"

namespace tendril::client::abacus {
namespace {

constinit core::Attachment<Process> g_attachment;

void forget_after_fork() { g_attachment.forget_in_child(); }

class Newcomers final : public core::Newcomers {
 public:
  explicit Newcomers(Process* process) : process_(process) {}
  core::Session* create() override { return new Session; }
  int greet(core::Session*) override { return 1; }
  void admit(core::Session* session) override {
    process_->sessions.push_back(static_cast<Session*>(session));
  }

 private:
  Process* const process_;
};

abacusResult attach() {
  auto configuration = config::load_configuration();
  base::Status status = configuration.status();
  if (configuration.ok()) {
    auto* fresh = new Process;
    Newcomers newcomers(fresh);
    status = core::attach_servers({wire::abacus::kApiName, wire::abacus::kSchemaDigest},
                                  *configuration, &newcomers);
    if (status.ok()) g_attachment.set(fresh);
  }
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? ABACUS_SUCCESS : ABACUS_LOST;
}

}  // namespace

Process* process() { return g_attachment.process(); }

abacusResult refused(const char* name, const char* reason) {
  std::fprintf(stderr, "%s is not supported: %s\n", name, reason);
  return ABACUS_UNSUPPORTED;
}

abacusResult abacusInit(unsigned int flags) {
  if (flags != 0) return ABACUS_INVALID;
  return static_cast<abacusResult>(g_attachment.once(ABACUS_SUCCESS, &forget_after_fork, &attach));
}

abacusResult abacusGetVersion(int* version) {
  if (version == nullptr) return ABACUS_INVALID;
  *version = ABACUS_VERSION;
  return ABACUS_SUCCESS;
}

abacusResult abacusGetResultName(abacusResult result, const char** name) {
  static constexpr struct {
    int number;
    const char* name;
  } kNames[] = {
#include "api/abacus_results.gen.inc"
  };
  if (name == nullptr) return ABACUS_INVALID;
  *name = nullptr;
  for (const auto& each : kNames) {
    if (each.number == static_cast<int>(result)) *name = each.name;
  }
  return *name != nullptr ? ABACUS_SUCCESS : ABACUS_INVALID;
}

abacusResult abacusColumnFill(abacusColumn column, size_t first, size_t count, unsigned int value) {
  Forward forward(true);
  wire::abacus::column_fill_request request;
  request.column = forward.handle(Kind::kColumn, column);
  request.span = {first, count};
  request.order = wire::abacus::FillOrder::kForwards;
  request.value = value;
  return forward.ok() ? forward.enqueue(request) : forward.error();
}

abacusResult abacusColumnWrite(abacusColumn column, const void* data, size_t bytes) {
  Forward forward(true);
  wire::abacus::column_write_request request;
  request.column = forward.handle(Kind::kColumn, column);
  if (!forward.ok() || !forward.pointer(data)) return forward.error();
  request.transfer = Forward::session().lane->new_transfer_id();
  request.bytes = bytes;
  const abacusResult result = forward.enqueue(request);
  if (result != ABACUS_SUCCESS) return result;
  return Forward::session().send_bulk(request.transfer, data, bytes) ? ABACUS_SUCCESS : ABACUS_LOST;
}

abacusResult abacusColumnRead(abacusColumn column, void* data, size_t bytes) {
  Forward forward(true);
  wire::abacus::column_read_request request;
  wire::abacus::column_read_reply reply;
  request.column = forward.handle(Kind::kColumn, column);
  if (!forward.ok() || !forward.pointer(data)) return forward.error();
  session::Lane& lane = *Forward::session().lane;
  request.transfer = lane.new_transfer_id();
  request.bytes = bytes;
  lane.expect_bulk(request.transfer, data, bytes);
  const abacusResult result = forward.call(request, reply);
  if (result != ABACUS_SUCCESS) {
    lane.cancel_bulk(request.transfer);
    return result;
  }
  return Forward::session().wait_bulk(request.transfer, bytes) ? ABACUS_SUCCESS : ABACUS_LOST;
}

}  // namespace tendril::client::abacus
