// SPDX-License-Identifier: Apache-2.0
// What a user's or server's machine asks of a pool's authority: a first certificate, a renewed one,
// and the list of revoked ones. Blocks, with time-outs. Any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "identity/deny_list.h"
#include "identity/store.h"

namespace tendril::identity {

struct EnrolmentOptions {
  std::string server;  // the authority's, as people write it
  int timeout_ms = 5000;
};

// Exchanges a join token for an identity. `wished`: the name, if the invitation leaves it open.
base::Result<OwnIdentity> join(const EnrolmentOptions& options, const std::string& token,
                               const std::string& wished);
// Exchanges a provider's signed token for one. `pin`: of the authority.
base::Result<OwnIdentity> log_in(const EnrolmentOptions& options, const std::string& pin,
                                 const std::string& provider_token);
// A new certificate for the same key and name, from own.issuer.
base::Result<OwnIdentity> renew(const OwnIdentity& own, int timeout_ms);
base::Result<DenyList> fetch_denied(const OwnIdentity& own, int timeout_ms);

}  // namespace tendril::identity
