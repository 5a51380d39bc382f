// SPDX-License-Identifier: Apache-2.0
// See handler.h.
#include "scheduler/handler.h"

#include "base/text.h"
#include "wire/page.h"
#include "wire/pool.h"

namespace tendril::scheduler {

using base::Code;
using base::Status;
using wire::Request;

namespace {

Status malformed() { return Status(Code::kInvalid, "the request is malformed"); }

Status lends_nothing() {
  return Status(Code::kUnsupported,
                "this is a pool's scheduler, which lends no GPU itself; take a lease of the pool "
                "with 'tendril run'");
}

// As the Scheduler's verb.
wire::PoolCommand command_of(const wire::ChangeRequest& change) {
  wire::PoolCommand command;
  command.verb = "change";
  command.arguments = {std::to_string(change.lease_id)};
  if (change.share_millionths != 0) {
    command.arguments.push_back(base::format("share=%u.%06u", change.share_millionths / 1'000'000,
                                             change.share_millionths % 1'000'000));
  }
  if (change.memory_bytes != 0)
    command.arguments.push_back("memory=" + std::to_string(change.memory_bytes) + "B");
  if (change.sets_policy) {
    const bool caps = change.terms.policy == wire::SharePolicy::kCap;
    command.arguments.push_back(caps ? "policy=cap" : "policy=lend");
  }
  if (change.sets_priority) {
    command.arguments.push_back("priority=" + std::to_string(change.terms.priority));
  }
  return command;
}

}  // namespace

Handler::Handler(const HandlerContext* context, session::Peer peer)
    : context_(context), visitor_(context->front, std::move(peer)) {}

wire::Hello Handler::hello() {
  wire::Hello hello;
  hello.product_version = context_->product_version;
  const Core::Standing standing = context_->core->standing();
  hello.pool = context_->pool;
  hello.term = standing.term;
  hello.schedules = standing.schedules;
  return hello;
}

session::Admission Handler::admit(const wire::Hello& hello, const session::Peer& peer) {
  return visitor_.admit(hello, peer);
}

bool Handler::defers(uint16_t kind) {
  switch (Request(kind)) {
    case Request::kPoolReport:
    case Request::kPoolCommand:
    case Request::kLease:
    case Request::kList:
    case Request::kRelease:
    case Request::kChange:
      return true;
    default:
      return false;
  }
}

Visit Handler::visit() const { return {connection_, visitor_.who(), visitor_.peer().address}; }

void Handler::begin(session::Message request, std::shared_ptr<const session::Facts> /*facts*/,
                    session::Later later) {
  if (connection_ == 0) connection_ = context_->core->new_connection();
  switch (Request(request.kind)) {
    case Request::kPoolReport: {
      wire::PoolReport report;
      if (!request.read(&report)) return later.refuse(malformed());
      return context_->core->report(visit(), std::move(report), std::move(later));
    }
    case Request::kPoolCommand: {
      wire::PoolCommand command;
      if (!request.read(&command)) return later.refuse(malformed());
      return context_->core->command(visit(), std::move(command), std::move(later));
    }
    case Request::kLease: {
      wire::LeaseRequest lease;
      if (!request.read(&lease)) return later.refuse(malformed());
      return context_->core->lease(visit(), std::move(lease), std::move(later));
    }
    case Request::kList: {
      wire::ListRequest list;
      if (!request.body.empty() && !request.read(&list)) return later.refuse(malformed());
      return context_->core->list(visit(), list, std::move(later));
    }
    case Request::kRelease: {
      wire::ReleaseRequest release;
      if (!request.read(&release)) return later.refuse(malformed());
      wire::PoolCommand command;
      command.verb = "release";
      command.arguments = {std::to_string(release.lease_id)};
      return context_->core->command(visit(), std::move(command), std::move(later));
    }
    case Request::kChange: {
      wire::ChangeRequest change;
      if (!request.read(&change)) return later.refuse(malformed());
      return context_->core->command(visit(), command_of(change), std::move(later));
    }
    default:
      return later.refuse(lends_nothing());
  }
}

void Handler::gone(bool orderly) {
  if (connection_ != 0) context_->core->gone(connection_, orderly);
}

base::Result<std::vector<uint8_t>> Handler::other(const session::Message& request,
                                                  const session::Facts& facts) {
  if (reception::Doors::answers(request.kind)) return visitor_.answer_at_door(request, facts);
  if (request.kind == uint16_t(Request::kSecuredAttach)) return lends_nothing();
  if (request.kind == wire::kPagePassKind) return dashboard::Port::invite(context_->page, visitor_);
  return session::ControlHandler::other(request, facts);
}

base::Result<wire::ListReply> Handler::list(const wire::ListRequest& /*request*/) {
  return lends_nothing();
}

base::Result<wire::LeaseReply> Handler::lease(const wire::LeaseRequest& /*request*/) {
  return lends_nothing();
}

Status Handler::release(uint64_t /*lease_id*/) { return lends_nothing(); }

Status Handler::change(const wire::ChangeRequest& /*request*/) { return lends_nothing(); }

base::Result<wire::AttachReply> Handler::attach(const wire::AttachRequest& /*request*/,
                                                const wire::ConnectionRecord& /*connection*/) {
  return lends_nothing();
}

Status Handler::join(const wire::JoinRequest& /*request*/) { return lends_nothing(); }

}  // namespace tendril::scheduler
