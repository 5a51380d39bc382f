// SPDX-License-Identifier: Apache-2.0
// See device_login.h. The JSON parser runs without exceptions, and every value's type is looked at
// before it is used.
#include "identity/web/device_login.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "identity/web/fetch.h"

namespace tendril::identity {

using base::Code;
using base::Result;
using base::Status;
using Json = nlohmann::json;

namespace {

constexpr char kDocument[] = "/.well-known/openid-configuration";
constexpr char kGrant[] = "urn:ietf:params:oauth:grant-type:device_code";
constexpr size_t kAnswerMax = 64 << 10, kTextMax = 2048, kTokenMax = 32 << 10;
constexpr int kAskMs = 10'000;
constexpr int64_t kExpiresMaxS = 1800, kEveryDefaultS = 5, kEveryMaxS = 60;  // 5: RFC 8628, 3.2
constexpr int kTroublesMax = 3;  // answers in a row that do not come

Status wrong(const std::string& why) {
  return Status(Code::kRefused, "the identity provider " + why);
}

// Null: the text is no object.
Json object_in(const std::string& text) {
  if (text.size() > kAnswerMax) return Json();
  Json json = Json::parse(text, nullptr, false);
  return json.is_object() ? json : Json();
}

// The text of a member; empty if it is missing, no text, too long, or not printable as it is.
std::string text_in(const Json& object, const char* name, size_t longest = kTextMax) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return std::string();
  const std::string& text = found->get_ref<const std::string&>();
  return text.size() <= longest && base::printable(text, longest) == text ? text : std::string();
}

int64_t seconds_in(const Json& object, const char* name, int64_t otherwise, int64_t most) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return otherwise;
  const double seconds = found->get<double>();
  return seconds >= 1 ? static_cast<int64_t>(std::min(seconds, static_cast<double>(most))) : 1;
}

// The provider's word for what is wrong, with its explanation.
std::string complaint(const Json& object, const std::string& error) {
  const std::string more = text_in(object, "error_description", 300);
  return error + (more.empty() ? "" : " (" + more + ")");
}

std::string form_value(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                       (letter >= '0' && letter <= '9') || letter == '-' || letter == '_' ||
                       letter == '.' || letter == '~';
    if (plain)
      out += letter;
    else
      out += base::format("%%%02X", static_cast<unsigned char>(letter));
  }
  return out;
}

}  // namespace

Result<ProviderAddresses> read_provider_addresses(const std::string& document,
                                                  const std::string& provider) {
  const Json json = object_in(document);
  if (json.is_null()) return wrong("has no document about itself at " + provider + kDocument);
  if (text_in(json, "issuer") != provider) {
    return wrong("calls itself '" + text_in(json, "issuer") + "' and not '" + provider +
                 "'; write its issuer exactly");
  }
  const ProviderAddresses found = {text_in(json, "device_authorization_endpoint"),
                                   text_in(json, "token_endpoint")};
  if (found.device.empty() || found.token.empty()) {
    return Status(Code::kUnsupported,
                  "the identity provider offers no device flow; get a token in another way and use "
                  "--jwt-file");
  }
  // The codes are secrets: they travel inside TLS, or on this machine.
  if (!is_fetchable(found.device) || !is_fetchable(found.token))
    return wrong("names addresses that are not https");
  return found;
}

Result<DeviceCode> read_device_code(const std::string& answer) {
  const Json json = object_in(answer);
  const std::string error = json.is_null() ? "" : text_in(json, "error", 100);
  if (!error.empty()) return wrong("gives no code: " + complaint(json, error));
  DeviceCode code;
  if (!json.is_null()) {
    code.device_code = text_in(json, "device_code");
    code.user_code = text_in(json, "user_code", 100);
    code.address = text_in(json, "verification_uri");
    code.address_with_code = text_in(json, "verification_uri_complete");
    code.expires_s = seconds_in(json, "expires_in", kExpiresMaxS, kExpiresMaxS);
    code.every_s = seconds_in(json, "interval", kEveryDefaultS, kEveryMaxS);
  }
  if (code.device_code.empty() || code.user_code.empty() || code.address.empty())
    return wrong("answered something else than a code");
  return code;
}

Result<TokenAnswer> read_token_answer(int status, const std::string& answer) {
  const Json json = object_in(answer);
  const std::string error = json.is_null() ? "" : text_in(json, "error", 100);
  TokenAnswer out;
  if (error == "authorization_pending") return out;
  if (error == "slow_down") {
    out.state = TokenAnswer::State::kTooFast;
    return out;
  }
  if (error == "access_denied") return wrong("says that you did not allow it");
  if (error == "expired_token") {
    return Status(Code::kTimeout, "the code has expired before you typed it; log in again");
  }
  if (!error.empty()) return wrong("gives no token: " + complaint(json, error));
  if (status == 200 && !json.is_null()) out.token = text_in(json, "id_token", kTokenMax);
  if (out.token.empty()) {
    return wrong(base::format(
        "answered with status %d and without an id_token; its client needs the scope openid",
        status));
  }
  out.state = TokenAnswer::State::kGiven;
  return out;
}

Result<std::string> log_in_by_device(const DeviceLogin& login) {
  std::string at_home = login.provider;
  if (!at_home.empty() && at_home.back() == '/') at_home.pop_back();
  Result<std::string> document = fetch(at_home + kDocument, login.ca_file, kAskMs);
  if (!document.ok()) return document.status();
  Result<ProviderAddresses> at = read_provider_addresses(*document, login.provider);
  if (!at.ok()) return at.status();
  const std::string client = "client_id=" + form_value(login.client_id);
  Result<WebAnswer> began =
      post_form(at->device, client + "&scope=" + form_value(login.scope), login.ca_file, kAskMs);
  if (!began.ok()) return began.status();
  Result<DeviceCode> code = read_device_code(began->body);
  if (!code.ok()) return code.status();
  login.show(*code);
  const std::string question = client + "&grant_type=" + form_value(kGrant) +
                               "&device_code=" + form_value(code->device_code);
  int64_t left_s = code->expires_s, every_s = code->every_s;
  for (int troubles = 0; left_s > 0;) {
    left_s -= every_s;
    if (login.wait_for)
      login.wait_for(every_s);
    else
      sleep(static_cast<unsigned>(every_s));
    Result<WebAnswer> said = post_form(at->token, question, login.ca_file, kAskMs);
    if (!said.ok()) {
      if (++troubles >= kTroublesMax) return said.status();
      continue;
    }
    troubles = 0;
    Result<TokenAnswer> answer = read_token_answer(said->status, said->body);
    if (!answer.ok()) return answer.status();
    if (answer->state == TokenAnswer::State::kGiven) return answer->token;
    if (answer->state == TokenAnswer::State::kTooFast) every_s += kEveryDefaultS;
  }
  return Status(Code::kTimeout, "the code has expired before you typed it; log in again");
}

}  // namespace tendril::identity
