// SPDX-License-Identifier: Apache-2.0
// Private to the page: answers as HTTP has them, and what a request says of who asks.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"
#include "dashboard/files.h"
#include "dashboard/page.h"
#include "http/router.h"

namespace tendril::dashboard {

inline constexpr char kApiPath[] = "/api/v1/";
inline constexpr char kCookie[] = "tendril_session";

struct Page::Shared {
  std::mutex mutex;
  Page* page = nullptr;  // guarded by mutex, as the next
  Post post;
};

// {"error": "...", "code": "refused"}
std::string error_json(const base::Status& status);
http::Response problem(const base::Status& status);
http::Response problem(int status, const char* code, const std::string& text);
http::Response json_response(std::string json);
http::Response packed_response(const http::Request& request, std::string json);
http::Response file_response(const File& file, const http::Request& request);
// The headers that keep other sites' pages out.
void add_guards(http::Response* response);

// The longest body that the route of this request reads.
size_t body_bytes_of_route(const http::Request& request);
bool is_loopback_name(std::string_view host);
// Of "Authorization: Bearer TOKEN", and of the cookie; empty: there is none.
std::string bearer_of(const http::Request& request);
std::string cookie_of(const http::Request& request);

}  // namespace tendril::dashboard
