// SPDX-License-Identifier: Apache-2.0
// Fetches one small document of an identity provider, or sends it one form: https, and http on this
// machine only. Blocks. Any thread.
#pragma once

#include <string>

#include "base/result.h"

namespace tendril::identity {

// Whether the text is an address that `fetch` would take.
bool is_fetchable(const std::string& address);
// The body of a successful answer, at most 256 KiB. Follows no redirection. `ca_file`: whom to
// believe; empty: the system's authorities.
base::Result<std::string> fetch(const std::string& address, const std::string& ca_file,
                                int timeout_ms);

struct WebAnswer {
  int status = 0;
  std::string body;
};
// `form`: "name=value&...", encoded. The answer may have any status.
base::Result<WebAnswer> post_form(const std::string& address, const std::string& form,
                                  const std::string& ca_file, int timeout_ms);

// An HTTP answer that has come whole. Bounded and strict.
base::Result<WebAnswer> read_answer(const std::string& answer);

}  // namespace tendril::identity
