// SPDX-License-Identifier: Apache-2.0
// See name.h.
#include "identity/name.h"

#include "base/text.h"

namespace tendril::identity {
namespace {

using base::Code;
using base::Status;

constexpr char kScheme[] = "spiffe://";
constexpr size_t kUriBytesMax = sizeof kScheme + 2 * kNamePartBytesMax + 16;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_mark(char c) { return c == '.' || c == '_' || c == '-'; }

bool fits(const std::string& text, bool pool) {
  if (text.empty() || text.size() > kNamePartBytesMax || is_mark(text[0])) return false;
  for (const char c : text) {
    if (is_digit(c) || is_lower(c) || is_mark(c)) continue;
    if (pool || !(is_upper(c) || c == '@' || c == '+')) return false;
  }
  return text[0] != '@' && text[0] != '+';
}

std::string nearest(const std::string& text, bool pool) {
  std::string out;
  for (char c : text.substr(0, kNamePartBytesMax)) {
    if (pool && is_upper(c)) c = char(c - 'A' + 'a');
    out += fits(std::string("a") + c, pool) ? c : '-';
  }
  while (!out.empty() && !fits(out.substr(0, 1), pool)) out.erase(0, 1);
  return out.empty() ? (pool ? "pool" : "somebody") : out;
}

}  // namespace

const char* role_text(Role role) {
  switch (role) {
    case Role::kAdmin:
      return "admin";
    case Role::kOperator:
      return "operator";
    case Role::kUser:
      return "user";
    case Role::kServer:
      return "server";
    case Role::kMetrics:
      return "metrics";
  }
  return "unknown";
}

bool read_role(const std::string& text, Role* role) {
  for (const Role each :
       {Role::kAdmin, Role::kOperator, Role::kUser, Role::kServer, Role::kMetrics}) {
    if (text != role_text(each)) continue;
    *role = each;
    return true;
  }
  return false;
}

std::string Name::uri() const { return kScheme + pool + "/" + role_text(role) + "/" + name; }

Status check_pool(const std::string& text) {
  if (fits(text, true)) return Status();
  return Status(Code::kInvalid, "'" + base::printable(text, kNamePartBytesMax) +
                                    "' is no name of a pool: write 1 to 64 lower-case letters, "
                                    "digits, '.', '_' or '-', a letter or digit first");
}

Status check_name(const std::string& text) {
  if (fits(text, false)) return Status();
  return Status(Code::kInvalid, "'" + base::printable(text, kNamePartBytesMax) +
                                    "' is no name: write 1 to 64 letters, digits, '.', '_', '-', "
                                    "'@' or '+', a letter or digit first");
}

base::Result<Name> read_name(const std::string& uri) {
  const Status bad(Code::kInvalid, "'" + base::printable(uri, kUriBytesMax) +
                                       "' is no name of the form spiffe://POOL/ROLE/NAME");
  if (uri.size() > kUriBytesMax || uri.rfind(kScheme, 0) != 0) return bad;
  const std::string rest = uri.substr(sizeof kScheme - 1);
  const size_t first = rest.find('/');
  if (first == std::string::npos) return bad;
  const size_t second = rest.find('/', first + 1);
  if (second == std::string::npos) return bad;
  Name name;
  name.pool = rest.substr(0, first);
  name.name = rest.substr(second + 1);
  if (!read_role(rest.substr(first + 1, second - first - 1), &name.role)) return bad;
  if (!fits(name.pool, true) || !fits(name.name, false)) return bad;
  return name;
}

std::string as_name(const std::string& text) { return nearest(text, false); }
std::string as_pool(const std::string& text) { return nearest(text, true); }

}  // namespace tendril::identity
