// SPDX-License-Identifier: Apache-2.0
// The authority of a pool, as a folder that this user alone may read: its key and certificate, the
// join tokens that it gave out (digests only), the certificates that it issued, and those that it
// took back. Commands and the daemon use the folder at the same time: each change holds its lock
// and replaces a file as a whole. Any thread. Time is passed in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "identity/certificate.h"
#include "identity/deny_list.h"
#include "identity/join_token.h"

namespace tendril::identity {

struct Invitation {
  Role role = Role::kUser;
  std::string name;        // empty: who joins chooses, among the names that nobody has
  int64_t valid_s = 3600;  // of the token
  int64_t lifetime_s = 0;  // of the certificates; 0: by the role
};

struct Issued {
  Certificate certificate;
  Facts facts;
};

class Authority {
 public:
  // kInvalid: the folder has an authority.
  static base::Result<std::unique_ptr<Authority>> create(const std::string& folder,
                                                         const std::string& pool, int64_t now_s);
  // kNotFound: there is none.
  static base::Result<std::unique_ptr<Authority>> open(const std::string& folder);
  static bool is_in(const std::string& folder);

  const Certificate& certificate() const { return certificate_; }
  const std::string& pool() const { return pool_; }
  const std::string& folder() const { return folder_; }
  std::string pin() const { return pin_of(certificate_); }

  base::Result<JoinToken> invite(const Invitation& invitation, int64_t now_s);
  // Issues a certificate for the key of `request` and uses the token up. `wished`: the name that
  // who joins would like. Unknown, used, expired and wrong tokens have their own messages.
  base::Result<Issued> enroll(const std::string& id, const std::string& secret,
                              const std::string& wished, const std::string& request, int64_t now_s);
  // A new certificate for a name that has proven itself by `old`. Refused for certificates that
  // were taken back, that this authority does not know, or that a provider's token was exchanged
  // for.
  base::Result<Issued> renew(const Facts& old, const std::string& request, int64_t now_s);
  // A certificate without a token, for who may write in this folder or showed a provider's token.
  enum class By : uint8_t { kOwner, kProvider };
  base::Result<Issued> grant(const Name& name, int64_t lifetime_s, By by,
                             const std::string& request, int64_t now_s);
  // Takes back certificates and unused tokens: of a name ("alice", "user/alice") or one serial.
  // Returns how many. Certificates that ended kGraceMaxS ago at most are among them.
  base::Result<size_t> revoke(const std::string& whom, int64_t now_s);
  base::Result<DenyList> denied(int64_t now_s) const;

  struct IssuedRecord {
    std::string serial;
    Name name;
    int64_t issued_s = 0, ends_s = 0, lifetime_s = 0;
    std::string by;  // "token", "renewal", "owner", "provider"
    bool denied = false;
  };
  // The certificates that have not expired.
  base::Result<std::vector<IssuedRecord>> issued(int64_t now_s) const;

 private:
  struct TokenRecord;
  // Also those that ended kGraceMaxS ago at most.
  base::Result<std::vector<IssuedRecord>> recent(int64_t now_s) const;
  Authority(std::string folder, Certificate certificate, Key key, std::string pool)
      : folder_(std::move(folder)),
        certificate_(std::move(certificate)),
        key_(std::move(key)),
        pool_(std::move(pool)) {}
  base::Result<std::vector<TokenRecord>> tokens(int64_t now_s) const;
  base::Status keep_tokens(const std::vector<TokenRecord>& records) const;
  base::Status keep_issued(const std::vector<IssuedRecord>& records) const;
  base::Result<Issued> issue_and_note(const Name& name, int64_t lifetime_s, const char* by,
                                      const std::string& request, int64_t now_s);

  const std::string folder_;
  const Certificate certificate_;
  const Key key_;
  const std::string pool_;
};

// The life of a role's certificates, unless the invitation says otherwise.
int64_t default_lifetime_s(Role role);

}  // namespace tendril::identity
