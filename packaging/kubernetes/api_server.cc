// SPDX-License-Identifier: Apache-2.0
// See api_server.h.
#include "packaging/kubernetes/api_server.h"

#include <curl/curl.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/text.h"

namespace tendril::kubernetes {
namespace {

constexpr long kTimeoutMs = 15'000;
constexpr size_t kAnswerMax = 64u << 20;
constexpr char kAccount[] = "/var/run/secrets/kubernetes.io/serviceaccount/";

size_t append(char* data, size_t size, size_t count, void* into) {
  auto* const text = static_cast<std::string*>(into);
  if (text->size() + size * count > kAnswerMax) return 0;
  text->append(data, size * count);
  return size * count;
}

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw ApiError(0, "cannot read '" + path + "'");
  std::string all = text.str();
  while (!all.empty() && (all.back() == '\n' || all.back() == ' ')) all.pop_back();
  return all;
}

using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;
using Headers = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

void add_header(Headers* headers, const std::string& line) {
  curl_slist* const longer = curl_slist_append(headers->get(), line.c_str());
  if (longer == nullptr) throw ApiError(0, "out of memory");
  headers->release();
  headers->reset(longer);
}

// "GET /apis/...: 404 Not Found", with the server's own words if it has any.
std::string refusal(const std::string& request, long status, const std::string& answer) {
  std::string why = Json::parse(answer, nullptr, false).is_object()
                        ? Json::parse(answer).value("message", "")
                        : "";
  return request + ": the API server answered " + std::to_string(status) +
         (why.empty() ? "" : " (" + why.substr(0, 300) + ")");
}

}  // namespace

ApiOptions in_cluster(ApiOptions options) {
  const auto variable = [](const char* name) {
    const char* const value = getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (!options.url.empty()) return options;
  std::string host = variable("KUBERNETES_SERVICE_HOST");
  if (host.empty())
    throw std::runtime_error(
        "this is no pod of Kubernetes (KUBERNETES_SERVICE_HOST is not set); give --api URL");
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  options.url = "https://" + host + ":" + variable("KUBERNETES_SERVICE_PORT");
  if (options.token_file.empty()) options.token_file = std::string(kAccount) + "token";
  if (options.ca_file.empty()) options.ca_file = std::string(kAccount) + "ca.crt";
  return options;
}

Json ask(const ApiOptions& options, const char* method, const std::string& path, const Json& body) {
  const Handle curl(curl_easy_init(), curl_easy_cleanup);
  Headers headers(nullptr, curl_slist_free_all);
  if (curl == nullptr) throw ApiError(0, "libcurl does not start");
  const std::string request = std::string(method) + " " + path, url = options.url + path;
  const std::string text = body.is_null() ? "" : body.dump();
  std::string answer;
  add_header(&headers, "Accept: application/json");
  if (!body.is_null()) add_header(&headers, "Content-Type: application/json");
  if (!options.token_file.empty())
    add_header(&headers, "Authorization: Bearer " + file_text(options.token_file));
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_CUSTOMREQUEST, method);
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, kTimeoutMs);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &answer);
  if (!options.ca_file.empty())
    curl_easy_setopt(curl.get(), CURLOPT_CAINFO, options.ca_file.c_str());
  if (!body.is_null()) {
    curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, text.c_str());
    curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDSIZE, static_cast<long>(text.size()));
  }
  const CURLcode result = curl_easy_perform(curl.get());
  if (result != CURLE_OK) throw ApiError(0, request + ": " + curl_easy_strerror(result));
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status < 200 || status > 299) throw ApiError(status, refusal(request, status, answer));
  Json parsed = Json::parse(answer, nullptr, false);
  if (parsed.is_discarded()) throw ApiError(status, request + ": the answer is no JSON");
  return parsed;
}

std::string own_namespace() {
  std::ifstream file(std::string(kAccount) + "namespace");
  std::string name;
  return std::getline(file, name) && !name.empty() ? name : "tendril";
}

std::string secret_name(const std::string& uid) { return "tendril-claim-" + uid; }

std::string secrets_path(const std::string& space) {
  return "/api/v1/namespaces/" + space + "/secrets";
}

std::string leases_for(const ApiOptions& options, const std::string& space,
                       const std::string& uid) {
  std::string leases;
  try {
    const Json secret = ask(options, "GET", secrets_path(space) + "/" + secret_name(uid));
    const Json data = secret.value("data", Json::object());
    if (!base::read_base64(data.value("leases", ""), &leases))
      throw ApiError(200, "the Secret " + secret_name(uid) + " is not understood");
  } catch (const ApiError& error) {
    if (error.status != 404) throw;
  }
  return leases;
}

std::vector<Json> published(const ApiOptions& options) {
  const std::string path = std::string(kApi) + "/resourceslices?fieldSelector=spec.driver%3D";
  const Json list = ask(options, "GET", path + kDriver);
  try {
    return list.at("items").get<std::vector<Json>>();
  } catch (const Json::exception& wrong) {
    throw ApiError(200,
                   std::string("the list of ResourceSlices is not understood: ") + wrong.what());
  }
}

}  // namespace tendril::kubernetes
