// SPDX-License-Identifier: Apache-2.0
// What an administrator does to a live lease. `tendril release` ends it. `tendril lease set`
// changes its terms, and `tendril lease park` and `wake` move its GPU memory. Each server numbers
// its own leases.
#include <stdio.h>

#include "cli/commands.h"
#include "cli/complain.h"
#include "cli/servers.h"
#include "config/quantity.h"

namespace tendril::cli {
namespace {

base::Result<std::unique_ptr<session::Control>> connect_one(const CommonOptions& options) {
  auto asked = reach_to_administer(options);
  if (!asked.ok()) return asked.status();
  return connect_to_one(*asked);
}

// The server answers within half a minute after bytes have stopped moving.
int move_lease(const ParkOptions& options, bool wake) {
  auto control = connect_one(options);
  if (!control.ok()) return complain(kFailed, control.status());
  constexpr int kAnswerMs = 15 * 60'000;
  auto answer =
      (*control)->other(static_cast<uint16_t>(wire::Request::kPark),
                        wire::encode(wire::ParkRequest{options.lease_id, wake}), kAnswerMs);
  if (!answer.ok()) return complain(kFailed, answer.status());
  wire::ParkReply reply;
  if (!wire::decode(answer->data(), answer->size(), &reply))
    return complain(kFailed,
                    base::Status(base::Code::kInvalid, "the server's answer is malformed"));
  const std::string name = "lease " + std::to_string(options.lease_id);
  if (wake && reply.standing != wire::Standing::kGranted) {
    return complain(kFailed,
                    base::Status(base::Code::kTimeout,
                                 name + " is " + wire::standing_name(reply.standing) +
                                     ": others have its place on the GPU, and it goes on as soon "
                                     "as there is room ('tendril ls' shows who holds it)"));
  }
  if (wake) {
    printf("%s is on its GPU again\n", name.c_str());
    return 0;
  }
  printf("%s is %s: %s in host memory, %s stays on the GPU\n", name.c_str(),
         wire::standing_name(reply.standing), config::format_size(reply.parked_bytes).c_str(),
         config::format_size(reply.stays_bytes).c_str());
  return 0;
}

}  // namespace

int park_lease(const ParkOptions& options) { return move_lease(options, false); }
int wake_lease(const ParkOptions& options) { return move_lease(options, true); }

int release_leases(const CommonOptions& options, const std::vector<uint64_t>& lease_ids) {
  auto control = connect_one(options);
  if (!control.ok()) return complain(kFailed, control.status());
  int exit_status = 0;
  for (const uint64_t lease_id : lease_ids) {
    const base::Status released = (*control)->release(lease_id);
    if (!released.ok()) exit_status = complain(kFailed, released);
  }
  return exit_status;
}

int change_lease(const ChangeOptions& options) {
  wire::ChangeRequest request;
  request.lease_id = options.lease_id;
  if (!options.share.empty()) {
    auto share = config::parse_fraction(options.share);
    if (!share.ok()) return complain(kUsage, share.status());
    request.share_millionths = *share;
  }
  if (!options.memory.empty()) {
    auto memory = config::parse_size(options.memory);
    if (!memory.ok()) return complain(kUsage, memory.status());
    if (*memory == 0) return complain(kUsage, "a slice needs memory; give -m a size");
    request.memory_bytes = *memory;
  }
  request.sets_policy = options.cap || options.lend;
  if (options.cap) request.terms.policy = wire::SharePolicy::kCap;
  request.sets_priority = options.priority.has_value();
  request.terms.priority = options.priority.value_or(0);
  if (request.share_millionths == 0 && request.memory_bytes == 0 && !request.sets_policy &&
      !request.sets_priority) {
    return complain(kUsage, "nothing to change; give -p, -m, --cap, --lend or --priority");
  }
  auto control = connect_one(options);
  if (!control.ok()) return complain(kFailed, control.status());
  const base::Status changed = (*control)->change(request);
  return changed.ok() ? 0 : complain(kFailed, changed);
}

}  // namespace tendril::cli
