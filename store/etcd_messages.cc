// SPDX-License-Identifier: Apache-2.0
// See etcd_messages.h.
#include "store/etcd_messages.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"

namespace tendril::store::etcd {

using base::base64;
using base::Code;
using base::read_base64;
using base::Result;
using base::Status;
using Json = nlohmann::json;

namespace {

Status strange(const char* what) {
  return Status(Code::kInvalid, std::string("the answer is not etcd's: ") + what);
}

std::string text(uint64_t number) { return std::to_string(number); }
std::string dump(const Json& json) { return json.dump(); }

// A number as text or as JSON's own; left out: 0.
bool read_number(const Json& object, const char* name, uint64_t* number) {
  *number = 0;
  const auto at = object.find(name);
  if (at == object.end()) return true;
  if (at->is_number_unsigned()) {
    *number = at->get<uint64_t>();
    return true;
  }
  if (!at->is_string()) return false;
  const auto& digits = at->get_ref<const std::string&>();
  if (digits.empty() || digits.size() > 19) return false;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return false;
    *number = *number * 10 + uint64_t(digit - '0');
  }
  return true;
}

bool read_bytes(const Json& object, const char* name, std::string* bytes) {
  bytes->clear();
  const auto at = object.find(name);
  if (at == object.end()) return true;
  return at->is_string() && read_base64(at->get_ref<const std::string&>(), bytes);
}

bool read_key_value(const Json& object, KeyValue* found) {
  return object.is_object() && read_bytes(object, "key", &found->key) && !found->key.empty() &&
         read_bytes(object, "value", &found->value) &&
         read_number(object, "create_revision", &found->created) &&
         read_number(object, "mod_revision", &found->modified) &&
         read_number(object, "lease", &found->lease);
}

bool read_found(const Json& object, RangeAnswer* answer) {
  if (!object.is_object()) return false;
  const auto more = object.find("more");
  answer->more = more != object.end() && more->is_boolean() && more->get<bool>();
  const auto found = object.find("kvs");
  if (found == object.end()) return true;
  if (!found->is_array()) return false;
  for (const Json& one : *found) {
    KeyValue value;
    if (!read_key_value(one, &value)) return false;
    answer->found.push_back(std::move(value));
  }
  return true;
}

// The object that every answer is; discarded otherwise.
Json parsed(const std::string& body) {
  Json json = Json::parse(body, nullptr, false);
  return json.is_object() ? json : Json(Json::value_t::discarded);
}

Json created_by(const std::string& lock, uint64_t revision) {
  return {{"key", base64(lock)},
          {"target", "CREATE"},
          {"result", "EQUAL"},
          {"create_revision", text(revision)}};
}

Json read_key(const std::string& key) { return {{"request_range", {{"key", base64(key)}}}}; }

}  // namespace

std::string prefix_end(const std::string& prefix) {
  std::string end = prefix;
  while (!end.empty() && end.back() == '\xff') end.pop_back();
  if (end.empty()) return std::string(1, '\0');
  end.back() = char(static_cast<unsigned char>(end.back()) + 1);
  return end;
}

std::string grant(uint64_t lease, uint32_t ttl_s) {
  return dump({{"ID", text(lease)}, {"TTL", text(ttl_s)}});
}

std::string lease_only(uint64_t lease) { return dump({{"ID", text(lease)}}); }

std::string range(const std::string& key, const std::string& end, size_t limit) {
  Json question = {{"key", base64(key)}, {"limit", text(limit)}};
  if (!end.empty()) question["range_end"] = base64(end);
  return dump(question);
}

std::string authenticate(const std::string& user, const std::string& password) {
  const Json question = {{"name", user}, {"password", password}};
  return question.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string take_lock(const std::string& lock, const std::string& value, uint64_t lease) {
  const Json put = {{"key", base64(lock)}, {"value", base64(value)}, {"lease", text(lease)}};
  return dump({{"compare", Json::array({created_by(lock, 0)})},
               {"success", Json::array({Json{{"request_put", put}}})},
               {"failure", Json::array({read_key(lock)})}});
}

std::string guarded(const std::string& lock, uint64_t term, const std::vector<Change>& changes) {
  Json compare = Json::array({created_by(lock, term)}), success = Json::array(),
       failure = Json::array({read_key(lock)});
  for (const Change& change : changes) {
    const std::string key = base64(change.key);
    if (change.revision.has_value()) {
      compare.push_back({{"key", key},
                         {"target", "MOD"},
                         {"result", "EQUAL"},
                         {"mod_revision", text(*change.revision)}});
    }
    if (change.value.has_value())
      success.push_back({{"request_put", {{"key", key}, {"value", base64(*change.value)}}}});
    else
      success.push_back({{"request_delete_range", {{"key", key}}}});
    failure.push_back(read_key(change.key));
  }
  return dump({{"compare", std::move(compare)},
               {"success", std::move(success)},
               {"failure", std::move(failure)}});
}

Result<RangeAnswer> read_range(const std::string& body) {
  RangeAnswer answer;
  const Json json = parsed(body);
  if (json.is_discarded() || !read_found(json, &answer)) return strange("a list was asked for");
  return answer;
}

Result<TxnAnswer> read_txn(const std::string& body) {
  TxnAnswer answer;
  const Json json = parsed(body);
  if (json.is_discarded()) return strange("a transaction was asked for");
  const auto succeeded = json.find("succeeded");
  answer.succeeded = succeeded != json.end() && succeeded->is_boolean() && succeeded->get<bool>();
  const auto header = json.find("header");
  if (header == json.end() || !header->is_object() ||
      !read_number(*header, "revision", &answer.revision) || answer.revision == 0) {
    return strange("a transaction has no revision");
  }
  const auto responses = json.find("responses");
  if (responses == json.end()) return answer;
  if (!responses->is_array()) return strange("a transaction's answers are none");
  for (const Json& response : *responses) {
    if (!response.is_object()) return strange("a transaction's answers are none");
    const auto found = response.find("response_range");
    if (found == response.end()) continue;
    RangeAnswer one;
    if (!read_found(*found, &one) || one.found.size() > 1) return strange("a key was asked for");
    answer.ranges.push_back(one.found.empty() ? std::nullopt
                                              : std::optional<KeyValue>(std::move(one.found[0])));
  }
  return answer;
}

Result<uint64_t> read_keepalive(const std::string& body) {
  const Json json = parsed(body);
  uint64_t seconds = 0;
  if (json.is_discarded() || !json.contains("result") || !json["result"].is_object() ||
      !read_number(json["result"], "TTL", &seconds)) {
    return strange("a lease was to be kept");
  }
  return seconds;
}

Result<std::string> read_token(const std::string& body) {
  const Json json = parsed(body);
  const auto token = json.is_discarded() ? json.end() : json.find("token");
  if (json.is_discarded() || token == json.end() || !token->is_string())
    return strange("a token was asked for");
  const auto found = token->get<std::string>();
  for (const char letter : found) {
    if (letter <= ' ' || letter >= 127) return strange("a token was asked for");
  }
  if (found.empty() || found.size() > 4096) return strange("a token was asked for");
  return found;
}

Refusal read_refusal(int http_status, const std::string& body) {
  Refusal refusal;
  Json json = parsed(body);
  if (!json.is_discarded()) {
    // An error in a stream has one more object around it.
    const auto inner = json.find("error");
    if (inner != json.end() && inner->is_object()) json = Json(*inner);
    uint64_t code = 0;
    for (const char* name : {"code", "grpc_code"}) {
      if (code == 0 && read_number(json, name, &code) && code <= 16) refusal.code = int(code);
    }
    for (const char* name : {"message", "error"}) {
      const auto said = json.find(name);
      if (refusal.message.empty() && said != json.end() && said->is_string())
        refusal.message = base::printable(said->get<std::string>());
    }
  }
  if (refusal.message.empty())
    refusal.message = base::format("status %d of a web server", http_status);
  return refusal;
}

}  // namespace tendril::store::etcd
