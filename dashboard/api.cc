// SPDX-License-Identifier: Apache-2.0
// The routes of the page's interface for programs. web/openapi.json describes them for users; a
// test compares it with live answers.
#include "dashboard/api.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "config/text.h"
#include "dashboard/rows.h"
#include "http/packer.h"

namespace tendril::dashboard {

using base::Code;
using base::Status;
using Json = nlohmann::json;

namespace {

constexpr size_t kBodyMax = 4096, kPolicyMax = 512u << 10;
constexpr size_t kPageDefault = 100, kPageMax = 500;
constexpr size_t kPackedMin = 4096;  // shorter answers are sent as they are
constexpr size_t kEventsMax = 500;

int status_of(Code code) {
  switch (code) {
    case Code::kOk:
      return 200;
    case Code::kInvalid:
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kRefused:
      return 403;
    case Code::kClosed:
    case Code::kElsewhere:
    case Code::kUnavailable:
    case Code::kTimeout:
      return 503;
    case Code::kMismatch:
      return 409;
    case Code::kExhausted:
      return 429;
    case Code::kUnsupported:
      return 501;
    case Code::kInternal:
      break;
  }
  return 500;
}

// "127.0.0.1:80" without the port.
std::string_view without_port(std::string_view host) {
  const size_t bracket = host.find(']');
  const size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  return host.substr(0, colon);
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::vector<std::string> words_of(const std::string& path) {
  std::vector<std::string> words;
  for (size_t at = sizeof kApiPath - 1; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    words.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// The body as an object. An empty body is an empty object.
base::Result<Json> body_of(const http::Request& request) {
  if (request.body.empty()) return Json::object();
  if (request.header("content-type").substr(0, 16) != "application/json")
    return Status(Code::kInvalid, "the body is JSON: Content-Type: application/json");
  Json json = Json::parse(request.body, nullptr, false);
  if (!json.is_object()) return Status(Code::kInvalid, "the body is no JSON object");
  return json;
}

std::string text_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string member(const char* key, const std::string& json) {
  return "\"" + std::string(key) + "\":" + json;
}

bool contains(const std::string& text, const std::string& wanted) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; };
  return std::search(text.begin(), text.end(), wanted.begin(), wanted.end(),
                     [&](char a, char b) { return lower(a) == lower(b); }) != text.end();
}

}  // namespace

// ---- answers ----

std::string error_json(const Status& status) {
  return "{" + member("error", json_text(status.message())) + "," +
         member("code", json_text(base::code_name(status.code()))) + "}";
}

void add_guards(http::Response* response) {
  response->headers.emplace_back("X-Content-Type-Options", "nosniff");
  response->headers.emplace_back("Referrer-Policy", "no-referrer");
  response->headers.emplace_back("X-Frame-Options", "DENY");
  response->headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  response->headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  response->headers.emplace_back(
      "Content-Security-Policy",
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
      "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
}

http::Response problem(int status, const char* code, const std::string& text) {
  http::Response response;
  response.status = status;
  response.type = "application/json";
  response.body =
      "{" + member("error", json_text(text)) + "," + member("code", json_text(code)) + "}\n";
  response.headers = {{"Cache-Control", "no-store"}};
  add_guards(&response);
  return response;
}

http::Response problem(const Status& status) {
  return problem(status_of(status.code()), base::code_name(status.code()), status.message());
}

http::Response json_response(std::string json) {
  http::Response response;
  response.type = "application/json";
  response.body = std::move(json);
  response.headers = {{"Cache-Control", "no-store"}};
  add_guards(&response);
  return response;
}

// Packed, if it is long and the asker takes that.
http::Response packed_response(const http::Request& request, std::string json) {
  http::Response response = json_response(std::move(json));
  const bool takes = request.header("accept-encoding").find("gzip") != std::string_view::npos;
  if (!takes || response.body.size() < kPackedMin) return response;
  http::Packer packer;
  const std::string packed = packer.pack(response.body);
  response.body = packed + packer.finish();
  response.headers.emplace_back("Content-Encoding", "gzip");
  return response;
}

http::Response file_response(const File& file, const http::Request& request) {
  http::Response response;
  response.type = file.type;
  response.headers = {
      {"Cache-Control", "no-cache"}, {"ETag", file.tag}, {"Vary", "Accept-Encoding"}};
  add_guards(&response);
  if (request.header("if-none-match") == file.tag) {
    response.status = 304;
    return response;
  }
  const bool packs = request.header("accept-encoding").find("gzip") != std::string_view::npos;
  if (packs) response.headers.emplace_back("Content-Encoding", "gzip");
  response.body = std::string(packs ? file.packed : file.plain);
  if (request.method == "HEAD") response.body.clear();
  return response;
}

// ---- requests ----

bool is_loopback_name(std::string_view host) {
  const std::string_view name = without_port(host);
  if (name == "localhost" || name == "[::1]" || ends_with(name, ".localhost")) return true;
  const bool digits = std::all_of(name.begin(), name.end(),
                                  [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
  return digits && name.substr(0, 4) == "127.";
}

std::string bearer_of(const http::Request& request) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view header = request.header("authorization");
  if (header.substr(0, kScheme.size()) != kScheme) return std::string();
  return std::string(header.substr(kScheme.size()));
}

std::string cookie_of(const http::Request& request) {
  std::string_view header = request.header("cookie");
  while (!header.empty()) {
    const size_t end = std::min(header.find(';'), header.size());
    std::string_view pair = header.substr(0, end);
    header.remove_prefix(std::min(end + 1, header.size()));
    while (!pair.empty() && pair.front() == ' ') pair.remove_prefix(1);
    const size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == kCookie)
      return std::string(pair.substr(equals + 1));
  }
  return std::string();
}

// ---- routes ----

struct Page::Route {
  const char* method;
  std::vector<std::string> path;  // "*": any word
  Handler handler;
  size_t body_max = 0;
  bool Rights::*needs = &Rights::sees;  // null: nothing
};

const Page::Route* Page::find_route(const http::Request& request,
                                    const std::vector<std::string>& path, bool* other_method) {
  static const std::vector<Route> kRoutes = {
      {"GET", {"me"}, &Page::get_me, 0, nullptr},
      {"POST", {"session"}, &Page::post_session, kBodyMax, nullptr},
      {"DELETE", {"session"}, &Page::delete_session, 0, nullptr},
      {"GET", {"stream"}, &Page::get_stream},
      {"GET", {"now"}, &Page::get_now},
      {"GET", {"servers"}, &Page::get_servers},
      {"GET", {"servers", "*"}, &Page::get_server},
      {"GET", {"leases"}, &Page::get_leases},
      {"GET", {"leases", "*"}, &Page::get_lease},
      {"GET", {"leases", "*", "totals"}, &Page::get_totals},
      {"GET", {"queue"}, &Page::get_queue},
      {"GET", {"accounts"}, &Page::get_accounts},
      {"GET", {"events"}, &Page::get_events},
      {"GET", {"events", "past"}, &Page::get_past_events},
      {"GET", {"history"}, &Page::get_history},
      {"GET", {"policy"}, &Page::get_policy},
      {"POST", {"policy"}, &Page::post_policy, kPolicyMax, &Rights::rules},
      {"POST", {"policy", "dry-run"}, &Page::post_dry_run, kPolicyMax, &Rights::operates},
      {"POST", {"leases", "*", "release"}, &Page::post_release, kBodyMax, &Rights::holds},
      {"POST", {"leases", "*", "change"}, &Page::post_change, kBodyMax, &Rights::holds},
      {"POST", {"leases", "*", "park"}, &Page::post_verb, kBodyMax, &Rights::holds},
      {"POST", {"leases", "*", "wake"}, &Page::post_verb, kBodyMax, &Rights::holds},
      {"POST", {"leases", "*", "hold"}, &Page::post_verb, kBodyMax, &Rights::holds},
      {"POST", {"leases", "*", "unhold"}, &Page::post_verb, kBodyMax, &Rights::holds},
      {"POST", {"servers", "*", "drain"}, &Page::post_drain, kBodyMax, &Rights::operates},
      {"POST", {"servers", "*", "undrain"}, &Page::post_undrain, kBodyMax, &Rights::operates}};
  *other_method = false;
  for (const Route& route : kRoutes) {
    const bool same = std::equal(route.path.begin(), route.path.end(), path.begin(), path.end(),
                                 [](const std::string& a, const std::string& b) {
                                   return a == b || (a == "*" && !b.empty());
                                 });
    if (!same) continue;
    if (request.method == route.method) return &route;
    *other_method = true;
  }
  return nullptr;
}

size_t body_bytes_of_route(const http::Request& request) {
  // As every route allows; who may not ask is refused before the body is looked at.
  const std::string policy = std::string(kApiPath) + "policy";
  if (request.path.rfind(kApiPath, 0) != 0) return 0;
  return request.path.rfind(policy, 0) == 0 ? kPolicyMax : kBodyMax;
}

void Page::serve_api(http::Request request, ExchangePtr exchange) {
  const Status origin = check_origin(request, exchange->visitor());
  if (!origin.ok()) return exchange->answer(problem(origin));
  auto call = std::make_shared<Call>();
  call->words = words_of(request.path);
  bool other_method = false;
  const Route* const route = find_route(request, call->words, &other_method);
  if (route == nullptr && other_method)
    return exchange->answer(problem(405, "method", "this can not be done here"));
  if (route == nullptr)
    return exchange->answer(problem(404, "not-found", "there is no such route; see /openapi.json"));
  auto query = parse_query(request.query);
  if (!query.ok()) return exchange->answer(problem(query.status()));
  auto caller = recognize(request, exchange->visitor());
  if (!caller.ok()) return exchange->answer(problem(caller.status()));
  call->query = query.take();
  call->caller = caller.take();
  call->request = std::move(request);
  call->exchange = std::move(exchange);
  const Rights& rights = call->caller.rights;
  if (route->needs != nullptr && !rights.sees)
    return call->exchange->answer(problem(401, "sign-in", "sign in first"));
  if (route->needs != nullptr && !(rights.*route->needs)) {
    const Status refused(Code::kRefused, "your role, " +
                                             std::string(access::role_name(call->caller.who.role)) +
                                             ", may not do this (rule: role)");
    return call->exchange->answer(problem(refused));
  }
  (this->*route->handler)(std::move(call));
}

void Page::get_me(std::shared_ptr<Call> call) {
  const Rights& rights = call->caller.rights;
  const access::Mode mode = options_.front->guard()->settings()->mode;
  Json json;
  json["signed_in"] = rights.sees;
  json["mode"] = access::mode_name(mode);
  json["name"] = rights.sees ? call->caller.who.name : "";
  json["role"] = rights.sees ? access::role_name(call->caller.who.role) : "";
  json["session"] = !call->caller.session.empty();
  json["charts"] = has_charts();
  json["may"] = {{"see", rights.sees},   {"see_all", rights.sees_all}, {"manage", rights.manages},
                 {"hold", rights.holds}, {"operate", rights.operates}, {"rule", rights.rules}};
  call->exchange->answer(json_response(json.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

void Page::post_session(std::shared_ptr<Call> call) {
  const uint64_t now_ns = base::now_ns();
  const http::Visitor& visitor = call->exchange->visitor();
  auto body = body_of(call->request);
  if (!body.ok()) return call->exchange->answer(problem(body.status()));
  const Status waits = options_.front->guesses()->check(visitor.address, now_ns);
  if (!waits.ok()) return call->exchange->answer(problem(waits));
  const std::string token = text_in(*body, "token");
  auto who = passes_.use_pass(token, now_ns);
  if (!who && options_.front->guard()->token_is_right(token)) {
    access::Evidence evidence = evidence_of(visitor);
    evidence.knows_token = true;
    who = options_.front->guard()->recognize(evidence);
  }
  if (!who) {
    options_.front->guesses()->wrong(visitor.address, now_ns);
    access::Principal stranger;
    stranger.name = stranger.id = "nobody";
    stranger.from = visitor.address;
    options_.front->guard()->record_stranger(
        stranger, {false, "sign-in", "its pass or token is wrong, used or too old"}, now_ns,
        "page");
    return call->exchange->answer(problem(
        403, "refused", "that is not right, or was used already; `tendril page` shows a new one"));
  }
  who->from = visitor.address;
  const access::Decision recorded = options_.front->guard()->record(
      *who, "page", std::string(), {true, "sign-in", std::string()});
  if (!recorded.allowed) return call->exchange->answer(problem(recorded.status()));
  auto session = passes_.begin_session(*who, now_ns);
  if (!session.ok()) return call->exchange->answer(problem(session.status()));
  http::Response response = json_response("{}");
  response.headers.emplace_back("Set-Cookie", std::string(kCookie) + "=" + *session +
                                                  "; Path=/; HttpOnly; SameSite=Strict" +
                                                  (visitor.sealed ? "; Secure" : ""));
  call->exchange->answer(std::move(response));
}

void Page::delete_session(std::shared_ptr<Call> call) {
  passes_.end_session(call->caller.session);
  http::Response response = json_response("{}");
  response.headers.emplace_back(
      "Set-Cookie", std::string(kCookie) + "=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");
  call->exchange->answer(std::move(response));
}

// ---- looking ----

void Page::get_now(std::shared_ptr<Call> call) {
  with_model([this, call](const Status& status) {
    if (!status.ok()) return call->exchange->answer(problem(status));
    Interest interest;
    interest.servers = interest.queue = interest.accounts = true;
    const Viewer viewer{call->caller.who.id, call->caller.rights.sees_all};
    call->exchange->answer(json_response("{" + member("at", std::to_string(model_.at())) + "," +
                                         changes_json(model_, interest, viewer, 0, true) + "}"));
  });
}

void Page::get_servers(std::shared_ptr<Call> call) {
  with_model([this, call](const Status& status) {
    if (!status.ok()) return call->exchange->answer(problem(status));
    const std::string after = call->option("after");
    std::string list, next;
    size_t count = 0;
    for (auto row = model_.servers().upper_bound(after); row != model_.servers().end(); ++row) {
      if (count++ == kPageDefault) {
        next = std::prev(row)->first;
        break;
      }
      list += (list.empty() ? "" : ",") + Model::info_of(row->second);
    }
    call->exchange->answer(
        json_response("{" + member("servers", "[" + list + "]") + "," +
                      member("next", next.empty() ? std::string("null") : json_text(next)) + "}"));
  });
}

void Page::get_server(std::shared_ptr<Call> call) {
  with_model([this, call](const Status& status) {
    if (!status.ok()) return call->exchange->answer(problem(status));
    const auto row = model_.servers().find(call->words[1]);
    if (row == model_.servers().end())
      return call->exchange->answer(problem(404, "not-found", "there is no such server"));
    call->exchange->answer(json_response(Model::info_of(row->second)));
  });
}

void Page::get_leases(std::shared_ptr<Call> call) {
  uint64_t after = 0, limit = kPageDefault;
  const std::string after_text = call->option("after"), limit_text = call->option("limit");
  if ((!after_text.empty() && !config::read_number(after_text, &after)) ||
      (!limit_text.empty() && !config::read_number(limit_text, &limit)) || limit == 0)
    return call->exchange->answer(problem(400, "invalid", "after and limit are numbers"));
  limit = std::min<uint64_t>(limit, kPageMax);
  with_model([this, call, after, limit](const Status& status) {
    if (!status.ok()) return call->exchange->answer(problem(status));
    const Rights& rights = call->caller.rights;
    const std::string words = call->option("q"), account = call->option("account"),
                      server = call->option("server"), state = call->option("state");
    const bool own = call->option("own") == "1";
    std::string list, next = "null";
    size_t count = 0;
    for (auto row = model_.leases().upper_bound(after); row != model_.leases().end(); ++row) {
      const view::PictureLease& lease = row->second.lease;
      const bool mine = !lease.owner_id.empty() && lease.owner_id == call->caller.who.id;
      const bool named = rights.sees_all || mine;
      const bool on_server =
          server.empty() || std::any_of(lease.slices.begin(), lease.slices.end(),
                                        [&](const auto& slice) { return slice.server == server; });
      const bool said = words.empty() || std::to_string(lease.id) == words ||
                        contains(lease.account, words) || contains(lease.user_class, words) ||
                        (named && (contains(lease.owner, words) || contains(lease.program, words) ||
                                   contains(lease.host, words)));
      if (!said || !on_server || (own && !mine) || (!account.empty() && lease.account != account) ||
          (!state.empty() && lease.state != state))
        continue;
      if (count++ == limit) {
        next = std::to_string(std::prev(row)->first);
        break;
      }
      list += (list.empty() ? "" : ",") + Model::text_of(row->second, named);
    }
    call->exchange->answer(
        json_response("{" + member("leases", "[" + list + "]") + "," + member("next", next) + "}"));
  });
}

void Page::get_lease(std::shared_ptr<Call> call) {
  with_model([this, call](const Status& status) {
    if (!status.ok()) return call->exchange->answer(problem(status));
    uint64_t id = 0;
    const bool number = config::read_number(call->words[1], &id);
    const auto row = number ? model_.leases().find(id) : model_.leases().end();
    if (row == model_.leases().end())
      return call->exchange->answer(problem(404, "not-found", "there is no such lease now"));
    options_.source->watch(id);
    const bool named =
        call->caller.rights.sees_all ||
        (!row->second.lease.owner_id.empty() && row->second.lease.owner_id == call->caller.who.id);
    call->exchange->answer(json_response(Model::text_of(row->second, named)));
  });
}

void Page::get_queue(std::shared_ptr<Call> call) {
  uint64_t after = 0;
  const std::string after_text = call->option("after");
  if (!after_text.empty() && !config::read_number(after_text, &after))
    return call->exchange->answer(problem(400, "invalid", "after is a number"));
  after = std::min<uint64_t>(after, UINT32_MAX);
  with_model([this, call, after](const Status& status) {
    if (!status.ok()) return call->exchange->answer(problem(status));
    std::vector<const RequestRow*> rows;
    for (const auto& [id, row] : model_.queue()) {
      if (row.rank >= after && row.rank < after + kPageMax) rows.push_back(&row);
    }
    std::sort(rows.begin(), rows.end(), [](auto* a, auto* b) { return a->rank < b->rank; });
    std::string list;
    for (const RequestRow* row : rows) {
      const bool named =
          call->caller.rights.sees_all ||
          (!row->request.owner_id.empty() && row->request.owner_id == call->caller.who.id);
      list += (list.empty() ? "" : ",") + Model::text_of(*row, named);
    }
    const bool more = after + kPageMax < model_.queue().size();
    call->exchange->answer(json_response(
        "{" + member("queue", "[" + list + "]") + "," +
        member("next", more ? std::to_string(after + kPageMax) : std::string("null")) + "}"));
  });
}

void Page::get_accounts(std::shared_ptr<Call> call) {
  with_model([this, call](const Status& status) {
    if (!status.ok()) return call->exchange->answer(problem(status));
    std::string list;
    for (const auto& [name, row] : model_.accounts())
      list += (list.empty() ? "" : ",") + Model::text_of(row);
    call->exchange->answer(json_response("{" + member("accounts", "[" + list + "]") + "}"));
  });
}

void Page::get_events(std::shared_ptr<Call> call) {
  uint64_t after = 0;
  const std::string after_text = call->option("after");
  if (!after_text.empty() && !config::read_number(after_text, &after))
    return call->exchange->answer(problem(400, "invalid", "after is a number"));
  const std::string list = events_json(call->caller, &after, kEventsMax);
  call->exchange->answer(json_response("{" + member("events", "[" + list + "]") + "," +
                                       member("after", std::to_string(after)) + "}"));
}

// Those that the store keeps, of all schedulers.
void Page::get_past_events(std::shared_ptr<Call> call) {
  wire::PoolCommand question{"events", {}, {}};
  for (const char* const name : {"kind", "before", "limit"}) {
    const std::string value = call->option(name);
    if (!value.empty()) question.arguments.push_back(std::string(name) + "=" + value);
  }
  look_up(call, std::move(question));
}

// Charts over a range, and the sums of the whole of it. What the words may be is the history's.
void Page::get_history(std::shared_ptr<Call> call) {
  std::string series = call->option("series");
  if (series.empty()) series = "gpus,utilisation,memory,waiting,waits";
  wire::PoolCommand question{"history", {"series=" + series}, {}};
  for (const char* const name : {"by", "from", "to", "points", "lines"}) {
    const std::string value = call->option(name);
    if (!value.empty()) question.arguments.push_back(std::string(name) + "=" + value);
  }
  look_up(call, std::move(question));
}

// Of a lease that lives or has ended.
void Page::get_totals(std::shared_ptr<Call> call) {
  uint64_t id = 0;
  if (!config::read_number(call->words[1], &id) || id == 0)
    return call->exchange->answer(problem(400, "invalid", "a lease has a number"));
  look_up(call, {"history", {"lease=" + call->words[1]}, {}});
}

// Asks for something that changes nothing, and may be long.
void Page::look_up(const std::shared_ptr<Call>& call, wire::PoolCommand command) {
  // The source's thread has better things to do than packing.
  options_.source->command(
      call->caller.who, call->exchange->visitor().address, std::move(command),
      [call, shared = shared_](base::Result<std::string> json) {
        auto held = std::make_shared<base::Result<std::string>>(std::move(json));
        const std::lock_guard<std::mutex> hold(shared->mutex);
        if (shared->page == nullptr || !shared->post) return;
        shared->post([call, held] {
          call->exchange->answer(held->ok() ? packed_response(call->request, held->take())
                                            : problem(held->status()));
        });
      });
}

// ---- doing ----

// Whoever did something sees what came of it: the picture of before is too old.
void Page::forget_picture(Shared* shared) {
  std::lock_guard<std::mutex> hold(shared->mutex);
  if (shared->page != nullptr && shared->post)
    shared->post([page = shared->page] { page->model_ns_ = 0; });
}

void Page::command(const std::shared_ptr<Call>& call, wire::PoolCommand command) {
  options_.source->command(
      call->caller.who, call->exchange->visitor().address, std::move(command),
      [call, shared = shared_](base::Result<std::string> json) {
        forget_picture(shared.get());
        call->exchange->answer(json.ok() ? json_response(json.take()) : problem(json.status()));
      });
}

void Page::get_policy(std::shared_ptr<Call> call) { look_up(call, {"show", {}, {}}); }

void Page::post_policy(std::shared_ptr<Call> call) {
  auto body = body_of(call->request);
  if (!body.ok()) return call->exchange->answer(problem(body.status()));
  command(call, {"apply", {"policy"}, text_in(*body, "policy")});
}

void Page::post_dry_run(std::shared_ptr<Call> call) {
  auto body = body_of(call->request);
  if (!body.ok()) return call->exchange->answer(problem(body.status()));
  command(call, {"dry-run", {"policy"}, text_in(*body, "policy")});
}

void Page::post_release(std::shared_ptr<Call> call) {
  auto body = body_of(call->request);
  if (!body.ok()) return call->exchange->answer(problem(body.status()));
  wire::PoolCommand release{"release", {call->words[1]}, {}};
  const std::string why = text_in(*body, "why");
  if (!why.empty()) release.arguments.push_back(why);
  command(call, std::move(release));
}

void Page::post_change(std::shared_ptr<Call> call) {
  auto body = body_of(call->request);
  if (!body.ok()) return call->exchange->answer(problem(body.status()));
  wire::PoolCommand change{"change", {call->words[1]}, {}};
  const auto share = body->find("share"), priority = body->find("priority");
  if (share != body->end() && share->is_number())
    change.arguments.push_back(base::format("share=%.6f", share->get<double>()));
  const std::string policy = text_in(*body, "policy");
  if (!policy.empty()) change.arguments.push_back("policy=" + policy);
  if (priority != body->end() && priority->is_number_integer())
    change.arguments.push_back("priority=" + std::to_string(priority->get<int64_t>()));
  if (change.arguments.size() == 1)
    return call->exchange->answer(
        problem(400, "invalid", "say share, policy (cap or lend) or priority"));
  command(call, std::move(change));
}

// The path's last word is the verb: park, wake, hold, unhold.
void Page::post_verb(std::shared_ptr<Call> call) {
  auto body = body_of(call->request);
  if (!body.ok()) return call->exchange->answer(problem(body.status()));
  wire::PoolCommand asked{call->words[2], {call->words[1]}, {}};
  const std::string why = text_in(*body, "why");
  if (!why.empty() && asked.verb == "hold") asked.arguments.push_back(why);
  command(call, std::move(asked));
}

void Page::post_drain(std::shared_ptr<Call> call) {
  auto body = body_of(call->request);
  if (!body.ok()) return call->exchange->answer(problem(body.status()));
  wire::PoolCommand drain{"drain", {call->words[1]}, {}};
  const std::string why = text_in(*body, "why");
  if (!why.empty()) drain.arguments.push_back(why);
  command(call, std::move(drain));
}

void Page::post_undrain(std::shared_ptr<Call> call) {
  command(call, {"undrain", {call->words[1]}, {}});
}

}  // namespace tendril::dashboard
