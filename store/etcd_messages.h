// SPDX-License-Identifier: Apache-2.0
// Private to etcd.cc: what etcd's JSON gateway is asked and answers. Keys and values travel as
// base64, 64-bit numbers as text, and what is false, empty or 0 is left out. Answers are read
// strictly, because anybody may stand at the address. Pure. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/store.h"

namespace tendril::store::etcd {

// The first key after all that begin with `prefix`; "\0" where there is none, as etcd wants it.
std::string prefix_end(const std::string& prefix);

// A value as etcd keeps it. `created`: the revision of its key's creation; `lease`: 0 for none.
struct KeyValue {
  std::string key, value;
  uint64_t created = 0, modified = 0, lease = 0;
};

// Requests.
std::string grant(uint64_t lease, uint32_t ttl_s);
std::string lease_only(uint64_t lease);  // keepalive, revoke
std::string range(const std::string& key, const std::string& end, size_t limit);
std::string authenticate(const std::string& user, const std::string& password);
// Creates `lock` with the value under the lease, if it is not there. Otherwise reads it.
std::string take_lock(const std::string& lock, const std::string& value, uint64_t lease);
// Applies the changes if `lock` was created by revision `term` and all expected revisions are
// there. Otherwise reads `lock` and then each key that was to change. Keys come as etcd has them.
std::string guarded(const std::string& lock, uint64_t term, const std::vector<Change>& changes);

// Answers. kInvalid: this is not what etcd answers.
struct RangeAnswer {
  std::vector<KeyValue> found;
  bool more = false;
};
struct TxnAnswer {
  bool succeeded = false;
  uint64_t revision = 0;
  std::vector<std::optional<KeyValue>> ranges;  // one for each question; none: no such key
};
base::Result<RangeAnswer> read_range(const std::string& body);
base::Result<TxnAnswer> read_txn(const std::string& body);
// The seconds that a lease has after keepalive; 0: it is over.
base::Result<uint64_t> read_keepalive(const std::string& body);
base::Result<std::string> read_token(const std::string& body);

// What etcd says when it does not do what it is asked.
struct Refusal {
  int code = 0;         // gRPC's
  std::string message;  // printable
};
// Always answers something, whatever the body is.
Refusal read_refusal(int http_status, const std::string& body);

}  // namespace tendril::store::etcd
