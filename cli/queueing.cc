// SPDX-License-Identifier: Apache-2.0
// See queueing.h.
#include "cli/queueing.h"

#include "cli/holders.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "cli/queue_lines.h"
#include "config/quantity.h"
#include "wire/pool.h"

namespace tendril::cli {
namespace {

using base::Code;
using base::Result;
using base::Status;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kTakeoverNs = 20 * kSecondNs;  // a standby takes over within 10 s
constexpr uint64_t kPauseNs = kSecondNs / 2;      // between two rounds of all addresses
constexpr int kClaimMs = 10'000;
constexpr int kClaims = 3;  // attempts at one server
constexpr int kGrants = 3;  // that may fail before the request does

void pause(uint64_t ns) {
  timespec left = {static_cast<time_t>(ns / kSecondNs), static_cast<long>(ns % kSecondNs)};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

// Another address may do better.
bool is_about_the_scheduler(Code code) {
  return code == Code::kUnavailable || code == Code::kClosed || code == Code::kTimeout;
}

class Queueing {
 public:
  explicit Queueing(PoolAsk* ask) : ask_(*ask), born_ns_(base::now_ns()) {}

  Result<PoolLease> run() {
    if (ask_.request.wish.request_key.empty()) {
      const Status made = renew_key();
      if (!made.ok()) return made;
    }
    uint64_t before = 0;
    Status why;
    for (int grant = 0; grant < kGrants; ++grant) {
      Result<wire::LeaseReply> reply = queue();
      if (!reply.ok()) return reply.status();
      // The same lease again: what failed a moment ago is all that this key can get.
      if (reply->lease_id == before) {
        const Status made = renew_key();
        if (!made.ok()) return made;
        before = 0;
        continue;
      }
      before = reply->lease_id;
      PoolLease lease;
      why = claim_all(*reply, &lease.leases);
      if (why.ok()) {
        lease.reply = reply.take();
        if (lines_.has_spoken() || ask_.verbose) ask_.say(granted_line(lease.reply));
        return lease;
      }
      ask_.say(why.message() + "; asking the pool again");
      pause(kPauseNs);
    }
    return why;
  }

 private:
  Status renew_key() {
    Result<std::string> key = new_request_key();
    if (!key.ok()) return key.status();
    ask_.request.wish.request_key = key.take();
    return Status();
  }

  bool waits_for_ever() const { return ask_.wait_s >= UINT64_MAX / kSecondNs; }
  // How long it may still wait in the queue.
  uint64_t left_ns() const {
    if (waits_for_ever()) return UINT64_MAX;
    const uint64_t spent_ns = base::now_ns() - born_ns_, most_ns = ask_.wait_s * kSecondNs;
    return most_ns > spent_ns ? most_ns - spent_ns : 0;
  }

  void say(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) ask_.say(line);
  }

  // One round of all addresses. Null with an ok status: somebody answers, and nobody schedules.
  Result<std::unique_ptr<session::Control>> find_scheduler() {
    Status why;
    bool answered = false;
    for (const session::Endpoint& endpoint : ask_.pools) {
      auto control = session::Control::connect(endpoint, ask_.connect);
      if (!control.ok()) {
        if (why.ok()) why = control.status();
        if (!is_about_the_scheduler(control.status().code())) return control.status();
        continue;
      }
      const wire::Hello& hello = (*control)->server_hello();
      if (hello.pool.empty()) {
        return Status(Code::kInvalid, endpoint.text +
                                          " is a GPU server, and others here are a pool: name "
                                          "either the pool's addresses or servers");
      }
      if (hello.schedules) return control;
      answered = true;
    }
    if (!answered) return why;
    return std::unique_ptr<session::Control>();
  }

  // The answer of whoever schedules.
  Result<wire::LeaseReply> queue() {
    uint64_t nobody_since_ns = base::now_ns();
    for (;;) {
      Result<std::unique_ptr<session::Control>> control = find_scheduler();
      if (control.ok() && *control != nullptr) {
        Result<wire::LeaseReply> reply = ask(control->get());
        if (reply.ok() || !is_about_the_scheduler(reply.status().code()) || gave_up_) return reply;
        // Nothing is free now, and that was the question.
        const bool answered = reply.status().code() == Code::kUnavailable;
        was_queued_ |= !answered;  // the connection was lost, maybe before there was any news
        if (answered && ask_.request.wish.refuses_wait) return reply;
        say(lines_.lost(reply.status().message() + "; the request keeps its place, and looks for "
                                                   "who schedules now"));
        nobody_since_ns = base::now_ns();
      } else if (!control.ok() && !is_about_the_scheduler(control.status().code())) {
        return control.status();
      } else {
        // An address where nobody is may be wrong. A standby, or a place in the queue, is worth a
        // wait.
        const Status none(Code::kUnavailable, "nobody schedules this pool now");
        const Status why = control.ok() ? none : control.status();
        if (!control.ok() && !was_queued_) return why;
        const bool late = base::now_ns() - nobody_since_ns > kTakeoverNs;
        if (late && (left_ns() == 0 || !was_queued_)) return why;
        say(lines_.lost(why.message() + "; trying on"));
      }
      pause(kPauseNs);
    }
  }

  Result<wire::LeaseReply> ask(session::Control* control) {
    session::LeaseWait wait;
    if (!waits_for_ever() && ask_.wait_s != 0)
      wait.limit_ms = static_cast<int64_t>(left_ns() / 1'000'000 + 1);
    wait.cancel_fd = ask_.cancel_fd;
    wait.news = [this](const wire::News& news) {
      was_queued_ = true;
      say(lines_.heard(news));
      return true;
    };
    Result<wire::LeaseReply> reply = control->lease(ask_.request, wait, &gave_up_);
    if (reply.ok() && reply->parts.empty())
      return Status(Code::kMismatch, "the pool granted a lease on no server");
    if (reply.ok() || !gave_up_ || reply.status().code() != Code::kTimeout) return reply;
    return Status(Code::kTimeout, "left the queue after " + config::format_duration(ask_.wait_s) +
                                      ", as --wait says");
  }

  Status claim_all(const wire::LeaseReply& reply, std::vector<TakenLease>* leases) {
    const size_t count = reply.parts.size();
    leases->resize(count);
    std::vector<Status> outcomes(count);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; ++i) {
      threads.emplace_back([&, i] { outcomes[i] = claim(reply.parts[i], &(*leases)[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& outcome : outcomes) {
      if (!outcome.ok()) return outcome;
    }
    return Status();
  }

  Status claim(const wire::LeasePart& part, TakenLease* taken) const {
    Status done;
    for (int attempt = 0; attempt < kClaims; ++attempt) {
      if (attempt != 0) pause(kPauseNs);
      done = claim_once(part, taken);
      if (done.ok() || !is_about_the_scheduler(done.code())) break;
    }
    if (done.ok()) return done;
    return Status(done.code(), "the lease on " + base::printable(part.server, 64) +
                                   " was granted and could not be had (" + done.message() + ")");
  }

  Status claim_once(const wire::LeasePart& part, TakenLease* taken) const {
    auto endpoint = session::parse_endpoint(part.endpoint);
    if (!endpoint.ok()) return endpoint.status();
    // What its certificate must say: the secret of a lease is for the server that the pool named.
    endpoint->name = part.server;
    session::ConnectOptions options = ask_.connect;
    options.answer_ms = std::max(options.answer_ms, kClaimMs);
    *taken = TakenLease();
    taken->endpoint = endpoint.take();
    taken->lease.lease_id = part.lease_id;
    taken->lease.secret = part.secret;
    return claim_lease(options, taken);
  }

  PoolAsk& ask_;
  const uint64_t born_ns_;
  QueueLines lines_;
  bool was_queued_ = false, gave_up_ = false;
};

}  // namespace

base::Result<PoolLease> lease_from_pool(PoolAsk ask) { return Queueing(&ask).run(); }

base::Result<std::string> new_request_key() {
  std::string key(wire::kRequestKeyBytes, 0);
  if (getrandom(&key[0], key.size(), 0) != static_cast<ssize_t>(key.size()))
    return base::errno_status(Code::kInternal, "making random bytes", errno);
  return key;
}

}  // namespace tendril::cli
