// SPDX-License-Identifier: Apache-2.0
// See etcd.h. Below the prefix, data lies under v1/data/ and the lock is v1/lock.
#include "store/etcd.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/text.h"
#include "identity/web/line.h"
#include "store/etcd_gateway.h"
#include "store/etcd_messages.h"

namespace tendril::store {

using base::Code;
using base::Deadline;
using base::Result;
using base::Status;

namespace {

using Guard = std::lock_guard<std::mutex>;

class EtcdStore : public Store {
 public:
  explicit EtcdStore(const EtcdOptions& options)
      : gateway_(options),
        data_(options.prefix + "/v1/data/"),
        lock_(options.prefix + "/v1/lock") {}
  ~EtcdStore() override;

  std::string address() const override { return gateway_.name(); }
  Result<Entry> get(const std::string& key, const Deadline& deadline) override;
  Result<Page> list(const std::string& prefix, const std::string& after, size_t entries,
                    const Deadline& deadline) override;
  Status write(uint64_t term, const std::vector<Change>& changes,
               const Deadline& deadline) override;
  Result<Leadership> campaign(const std::string& holder, uint32_t ttl_ms,
                              const Deadline& deadline) override;
  Result<Leadership> keep(uint64_t term, const Deadline& deadline) override;
  Status resign(uint64_t term, const Deadline& deadline) override;
  Result<Leadership> leader(const Deadline& deadline) override;

 private:
  // All with mutex_ held.
  Result<Leadership> look(const Deadline& deadline);
  Leadership told(const etcd::KeyValue& lock);
  Result<Leadership> take(const std::string& holder, const Deadline& deadline);
  Result<Leadership> renew(const Deadline& deadline);
  Status give_back(const Deadline& deadline);
  void forget() { term_ = lease_ = certain_until_ns_ = 0; }
  Status deposed(uint64_t term, const Leadership& now) const;
  Status judge(uint64_t term, const std::vector<Change>& changes, const etcd::TxnAnswer& answer);
  std::string who() const { return gateway_.name() + ": "; }

  std::mutex mutex_;
  etcd::Gateway gateway_;
  const std::string data_, lock_;
  uint64_t lease_ = 0, term_ = 0;  // of our lock, 0: none. A lease alone: a try without its answer
  uint64_t certain_until_ns_ = 0;
  uint32_t ttl_ms_ = 0;
};

// A number for a lease of ours: with 63 bits it is nobody else's.
uint64_t new_lease() {
  uint64_t lease = 0;
  if (!base::random_bytes(&lease, sizeof lease)) return 0;
  return lease & INT64_MAX;
}

uint64_t after(uint64_t from_ns, uint32_t ms) { return from_ns + uint64_t{ms} * 1'000'000; }

EtcdStore::~EtcdStore() {
  const Guard guard(mutex_);
  if (lease_ != 0) (void)give_back(Deadline(500)).ok();
}

Result<Entry> EtcdStore::get(const std::string& key, const Deadline& deadline) {
  const Status checked = check_key(key);
  if (!checked.ok()) return checked;
  const Guard guard(mutex_);
  Result<std::string> body =
      gateway_.ask("/v3/kv/range", etcd::range(data_ + key, "", 1), deadline);
  if (!body.ok()) return body.status();
  Result<etcd::RangeAnswer> answer = etcd::read_range(*body);
  if (!answer.ok()) return Status(answer.status().code(), who() + answer.status().message());
  if (answer->found.empty())
    return Status(Code::kNotFound, who() + "there is no '" + base::printable(key) + "'");
  etcd::KeyValue& found = answer->found[0];
  if (found.key != data_ + key) return Status(Code::kInvalid, who() + "answers another question");
  return Entry{key, std::move(found.value), found.modified};
}

Result<Page> EtcdStore::list(const std::string& prefix, const std::string& after, size_t entries,
                             const Deadline& deadline) {
  const Status checked = check_list(prefix, after, entries);
  if (!checked.ok()) return checked;
  const Guard guard(mutex_);
  const std::string end = etcd::prefix_end(data_ + prefix);
  const std::string begin =
      std::max(data_ + prefix, after.empty() ? data_ : data_ + after + std::string(1, '\0'));
  Page page;
  if (begin >= end) return page;
  for (size_t limit = entries;; limit /= 4) {
    Result<std::string> body =
        gateway_.ask("/v3/kv/range", etcd::range(begin, end, limit), deadline);
    // Large values: smaller pages.
    if (!body.ok() && body.status().code() == Code::kExhausted && limit > 1) {
      if (limit < 4) limit = 4;
      continue;
    }
    if (!body.ok()) return body.status();
    Result<etcd::RangeAnswer> answer = etcd::read_range(*body);
    if (!answer.ok()) return Status(answer.status().code(), who() + answer.status().message());
    page.more = answer->more;
    for (etcd::KeyValue& found : answer->found) {
      if (found.key < begin || found.key >= end || found.key.size() < data_.size())
        return Status(Code::kInvalid, who() + "answers another question");
      page.entries.push_back(
          {found.key.substr(data_.size()), std::move(found.value), found.modified});
    }
    return page;
  }
}

Status EtcdStore::write(uint64_t term, const std::vector<Change>& changes,
                        const Deadline& deadline) {
  const Status checked = check_write(changes);
  if (!checked.ok()) return checked;
  const Guard guard(mutex_);
  if (term_ == 0 || term_ != term) {
    Result<Leadership> now = look(deadline);
    return now.ok() ? deposed(term, *now) : now.status();
  }
  std::vector<Change> whole = changes;
  for (Change& change : whole) change.key = data_ + change.key;
  Result<std::string> body =
      gateway_.ask("/v3/kv/txn", etcd::guarded(lock_, term, whole), deadline);
  if (body.status().code() == Code::kTimeout)
    return Status(Code::kTimeout,
                  body.status().message() + " (the write may be there all the same)");
  if (!body.ok()) return body.status();
  Result<etcd::TxnAnswer> answer = etcd::read_txn(*body);
  // The write may have been applied all the same.
  if (!answer.ok()) return Status(Code::kTimeout, who() + answer.status().message());
  return answer->succeeded ? Status() : judge(term, changes, *answer);
}

// Why a write was not applied. If everything is as it wants it, then an earlier try was.
Status EtcdStore::judge(uint64_t term, const std::vector<Change>& changes,
                        const etcd::TxnAnswer& answer) {
  if (answer.ranges.size() != changes.size() + 1)
    return Status(Code::kTimeout, who() + "the answer is not etcd's: it lacks keys");
  const std::optional<etcd::KeyValue>& lock = answer.ranges[0];
  if (!lock.has_value() || lock->created != term) {
    forget();
    return deposed(term, lock.has_value() ? told(*lock) : Leadership());
  }
  bool is_as_wanted = true;
  const Change* differs = nullptr;
  for (size_t i = 0; i < changes.size(); ++i) {
    const std::optional<etcd::KeyValue>& found = answer.ranges[i + 1];
    const Change& change = changes[i];
    is_as_wanted = is_as_wanted && found.has_value() == change.value.has_value() &&
                   (!found.has_value() || found->value == *change.value);
    const uint64_t revision = found.has_value() ? found->modified : 0;
    if (change.revision.has_value() && *change.revision != revision) differs = &change;
  }
  if (is_as_wanted) return Status();
  return Status(Code::kMismatch, who() + "'" +
                                     base::printable(differs == nullptr ? "a key" : differs->key) +
                                     "' was changed by somebody else");
}

Status EtcdStore::deposed(uint64_t term, const Leadership& now) const {
  return Status(Code::kRefused,
                who() + base::format("term %llu is over: ", static_cast<unsigned long long>(term)) +
                    (now.held ? base::printable(now.holder) +
                                    base::format(" schedules since term %llu",
                                                 static_cast<unsigned long long>(now.term))
                              : "nobody schedules now"));
}

// Nobody else has our lease. So a lock under it is ours, even if the answer to our taking it was
// lost.
Leadership EtcdStore::told(const etcd::KeyValue& lock) {
  if (lease_ != 0 && lock.lease == lease_) term_ = lock.created;
  Leadership now;
  now.held = true;
  now.term = lock.created;
  now.holder = base::printable(lock.value, kHolderBytesMax);
  now.mine = lease_ != 0 && lock.lease == lease_;
  if (now.mine) now.certain_until_ns = certain_until_ns_;
  return now;
}

Result<Leadership> EtcdStore::look(const Deadline& deadline) {
  Result<std::string> body = gateway_.ask("/v3/kv/range", etcd::range(lock_, "", 1), deadline);
  if (!body.ok()) return body.status();
  Result<etcd::RangeAnswer> answer = etcd::read_range(*body);
  if (!answer.ok()) return Status(answer.status().code(), who() + answer.status().message());
  if (answer->found.empty()) return Leadership();
  return told(answer->found[0]);
}

Result<Leadership> EtcdStore::campaign(const std::string& holder, uint32_t ttl_ms,
                                       const Deadline& deadline) {
  const Status checked = check_campaign(holder, ttl_ms);
  if (!checked.ok()) return checked;
  const Guard guard(mutex_);
  Result<Leadership> now = look(deadline);
  if (!now.ok()) return now;
  if (now->mine) return renew(deadline);
  if (now->held) return now;
  if (term_ != 0) forget();
  ttl_ms_ = ttl_ms;
  return take(holder, deadline);
}

// A try whose answer was lost may still be under way. So the next one uses the same lease: then the
// lock is ours, whichever of the two takes it.
Result<Leadership> EtcdStore::take(const std::string& holder, const Deadline& deadline) {
  const uint64_t from_ns = base::now_ns();
  const bool is_another_try = lease_ != 0;
  if (!is_another_try) lease_ = new_lease();
  if (lease_ == 0) return Status(Code::kInternal, "the kernel has no random numbers to give");
  Result<std::string> body =
      gateway_.ask("/v3/lease/grant", etcd::grant(lease_, (ttl_ms_ + 999) / 1000), deadline);
  // kMismatch: an earlier try has made the lease, as nobody else could.
  if (!body.ok() && body.status().code() != Code::kMismatch) return body.status();
  body = gateway_.ask("/v3/kv/txn", etcd::take_lock(lock_, holder, lease_), deadline);
  if (!body.ok() && body.status().code() == Code::kNotFound) {
    forget();
    return Status(Code::kUnavailable, who() + "the lease ended before it was used");
  }
  if (!body.ok()) return body.status();
  Result<etcd::TxnAnswer> answer = etcd::read_txn(*body);
  if (!answer.ok()) return Status(answer.status().code(), who() + answer.status().message());
  Leadership now;
  if (answer->succeeded) {
    term_ = answer->revision;
    now = {true, true, term_, holder, 0};
  } else if (!answer->ranges.empty() && answer->ranges[0].has_value()) {
    now = told(*answer->ranges[0]);
  }
  if (now.mine && is_another_try) return renew(deadline);  // the lease may be older than this try
  if (now.mine) {
    certain_until_ns_ = now.certain_until_ns = after(from_ns, ttl_ms_);
    return now;
  }
  (void)give_back(deadline).ok();
  return now;
}

Result<Leadership> EtcdStore::keep(uint64_t term, const Deadline& deadline) {
  const Guard guard(mutex_);
  if (term_ == 0 || term_ != term) {
    Result<Leadership> now = look(deadline);
    return now.ok() ? deposed(term, *now) : now.status();
  }
  return renew(deadline);
}

// Renews our lease, then looks whether the lock is still ours. Only the second needs a quorum.
Result<Leadership> EtcdStore::renew(const Deadline& deadline) {
  const uint64_t from_ns = base::now_ns(), term = term_;
  Result<std::string> body =
      gateway_.ask("/v3/lease/keepalive", etcd::lease_only(lease_), deadline);
  if (!body.ok()) return body.status();
  const Result<uint64_t> left_s = etcd::read_keepalive(*body);
  if (!left_s.ok()) return Status(left_s.status().code(), who() + left_s.status().message());
  Result<Leadership> now = look(deadline);
  if (!now.ok()) return now;
  if (left_s.value() == 0 || !now->mine || now->term != term) {
    forget();
    return deposed(term, now->mine && now->term == term ? Leadership() : *now);
  }
  const uint64_t left_ms = std::min<uint64_t>(ttl_ms_, left_s.value() * 1000);
  certain_until_ns_ = now->certain_until_ns = after(from_ns, uint32_t(left_ms));
  return now;
}

// The lock goes with its lease.
Status EtcdStore::give_back(const Deadline& deadline) {
  const uint64_t lease = lease_;
  forget();
  const Result<std::string> done =
      gateway_.ask("/v3/lease/revoke", etcd::lease_only(lease), deadline);
  return done.ok() || done.status().code() == Code::kNotFound ? Status() : done.status();
}

Status EtcdStore::resign(uint64_t term, const Deadline& deadline) {
  const Guard guard(mutex_);
  if (term_ == 0 || term_ != term) return Status();
  return give_back(deadline);
}

Result<Leadership> EtcdStore::leader(const Deadline& deadline) {
  const Guard guard(mutex_);
  return look(deadline);
}

}  // namespace

Result<std::unique_ptr<Store>> open_etcd(const EtcdOptions& options) {
  if (options.members.empty()) return Status(Code::kInvalid, "etcd: name a member as host:port");
  bool all_are_here = true;
  for (const std::string& member : options.members) {
    identity::Address address;
    if (!identity::read_address("http://" + member + "/", &address) || address.path != "/") {
      return Status(Code::kInvalid,
                    "etcd: '" + base::printable(member) + "' is no member: write host:port");
    }
    all_are_here = all_are_here && identity::is_loopback(address.host);
  }
  if (options.prefix.empty() || options.prefix.size() > 100)
    return Status(Code::kInvalid, "etcd: the prefix of keys has 1 to 100 characters");
  if (options.user.empty() != options.password.empty())
    return Status(Code::kInvalid, "etcd: user and password belong together");
  if (!options.user.empty() && !options.secure && !all_are_here) {
    return Status(Code::kInvalid,
                  "etcd: a password travels to other machines inside TLS only: write etcds://");
  }
  return std::unique_ptr<Store>(std::make_unique<EtcdStore>(options));
}

}  // namespace tendril::store
