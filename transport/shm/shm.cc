// SPDX-License-Identifier: Apache-2.0
// See shm.h. Layout of the object: one page of facts (read once, checked), one page of indices per
// ring, then the rings' data. Each ring's data is mapped twice in a row, so that a call or frame is
// contiguous wherever it starts. Each side keeps its own index in private memory and only publishes
// it. Nothing that the peer can write is used unchecked.
#include "transport/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/lock.h"
#include "transport/host_window.h"
#include "transport/parts.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1U
#define MFD_ALLOW_SEALING 2U
#endif
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#endif

namespace tendril::transport {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint32_t kMagic = 0x4d485354;  // "TSHM"
constexpr uint32_t kChannelsMax = 64;
constexpr uint64_t kRingBytesMax = 1u << 30;
constexpr uint64_t kPublishStep =
    256u << 10;  // a large send is published in steps, so that the peer can copy meanwhile
constexpr int kSleepMs = 100;  // a sleeper looks at the connection this often

// What one thread sends may come back to another thread as an answer, through the peer. The thread
// sanitizer cannot see that order.
#if defined(__SANITIZE_THREAD__)
void note_sent(void* session) { __tsan_release(session); }
void note_received(void* session) { __tsan_acquire(session); }
#else
void note_sent(void*) {}
void note_received(void*) {}
#endif

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

struct Facts {
  uint32_t magic, channels;
  uint64_t command_bytes, bulk_bytes;
};

// In shared memory. The writer owns tail, the reader head. Both count bytes since the beginning.
struct Indices {
  alignas(64) std::atomic<uint64_t> tail;
  alignas(64) std::atomic<uint64_t> head;
  alignas(64) std::atomic<uint32_t> reader_sleeps;
  alignas(64) std::atomic<uint32_t> writer_sleeps;
  alignas(64) std::atomic<uint32_t> closed;
};
static_assert(sizeof(Indices) <= kPage);
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

bool good_size(uint64_t bytes) {
  return bytes >= kPage && bytes <= kRingBytesMax && (bytes & (bytes - 1)) == 0;
}
uint64_t ring_bytes(const Facts& facts, uint32_t ring) {
  return ring < 2 ? facts.command_bytes : facts.bulk_bytes;
}
uint64_t rings_end(const Facts& facts) {
  return kPage + facts.channels * 2 * kPage + 2 * facts.command_bytes +
         (facts.channels - 1) * 2 * facts.bulk_bytes;
}
uint64_t total_bytes(const Facts& facts) { return rings_end(facts) + kHostWindowBytes; }

}  // namespace

struct ShmRing {
  Indices* indices = nullptr;
  uint8_t* data = nullptr;  // mapped twice
  uint64_t bytes = 0;
};

class ShmMemory {
 public:
  ~ShmMemory() {
    for (const ShmRing& ring : rings) {
      if (ring.data != nullptr) munmap(ring.data, ring.bytes * 2);
    }
    if (pages != nullptr) munmap(pages, pages_bytes);
  }
  // False once the peer's connection has ended.
  bool peer_lives() {
    if (!connection.valid()) return true;
    if (dead.load(std::memory_order_relaxed)) return false;
    char byte;
    ssize_t n = recv(connection.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      dead.store(true, std::memory_order_relaxed);
      return false;
    }
    return true;
  }

  uint8_t* pages = nullptr;
  uint64_t pages_bytes = 0;
  std::vector<ShmRing> rings;
  base::Fd connection;
  std::atomic<bool> dead{false};
};

namespace {

class ShmChannel final : public Channel, public OutgoingRing {
 public:
  ShmChannel(std::shared_ptr<ShmMemory> memory, const ShmRing& out, const ShmRing& in, bool command,
             const char* kind)
      : memory_(std::move(memory)), out_(out), in_(in), command_(command), kind_(kind) {}

  Status send(const iovec* parts, int count) override {
    Parts rest(parts, count);
    while (!rest.empty()) {
      if (copy_some(&rest) != 0) continue;
      Status room = wait_room(1, -1);
      if (!room.ok()) return room;
    }
    return Status();
  }

  Result<size_t> send_some(const iovec* parts, int count, int timeout_ms) override {
    Parts rest(parts, count);
    size_t done = copy_some(&rest);
    if (done == 0 && !rest.empty()) {
      Status room = wait_room(1, timeout_ms);
      if (!room.ok() && room.code() != Code::kTimeout) return room;
      done = copy_some(&rest);
    }
    while (size_t more = copy_some(&rest)) done += more;
    return done;
  }

  OutgoingRing* ring() override { return this; }

  uint8_t* reserve(size_t bytes) override {
    if (ended() || free_bytes() < bytes) return nullptr;
    return out_.data + (tail_ & (out_.bytes - 1));
  }

  void publish(size_t bytes) override {
    tail_ += bytes;
    note_sent(memory_.get());
    out_.indices->tail.store(tail_, std::memory_order_seq_cst);
    wake(&out_.indices->reader_sleeps);
  }

  Status wait_room(size_t bytes, int timeout_ms) override {
    base::Deadline deadline(timeout_ms);
    bytes = std::min<size_t>(bytes, out_.bytes);
    for (int spins = 0;; ++spins) {
      if (ended()) return closed();
      if (free_bytes() >= bytes) return ended() ? closed() : Status();
      if (spins < 200 && base::usable_cpus() > 1) {
        base::cpu_pause();
        continue;
      }
      if (deadline.passed()) return Status(Code::kTimeout, "the peer takes nothing");
      out_.indices->writer_sleeps.store(1, std::memory_order_seq_cst);
      if (free_bytes() < bytes && !ended()) doze(&out_.indices->writer_sleeps, deadline);
      out_.indices->writer_sleeps.store(0, std::memory_order_seq_cst);
      if (!memory_->peer_lives()) return closed();
    }
  }

  Result<size_t> receive(void* into, size_t min, size_t max, Wait wait) override {
    auto* at = static_cast<uint8_t*>(into);
    size_t got = 0;
    base::Deadline deadline(wait.timeout_ms);
    base::Spin spin(wait.spin_us);
    uint32_t looks = 0;
    for (;;) {
      uint64_t there = readable();
      if (there > 0 && got < max) {
        got += take(at + got, std::min<uint64_t>(there, max - got));
        if (got >= min && got != 0) return got;
        spin.reset();
        continue;
      }
      if (ended() && readable() == 0)
        return closed();  // data sent before the end is still delivered
      if (got >= min) {
        if (++polls_ % 4096 == 0 && !memory_->peer_lives()) return closed();
        return got;
      }
      if (wait.spin_us != 0 && (++looks % 64 != 0 || spin.again())) {
        base::cpu_pause();
        continue;
      }
      if (got == 0 && deadline.passed()) return Status(Code::kTimeout, "nothing arrived in time");
      in_.indices->reader_sleeps.store(1, std::memory_order_seq_cst);
      if (readable() == 0 && !ended())
        doze(&in_.indices->reader_sleeps, got == 0 ? deadline : base::Deadline(-1));
      in_.indices->reader_sleeps.store(0, std::memory_order_seq_cst);
      if (readable() == 0 && !memory_->peer_lives()) return closed();
    }
  }

  void shutdown() override {
    down_.store(true, std::memory_order_seq_cst);
    // Set both first: the waking side looks at either.
    for (Indices* indices : {out_.indices, in_.indices})
      indices->closed.store(1, std::memory_order_seq_cst);
    for (Indices* indices : {out_.indices, in_.indices}) {
      for (std::atomic<uint32_t>* word : {&indices->reader_sleeps, &indices->writer_sleeps}) {
        word->store(0, std::memory_order_seq_cst);
        base::futex_wake(word, INT32_MAX, true);
      }
    }
    if (command_ && memory_->connection.valid()) ::shutdown(memory_->connection.get(), SHUT_RDWR);
  }
  const char* kind() const override { return kind_; }

 private:
  bool ended() const {
    return broken_.load(std::memory_order_relaxed) || down_.load(std::memory_order_seq_cst) ||
           out_.indices->closed.load(std::memory_order_seq_cst) != 0 ||
           memory_->dead.load(std::memory_order_relaxed);
  }
  Status closed() const {
    if (broken_.load())
      return Status(Code::kInvalid, "the peer wrote nonsense into the shared memory's indices");
    if (down_.load()) return Status(Code::kClosed, "the connection was closed on this side");
    return Status(Code::kClosed, "the peer closed the connection");
  }
  void doze(const std::atomic<uint32_t>* word, const base::Deadline& deadline) const {
    int left = deadline.left_ms();
    base::futex_wait(word, 1, int64_t(left < 0 || left > kSleepMs ? kSleepMs : left) * 1000, true);
  }
  static void wake(std::atomic<uint32_t>* word) {
    if (word->load(std::memory_order_seq_cst) == 0) return;
    word->store(0, std::memory_order_seq_cst);
    base::futex_wake(word, 1, true);
  }

  uint64_t free_bytes() {
    // The last known head is usually enough. Then the peer's cache line need not be read.
    uint64_t room = out_.bytes - (tail_ - head_seen_);
    if (room >= out_.bytes / 2) return room;
    uint64_t head = out_.indices->head.load(std::memory_order_seq_cst);
    uint64_t used = tail_ - head;
    if (used > out_.bytes || head - head_seen_ > out_.bytes) {
      broken_.store(true, std::memory_order_relaxed);
      return 0;
    }
    head_seen_ = head;
    return out_.bytes - used;
  }
  uint64_t readable() {
    uint64_t there = in_.indices->tail.load(std::memory_order_seq_cst) - head_;
    if (there <= in_.bytes) return there;
    broken_.store(true, std::memory_order_relaxed);
    return 0;
  }
  size_t take(uint8_t* into, uint64_t bytes) {
    bytes = std::min(bytes, kPublishStep);
    note_received(memory_.get());
    std::memcpy(into, in_.data + (head_ & (in_.bytes - 1)), bytes);
    head_ += bytes;
    in_.indices->head.store(head_, std::memory_order_seq_cst);
    wake(&in_.indices->writer_sleeps);
    return bytes;
  }
  size_t copy_some(Parts* rest) {
    if (rest->empty() || ended()) return 0;
    uint64_t room = std::min<uint64_t>(free_bytes(), kPublishStep);
    if (room == 0) return 0;
    size_t done = rest->copy_out(out_.data + (tail_ & (out_.bytes - 1)), room);
    publish(done);
    return done;
  }

  std::shared_ptr<ShmMemory> memory_;
  const ShmRing out_, in_;
  const bool command_;
  const char* kind_;
  alignas(64) uint64_t tail_ = 0;  // the sender's
  uint64_t head_seen_ = 0;
  alignas(64) uint64_t head_ = 0;  // the receiver's
  uint32_t polls_ = 0;
  std::atomic<bool> down_{false};
  std::atomic<bool> broken_{false};
};

Result<uint8_t*> map_twice(int fd, uint64_t at, uint64_t bytes) {
  void* space =
      mmap(nullptr, bytes * 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED)
    return base::errno_status(Code::kExhausted, "finding room for shared memory", errno);
  auto* data = static_cast<uint8_t*>(space);
  for (uint64_t half : {uint64_t(0), bytes}) {
    void* got =
        mmap(data + half, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, off_t(at));
    if (got == MAP_FAILED) {
      Status status = base::errno_status(Code::kExhausted, "mapping shared memory", errno);
      munmap(data, bytes * 2);
      return status;
    }
  }
  return data;
}

}  // namespace

Result<base::Fd> create_shm(const ShmSizes& sizes) {
  Facts facts{kMagic, sizes.channels, sizes.command_bytes, sizes.bulk_bytes};
  if (facts.channels == 0 || facts.channels > kChannelsMax || !good_size(facts.command_bytes) ||
      !good_size(facts.bulk_bytes)) {
    return Status(Code::kInvalid, "impossible sizes of shared memory");
  }
  base::Fd fd(int(syscall(SYS_memfd_create, "tendril-session", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!fd.valid()) return base::errno_status(Code::kUnsupported, "making shared memory", errno);
  if (ftruncate(fd.get(), off_t(total_bytes(facts))) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0 ||
      pwrite(fd.get(), &facts, sizeof facts, 0) != ssize_t(sizeof facts)) {
    return base::errno_status(Code::kExhausted, "laying out shared memory", errno);
  }
  return fd;
}

Result<std::shared_ptr<ShmMemory>> map_shm(const base::Fd& fd) {
  struct stat about;
  Facts facts;
  int seals = fcntl(fd.get(), F_GET_SEALS);
  if (fstat(fd.get(), &about) != 0 || seals < 0 || (seals & kSeals) != kSeals ||
      pread(fd.get(), &facts, sizeof facts, 0) != ssize_t(sizeof facts)) {
    return Status(Code::kInvalid, "the descriptor is no sealed shared memory");
  }
  if (facts.magic != kMagic || facts.channels == 0 || facts.channels > kChannelsMax ||
      !good_size(facts.command_bytes) || !good_size(facts.bulk_bytes) ||
      uint64_t(about.st_size) != total_bytes(facts)) {
    return Status(Code::kMismatch, "the shared memory is laid out for another version");
  }
  std::shared_ptr<ShmMemory> memory = std::make_shared<ShmMemory>();
  uint32_t rings = facts.channels * 2;
  memory->pages_bytes = kPage + rings * kPage;
  void* pages = mmap(nullptr, memory->pages_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (pages == MAP_FAILED)
    return base::errno_status(Code::kExhausted, "mapping shared memory", errno);
  memory->pages = static_cast<uint8_t*>(pages);
  uint64_t at = memory->pages_bytes;
  for (uint32_t i = 0; i < rings; ++i) {
    ShmRing ring;
    ring.indices = reinterpret_cast<Indices*>(memory->pages + kPage * (1 + i));
    ring.bytes = ring_bytes(facts, i);
    Result<uint8_t*> data = map_twice(fd.get(), at, ring.bytes);
    if (!data.ok()) return data.status();
    ring.data = *data;
    at += ring.bytes;
    memory->rings.push_back(ring);
  }
  return memory;
}

std::vector<std::unique_ptr<Channel>> shm_channels(const std::shared_ptr<ShmMemory>& memory,
                                                   ShmSide side, base::Fd connection) {
  std::vector<std::unique_ptr<Channel>> channels;
  if (connection.valid()) memory->connection = std::move(connection);
  for (size_t i = 0; i + 1 < memory->rings.size(); i += 2) {
    const ShmRing& to_worker = memory->rings[i];
    const ShmRing& to_client = memory->rings[i + 1];
    bool client = side == ShmSide::kClient;
    channels.emplace_back(new ShmChannel(memory, client ? to_worker : to_client,
                                         client ? to_client : to_worker, i == 0, "shm"));
  }
  return channels;
}

Result<std::unique_ptr<Channel>> loopback_pair(std::unique_ptr<Channel>* other,
                                               uint64_t ring_bytes) {
  ShmSizes sizes;
  sizes.command_bytes = ring_bytes;
  Result<base::Fd> fd = create_shm(sizes);
  if (!fd.ok()) return fd.status();
  Result<std::shared_ptr<ShmMemory>> memory = map_shm(*fd);
  if (!memory.ok()) return memory.status();
  const std::vector<ShmRing>& rings = (*memory)->rings;
  other->reset(new ShmChannel(*memory, rings[1], rings[0], true, "loopback"));
  return std::unique_ptr<Channel>(new ShmChannel(*memory, rings[0], rings[1], true, "loopback"));
}

}  // namespace tendril::transport
