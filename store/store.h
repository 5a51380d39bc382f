// SPDX-License-Identifier: Apache-2.0
// What must outlive a scheduler: keys with values, and the scheduler's lock. A store is SQLite on
// this machine, etcd, or a test's (store/testing/). All calls block until the deadline at most. Any
// thread may call; calls of several threads take turns.
//
// Whoever holds the lock has a term. Each new holder's term is higher than all before. Every write
// carries the term, and the store refuses writes of any other: who was deposed cannot write. Reads
// need no term.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace tendril::store {

// Limits that every store keeps, so that what one accepts another does, too. etcd takes 128 changes
// and 1.5 MiB at once.
inline constexpr size_t kChangesMax = 100;
inline constexpr size_t kWriteBytesMax = 1u << 20;  // keys and values of one write
inline constexpr size_t kValueBytesMax = 768u << 10;
inline constexpr size_t kKeyBytesMax = 512;
inline constexpr size_t kHolderBytesMax = 2048;
inline constexpr size_t kPageEntriesMax = 1000;

// What a code of a Status of this room means. The message says what happened and what to do.
//   kExhausted    the store is full (disk, etcd's quota). The write that fills etcd is applied, and
//                 refused in its answer
//   kUnavailable  the store cannot be reached, or has no quorum. Nothing was written
//   kTimeout      it did not answer in time. A write may have been applied: repeat it
//   kInternal     the store is damaged
//   kRefused      another scheduler has the lock (the term is over), or the store refuses us
//   kMismatch     a guarded key has another revision than was expected. Nothing was written
//   kNotFound     no such key
//   kInvalid      the call keeps no limit from above
//   kUnsupported  the store is of another version, or of something else
// After kExhausted, kUnavailable and kTimeout it makes sense to repeat the same call.
bool worth_repeating(const base::Status& status);

struct Entry {
  std::string key;
  std::string value;
  uint64_t revision = 0;  // of the write that last changed it; above 0, and growing
};

struct Page {
  std::vector<Entry> entries;  // in order of their keys, as bytes
  bool more = false;           // ask again with after = entries.back().key
};

struct Change {
  std::string key;
  std::optional<std::string> value;  // none: the key is erased, if it is there
  std::optional<uint64_t> revision;  // none: whatever it has; 0: the key must not be there
};

// Who has the lock.
struct Leadership {
  bool held = false;  // false: nobody has it, and the rest says nothing
  bool mine = false;  // this Store has it
  uint64_t term = 0;
  std::string holder;  // what the holder said of itself when it campaigned
  // If mine: until when it is certain that nobody else gets the lock, by base::now_ns(). After
  // that the holder must not act until `keep` has answered.
  uint64_t certain_until_ns = 0;
};

class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  // Gives the lock back, if it is held and the store answers at once.
  virtual ~Store() = default;

  // For messages: "sqlite:/var/lib/tendril/pool.db", "etcd://a:2379,b:2379".
  virtual std::string address() const = 0;

  // kNotFound: there is no such key.
  virtual base::Result<Entry> get(const std::string& key, const base::Deadline& deadline) = 0;
  // Keys that begin with `prefix` and come after `after`, at most `entries` of them (1 to
  // kPageEntriesMax). A page may have fewer; `more` says whether another follows. A list of several
  // pages is consistent if nothing is written meanwhile: at the start of a term, nobody else can.
  virtual base::Result<Page> list(const std::string& prefix, const std::string& after,
                                  size_t entries, const base::Deadline& deadline) = 0;

  // All changes or none, and only if `term` is this Store's and not over. When it answers with
  // success, the changes outlive a crash of everything. Repeating a write after kTimeout is safe:
  // where all keys already are as the changes want them, expected revisions no longer matter. No
  // key may come twice.
  virtual base::Status write(uint64_t term, const std::vector<Change>& changes,
                             const base::Deadline& deadline) = 0;

  // Takes the lock if nobody has it. `holder` is what others read in Leadership. A holder that
  // neither keeps nor resigns loses the lock `ttl_ms` later (2,000 at least; a dead process of this
  // machine may lose it at once). Answers who has the lock now. Asking again as its holder is
  // `keep`.
  virtual base::Result<Leadership> campaign(const std::string& holder, uint32_t ttl_ms,
                                            const base::Deadline& deadline) = 0;
  // Holds the lock for another ttl_ms; to be called every third of that. kRefused: it is lost, and
  // so is the term.
  virtual base::Result<Leadership> keep(uint64_t term, const base::Deadline& deadline) = 0;
  // Gives the lock back; another may have it at once. Success if it was lost before.
  virtual base::Status resign(uint64_t term, const base::Deadline& deadline) = 0;
  virtual base::Result<Leadership> leader(const base::Deadline& deadline) = 0;
};

// Whether the arguments keep the limits; otherwise kInvalid with what does not. For stores.
base::Status check_write(const std::vector<Change>& changes);
base::Status check_key(const std::string& key);
base::Status check_list(const std::string& prefix, const std::string& after, size_t entries);
base::Status check_campaign(const std::string& holder, uint32_t ttl_ms);

// All pages of a list, one after the other.
base::Result<std::vector<Entry>> list_all(Store& store, const std::string& prefix,
                                          const base::Deadline& deadline);

}  // namespace tendril::store
