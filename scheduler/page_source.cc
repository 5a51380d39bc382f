// SPDX-License-Identifier: Apache-2.0
// See page_source.h. A command is a short connection of its own, whose answer may come in parts.
#include "scheduler/page_source.h"

#include <utility>

namespace tendril::scheduler {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr uint16_t kCommandKind = uint16_t(wire::Request::kPoolCommand);

// The other end of such a connection. The Core's thread calls it.
class CommandCaller final : public session::Caller,
                            public std::enable_shared_from_this<CommandCaller> {
 public:
  CommandCaller(Core* core, Visit visit, std::function<void(Result<std::string>)> done)
      : core_(core), visit_(std::move(visit)), done_(std::move(done)) {}

  void ask(wire::PoolCommand command) {
    core_->command(visit_, std::move(command),
                   session::Later(shared_from_this(), ++requests_, kCommandKind));
  }
  void answer(uint64_t /*request*/, session::Outcome outcome) override {
    if (outcome.code != base::Code::kOk)
      return finish(Status(outcome.code, std::string(outcome.body.begin(), outcome.body.end())));
    session::Message message;
    message.kind = outcome.kind;
    message.body = std::move(outcome.body);
    wire::PoolAnswer part;
    if (!message.read(&part)) return finish(Status(Code::kInternal, "the answer is malformed"));
    json_ += part.json;
    if (part.more) return ask({"more", {}, {}});
    finish(std::move(json_));
  }
  void tell(uint64_t /*request*/, const wire::News& /*news*/) override {}
  void notice(const wire::Notice& /*notice*/) override {}

 private:
  void finish(Result<std::string> result) {
    if (!done_) return;
    core_->gone(visit_.connection, true);
    std::exchange(done_, nullptr)(std::move(result));
  }

  Core* const core_;
  const Visit visit_;
  std::function<void(Result<std::string>)> done_;
  std::string json_;
  uint64_t requests_ = 0;
};

}  // namespace

void PageSource::command(const access::Principal& who, const std::string& address,
                         wire::PoolCommand command, Done<std::string> done) {
  const auto caller = std::make_shared<CommandCaller>(
      core_, Visit{core_->new_connection(), who, address}, std::move(done));
  caller->ask(std::move(command));
}

}  // namespace tendril::scheduler
