// SPDX-License-Identifier: Apache-2.0
// Who a peer is: a name in a pool, with a role. A certificate carries it as a URI of the form
// spiffe://POOL/ROLE/NAME. Peers write such text, so reading is bounded and strict. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tendril::identity {

enum class Role : uint8_t { kAdmin, kOperator, kUser, kServer, kMetrics };

const char* role_text(Role role);
bool read_role(const std::string& text, Role* role);

inline constexpr size_t kNamePartBytesMax = 64;

struct Name {
  std::string pool;
  Role role = Role::kUser;
  std::string name;

  // "spiffe://POOL/ROLE/NAME"
  std::string uri() const;
  // "alice (user)", for messages
  std::string text() const { return name + " (" + role_text(role) + ")"; }
  bool operator==(const Name&) const = default;
};

// Whether a text may be a pool or a name: 1 to 64 letters, digits and . _ - @ +, and the first is a
// letter or digit. A pool has lower-case letters only and no @ and +. `what` is for the message.
base::Status check_pool(const std::string& text);
base::Status check_name(const std::string& text);

base::Result<Name> read_name(const std::string& uri);

// The nearest valid name to a host's or user's own: other characters become '-'.
std::string as_name(const std::string& text);
std::string as_pool(const std::string& text);

}  // namespace tendril::identity
