// SPDX-License-Identifier: Apache-2.0
// See page.h. Here: files, who asks, pictures and streams. api.cc has the routes.
#include "dashboard/page.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "access/decide.h"
#include "base/clock.h"
#include "base/text.h"
#include "dashboard/api.h"
#include "dashboard/files.h"
#include "dashboard/rows.h"

namespace tendril::dashboard {

using base::Code;
using base::Status;

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kLookEveryNs = kSecondNs;
constexpr uint64_t kQuietNs = 10 * kSecondNs;  // then a stream says that it lives
constexpr size_t kBehindBytes = 1u << 20;      // who is so far behind hears later
constexpr size_t kEventsAtOnce = 200;

}  // namespace

std::string Page::Call::option(const std::string& name) const {
  for (const auto& [each, value] : query) {
    if (each == name) return value;
  }
  return std::string();
}

Page::Page(PageOptions options) : options_(options), shared_(std::make_shared<Shared>()) {
  uint64_t random = 0;
  if (!base::random_bytes(&random, sizeof random)) random = base::now_ns();
  epoch_ = base::hex(&random, sizeof random);
  shared_->page = this;
}

Page::~Page() {
  std::lock_guard<std::mutex> hold(shared_->mutex);
  shared_->page = nullptr;
}

void Page::begin(Post post) {
  std::lock_guard<std::mutex> hold(shared_->mutex);
  shared_->post = std::move(post);
}

base::Result<std::string> Page::give_pass(const access::Principal& who) {
  return passes_.give_pass(who, base::now_ns());
}

// ---- requests ----

size_t Page::body_bytes_max(const http::Request& request) { return body_bytes_of_route(request); }

void Page::serve(http::Request request, ExchangePtr exchange) {
  const http::Visitor& visitor = exchange->visitor();
  // Without TLS another site's name could be made to lead here (DNS rebinding).
  if (!visitor.sealed && !is_loopback_name(request.header("host"))) {
    return exchange->answer(
        problem(421, "misdirected", "open this page as http://127.0.0.1 or http://localhost"));
  }
  if (request.path.rfind(kApiPath, 0) == 0) return serve_api(std::move(request), exchange);
  const File* const file = find_file(request.path);
  if (file == nullptr) return exchange->answer(problem(404, "not-found", "nothing is here"));
  if (request.method != "GET" && request.method != "HEAD")
    return exchange->answer(problem(405, "method", "a file can only be read"));
  exchange->answer(file_response(*file, request));
}

// Another site's page must not make a signed-in user's browser act here.
Status Page::check_origin(const http::Request& request, const http::Visitor& visitor) const {
  const std::string_view site = request.header("sec-fetch-site");
  if (!site.empty() && site != "same-origin" && site != "none")
    return Status(Code::kRefused, "another site's page may not ask here (rule: same-origin)");
  if (request.method == "GET" || request.method == "HEAD") return Status();
  if (request.header("x-tendril-page").empty()) {
    return Status(Code::kRefused,
                  "what changes something needs the header 'X-Tendril-Page: 1', which other sites "
                  "cannot send (rule: same-origin)");
  }
  const std::string_view origin = request.header("origin");
  const std::string own =
      std::string(visitor.sealed ? "https://" : "http://") + std::string(request.header("host"));
  if (!origin.empty() && origin != own)
    return Status(Code::kRefused, "another site's page may not act here (rule: same-origin)");
  return Status();
}

access::Evidence Page::evidence_of(const http::Visitor& visitor) const {
  access::Evidence evidence;
  evidence.from = visitor.address;
  evidence.local = visitor.loopback && !visitor.sealed;
  evidence.certificate = visitor.identity;
  return evidence;
}

base::Result<Page::Caller> Page::recognize(const http::Request& request,
                                           const http::Visitor& visitor) {
  const uint64_t now_ns = base::now_ns();
  Caller caller;
  access::Evidence evidence = evidence_of(visitor);
  const std::string bearer = bearer_of(request);
  if (!bearer.empty()) {
    const Status waits = options_.front->guesses()->check(visitor.address, now_ns);
    if (!waits.ok()) return waits;
    evidence.knows_token = options_.front->guard()->token_is_right(bearer);
    if (!evidence.knows_token) {
      options_.front->guesses()->wrong(visitor.address, now_ns);
      return Status(Code::kRefused, "the token is not right");
    }
  }
  caller.session = cookie_of(request);
  const auto session = passes_.session(caller.session, now_ns);
  if (session && bearer.empty()) {
    caller.who = *session;
    caller.who.from = visitor.address;
  } else {
    caller.session.clear();
    caller.who = options_.front->guard()->recognize(evidence);
  }
  caller.rights = options_.source->rights(caller.who);
  return caller;
}

// ---- pictures ----

void Page::with_model(std::function<void(const Status&)> then) {
  const uint64_t now_ns = base::now_ns();
  if (model_ns_ != 0 && now_ns < model_ns_ + kLookEveryNs) return then(trouble_);
  waiting_.push_back(std::move(then));
  if (looking_) return;
  looking_ = true;
  looked_ns_ = now_ns;
  options_.source->look([shared = shared_](base::Result<view::Picture> picture) {
    std::lock_guard<std::mutex> hold(shared->mutex);
    if (shared->page == nullptr || !shared->post) return;
    auto held = std::make_shared<base::Result<view::Picture>>(std::move(picture));
    shared->post([page = shared->page, held] { page->looked(std::move(*held)); });
  });
}

void Page::looked(base::Result<view::Picture> picture) {
  looking_ = false;
  trouble_ = picture.status();
  if (picture.ok()) {
    model_.take(picture.take());
    model_ns_ = base::now_ns();
  } else {
    model_ns_ = 0;
  }
  std::vector<std::function<void(const Status&)>> waiting;
  waiting.swap(waiting_);
  for (const auto& then : waiting) then(trouble_);
}

void Page::tick(uint64_t now_ns) {
  const auto over = [](const std::unique_ptr<Stream>& stream) {
    return !stream->exchange->is_open();
  };
  streams_.erase(std::remove_if(streams_.begin(), streams_.end(), over), streams_.end());
  if (streams_.empty() || looking_ || now_ns < looked_ns_ + kLookEveryNs) return;
  for (const std::unique_ptr<Stream>& stream : streams_) {
    if (stream->interest.lease != 0) options_.source->watch(stream->interest.lease);
  }
  model_ns_ = 0;
  with_model([this](const Status&) { send_changes(base::now_ns()); });
}

// ---- streams ----

void Page::send_changes(uint64_t now_ns) {
  for (const auto& stream : streams_) {
    if (!send_to(stream.get(), now_ns)) stream->exchange->end();
  }
}

// False: it is over.
bool Page::send_to(Stream* stream, uint64_t now_ns) {
  if (stream->exchange->unsent_bytes() > kBehindBytes) return true;
  if (!stream->caller.session.empty() && !passes_.session(stream->caller.session, now_ns)) {
    stream->exchange->send("event: signed-out\ndata: {}\n\n");
    return false;
  }
  std::string text;
  if (!trouble_.ok()) {
    text = "event: trouble\ndata: " + error_json(trouble_) + "\n\n";
    stream->begun = false;
  } else {
    const bool knows = model_.knows_since(stream->since);
    const uint64_t since = knows ? stream->since : 0;
    std::string changes = changes_json(model_, stream->interest,
                                       {stream->caller.who.id, stream->caller.rights.sees_all},
                                       since, !stream->begun || !knows);
    if (stream->interest.events) {
      const std::string events = events_json(stream->caller, &stream->events_since, kEventsAtOnce);
      if (!events.empty())
        changes += (changes.empty() ? "\"events\":[" : ",\"events\":[") + events + "]";
    }
    const bool begins = !stream->begun;
    stream->since = model_.version();
    stream->begun = true;
    if (changes.empty() && !begins && now_ns < stream->spoke_ns + kQuietNs) return true;
    text = "data: {\"epoch\":\"" + epoch_ + "\",\"version\":" + std::to_string(model_.version()) +
           ",\"at\":" + std::to_string(model_.at()) +
           ",\"whole\":" + (since == 0 ? "true" : "false") + (changes.empty() ? "" : ",") +
           changes + "}\n\n";
  }
  stream->spoke_ns = now_ns;
  stream->exchange->send(std::move(text));
  return true;
}

void Page::get_stream(std::shared_ptr<Call> call) {
  auto interest = parse_interest(call->request.query, epoch_);
  if (!interest.ok()) return call->exchange->answer(problem(interest.status()));
  with_model([this, call, interest = interest.take()](const Status&) {
    http::Response head;
    head.type = "text/event-stream";
    head.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
    add_guards(&head);
    call->exchange->begin_stream(std::move(head));
    auto stream = std::make_unique<Stream>();
    stream->exchange = call->exchange;
    stream->caller = call->caller;
    stream->interest = interest;
    stream->since = interest.since;
    if (send_to(stream.get(), base::now_ns())) streams_.push_back(std::move(stream));
  });
}

// ---- events ----

std::string Page::events_json(const Caller& caller, uint64_t* since, size_t limit) const {
  std::string out;
  for (const access::AuditLog::Recent& each :
       options_.front->guard()->audit().recent(*since, limit)) {
    *since = each.number;
    if (!caller.rights.sees_all && each.id != caller.who.id) continue;
    out += (out.empty() ? "{\"number\":" : ",{\"number\":") + std::to_string(each.number) + "," +
           each.line.substr(1);
  }
  return out;
}

}  // namespace tendril::dashboard
