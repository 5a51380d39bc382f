// SPDX-License-Identifier: Apache-2.0
// See history_chunk.h. Numbers are of variable length, seven bits to a byte, and each text and each
// run of a server is written once: a row of a lease takes about fifty bytes.
#include "pool/accounting/history_chunk.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace tendril::pool {
namespace {

constexpr uint64_t kVersion = 1;
constexpr size_t kTextsMax = 65'536, kTextBytesMax = 256, kGapsMax = 1024;
constexpr std::string HistoryWho::*kTexts[] = {&HistoryWho::server,     &HistoryWho::owner_id,
                                               &HistoryWho::owner,      &HistoryWho::account,
                                               &HistoryWho::user_class, &HistoryWho::gpu_class};

void put(uint64_t value, std::string* bytes) {
  for (; value >= 0x80; value >>= 7) bytes->push_back(char(value | 0x80));
  bytes->push_back(char(value));
}

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ >= bytes_.size()) break;
      const auto byte = uint8_t(bytes_[at_++]);
      value |= uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    failed_ = true;
    return 0;
  }
  // At most `most`, and each of them takes a byte at least.
  size_t count(size_t most) {
    const uint64_t value = number();
    if (value > most || value > bytes_.size() - at_) failed_ = true;
    return failed_ ? 0 : size_t(value);
  }
  std::string text() {
    const size_t size = count(kTextBytesMax);
    const size_t from = at_;
    at_ += size;
    return bytes_.substr(from, size);
  }
  // An entry of a table.
  size_t index(size_t size) {
    const uint64_t value = number();
    if (value >= size) failed_ = true;
    return failed_ ? 0 : size_t(value);
  }
  bool ok() const { return !failed_; }
  bool at_end() const { return !failed_ && at_ == bytes_.size(); }

 private:
  const std::string& bytes_;
  size_t at_ = 0;
  bool failed_ = false;
};

// Numbers for things as they come. Rows that follow each other often have the same ones.
template <typename T, typename View>
class Table {
 public:
  // `last`: the number that this gave to the row before.
  uint64_t number(View value, uint64_t last) {
    if (last < all_.size() && View(all_[last]) == value) return last;
    auto found = numbers_.find(value);
    if (found == numbers_.end()) {
      found = numbers_.emplace(T(value), all_.size()).first;
      all_.emplace_back(value);
    }
    return found->second;
  }
  const std::vector<T>& all() const { return all_; }

 private:
  std::map<T, uint64_t, std::less<>> numbers_;
  std::vector<T> all_;
};
using Texts = Table<std::string, std::string_view>;
using Boots = Table<uint64_t, uint64_t>;

// Of the row before.
struct Numbers {
  uint64_t boot = 0, texts[std::size(kTexts)] = {};
};

void put_row(const HistoryRow& row, uint64_t upto_ns, Texts* texts, Boots* boots, Numbers* last,
             std::string* bytes) {
  put(last->boot = boots->number(row.who.boot, last->boot), bytes);
  for (size_t i = 0; i < std::size(kTexts); ++i) {
    const std::string_view text = std::string_view(row.who.*kTexts[i]).substr(0, kTextBytesMax);
    put(last->texts[i] = texts->number(text, last->texts[i]), bytes);
  }
  put(row.who.lease, bytes);
  put(row.who.server_lease, bytes);
  put(upto_ns - std::min(upto_ns, row.to_ns), bytes);
  put(row.to_ns - std::min(row.to_ns, row.from_ns), bytes);
  uint64_t present = (row.last ? 1 : 0) | (row.untold ? 2 : 0);
  for (size_t i = 0; i < std::size(kSumFields); ++i) {
    if (row.sums.*kSumFields[i].second != 0) present |= uint64_t(4) << i;
  }
  put(present, bytes);
  for (const auto& [name, field] : kSumFields) {
    if (row.sums.*field != 0) put(row.sums.*field, bytes);
  }
}

void read_row(Reader* in, uint64_t upto_ns, const std::vector<std::string>& texts,
              const std::vector<uint64_t>& boots, HistoryRow* row) {
  const size_t boot = in->index(boots.size());
  if (!in->ok()) return;
  row->who.boot = boots[boot];
  for (const auto text : kTexts) {
    const size_t index = in->index(texts.size());
    if (!in->ok()) return;
    row->who.*text = texts[index];
  }
  row->who.lease = in->number();
  row->who.server_lease = in->number();
  row->to_ns = upto_ns - std::min(upto_ns, in->number());
  row->from_ns = row->to_ns - std::min(row->to_ns, in->number());
  const uint64_t present = in->number();
  row->last = (present & 1) != 0;
  row->untold = (present & 2) != 0;
  for (size_t i = 0; i < std::size(kSumFields); ++i) {
    if ((present & (uint64_t(4) << i)) != 0) row->sums.*kSumFields[i].second = in->number();
  }
}

// How much of `total` belongs to the first `part` of `whole`.
uint64_t share_of(uint64_t total, uint64_t part, uint64_t whole) {
  if (part >= whole) return total;
  return uint64_t(static_cast<unsigned __int128>(total) * part / whole);
}

}  // namespace

std::string pack_chunk(const HistoryChunk& chunk) {
  Texts texts;
  Boots boots;
  Numbers last;
  std::string rows;
  for (const HistoryRow& row : chunk.rows)
    put_row(row, chunk.upto_ns, &texts, &boots, &last, &rows);
  std::string bytes;
  put(kVersion, &bytes);
  put(chunk.upto_ns, &bytes);
  put(chunk.gaps.size(), &bytes);
  for (const HistoryGap& gap : chunk.gaps) {
    put(gap.from_ns, &bytes);
    put(gap.to_ns, &bytes);
  }
  put(texts.all().size(), &bytes);
  for (const std::string& text : texts.all()) {
    put(text.size(), &bytes);
    bytes += text;
  }
  put(boots.all().size(), &bytes);
  for (const uint64_t boot : boots.all()) put(boot, &bytes);
  put(chunk.rows.size(), &bytes);
  return bytes + rows;
}

bool unpack_chunk(const std::string& bytes, HistoryChunk* chunk) {
  *chunk = HistoryChunk();
  Reader in(bytes);
  if (bytes.size() > kChunkBytesMax || in.number() != kVersion) return false;
  chunk->upto_ns = in.number();
  const size_t gaps = in.count(kGapsMax);
  for (size_t i = 0; i < gaps; ++i) {
    const uint64_t from_ns = in.number();
    chunk->gaps.push_back({from_ns, in.number()});
  }
  std::vector<std::string> texts(in.count(kTextsMax));
  for (std::string& text : texts) text = in.text();
  std::vector<uint64_t> boots(in.count(kTextsMax));
  for (uint64_t& boot : boots) boot = in.number();
  const size_t rows = in.count(kChunkRowsMax);
  for (size_t i = 0; i < rows && in.ok(); ++i) {
    read_row(&in, chunk->upto_ns, texts, boots, &chunk->rows.emplace_back());
  }
  return in.at_end();
}

UsedSums part_of(const HistoryRow& row, uint64_t from_ns, uint64_t to_ns) {
  const uint64_t whole = std::max<uint64_t>(1, row.to_ns - std::min(row.to_ns, row.from_ns));
  const auto within = [&](uint64_t at_ns) {
    return std::min(whole, at_ns - std::min(at_ns, row.from_ns));
  };
  const uint64_t from = within(from_ns), to = std::max(from, within(to_ns));
  UsedSums part;
  for (const auto& [name, field] : kSumFields) {
    const uint64_t total = row.sums.*field;
    if (field == &UsedSums::leases || field == &UsedSums::waited_ns) {
      part.*field = from == 0 && to > 0 ? total : 0;
    } else {
      part.*field = share_of(total, to, whole) - share_of(total, from, whole);
    }
  }
  return part;
}

}  // namespace tendril::pool
