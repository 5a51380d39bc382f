// SPDX-License-Identifier: Apache-2.0
// Commands of administrators and users. Whether the asker may give the command was decided before
// (scheduler/, with access/). What changes the store is answered when the store has it.
#include <algorithm>

#include "base/text.h"
#include "config/quantity.h"
#include "config/text.h"
#include "pool/scheduler/state.h"

namespace tendril::pool {

using base::Code;
using base::Status;

namespace {

constexpr size_t kLabelsMax = 32, kLabelBytesMax = 128, kWindowsMax = 16, kWhyBytesMax = 256;
constexpr int64_t kLongestMove = 366 * 86'400;

std::string joined_from(const std::vector<std::string>& words, size_t first) {
  std::string text;
  for (size_t i = first; i < words.size(); ++i) text += (text.empty() ? "" : " ") + words[i];
  if (text.size() > kWhyBytesMax) text.resize(kWhyBytesMax);
  return base::printable(text, kWhyBytesMax);
}

std::string share_text(uint64_t millionths) { return base::format("%g", double(millionths) / 1e6); }

// "2", "0.5": GPUs, as millionths.
bool read_gpus(const std::string& text, uint64_t* millionths) {
  const size_t point = text.find('.');
  const std::string whole = text.substr(0, point);
  std::string part = point == std::string::npos ? "" : text.substr(point + 1);
  if (part.size() > 6 || whole.size() > 6) return false;
  part.resize(6, '0');
  uint64_t gpus = 0, rest = 0;
  if (!config::read_number(whole, &gpus) || !config::read_number(part, &rest)) return false;
  *millionths = gpus * 1'000'000 + rest;
  return true;
}

bool read_memory(const std::string& text, uint64_t* bytes) {
  base::Result<uint64_t> size = config::parse_size(text);
  if (size.ok()) *bytes = *size;
  return size.ok();
}

// Also below zero.
bool read_priority(const std::string& text, int32_t* priority) {
  const bool below = !text.empty() && text[0] == '-';
  uint64_t number = 0;
  if (!config::read_number(text.substr(below ? 1 : 0), &number) || number > 1'000'000) return false;
  *priority = below ? -int32_t(number) : int32_t(number);
  return true;
}

}  // namespace

void Scheduler::State::refuse_command(uint64_t connection, Status status) {
  effects_.to_commanders.push_back({connection, std::move(status), {}});
}

void Scheduler::State::answer_command(uint64_t connection, Json json, uint64_t batch) {
  Effects::ToCommander answer{connection, Status(), json.take()};
  if (batch <= stored_batch_) {
    effects_.to_commanders.push_back(std::move(answer));
  } else {
    command_answers_.emplace(batch, std::move(answer));
  }
}

void Scheduler::State::command(uint64_t connection, const Asker& who,
                               const wire::PoolCommand& command, Now now) {
  arrive(now);
  static const std::map<std::string, CommandHandler> kVerbs = {
      {"status", &State::do_status},
      {"queue", &State::do_queue},
      {"show", &State::do_show},
      {"drain", &State::do_drain},
      {"undrain", &State::do_drain},
      {"label", &State::do_label},
      {"maintenance", &State::do_maintenance},
      {"move", &State::do_move},
      {"apply", &State::do_apply},
      {"dry-run", &State::do_dry_run},
      {"forget", &State::do_forget},
      {"release", &State::do_release},
      {"park", &State::do_park},
      {"wake", &State::do_park},
      {"hold", &State::do_hold},
      {"unhold", &State::do_hold},
      {"requeue", &State::do_requeue},
      {"change", &State::do_change}};
  auto verb = kVerbs.find(command.verb);
  if (verb == kVerbs.end()) {
    return refuse_command(
        connection,
        Status(Code::kUnsupported, "pool " + options.pool + " does not know the command " +
                                       base::printable(command.verb)));
  }
  (this->*verb->second)(connection, who, command);
}

Member* Scheduler::State::named_server(uint64_t connection, const wire::PoolCommand& command,
                                       size_t at_least) {
  if (command.arguments.size() < at_least || command.arguments.empty()) {
    refuse_command(connection, Status(Code::kInvalid, "`" + command.verb + "` lacks arguments"));
    return nullptr;
  }
  Member* server = find_member(command.arguments[0]);
  if (server == nullptr) {
    refuse_command(connection, Status(Code::kNotFound, "pool " + options.pool + " has no server " +
                                                           base::printable(command.arguments[0]) +
                                                           "; `tendril pool status` lists them"));
  }
  return server;
}

void Scheduler::State::do_show(uint64_t connection, const Asker&, const wire::PoolCommand&) {
  Json json;
  json.text("policy", policy_record.text).whole("policy_revision", int64_t(policy_record.revision));
  json.truth("default", policy_record.revision == 0);
  answer_command(connection, std::move(json));
}

// Takes a server out of use, or puts it back.
void Scheduler::State::do_drain(uint64_t connection, const Asker&,
                                const wire::PoolCommand& command) {
  Member* server = named_server(connection, command, 1);
  if (server == nullptr) return;
  const bool drains = command.verb == "drain";
  server->record.drained = drains;
  server->record.drain_why = drains ? joined_from(command.arguments, 1) : "";
  set_engine_state(*server);
  wire::Order told;
  told.kind = drains ? wire::OrderKind::kDrain : wire::OrderKind::kUndrain;
  order(*server, std::move(told));
  event(drains ? "drain" : "undrain", "server " + server->record.name, server->record.drain_why);
  save(*server);
  Json json;
  json.text("server", server->record.name).truth("draining", drains);
  json.whole("leases", int64_t(server->jobs.size()));
  answer_command(connection, std::move(json), next_batch_ - 1);
}

void Scheduler::State::do_label(uint64_t connection, const Asker&,
                                const wire::PoolCommand& command) {
  Member* server = named_server(connection, command, 2);
  if (server == nullptr) return;
  std::map<std::string, std::string> labels = server->record.labels;
  for (size_t i = 1; i < command.arguments.size(); ++i) {
    const std::string& label = command.arguments[i];
    const size_t equals = label.find('=');
    const bool plain = base::printable(label, kLabelBytesMax) == label;
    if (equals == std::string::npos || equals == 0 || !plain) {
      return refuse_command(connection, Status(Code::kInvalid, "a label is KEY=VALUE, not " +
                                                                   base::printable(label)));
    }
    const std::string key = label.substr(0, equals), value = label.substr(equals + 1);
    if (value.empty()) {
      labels.erase(key);
    } else {
      labels[key] = value;
    }
  }
  if (labels.size() > kLabelsMax) {
    return refuse_command(
        connection,
        Status(Code::kInvalid, "a server has at most " + std::to_string(kLabelsMax) + " labels"));
  }
  server->record.labels = std::move(labels);
  describe_to_engine(*server);
  if (planning_) enter_all();
  save(*server);
  Json json;
  json.text("server", server->record.name).object("labels");
  for (const auto& [key, value] : server->record.labels) json.text(key.c_str(), value);
  json.end();
  answer_command(connection, std::move(json), next_batch_ - 1);
}

void Scheduler::State::do_maintenance(uint64_t connection, const Asker&,
                                      const wire::PoolCommand& command) {
  Member* server = named_server(connection, command, 2);
  if (server == nullptr) return;
  auto& windows = server->record.maintenance;
  if (command.arguments[1] == "none" && command.arguments.size() == 2) {
    windows.clear();
  } else {
    if (command.arguments.size() < 3) {
      return refuse_command(connection,
                            Status(Code::kInvalid, "maintenance has a beginning and an end"));
    }
    base::Result<int64_t> from = parse_moment(command.arguments[1], now_.wall_s, policy_.zone);
    if (!from.ok()) return refuse_command(connection, from.status());
    base::Result<int64_t> to = parse_moment(command.arguments[2], *from, policy_.zone);
    if (!to.ok()) return refuse_command(connection, to.status());
    windows.erase(
        std::remove_if(windows.begin(), windows.end(),
                       [&](const MaintenanceWindow& window) { return window.to_s <= now_.wall_s; }),
        windows.end());
    if (*to <= *from || windows.size() >= kWindowsMax) {
      return refuse_command(connection, Status(Code::kInvalid,
                                               "maintenance ends after it begins, and a server "
                                               "has at most 16 of them ahead"));
    }
    windows.push_back({*from, *to, joined_from(command.arguments, 3)});
    std::sort(windows.begin(), windows.end(),
              [](const auto& a, const auto& b) { return a.from_s < b.from_s; });
  }
  set_engine_maintenance(*server);
  save(*server);
  const uint64_t batch = next_batch_ - 1;
  Json json;
  json.text("server", server->record.name).list("maintenance");
  for (const MaintenanceWindow& window : windows) {
    json.object().whole("from_at", window.from_s).whole("to_at", window.to_s);
    json.text("why", window.why).end();
  }
  json.end();
  const std::set<uint64_t> jobs = server->jobs;
  for (uint64_t id : jobs) {
    auto job = jobs_.find(id);
    if (job != jobs_.end()) look_at_life(job->second);
  }
  answer_command(connection, std::move(json), batch);
}

// ---- policy ----

void Scheduler::State::apply_text(uint64_t connection, const std::string& text, PoolPolicy policy) {
  PolicyRecord record;
  record.revision = policy_record.revision + 1;
  for (const auto& [batch, coming] : coming_policies_) {
    record.revision = std::max(record.revision, coming.first.revision + 1);
  }
  record.text = text;
  Json json;
  json.whole("policy_revision", int64_t(record.revision)).list("changes");
  for (const PolicyChange& change : difference(policy_, policy)) json.text(text_of(change));
  json.end();
  const uint64_t batch = write({{keys::kPolicy, pack(record)}});
  coming_policies_[batch] = {std::move(record), std::move(policy)};
  answer_command(connection, std::move(json), batch);
}

// What a message calls the file: as its administrator does.
std::string Scheduler::State::policy_name(const wire::PoolCommand& command) {
  return command.arguments.empty() ? "policy" : base::printable(command.arguments[0]);
}

void Scheduler::State::do_apply(uint64_t connection, const Asker& who,
                                const wire::PoolCommand& command) {
  base::Result<PoolPolicy> policy =
      parse_pool_policy(command.body, policy_name(command), options.zones);
  if (!policy.ok()) return refuse_command(connection, policy.status());
  event("apply", "policy", "by " + base::printable(who.name));
  apply_text(connection, command.body, policy.take());
}

// FROM TO CLASS=GPUS ... [at MOMENT]
void Scheduler::State::do_move(uint64_t connection, const Asker& who,
                               const wire::PoolCommand& command) {
  const auto& words = command.arguments;
  if (words.size() < 3) {
    return refuse_command(connection, Status(Code::kInvalid,
                                             "a move needs two accounts and "
                                             "CLASS=GPUS"));
  }
  Move move;
  move.from = words[0];
  move.to = words[1];
  move.at_s = now_.wall_s;
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "at" && i + 1 < words.size()) {
      base::Result<int64_t> at = parse_moment(joined_from(words, i + 1), now_.wall_s, policy_.zone);
      if (!at.ok()) return refuse_command(connection, at.status());
      if (*at > now_.wall_s + kLongestMove) {
        return refuse_command(connection, Status(Code::kInvalid, "a move is at most a year ahead"));
      }
      move.at_s = *at;
      break;
    }
    const size_t equals = words[i].find('=');
    uint64_t gpus = 0;
    if (equals == std::string::npos || !read_gpus(words[i].substr(equals + 1), &gpus)) {
      return refuse_command(connection, Status(Code::kInvalid, "expected CLASS=GPUS, not " +
                                                                   base::printable(words[i])));
    }
    move.gpus[words[i].substr(0, equals)] = gpus;
  }
  if (!coming_policies_.empty()) {
    return refuse_command(connection, Status(Code::kUnavailable,
                                             "the store has not taken the last change of the "
                                             "policy yet; try again"));
  }
  if (policy_record.text.empty()) {
    return refuse_command(
        connection, Status(Code::kNotFound, "pool " + options.pool +
                                                " has no policy file to "
                                                "change; `tendril pool apply FILE` gives it one"));
  }
  base::Result<std::string> text = with_move(policy_record.text, move, options.zones);
  if (!text.ok()) return refuse_command(connection, text.status());
  base::Result<PoolPolicy> policy = parse_pool_policy(*text, "policy", options.zones);
  if (!policy.ok()) return refuse_command(connection, policy.status());
  event("move", "policy", "by " + base::printable(who.name));
  apply_text(connection, *text, policy.take());
}

// What a plan under the new policy does to those who run and wait now.
void Scheduler::State::do_dry_run(uint64_t connection, const Asker& who,
                                  const wire::PoolCommand& command) {
  base::Result<PoolPolicy> coming =
      parse_pool_policy(command.body, policy_name(command), options.zones);
  if (!coming.ok()) return refuse_command(connection, coming.status());
  const PoolPolicy then = effective(*coming, now_.wall_s);
  Json json;
  json.list("changes");
  for (const PolicyChange& change : difference(policy_, *coming)) json.text(text_of(change));
  json.end();
  describe_dry_run(json, then, who);
  answer_command(connection, std::move(json));
}

// ---- leases and servers ----

void Scheduler::State::do_forget(uint64_t connection, const Asker& who,
                                 const wire::PoolCommand& command) {
  Member* server = named_server(connection, command, 1);
  if (server == nullptr) return;
  if (speaks(*server)) {
    return refuse_command(connection,
                          Status(Code::kRefused, "server " + server->record.name +
                                                     " reports to this pool; drain and stop it "
                                                     "first"));
  }
  Json json;
  const std::string name = server->record.name;
  json.text("server", name).whole("leases", int64_t(server->jobs.size()));
  event("forget", "server " + name, "by " + base::printable(who.name));
  forget(*server);
  flush_ends();
  const uint64_t batch =
      write({{keys::kServer + name, std::nullopt}, {keys::kEnded + name, std::nullopt}});
  answer_command(connection, std::move(json), batch);
}

// The request or lease of a command, for its owner and for administrators; null: it was answered.
Job* Scheduler::State::named_job(uint64_t connection, const Asker& who,
                                 const wire::PoolCommand& command) {
  uint64_t id = 0;
  if (command.arguments.empty() || !config::read_number(command.arguments[0], &id)) {
    refuse_command(connection, Status(Code::kInvalid, "`" + command.verb +
                                                          "` needs the number of a request or "
                                                          "lease"));
    return nullptr;
  }
  auto found = jobs_.find(id);
  if (found == jobs_.end()) {
    refuse_command(connection,
                   Status(Code::kNotFound, "pool " + options.pool + " has no request or lease " +
                                               std::to_string(id)));
    return nullptr;
  }
  if (!who.rules_all && (who.id.empty() || who.id != found->second.who.id)) {
    refuse_command(
        connection,
        Status(Code::kRefused, "lease " + std::to_string(id) +
                                   " is not yours: its owner, operators and administrators may " +
                                   command.verb + " it (rule: owner-or-operator)"));
    return nullptr;
  }
  return &found->second;
}

// More memory is given at once if there is room and no limit forbids it.
bool Scheduler::State::may_change_memory(Job& job, uint64_t memory_bytes, std::string* why) {
  if (job.changer != 0) {
    *why = "is being changed; try again in a moment";
    return false;
  }
  if (is_asleep(job)) {
    *why = "is parked; wake it first";
    return false;
  }
  std::vector<PlacedSlice> slices = placed(job);
  bool grows = false;
  for (PlacedSlice& slice : slices) {
    grows = grows || slice.memory_bytes < memory_bytes;
    slice.memory_bytes = memory_bytes;
  }
  if (!grows || !job.in_engine) return true;
  const auto beyond = engine_.beyond_limits({{job.id, slices}});
  std::string beside;
  if (beyond.empty() && engine_.grow(job.id, slices, seconds(), &beside)) {
    job.grown_memory_bytes = memory_bytes;
    return true;
  }
  *why = "cannot have " + config::format_size(memory_bytes) + " of each GPU now: " +
         (beyond.empty() ? "there is no room beside " + beside : beyond.begin()->second);
  return false;
}

// Its server has the last word: what its programs have, it does not take away.
void Scheduler::State::memory_changed(Job& job, const wire::OrderResult& result) {
  const uint64_t changer = job.changer;
  job.changer = 0;
  if (result.code != Code::kOk) {
    job.grown_memory_bytes = 0;
    if (job.in_engine && !placed(job).empty()) engine_.resize(job.id, placed(job));
    plan_dirty_ = true;
    if (changer != 0) refuse_command(changer, Status(result.code, base::printable(result.text)));
    return;
  }
  for (const Part& part : job.parts)
    if (!part.slices.empty()) job.request.slice.memory_bytes = part.slices[0].memory_bytes;
  save_grant(job);
  Json json;
  json.whole("lease", int64_t(job.id));
  if (changer != 0) answer_command(changer, std::move(json));
}

// ID [share=GPUS] [memory=SIZE] [policy=cap|lend] [priority=NUMBER]. A lease may get a smaller
// share; a larger one would have to wait its turn.
void Scheduler::State::do_change(uint64_t connection, const Asker& who,
                                 const wire::PoolCommand& command) {
  Job* const job = named_job(connection, who, command);
  if (job == nullptr) return;
  const auto refused = [&](Code code, const std::string& why) {
    refuse_command(connection, Status(code, "lease " + std::to_string(job->id) + " " + why));
  };
  const bool waits = job->stage == Stage::kWaiting;
  if (job->stage != Stage::kGranted && !waits) {
    return refused(Code::kUnavailable, std::string("is ") + stage_name(*job) +
                                           "; terms can be changed while it waits or runs");
  }
  wire::LeaseTerms terms = job->request.terms;
  uint64_t share = 0, memory = 0;
  for (size_t i = 1; i < command.arguments.size(); ++i) {
    const std::string& word = command.arguments[i];
    const std::string value = word.substr(std::min(word.size(), word.find('=') + 1));
    const bool is_share = word.rfind("share=", 0) == 0 && read_gpus(value, &share) && share != 0;
    if (word == "policy=cap") {
      terms.policy = wire::SharePolicy::kCap;
    } else if (word == "policy=lend") {
      terms.policy = wire::SharePolicy::kLend;
    } else if (word.rfind("priority=", 0) == 0 && read_priority(value, &terms.priority)) {
      continue;
    } else if (word.rfind("memory=", 0) == 0 && read_memory(value, &memory)) {
      continue;
    } else if (!is_share) {
      return refuse_command(connection, Status(Code::kInvalid,
                                               "expected share=GPUS, memory=SIZE, policy=cap, "
                                               "policy=lend or priority=NUMBER, "
                                               "not " +
                                                   base::printable(word)));
    }
  }
  const uint64_t granted = job->request.slice.share_millionths != 0
                               ? job->request.slice.share_millionths
                               : job->share_millionths();
  if (share > granted) {
    return refused(Code::kRefused, "was granted " + share_text(granted) +
                                       " of each GPU and can get less, not more, because others "
                                       "wait for theirs; release it and ask for more");
  }
  const uint32_t user_class = effective_.user_class(job->user_class).value_or(0);
  const int32_t most = user_class < effective_.user_classes.size()
                           ? effective_.user_classes[user_class].max_priority
                           : 0;
  if (terms.priority != job->request.terms.priority &&
      (terms.priority > most || terms.priority < -wire::kPriorityMax)) {
    return refused(Code::kRefused, "is of class " + job->user_class +
                                       ", which allows a priority up to " + std::to_string(most));
  }
  if (waits && (share != 0 || memory != 0 || terms.policy != job->request.terms.policy)) {
    return refused(Code::kUnavailable,
                   "waits: its priority can be changed; to ask for something else, leave the queue "
                   "and ask again");
  }
  if (waits) return change_waiting(connection, who, *job, terms.priority);
  std::string why;
  if (memory != 0 && !may_change_memory(*job, memory, &why)) return refused(Code::kRefused, why);
  change_job(*job, uint32_t(share), memory, terms);
  event("change", "lease " + std::to_string(job->id), "by " + base::printable(who.name));
  flush_ends();
  if (memory != 0) {
    job->changer = connection;  // memory_changed answers
    return;
  }
  Json json;
  json.whole("lease", int64_t(job->id));
  answer_command(connection, std::move(json), next_batch_ - 1);
}

// It keeps the time that it has waited.
void Scheduler::State::change_waiting(uint64_t connection, const Asker& who, Job& job,
                                      int32_t priority) {
  job.request.terms.priority = priority;
  event("change", "request " + std::to_string(job.id), "by " + base::printable(who.name));
  const uint64_t batch = write({{keys::kRequest + std::to_string(job.id), pack(record_of(job))}});
  Json json;
  json.whole("request", int64_t(job.id)).whole("priority", priority);
  enter_again(job);
  answer_command(connection, std::move(json), batch);
}

void Scheduler::State::change_job(Job& job, uint32_t share_millionths, uint64_t memory_bytes,
                                  const wire::LeaseTerms& terms) {
  if (share_millionths != 0) job.request.slice.share_millionths = share_millionths;
  // What a limit took does not come back by a change.
  const bool is_small = job.life.shrunk() || growing_.count(job.id) != 0;
  if (is_small && share_millionths >= job.share_millionths()) share_millionths = 0;
  if (share_millionths != 0) job.grown_millionths = 0;
  job.request.terms = terms;
  save_grant(job);
  wire::Order told;
  told.kind = wire::OrderKind::kChange;
  told.share_millionths = share_millionths;
  told.memory_bytes = memory_bytes;
  told.sets_terms = true;
  told.terms = terms;
  told.text = "its terms were changed";
  tell_parts(job, std::move(told));
}

// LEASE. Its servers move its GPU memory to the host's, or back. What they refuse is an event.
void Scheduler::State::do_park(uint64_t connection, const Asker& who,
                               const wire::PoolCommand& command) {
  Job* const job = named_job(connection, who, command);
  if (job == nullptr) return;
  if (job->stage != Stage::kGranted) {
    return refuse_command(
        connection,
        Status(Code::kUnavailable, "lease " + std::to_string(job->id) + " is " + stage_name(*job) +
                                       ", so it has no memory to move"));
  }
  const bool parks = command.verb == "park";
  std::string why;
  if (!parks && is_asleep(*job)) {
    // Who may wake anybody's lease may also let it pass a limit.
    if (!let_wake(*job, &why) && !who.rules_all)
      return refuse_command(connection, Status(Code::kRefused, "lease " + std::to_string(job->id) +
                                                                   " cannot wake now: " + why));
    for (Part& part : job->parts) part.may_wake = part.parked;
    if (job->in_engine) engine_.resize(job->id, placed(*job));
    plan_dirty_ = true;
  }
  wire::Order told;
  told.kind = parks ? wire::OrderKind::kPark : wire::OrderKind::kWake;
  told.text = base::printable(who.name) + (parks ? " parked it" : " woke it");
  tell_parts(*job, std::move(told));
  Json json;
  json.whole("lease", int64_t(job->id));
  answer_command(connection, std::move(json));
}

// REQUEST [REASON]. Nothing starts for it until somebody lets it go. It keeps the time that it has
// waited.
void Scheduler::State::do_hold(uint64_t connection, const Asker& who,
                               const wire::PoolCommand& command) {
  Job* const job = named_job(connection, who, command);
  if (job == nullptr) return;
  const bool holds = command.verb == "hold";
  const std::string name = "request " + std::to_string(job->id);
  if (job->stage != Stage::kWaiting) {
    return refuse_command(
        connection, Status(Code::kUnavailable, name + " is " + stage_name(*job) +
                                                   " and waits no more; `tendril pool requeue` or "
                                                   "`release` concern leases"));
  }
  if (job->held_by_operator && !who.rules_all) {
    return refuse_command(
        connection, Status(Code::kRefused, name + " is " + job->held +
                                               "; operators and administrators may change that "
                                               "(rule: operator)"));
  }
  if (!holds && job->held.empty())
    return refuse_command(connection, Status(Code::kInvalid, name + " is not held"));
  const std::string why = joined_from(command.arguments, 1);
  job->held.clear();
  if (holds) job->held = "held by " + base::printable(who.name) + (why.empty() ? "" : ": " + why);
  job->held_by_operator = holds && who.rules_all;
  event(holds ? "hold" : "unhold", name, holds ? job->held : "by " + base::printable(who.name));
  const uint64_t batch = write({{keys::kRequest + std::to_string(job->id), pack(record_of(*job))}});
  Json json;
  json.whole("request", int64_t(job->id)).truth("held", holds);
  leave_engine(*job);
  enter_again(*job);
  plan_dirty_ = news_dirty_ = true;
  answer_command(connection, std::move(json), batch);
}

// LEASE [REASON]. Its program is told to stop, and is started again when its turn comes.
void Scheduler::State::do_requeue(uint64_t connection, const Asker& who,
                                  const wire::PoolCommand& command) {
  Job* const job = named_job(connection, who, command);
  if (job == nullptr) return;
  const auto refused = [&](const std::string& why) {
    refuse_command(connection,
                   Status(Code::kUnavailable, "lease " + std::to_string(job->id) + " " + why));
  };
  if (job->stage != Stage::kGranted) return refused(std::string("is ") + stage_name(*job));
  if (!job->request.wish.requeues) {
    return refused(
        "was not asked for with `tendril run --requeue`, so its program would not start again; "
        "`tendril pool release` ends it");
  }
  if (job->life.leaving()) return refused("is told to stop already");
  std::string why = joined_from(command.arguments, 1);
  why = "requeued by " + base::printable(who.name) + (why.empty() ? "" : ": " + why);
  Json json;
  json.whole("lease", int64_t(job->id)).text("told", why);
  live(*job, job->life.ask_again(rules_of(*job), facts_of(*job), why, int64_t(now_.monotonic_ns)));
  flush_ends();
  answer_command(connection, std::move(json), next_batch_ - 1);
}

void Scheduler::State::do_release(uint64_t connection, const Asker& who,
                                  const wire::PoolCommand& command) {
  Job* const named = named_job(connection, who, command);
  if (named == nullptr) return;
  Job& job = *named;
  const uint64_t id = job.id;
  std::string why = joined_from(command.arguments, 1);
  why = "released by " + base::printable(who.name) + (why.empty() ? "" : ": " + why);
  event("release", "lease " + std::to_string(id), why);
  Json json;
  json.whole("lease", int64_t(id));
  if (job.recovered) go_on(job);  // it may run: it counts until its servers say that it ended
  if (jobs_.count(id) == 0) {
    // It had ended before.
  } else if (job.stage >= Stage::kGranted) {
    // The store knows, so a later scheduler tells servers that are silent now.
    job.released = true;
    end_job(job, why);
    job.end_why = why;  // also if a limit was about to end it
    save_grant(job);
  } else {
    answer(job, Status(Code::kClosed, "request " + std::to_string(id) + " was " + why));
    drop_job(job);
  }
  flush_ends();
  answer_command(connection, std::move(json), next_batch_ - 1);
}

}  // namespace tendril::pool
