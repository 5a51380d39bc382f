// SPDX-License-Identifier: Apache-2.0
// See core.h.
#include "scheduler/core.h"

#include <time.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/text.h"
#include "reception/log.h"
#include "scheduler/history_reader.h"

namespace tendril::scheduler {

using base::Code;
using base::Status;
using reception::Level;
using reception::log;
using session::Later;

namespace {

constexpr uint64_t kMs = 1'000'000;
// The connection of what this process itself asks.
constexpr uint64_t kOwn = 1;
// Events within this time are planned for together.
constexpr uint64_t kTickEveryNs = 2 * kMs;
constexpr uint64_t kUndecidedEveryNs = 2'000 * kMs;  // who waits hears a sign of life
constexpr int kFiguresMs = 2000;                     // whoever reads metrics waits no longer
constexpr size_t kPartBytes = 768u << 10;            // of a long answer in one message
constexpr char kMore[] = "more";                     // the verb that asks for the rest
constexpr char kHistory[] = "history", kEvents[] = "events";  // the verbs that the store answers
constexpr uint64_t kKeepEventsEveryNs = 1000 * kMs;

pool::Now now_of(uint64_t now_ns) { return {now_ns, static_cast<int64_t>(time(nullptr))}; }

bool is_named(const access::Principal& who) {
  return who.proof == access::Proof::kCertificate || who.proof == access::Proof::kUnixUser;
}

// Where one secret is all that anybody proves, users are who they say they are: for shares and
// names, not for rights.
pool::Asker asker_of(const Visit& visit, const std::string& claimed) {
  pool::Asker asker;
  asker.id = visit.who.id;
  asker.name = visit.who.name;
  asker.role = access::role_name(visit.who.role);
  asker.host = visit.address;
  const bool named = is_named(visit.who);
  if (!named && !claimed.empty()) {
    asker.name = base::printable(claimed, wire::kPoolNameBytesMax);
    asker.id += "/" + asker.name;
  }
  asker.sees_all = !named || access::may_see(visit.who, std::string());
  asker.rules_all =
      !named || visit.who.role == access::Role::kAdmin || visit.who.role == access::Role::kOperator;
  return asker;
}

access::Action action_of(const std::string& verb) {
  if (verb == "status" || verb == "queue" || verb == "show" || verb == kMore || verb == kHistory ||
      verb == kEvents)
    return access::Action::kList;
  // The Scheduler looks whose it is.
  if (verb == "release" || verb == "change" || verb == "hold" || verb == "unhold" ||
      verb == "requeue" || verb == "park" || verb == "wake")
    return access::Action::kLease;
  if (verb == "apply" || verb == "move" || verb == "forget") return access::Action::kRulePool;
  return access::Action::kOperatePool;
}

void shorten(std::string* text) {
  if (text->size() > wire::kNewsTextBytesMax) text->resize(wire::kNewsTextBytesMax);
}

// As many records as fit (session::perform does the same for a server's list).
std::vector<uint8_t> encoded_list(const pool::Scheduler& scheduler, wire::ListRequest request,
                                  const pool::Asker& who, pool::Now now) {
  if (request.limit != 0) request.limit = std::min(request.limit, wire::kListPageMax);
  if (request.gpu_limit != 0) request.gpu_limit = std::min(request.gpu_limit, wire::kGpuPageMax);
  for (;;) {
    std::vector<uint8_t> body = wire::encode(scheduler.list(request, who, now));
    if (!body.empty() || (request.limit <= 1 && request.gpu_limit <= 1)) return body;
    for (uint32_t* const limit : {&request.limit, &request.gpu_limit}) {
      if (*limit != 0) *limit = std::max(*limit / 4, 1u);
    }
  }
}

}  // namespace

Core::Core(CoreOptions options, access::Guard* guard)
    : options_(std::move(options)),
      guard_(guard),
      policy_(options_.policy),
      journal_(options_.scheduler),
      last_connection_(kOwn) {}

Core::~Core() { stop(); }

void Core::start(StoreThread* store, HistoryReader* history) {
  store_ = store;
  history_ = history;
  thread_ = std::thread([this] { run(); });
}

void Core::stop() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  std::deque<Event> left;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    left.swap(events_);
  }
  links_.clear();
  held_.clear();
}

std::string Core::holder_text(const std::string& scheduler, const std::string& endpoint) {
  return scheduler + " " + endpoint;
}

Core::Standing Core::standing() const {
  std::lock_guard<std::mutex> hold(mutex_);
  return standing_;
}

std::string Core::figures() {
  struct Answer {
    std::mutex mutex;
    std::condition_variable given;
    bool is_given = false;
    std::string text;
  };
  const auto answer = std::make_shared<Answer>();
  post([this, answer] {
    std::string text;
    if (scheduler_ != nullptr) text = scheduler_->figures(now_of(base::now_ns()));
    const std::lock_guard<std::mutex> hold(answer->mutex);
    answer->text = std::move(text);
    answer->is_given = true;
    answer->given.notify_all();
  });
  std::unique_lock<std::mutex> hold(answer->mutex);
  answer->given.wait_for(hold, std::chrono::milliseconds(kFiguresMs),
                         [&] { return answer->is_given; });
  return answer->text;
}

uint64_t Core::new_connection() {
  std::lock_guard<std::mutex> hold(mutex_);
  return ++last_connection_;
}

// ---- events ----

void Core::post(Event event) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (stopping_) return;
  events_.push_back(std::move(event));
  if (events_.size() == 1) changed_.notify_all();
}

void Core::report(Visit visit, wire::PoolReport report, Later later) {
  auto held = std::make_shared<Later>(std::move(later));
  post([this, visit = std::move(visit), report = std::move(report), held] {
    take_report(visit, report, std::move(*held));
  });
}

void Core::lease(Visit visit, wire::LeaseRequest request, Later later) {
  auto held = std::make_shared<Later>(std::move(later));
  post([this, visit = std::move(visit), request = std::move(request), held] {
    take_lease(visit, request, std::move(*held));
  });
}

void Core::command(Visit visit, wire::PoolCommand command, Later later) {
  auto held = std::make_shared<Later>(std::move(later));
  post([this, visit = std::move(visit), command = std::move(command), held] {
    take_command(visit, command, std::move(*held));
  });
}

void Core::list(Visit visit, wire::ListRequest request, Later later) {
  auto held = std::make_shared<Later>(std::move(later));
  post([this, visit = std::move(visit), request, held] {
    take_list(visit, request, std::move(*held));
  });
}

void Core::gone(uint64_t connection, bool orderly) {
  post([this, connection, orderly] { take_gone(connection, orderly); });
}

void Core::look(std::function<void(base::Result<view::Picture>)> done) {
  post([this, done = std::move(done)] {
    if (scheduler_ == nullptr) return done(elsewhere());
    done(scheduler_->picture(now_of(base::now_ns())));
  });
}

void Core::watch(uint64_t lease) {
  post([this, lease] {
    if (scheduler_ != nullptr) scheduler_->watch(lease, now_of(base::now_ns()));
  });
}

void Core::apply(std::string policy) {
  post([this, policy = std::move(policy)] {
    policy_ = policy;
    if (scheduler_ != nullptr) apply_policy();
  });
}

void Core::elected(uint64_t term, uint64_t certain_until_ns, Records records) {
  auto held = std::make_shared<Records>(std::move(records));
  post([this, term, certain_until_ns, held] { take_election(term, certain_until_ns, *held); });
}

void Core::certain(uint64_t term, uint64_t until_ns) {
  post([this, term, until_ns] {
    if (term == term_) certain_until_ns_ = until_ns;
  });
}

void Core::deposed(uint64_t term, const std::string& why) {
  post([this, term, why] {
    if (term == term_) take_deposal(why);
  });
}

void Core::other(const std::string& holder) {
  post([this, holder] {
    holder_ = holder;
    if (!holder.empty()) log(Level::kInfo, "standing by: %s schedules", holder.c_str());
    std::lock_guard<std::mutex> hold(mutex_);
    standing_.elsewhere = holder;
  });
}

void Core::stored(uint64_t term, uint64_t batch, const Status& status) {
  post([this, term, batch, status] {
    if (scheduler_ != nullptr && term == term_)
      scheduler_->stored(batch, status, now_of(base::now_ns()));
  });
}

void Core::run() {
  for (;;) {
    std::deque<Event> events;
    {
      std::unique_lock<std::mutex> hold(mutex_);
      const uint64_t now_ns = base::now_ns();
      uint64_t wake_ns = held_.empty() ? pool::kNotAgain : held_.front().due_ns;
      if (scheduler_ != nullptr && is_certain(now_ns)) {
        wake_ns = std::min(wake_ns, again_ns_);
        if (touched_) wake_ns = std::min(wake_ns, ticked_ns_ + kTickEveryNs);
      }
      if (events_.empty() && !stopping_ && wake_ns > now_ns) {
        const uint64_t wait_ns = std::min<uint64_t>(wake_ns - now_ns, 1000 * kMs);
        changed_.wait_for(hold, std::chrono::nanoseconds(wait_ns));
      }
      if (stopping_) break;
      events.swap(events_);
    }
    touched_ = touched_ || !events.empty();
    for (const Event& event : events) event();
    const uint64_t now_ns = base::now_ns();
    answer_held(now_ns, false);
    const bool due = now_ns >= again_ns_ || (touched_ && now_ns >= ticked_ns_ + kTickEveryNs);
    if (scheduler_ == nullptr) continue;
    if (!is_certain(now_ns))
      tell_undecided(now_ns);
    else if (due)
      tick(now_ns);
  }
  if (scheduler_ != nullptr) keep_events(base::now_ns());
}

void Core::tick(uint64_t now_ns) {
  touched_ = false;
  ticked_ns_ = now_ns;
  const pool::Effects effects = scheduler_->tick(now_of(now_ns));
  again_ns_ = effects.again_ns;
  perform(effects);
  if (now_ns >= kept_events_ns_ + kKeepEventsEveryNs) keep_events(now_ns);
}

void Core::keep_events(uint64_t now_ns) {
  kept_events_ns_ = now_ns;
  pool::Batch batch = journal_.cut(guard_->audit(), uint64_t(time(nullptr)) * 1000);
  if (!batch.writes.empty()) store_->write(term_, std::move(batch));
}

// ---- election ----

bool Core::is_certain(uint64_t now_ns) const { return now_ns < certain_until_ns_; }

Status Core::may_decide() const {
  if (scheduler_ == nullptr || is_certain(base::now_ns())) return Status();
  return Status(
      Code::kUnavailable,
      options_.scheduler + " decides nothing until the pool's store answers it; what runs goes on");
}

void Core::tell_undecided(uint64_t now_ns) {
  if (now_ns < undecided_told_ns_ + kUndecidedEveryNs) return;
  undecided_told_ns_ = now_ns;
  wire::News news;
  news.text = may_decide().message();
  shorten(&news.text);
  for (auto& [connection, link] : links_) {
    if (link.submitted && link.later.valid()) link.later.tell(news);
  }
}

Status Core::elsewhere() const {
  std::string text = options_.scheduler + " stands by";
  if (holder_.empty()) {
    text += ", and no scheduler of the pool is elected; try again in some seconds";
  } else {
    const size_t blank = holder_.find(' ');
    text += ": " + holder_.substr(0, blank) + " schedules now";
    if (blank != std::string::npos) text += ", at " + holder_.substr(blank + 1);
    text += "; name all schedulers of the pool, with commas between them";
  }
  return Status(Code::kUnavailable, text);
}

std::vector<uint8_t> Core::standby_orders() const {
  wire::PoolOrders orders;
  orders.pool = options_.pool;
  orders.scheduler = options_.scheduler;
  const size_t blank = holder_.find(' ');
  if (blank != std::string::npos) orders.schedules_elsewhere = holder_.substr(blank + 1);
  return wire::encode(orders);
}

void Core::answer_held(uint64_t now_ns, bool all) {
  while (!held_.empty() && (all || held_.front().due_ns <= now_ns)) {
    held_.front().later.answer(standby_orders());
    held_.pop_front();
  }
}

void Core::take_election(uint64_t term, uint64_t certain_until_ns, const Records& records) {
  const uint64_t now_ns = base::now_ns();
  pool::SchedulerOptions options;
  options.pool = options_.pool;
  options.scheduler = options_.scheduler;
  options.term = term;
  options.history = options_.history;
  options.zones = options_.zones;
  scheduler_ = std::make_unique<pool::Scheduler>(std::move(options));
  scheduler_->recover(records, now_of(now_ns));
  journal_.recover(records);
  term_ = term;
  certain_until_ns_ = certain_until_ns;
  again_ns_ = 0;
  holder_.clear();
  log(Level::kInfo, "%s schedules the pool, in term %llu; %zu records were in the store",
      options_.scheduler.c_str(), static_cast<unsigned long long>(term), records.size());
  {
    std::lock_guard<std::mutex> hold(mutex_);
    standing_ = {true, term, std::string()};
  }
  answer_held(now_ns, true);  // they report again at once
  if (scheduler_->policy_revision() == 0) apply_policy();
}

void Core::take_deposal(const std::string& why) {
  log(Level::kWarning, "%s does not schedule any more: %s", options_.scheduler.c_str(),
      why.c_str());
  scheduler_.reset();
  term_ = 0;
  holder_.clear();
  {
    std::lock_guard<std::mutex> hold(mutex_);
    standing_ = Standing();
  }
  for (auto& [connection, link] : links_) {
    if (link.later.valid()) link.later.refuse(elsewhere());
    link.reported = link.submitted = false;
  }
}

void Core::apply_policy() {
  if (policy_.empty()) return;
  pool::Asker own;
  own.id = own.name = "policy file";
  own.role = "admin";
  own.sees_all = own.rules_all = true;
  wire::PoolCommand command;
  command.verb = "apply";
  command.body = policy_;
  scheduler_->command(kOwn, own, command, now_of(base::now_ns()));
}

// ---- what connections ask ----

Core::Link* Core::link_for(uint64_t connection, Later later) {
  Link* const link = &links_[connection];
  link->later = std::move(later);
  return link;
}

Later Core::waiting(uint64_t connection) {
  const auto found = links_.find(connection);
  return found == links_.end() ? Later() : std::move(found->second.later);
}

void Core::take_report(const Visit& visit, const wire::PoolReport& report, Later later) {
  const access::Decision decision = access::decide(visit.who, access::Action::kReport);
  Link* const link = &links_[visit.connection];
  if (!link->reported && (report.number <= 1 || !decision.allowed)) {
    const std::string name = report.facts.empty() ? "" : report.facts[0].name;
    const Status recorded =
        guard_->record(visit.who, "report", base::printable(name, 64), decision).status();
    if (!recorded.ok()) return later.refuse(recorded);
  }
  if (!decision.allowed) return later.refuse(decision.status());
  if (scheduler_ == nullptr) {
    if (report.number <= 1) return later.answer(standby_orders());
    held_.push_back({base::now_ns() + uint64_t{wire::kReportEveryMs} * kMs, std::move(later)});
    return;
  }
  link->later = std::move(later);
  link->reported = true;
  const bool proven = visit.who.proof == access::Proof::kCertificate;
  scheduler_->reported(visit.connection, proven ? visit.who.name : std::string(), report,
                       now_of(base::now_ns()));
}

void Core::take_lease(const Visit& visit, const wire::LeaseRequest& request, Later later) {
  const access::Decision decision = access::decide(visit.who, access::Action::kLease);
  const access::Guard::Details details = {
      {"claims", request.client.user + "@" + request.client.host},
      {"program", request.client.program}};
  const Status recorded =
      guard_->record(visit.who, "request", std::string(), decision, details).status();
  if (!recorded.ok()) return later.refuse(recorded);
  if (scheduler_ == nullptr) return later.refuse(elsewhere());
  const Status decides = may_decide();
  if (!decides.ok()) return later.refuse(decides);
  link_for(visit.connection, std::move(later))->submitted = true;
  scheduler_->submitted(visit.connection, asker_of(visit, request.client.user), request,
                        now_of(base::now_ns()));
}

void Core::take_command(const Visit& visit, const wire::PoolCommand& command, Later later) {
  const access::Action action = action_of(command.verb);
  const access::Decision decision = access::decide(visit.who, action);
  Status allowed = decision.status();
  if (!decision.allowed || action != access::Action::kList) {
    std::string words = command.verb;
    for (const std::string& word : command.arguments) words += " " + word;
    allowed = guard_->record(visit.who, "pool", base::printable(words, 256), decision).status();
  }
  if (!allowed.ok()) return later.refuse(allowed);
  if (command.verb == kMore) {
    Link* const link = link_for(visit.connection, std::move(later));
    return send_answer(visit.connection, {visit.connection, Status(), std::move(link->rest)});
  }
  if (command.verb == kHistory || command.verb == kEvents)
    return take_past(visit, command, std::move(later));
  if (scheduler_ == nullptr) return later.refuse(elsewhere());
  const Status decides = may_decide();
  if (!decides.ok()) return later.refuse(decides);
  link_for(visit.connection, std::move(later));
  scheduler_->command(visit.connection, asker_of(visit, std::string()), command,
                      now_of(base::now_ns()));
}

void Core::take_past(const Visit& visit, const wire::PoolCommand& command, Later later) {
  const uint64_t connection = visit.connection;
  link_for(connection, std::move(later));
  auto done = [this, connection](base::Result<std::string> json) {
    pool::Effects::ToCommander answer{connection, json.status(), std::string()};
    if (json.ok()) answer.json = json.take();
    post([this, answer = std::move(answer)] { send_answer(answer.connection, answer); });
  };
  const pool::Asker who = asker_of(visit, std::string());
  if (command.verb == kEvents)
    history_->ask_events(command.arguments, who, std::move(done));
  else
    history_->ask(command.arguments, who, std::move(done));
}

void Core::take_list(const Visit& visit, const wire::ListRequest& request, Later later) {
  const access::Decision decision = access::decide(visit.who, access::Action::kList);
  if (!decision.allowed) {
    return later.refuse(guard_->record(visit.who, "list", std::string(), decision).status());
  }
  if (scheduler_ == nullptr) return later.refuse(elsewhere());
  std::vector<uint8_t> body =
      encoded_list(*scheduler_, request, asker_of(visit, std::string()), now_of(base::now_ns()));
  if (!body.empty()) return later.answer(std::move(body));
  later.refuse(Status(Code::kExhausted,
                      "the pool's list is too long for one message; use 'tendril pool status'"));
}

void Core::take_gone(uint64_t connection, bool orderly) {
  const auto found = links_.find(connection);
  if (found == links_.end()) return;
  const bool reported = found->second.reported, submitted = found->second.submitted;
  links_.erase(found);
  if (scheduler_ == nullptr) return;
  if (reported) scheduler_->lost(connection, now_of(base::now_ns()));
  if (submitted) scheduler_->left(connection, orderly, now_of(base::now_ns()));
}

// ---- effects ----

void Core::perform(const pool::Effects& effects) {
  for (const pool::Batch& batch : effects.writes) store_->write(term_, batch);
  for (const auto& each : effects.to_servers) {
    Later later = waiting(each.connection);
    if (!each.status.ok())
      later.refuse(each.status);
    else
      later.answer(wire::encode(each.orders));
  }
  for (const auto& each : effects.news) {
    const auto found = links_.find(each.connection);
    if (found == links_.end()) continue;
    wire::News news = each.news;
    for (std::string* text : {&news.text, &news.queue, &news.reason, &news.start}) shorten(text);
    found->second.later.tell(news);
  }
  for (const auto& each : effects.to_clients) {
    Later later = waiting(each.connection);
    if (!each.status.ok())
      later.refuse(each.status);
    else
      later.answer(wire::encode(each.reply));
  }
  for (const auto& each : effects.to_commanders) send_answer(each.connection, each);
  for (const auto& each : effects.events) note(each);
}

void Core::send_answer(uint64_t connection, const pool::Effects::ToCommander& answer) {
  if (connection == kOwn) {
    if (answer.status.ok())
      log(Level::kInfo, "the policy file was applied");
    else
      log(Level::kError, "the policy file was not applied: %s", answer.status.message().c_str());
    return;
  }
  const auto found = links_.find(connection);
  if (found == links_.end()) return;
  Link* const link = &found->second;
  Later later = std::move(link->later);
  if (!answer.status.ok()) return later.refuse(answer.status);
  wire::PoolAnswer part;
  part.json = answer.json.substr(0, kPartBytes);
  part.more = answer.json.size() > kPartBytes;
  link->rest = part.more ? answer.json.substr(kPartBytes) : std::string();
  later.answer(wire::encode(part));
}

void Core::note(const pool::Effects::Event& event) {
  log(Level::kInfo, "%s %s%s%s", event.what.c_str(), event.object.c_str(),
      event.text.empty() ? "" : ": ", base::printable(event.text, 512).c_str());
  access::Principal self;
  self.name = self.id = options_.scheduler;
  const access::Decision decision{true, "pool", std::string()};
  guard_->note(self, event.what, event.object, decision, {{"text", event.text}});
}

}  // namespace tendril::scheduler
