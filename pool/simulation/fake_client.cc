// SPDX-License-Identifier: Apache-2.0
// See fake_client.h.
#include "pool/simulation/fake_client.h"

#include <algorithm>
#include <utility>

#include "pool/simulation/world.h"

namespace tendril::pool::simulation {

using base::Code;
using base::Status;

FakeClient::FakeClient(World* world, uint64_t id, Plan plan)
    : world_(world), id_(id), plan_(std::move(plan)), asked_ns_(world->now_ns()) {
  std::string key(wire::kRequestKeyBytes, '\0');
  for (char& byte : key) byte = static_cast<char>(world->clock().below(256));
  plan_.request.wish.request_key = key;
  if (plan_.patience_ns != INT64_MAX) {
    world_->clock().in(plan_.patience_ns, [world, id] {
      FakeClient* self = world->client(id);
      if (self != nullptr && self->state_ <= ClientState::kWaiting &&
          self->plan_.request.wish.restarts == 0)
        self->leave();
    });
  }
}

void FakeClient::later(int64_t span_ns, void (FakeClient::*what)()) {
  world_->clock().in(span_ns, [world = world_, id = id_, step = step_, what] {
    FakeClient* self = world->client(id);
    if (self != nullptr && self->step_ == step) (self->*what)();
  });
}

bool FakeClient::runs_whole() const {
  return state_ == ClientState::kRunning &&
         std::none_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.gone; });
}

void FakeClient::seek() {
  ++step_;
  state_ = ClientState::kSeeking;
  if (first_try_ns_ < 0) first_try_ns_ = world_->now_ns();
  wire_ = world_->connect_client(id_);
  if (wire_ == 0) {
    if (plan_.asks_servers && world_->now_ns() - first_try_ns_ > 20 * kSecond) return ask_server();
    return later(world_->clock().between(kSecond, 3 * kSecond), &FakeClient::seek);
  }
  state_ = ClientState::kWaiting;
  world_->submit(wire_, plan_.user, plan_.request);
  if (plan_.crashes_waiting && world_->clock().chance(0.5)) {
    later(world_->clock().wait(10.0 * kMinute), &FakeClient::crash);
  }
}

void FakeClient::wire_gone(uint64_t wire) {
  if (wire != wire_ || state_ != ClientState::kWaiting) return;
  wire_ = 0;
  ++step_;
  state_ = ClientState::kSeeking;
  first_try_ns_ = world_->now_ns();
  later(world_->clock().between(kSecond, 3 * kSecond), &FakeClient::seek);
}

void FakeClient::heard(uint64_t wire, const wire::News& news) {
  if (wire != wire_) return;
  world_->checks().heard(*this, news);
  if (news.reason.substr(0, news.reason.find(':')) !=
      news_.reason.substr(0, news_.reason.find(':'))) {
    world_->log("client " + std::to_string(id_) + " hears: " + news.reason + "; " + news.start);
  }
  news_ = news;
  heard_ns_ = world_->now_ns();
  // A policy that changed may have made it impossible. Some day its user notices. What only the
  // time of day forbids waits.
  const bool hopeless = news.reason.rfind("NeverFits", 0) == 0 ||
                        news.reason.rfind("Account", 0) == 0 ||
                        (news.place == 0 && world_->now_ns() > world_->options().length_ns + kDay);
  if (hopeless && world_->ends()) leave();
}

void FakeClient::answered(uint64_t wire, const Status& status, const wire::LeaseReply& reply) {
  if (wire != wire_ || state_ != ClientState::kWaiting) return;
  if (plan_.loses_answer) {  // the connection breaks just then; it asks again with the same key
    plan_.loses_answer = false;
    world_->checks().lost_answer(*this, status, reply);
    world_->break_wire(wire_);
    return;
  }
  world_->end_wire(wire_, true);
  wire_ = 0;
  ++step_;
  answered_ns_ = world_->now_ns();
  world_->checks().answered(*this, status, reply);
  if (!status.ok()) {
    if (status.code() != Code::kUnavailable || plan_.request.wish.refuses_wait) {
      return gone(false, status.message());
    }
    state_ = ClientState::kSeeking;
    return later(world_->clock().between(kSecond, 10 * kSecond), &FakeClient::seek);
  }
  pool_lease_id_ = reply.lease_id;
  parts_.clear();
  for (const wire::LeasePart& part : reply.parts) {
    parts_.push_back({world_->server_of(part.server), part.lease_id, part.secret,
                      part.slices.size(), false, false});
  }
  state_ = ClientState::kClaiming;
  if (plan_.crashes_at_answer) return crash();
  for (size_t i = 0; i < parts_.size(); ++i) {
    world_->clock().in(world_->clock().between(kMillisecond, 300 * kMillisecond),
                       [world = world_, id = id_, step = step_, i] {
                         FakeClient* self = world->client(id);
                         if (self != nullptr && self->step_ == step) self->claim(i);
                       });
  }
}

void FakeClient::claim(size_t index) {
  Part& part = parts_[index];
  if (part.gone || part.claimed) return;
  const auto slices = world_->server(part.server).claim(part.lease_id, part.secret, id_);
  if (!slices.ok()) {
    part.gone = true;
    world_->checks().claim_failed(*this, part, slices.status());
    return stop("a claim failed: " + slices.status().message());
  }
  part.claimed = true;
  part.boot = world_->server(part.server).boot();
  if (std::all_of(parts_.begin(), parts_.end(), [](const Part& each) { return each.claimed; })) {
    ++step_;
    state_ = ClientState::kRunning;
    if (!runs_whole()) return stop("a part ended while others were claimed");
    if (plan_.attach_after_ns != kNever) later(plan_.attach_after_ns, &FakeClient::run);
  }
}

void FakeClient::run() {
  for (const Part& part : parts_) {
    if (world_->server(part.server).boot() != part.boot) continue;
    world_->server(part.server).attach(part.lease_id);
    world_->server(part.server).work(part.lease_id, std::min(plan_.run_ns, plan_.rest_after_ns));
  }
  if (plan_.rest_after_ns < plan_.run_ns)
    later(plan_.rest_after_ns + plan_.rest_ns, &FakeClient::work_again);
  later(plan_.run_ns, &FakeClient::finish);
}

void FakeClient::work_again() {
  for (const Part& part : parts_) {
    FakeServer& server = world_->server(part.server);
    if (server.boot() == part.boot) server.work(part.lease_id, plan_.run_ns);
  }
}

void FakeClient::ask_server() {
  const size_t server = world_->clock().below(world_->server_count());
  wire::LeaseRequest request = plan_.request;
  request.count = 1;
  const auto lease =
      world_->server(server).lease_directly(request, id_, world_->user_name(plan_.user));
  if (!lease.ok()) {
    first_try_ns_ = world_->now_ns();
    return later(world_->clock().between(kSecond, 3 * kSecond), &FakeClient::seek);
  }
  ++step_;
  state_ = ClientState::kRunning;
  parts_ = {{server, *const_cast<base::Result<uint64_t>&>(lease), "", 1, true, false,
             world_->server(server).boot()}};
  world_->figures().granted_by_servers++;
  run();
}

void FakeClient::noticed(size_t server, const wire::Notice& notice) {
  if (state_ == ClientState::kGone) return;
  world_->figures().notices++;
  if (notice.kind == wire::NoticeKind::kRequeue && !requeued_) {
    requeued_ = true;
    later(world_->clock().between(kSecond, 5 * kSecond), &FakeClient::again);
  } else if (notice.kind == wire::NoticeKind::kEnded) {
    part_gone(server, notice.lease_id, notice.text);
  }
}

void FakeClient::part_gone(size_t server, uint64_t lease_id, const std::string& why) {
  if (state_ == ClientState::kGone) return;
  for (Part& part : parts_) {
    if (part.server != server || part.lease_id != lease_id) continue;
    part.gone = true;
    // A program notices when it next uses that GPU, and ends.
    world_->clock().in(world_->clock().between(100 * kMillisecond, 5 * kSecond),
                       [world = world_, id = id_, step = step_, why] {
                         FakeClient* self = world->client(id);
                         if (self != nullptr && self->step_ == step) self->stop(why);
                       });
  }
}

void FakeClient::again() {
  Plan plan = plan_;
  ++plan.request.wish.restarts;
  stop("requeued");
  world_->figures().requeued++;
  world_->come(std::move(plan));
}

void FakeClient::stop(const std::string& why) { gone(false, why); }
void FakeClient::crash() { gone(true, "crashed"); }
void FakeClient::leave() {
  world_->figures().left++;
  gone(false, "left");
}

void FakeClient::gone(bool broken, const std::string& why) {
  if (state_ == ClientState::kGone) return;
  state_ = ClientState::kGone;
  ++step_;
  if (wire_ != 0) {
    if (broken) {
      world_->break_wire(wire_);
    } else {
      world_->end_wire(wire_, true);
    }
  }
  for (const Part& part : parts_) {
    if (!part.claimed || part.gone) continue;
    // A server notices a broken connection later than one that is closed.
    const int64_t after_ns = broken ? world_->clock().between(0, 30 * kSecond) : 20 * kMillisecond;
    world_->clock().in(after_ns, [world = world_, part, why] {
      FakeServer& server = world->server(part.server);
      if (server.boot() == part.boot) server.let_go(part.lease_id, why);
    });
  }
  world_->client_gone(*this);
}

}  // namespace tendril::pool::simulation
