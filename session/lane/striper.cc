// SPDX-License-Identifier: Apache-2.0
// See striper.h.
#include "session/lane/striper.h"

#include <algorithm>

#include "session/lane/service.h"

namespace tendril::session {

using base::Locked;
using base::Result;
using base::Status;

namespace {
constexpr uint64_t kChunkStep = 256u << 10;       // less does not justify another thread
constexpr uint64_t kReadBytes = 256u << 10;       // of a GPU's memory at once
constexpr uint64_t kLanePieceBytes = 512u << 10;  // fits a call and a frame
}  // namespace

ChunkPlan plan_chunks(uint64_t bytes, size_t channels) {
  ChunkPlan plan;
  plan.chunk_bytes = kLanePieceBytes;
  if (channels != 0) {
    plan.chunk_bytes = (bytes / channels + kChunkStep - 1) / kChunkStep * kChunkStep;
    plan.chunk_bytes =
        std::min<uint64_t>(std::max(plan.chunk_bytes, kChunkStep), wire::kChunkBytesMax);
  }
  plan.pieces = uint32_t((bytes + plan.chunk_bytes - 1) / plan.chunk_bytes);
  return plan;
}

void Striper::add(transport::Channel* channel) {
  lines_.push_back(std::make_unique<Line>());
  lines_.back()->channel = channel;
}

Status Striper::send(uint64_t transfer, const uint8_t* data, uint64_t begin, uint64_t end,
                     const ChunkPlan& plan, uint64_t shift, DeviceSource* device) {
  Job job;
  job.transfer = transfer;
  job.data = data;
  job.device = device;
  job.end = end;
  job.shift = shift;
  job.plan = plan;
  job.at.store(begin, std::memory_order_relaxed);
  bool shared = lines_.size() > 1 && end - begin > plan.chunk_bytes;
  if (shared) {
    start_helpers();
    {
      Locked locked(jobs_lock_);
      job.next = jobs_;
      jobs_ = &job;
    }
    job_event_.signal();
  }
  work(&job, true);
  if (shared) {
    {
      Locked locked(jobs_lock_);
      Job** link = &jobs_;
      while (*link != &job) link = &(*link)->next;
      *link = job.next;
    }
    for (;;) {  // helpers may still be reading the caller's memory
      uint32_t seen = done_event_.read();
      if (job.helpers.load(std::memory_order_acquire) == 0) break;
      done_event_.wait(seen, kPumpMs * 1000);
      if (stuck_ != nullptr) stuck_(stuck_argument_);
    }
  }
  return job.failed.load(std::memory_order_acquire) ? job.failure : Status();
}

void Striper::work(Job* job, bool caller) {
  for (;;) {
    uint64_t offset = job->at.fetch_add(job->plan.chunk_bytes, std::memory_order_relaxed);
    if (offset >= job->end || job->failed.load(std::memory_order_relaxed)) return;
    const uint64_t bytes = std::min(job->plan.chunk_bytes, job->end - offset);
    Status sent = send_chunk(*job, offset, bytes, caller);
    if (sent.ok()) {
      count(bytes);
      continue;
    }
    Locked locked(job->failure_lock);
    if (!job->failed.load(std::memory_order_relaxed)) job->failure = sent;
    job->failed.store(true, std::memory_order_release);
    return;
  }
}

Status Striper::send_chunk(const Job& job, uint64_t offset, uint64_t bytes, bool caller) {
  size_t count = lines_.size();
  size_t first = rotate_.fetch_add(1, std::memory_order_relaxed) % count;
  Line* line = nullptr;
  for (size_t i = 0; i < count && line == nullptr; ++i) {
    Line* candidate = lines_[(first + i) % count].get();
    if (candidate->lock.try_lock()) line = candidate;
  }
  if (line == nullptr) {
    line = lines_[first].get();
    line->lock.lock();
  }
  wire::ChunkHeader header{job.transfer, job.shift + offset, uint32_t(bytes), job.plan.pieces};
  iovec parts[2] = {{&header, sizeof header}, {nullptr, 0}};
  if (job.device == nullptr) parts[1] = {const_cast<uint8_t*>(job.data + offset), size_t(bytes)};
  Status sent = send_parts(line, parts, caller);
  if (sent.ok() && job.device != nullptr) sent = send_from_device(line, job, offset, bytes, caller);
  line->lock.unlock();
  return sent;
}

// Two of them. Whoever has the line's lock.
Status Striper::send_parts(Line* line, const iovec* parts, bool caller) {
  const size_t first = parts[0].iov_len, all = first + parts[1].iov_len;
  for (size_t done = 0; done < all;) {
    const size_t from_first = std::min(done, first), from_second = done - from_first;
    iovec rest[2] = {
        {static_cast<uint8_t*>(parts[0].iov_base) + from_first, first - from_first},
        {static_cast<uint8_t*>(parts[1].iov_base) + from_second, all - first - from_second}};
    Result<size_t> sent = line->channel->send_some(rest, 2, kPumpMs);
    if (!sent.ok()) return sent.status();
    if (*sent == 0) stuck(caller);
    done += *sent;
  }
  return Status();
}

// What no card sends is read first. A chunk is always sent whole, so that the stream goes on.
Status Striper::send_from_device(Line* line, const Job& job, uint64_t offset, uint64_t bytes,
                                 bool caller) {
  const uint64_t address = reinterpret_cast<uint64_t>(job.data) + offset;
  uint64_t done = 0;
  while (done < bytes) {
    Result<size_t> sent = line->channel->send_from_device(address + done, bytes - done, kPumpMs);
    if (sent.status().code() == base::Code::kUnsupported) break;
    if (!sent.ok()) return sent.status();
    if (*sent == 0) stuck(caller);
    done += *sent;
  }
  job.device->by_cards.fetch_add(done, std::memory_order_relaxed);
  if (done == bytes) return Status();
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[kReadBytes]());
  while (done < bytes) {
    const uint64_t step = std::min<uint64_t>(bytes - done, kReadBytes);
    if (!job.device->failed && !job.device->reader->read(address + done, copy.get(), step))
      job.device->failed = true;
    const iovec parts[2] = {{copy.get(), size_t(step)}, {nullptr, 0}};
    const Status sent = send_parts(line, parts, caller);
    if (!sent.ok()) return sent;
    done += step;
  }
  return Status();
}

void Striper::start_helpers() {
  if (started_.load(std::memory_order_acquire)) return;
  Locked locked(start_lock_);
  if (started_.load(std::memory_order_relaxed) || stopping_.load()) return;
  // One helper fewer than channels, because the caller serves one itself. If a helper cannot start,
  // the others do its part.
  for (size_t i = 1; i < lines_.size(); ++i) {
    lines_[i]->helper.start(
        "tendril-stripe", [](void* self) { static_cast<Striper*>(self)->help(); }, this);
  }
  started_.store(true, std::memory_order_release);
}

void Striper::help() {
  for (;;) {
    uint32_t seen = job_event_.read();
    if (stopping_.load(std::memory_order_seq_cst)) return;
    Job* job = nullptr;
    {
      Locked locked(jobs_lock_);
      for (job = jobs_; job != nullptr; job = job->next) {
        if (job->at.load(std::memory_order_relaxed) < job->end &&
            !job->failed.load(std::memory_order_relaxed))
          break;
      }
      if (job != nullptr) job->helpers.fetch_add(1, std::memory_order_relaxed);
    }
    if (job == nullptr) {
      job_event_.wait(seen, -1);
      continue;
    }
    work(job, false);
    job->helpers.fetch_sub(1, std::memory_order_release);
    done_event_.signal();
  }
}

void Striper::stop() {
  stopping_.store(true, std::memory_order_seq_cst);
  job_event_.signal();
  Locked locked(start_lock_);
  for (auto& line : lines_) line->helper.join();
}

void Striper::abandon_after_fork() {
  jobs_lock_.reset_after_fork();
  start_lock_.reset_after_fork();
  jobs_ = nullptr;
  for (auto& line : lines_) {
    line->helper.forget();
    line->lock.reset_after_fork();
    line->channel = nullptr;
  }
}

}  // namespace tendril::session
