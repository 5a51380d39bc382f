// SPDX-License-Identifier: Apache-2.0
// See authority.h. The files have one record a line, words between blanks; no word is a peer's own
// text, except names, which name.h has checked.
#include "identity/authority.h"

#include <algorithm>

#include "base/text.h"
#include "identity/files.h"

namespace tendril::identity {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr char kCertificateFile[] = "/certificate.pem", kKeyFile[] = "/key.pem",
               kTokensFile[] = "/tokens", kIssuedFile[] = "/issued", kDeniedFile[] = "/denied";
constexpr int64_t kTokensKeptS = 7 * kDayS;  // after their end, for the message
constexpr size_t kTokensMax = 10'000, kIssuedMax = 30'000;
constexpr char kNoName[] = "*";

// An absent file is an empty one.
Result<std::string> content(const std::string& path) {
  Result<std::string> text = read_file(path, Secrecy::kSecret);
  if (!text.ok() && text.status().code() == Code::kNotFound) return std::string();
  return text;
}

Status damaged(const std::string& path) {
  return Status(Code::kInvalid, "'" + path + "' is damaged; restore it, or make a new authority");
}

}  // namespace

struct Authority::TokenRecord {
  std::string id, digest;
  Role role = Role::kUser;
  std::string name;
  int64_t ends_s = 0, lifetime_s = 0, used_s = 0;
};

int64_t default_lifetime_s(Role role) {
  return role == Role::kServer || role == Role::kMetrics ? kServerLifetimeS : kUserLifetimeS;
}

bool Authority::is_in(const std::string& folder) { return exists(folder + kCertificateFile); }

Result<std::unique_ptr<Authority>> Authority::create(const std::string& folder,
                                                     const std::string& pool, int64_t now_s) {
  Status made = check_pool(pool);
  if (made.ok()) made = make_folder(folder);
  if (!made.ok()) return made;
  Result<base::Fd> lock = lock_folder(folder);
  if (!lock.ok()) return lock.status();
  if (is_in(folder)) return Status(Code::kInvalid, "'" + folder + "' has an authority already");
  Result<Key> key = make_key();
  if (!key.ok()) return key.status();
  Result<Certificate> certificate = make_authority(*key, pool, now_s);
  if (!certificate.ok()) return certificate.status();
  Result<std::string> text = key_text(*key);
  if (!text.ok()) return text.status();
  made = write_file(folder + kKeyFile, *text, Secrecy::kSecret);
  // The certificate is last: with it the authority is there.
  if (made.ok())
    made = write_file(folder + kCertificateFile, certificate_text(*certificate), Secrecy::kPublic);
  if (!made.ok()) return made;
  return std::unique_ptr<Authority>(new Authority(folder, certificate.take(), key.take(), pool));
}

Result<std::unique_ptr<Authority>> Authority::open(const std::string& folder) {
  if (!is_in(folder)) {
    return Status(Code::kNotFound,
                  "there is no authority in '" + folder + "'; `tendril identity init` makes one");
  }
  Result<std::string> text = read_file(folder + kCertificateFile, Secrecy::kPublic);
  if (!text.ok()) return text.status();
  Result<Certificate> certificate = read_certificate(*text);
  if (!certificate.ok()) return certificate.status();
  Result<std::string> key_file = read_file(folder + kKeyFile, Secrecy::kSecret);
  if (!key_file.ok()) return key_file.status();
  Result<Key> key = read_key(*key_file);
  if (!key.ok()) return key.status();
  Result<std::string> pool = authority_pool(*certificate);
  if (!pool.ok()) return pool.status();
  if (!is_key_of(*key, *certificate)) return damaged(folder + kKeyFile);
  return std::unique_ptr<Authority>(
      new Authority(folder, certificate.take(), key.take(), pool.take()));
}

Result<std::vector<Authority::TokenRecord>> Authority::tokens(int64_t now_s) const {
  const std::string path = folder_ + kTokensFile;
  Result<std::string> text = content(path);
  if (!text.ok()) return text.status();
  std::vector<TokenRecord> records;
  for (const auto& words : words_of_lines(*text)) {
    TokenRecord record;
    if (words.size() != 7 || !read_role(words[2], &record.role) ||
        !read_seconds(words[4], &record.ends_s) || !read_seconds(words[5], &record.lifetime_s) ||
        !read_seconds(words[6], &record.used_s)) {
      return damaged(path);
    }
    record.id = words[0];
    record.digest = words[1];
    record.name = words[3] == kNoName ? "" : words[3];
    if (record.ends_s + kTokensKeptS >= now_s) records.push_back(std::move(record));
  }
  return records;
}

Status Authority::keep_tokens(const std::vector<TokenRecord>& records) const {
  std::string text;
  for (const TokenRecord& record : records) {
    text += record.id + " " + record.digest + " " + role_text(record.role) + " " +
            (record.name.empty() ? kNoName : record.name) + " " + std::to_string(record.ends_s) +
            " " + std::to_string(record.lifetime_s) + " " + std::to_string(record.used_s) + "\n";
  }
  return write_file(folder_ + kTokensFile, text, Secrecy::kSecret);
}

Result<std::vector<Authority::IssuedRecord>> Authority::issued(int64_t now_s) const {
  Result<std::vector<IssuedRecord>> records = recent(now_s);
  if (records.ok()) {
    records->erase(
        std::remove_if(records->begin(), records->end(),
                       [now_s](const IssuedRecord& record) { return record.ends_s < now_s; }),
        records->end());
  }
  return records;
}

Result<std::vector<Authority::IssuedRecord>> Authority::recent(int64_t now_s) const {
  const std::string path = folder_ + kIssuedFile;
  Result<std::string> text = content(path);
  if (!text.ok()) return text.status();
  Result<DenyList> denied_now = denied(now_s);
  if (!denied_now.ok()) return denied_now.status();
  std::vector<IssuedRecord> records;
  for (const auto& words : words_of_lines(*text)) {
    IssuedRecord record;
    record.name.pool = pool_;
    if (words.size() != 7 || !is_serial(words[0]) || !read_role(words[1], &record.name.role) ||
        !check_name(words[2]).ok() || !read_seconds(words[3], &record.issued_s) ||
        !read_seconds(words[4], &record.ends_s) || !read_seconds(words[5], &record.lifetime_s)) {
      return damaged(path);
    }
    record.serial = words[0];
    record.name.name = words[2];
    record.by = words[6];
    record.denied = denied_now->has(record.serial);
    if (record.ends_s + kGraceMaxS >= now_s) records.push_back(std::move(record));
  }
  return records;
}

Status Authority::keep_issued(const std::vector<IssuedRecord>& records) const {
  std::string text;
  for (const IssuedRecord& record : records) {
    text += record.serial + " " + role_text(record.name.role) + " " + record.name.name + " " +
            std::to_string(record.issued_s) + " " + std::to_string(record.ends_s) + " " +
            std::to_string(record.lifetime_s) + " " + record.by + "\n";
  }
  return write_file(folder_ + kIssuedFile, text, Secrecy::kSecret);
}

Result<DenyList> Authority::denied(int64_t now_s) const {
  Result<std::string> text = content(folder_ + kDeniedFile);
  if (!text.ok()) return text.status();
  Result<DenyList> list = DenyList::read(*text);
  if (list.ok()) list->prune(now_s);
  return list;
}

Result<JoinToken> Authority::invite(const Invitation& invitation, int64_t now_s) {
  if (!invitation.name.empty()) {
    Status fits = check_name(invitation.name);
    if (!fits.ok()) return fits;
  } else if (invitation.role != Role::kUser) {
    return Status(Code::kInvalid, std::string("an invitation for the role ") +
                                      role_text(invitation.role) + " needs a name");
  }
  Result<base::Fd> lock = lock_folder(folder_);
  if (!lock.ok()) return lock.status();
  Result<std::vector<TokenRecord>> records = tokens(now_s);
  if (!records.ok()) return records.status();
  if (records->size() >= kTokensMax)
    return Status(Code::kExhausted, "too many join tokens wait; they end by themselves");
  Result<JoinToken> token = make_join_token(pin());
  if (!token.ok()) return token.status();
  TokenRecord record;
  record.id = token->id;
  record.digest = join_token_digest(token->id, token->secret);
  record.role = invitation.role;
  record.name = invitation.name;
  record.ends_s = now_s + invitation.valid_s;
  record.lifetime_s =
      invitation.lifetime_s > 0 ? invitation.lifetime_s : default_lifetime_s(invitation.role);
  records->push_back(std::move(record));
  Status kept = keep_tokens(*records);
  if (!kept.ok()) return kept;
  return token;
}

// The caller holds the lock.
Result<Issued> Authority::issue_and_note(const Name& name, int64_t lifetime_s, const char* by,
                                         const std::string& request, int64_t now_s) {
  Result<std::vector<IssuedRecord>> records = recent(now_s);
  if (!records.ok()) return records.status();
  if (records->size() >= kIssuedMax)
    return Status(Code::kExhausted, "the authority has issued its maximum of certificates");
  Issued made;
  Result<Certificate> certificate =
      issue(certificate_, key_, request, Grant{name, now_s, lifetime_s});
  if (!certificate.ok()) return certificate.status();
  made.certificate = certificate.take();
  Result<Facts> facts = read_facts(made.certificate);
  if (!facts.ok()) return facts.status();
  made.facts = facts.take();
  IssuedRecord record;
  record.serial = made.facts.serial;
  record.name = name;
  record.issued_s = now_s;
  record.ends_s = made.facts.ends_s;
  record.lifetime_s = lifetime_s;
  record.by = by;
  records->push_back(std::move(record));
  Status kept = keep_issued(*records);
  if (!kept.ok()) return kept;
  return made;
}

Result<Issued> Authority::enroll(const std::string& id, const std::string& secret,
                                 const std::string& wished, const std::string& request,
                                 int64_t now_s) {
  Result<base::Fd> lock = lock_folder(folder_);
  if (!lock.ok()) return lock.status();
  Result<std::vector<TokenRecord>> records = tokens(now_s);
  if (!records.ok()) return records.status();
  const auto found = std::find_if(records->begin(), records->end(),
                                  [&](const TokenRecord& record) { return record.id == id; });
  const std::string ask = "; ask for a new one (`tendril identity invite`)";
  if (found == records->end()) {
    return Status(Code::kRefused,
                  "this authority gave out no such join token, or took it back" + ask);
  }
  if (!base::equal_in_constant_time(found->digest, join_token_digest(id, secret)))
    return Status(Code::kRefused, "the join token is wrong: its secret part does not match" + ask);
  if (found->used_s != 0) {
    return Status(Code::kRefused, "the join token was used already, at " +
                                      time_text(found->used_s) +
                                      ", and works once; if that was not you, tell an "
                                      "administrator, who can revoke what was issued" +
                                      ask);
  }
  if (now_s > found->ends_s) {
    return Status(Code::kRefused,
                  "the join token has expired: it ended at " + time_text(found->ends_s) + ask);
  }
  Name name{pool_, found->role, found->name.empty() ? wished : found->name};
  Status fits = check_name(name.name);
  if (!fits.ok()) return fits;
  if (found->name.empty()) {
    Result<std::vector<IssuedRecord>> others = issued(now_s);
    if (!others.ok()) return others.status();
    for (const IssuedRecord& other : *others) {
      if (other.name.name != name.name || other.denied) continue;
      return Status(Code::kRefused,
                    "the name '" + name.name + "' is taken; choose another one with --name");
    }
  }
  Result<Issued> made = issue_and_note(name, found->lifetime_s, "token", request, now_s);
  if (!made.ok()) return made;
  found->used_s = now_s;
  Status kept = keep_tokens(*records);
  if (!kept.ok()) return kept;
  return made;
}

Result<Issued> Authority::renew(const Facts& old, const std::string& request, int64_t now_s) {
  Result<base::Fd> lock = lock_folder(folder_);
  if (!lock.ok()) return lock.status();
  Result<std::vector<IssuedRecord>> records = issued(now_s);
  if (!records.ok()) return records.status();
  for (const IssuedRecord& record : *records) {
    if (record.serial != old.serial || record.name != old.name) continue;
    if (record.denied) break;
    if (record.by == "provider") {
      return Status(Code::kRefused,
                    "this certificate was given for a provider's token and is not renewed; run "
                    "`tendril login` again");
    }
    return issue_and_note(record.name, record.lifetime_s, "renewal", request, now_s);
  }
  return Status(Code::kRefused, "the certificate of " + old.name.text() +
                                    " was taken back, or this authority did not issue it; it is "
                                    "not renewed");
}

Result<Issued> Authority::grant(const Name& name, int64_t lifetime_s, By by,
                                const std::string& request, int64_t now_s) {
  Result<base::Fd> lock = lock_folder(folder_);
  if (!lock.ok()) return lock.status();
  return issue_and_note(name, lifetime_s, by == By::kOwner ? "owner" : "provider", request, now_s);
}

Result<size_t> Authority::revoke(const std::string& whom, int64_t now_s) {
  Result<base::Fd> lock = lock_folder(folder_);
  if (!lock.ok()) return lock.status();
  Result<std::vector<IssuedRecord>> records = recent(now_s);
  if (!records.ok()) return records.status();
  Result<DenyList> list = denied(now_s);
  if (!list.ok()) return list.status();
  Result<std::vector<TokenRecord>> waiting = tokens(now_s);
  if (!waiting.ok()) return waiting.status();
  const auto is_meant = [&](Role role, const std::string& name) {
    return !name.empty() && (whom == name || whom == std::string(role_text(role)) + "/" + name);
  };
  size_t count = 0;
  for (const IssuedRecord& record : *records) {
    if (whom != record.serial && !is_meant(record.name.role, record.name.name)) continue;
    if (!record.denied) ++count;
    list->add(record.serial, record.ends_s);
  }
  const size_t before = waiting->size();
  waiting->erase(std::remove_if(waiting->begin(), waiting->end(),
                                [&](const TokenRecord& record) {
                                  return record.used_s == 0 &&
                                         (whom == record.id || is_meant(record.role, record.name));
                                }),
                 waiting->end());
  count += before - waiting->size();
  if (list->size() > DenyList::kEntriesMax) {
    return Status(Code::kExhausted,
                  "too many certificates were taken back; make a new authority instead");
  }
  Status kept = write_file(folder_ + kDeniedFile, list->text(), Secrecy::kSecret);
  if (kept.ok() && before != waiting->size()) kept = keep_tokens(*waiting);
  if (!kept.ok()) return kept;
  if (count == 0) {
    return Status(Code::kNotFound, "nothing to take back: '" + base::printable(whom) +
                                       "' is no name, serial number or token with something valid");
  }
  return count;
}

}  // namespace tendril::identity
