// SPDX-License-Identifier: Apache-2.0
// See host_store.h.
#include "worker/cuda/parking/host_store.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace tendril::worker::cuda {

// Has a place for each, and nothing else. False: there is no room, and nothing is kept.
bool HostStore::make_room(const std::vector<Lot>& lots) {
  std::set<std::pair<uint64_t, uint64_t>> wanted;
  for (const Lot& lot : lots)
    for (const Range& range : lot) wanted.insert({range.address, range.bytes});
  for (auto at = copies_.begin(); at != copies_.end();) {
    if (wanted.count({at->first, at->second.bytes}) != 0) {
      ++at;
      continue;
    }
    pages_.give_back(at->second.data, at->second.bytes);
    at = copies_.erase(at);
  }
  for (const auto& [address, bytes] : wanted) {
    Copy& copy = copies_[address];
    if (copy.data != nullptr) continue;
    copy.data = pages_.take(bytes);
    copy.bytes = bytes;
    if (copy.data != nullptr) continue;
    drop();
    return false;
  }
  pages_.trim();
  return true;
}

void HostStore::add(const Range& range, Copy* copy, size_t lot, CopyJob* job) {
  for (uint64_t at = 0; at < range.bytes; at += CopyJob::kPieceBytesMax) {
    CopyJob::Piece piece;
    piece.address = range.address + at;
    piece.bytes = std::min(CopyJob::kPieceBytesMax, range.bytes - at);
    piece.context = range.context;
    piece.lot = lot;
    piece.fresh = copy->fresh;
    if (copy->data != nullptr) {
      piece.data = copy->data + at;
    } else {
      piece.offset = copy->offset + at;
      piece.seal = &copy->seals[at / CopyJob::kPieceBytesMax];
    }
    job->add(piece);
  }
}

void HostStore::use_file(std::unique_ptr<ParkFile> file) {
  drop();
  file_ = std::move(file);
}

// One behind the other. tendrild has made the file as large as what the session has.
void HostStore::lay_out(const std::vector<Lot>& lots) {
  copies_.clear();
  uint64_t offset = 0;
  for (const Lot& lot : lots) {
    for (const Range& range : lot) {
      Copy& copy = copies_[range.address];
      copy.bytes = range.bytes;
      copy.offset = offset;
      copy.seals.resize((range.bytes + CopyJob::kPieceBytesMax - 1) / CopyJob::kPieceBytesMax);
      offset += range.bytes;
    }
  }
}

void HostStore::note_current(const Lot& lot) {
  for (const Range& range : lot) {
    Copy& copy = copies_[range.address];
    copy.current = true;
    copy.fresh = false;
  }
  any_current_ = any_current_ || !lot.empty();
}

CUresult HostStore::save(const std::vector<Lot>& lots, const Step& begin, const Step& saved) {
  if (file_ != nullptr)
    lay_out(lots);
  else if (!make_room(lots))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CopyJob job(driver_, staging_, file_.get(), true);
  job.watch(progress_);
  for (size_t lot = 0; lot < lots.size(); ++lot) {
    for (const Range& range : lots[lot]) {
      Copy& copy = copies_.at(range.address);
      if (!copy.current) add(range, &copy, lot, &job);
    }
  }
  return job.run(lots.size(), begin, [&](size_t lot) {
    for (const Range& range : lots[lot])
      copied_bytes_ += copies_.at(range.address).current ? 0 : range.bytes;
    note_current(lots[lot]);
    return saved ? saved(lot) : CUDA_SUCCESS;
  });
}

CUresult HostStore::load(const std::vector<Lot>& lots, const Step& make, const Step& loaded) {
  CopyJob job(driver_, staging_, file_.get(), false);
  job.watch(progress_);
  for (size_t lot = 0; lot < lots.size(); ++lot) {
    for (const Range& range : lots[lot]) {
      const auto copy = copies_.find(range.address);
      if (copy == copies_.end() || !copy->second.current || copy->second.bytes != range.bytes)
        return CUDA_ERROR_INVALID_VALUE;
      add(range, &copy->second, lot, &job);
    }
  }
  return job.run(lots.size(), make, loaded);
}

const uint8_t* HostStore::find(uint64_t address, uint64_t* bytes) const {
  const auto after = copies_.upper_bound(address);
  if (after == copies_.begin()) return nullptr;
  const auto& [start, copy] = *std::prev(after);
  const uint64_t offset = address - start;
  if (!copy.current || copy.data == nullptr || offset >= copy.bytes) return nullptr;
  *bytes = copy.bytes - offset;
  return copy.data + offset;
}

bool HostStore::has(uint64_t address, uint64_t bytes) const {
  if (bytes > UINT64_MAX - address) return false;
  uint64_t found = 0;
  read(address, bytes, [&](uint64_t, const uint8_t*, uint64_t size) { found += size; });
  return found == bytes;
}

bool HostStore::has(const Lot& lot) const {
  return std::all_of(lot.begin(), lot.end(),
                     [this](const Range& range) { return has(range.address, range.bytes); });
}

void HostStore::wrote(uint64_t address, uint64_t bytes) {
  auto at = copies_.upper_bound(address);
  if (at != copies_.begin()) --at;
  for (; at != copies_.end() && (at->first <= address || at->first - address < bytes); ++at) {
    if (at->first + at->second.bytes > address) at->second.current = false;
  }
}

void HostStore::wrote() {
  for (auto& [address, copy] : copies_) copy.current = false;
  any_current_ = false;
}

void HostStore::drop() {
  copies_.clear();
  pages_.drop();
  file_.reset();
  any_current_ = false;
}

}  // namespace tendril::worker::cuda
