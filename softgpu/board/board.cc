// SPDX-License-Identifier: Apache-2.0
// The file, the processes in it, and memory and busy time. See board.h; the clock is in
// timeline.cc.

#include "softgpu/board/board.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "softgpu/board/board_data.h"
#include "softgpu/board/busy.h"
#include "softgpu/board/timeline.h"

namespace tendril::softgpu {
namespace {

// Bytes of the file that are locked rather than stored: one while the file is made, then one for
// the life of each process.
constexpr off_t kMakingByte = off_t{1} << 40;
constexpr off_t kLifeByte = kMakingByte + 1;
// of a simulated clock; not 0, which means "never" in places
constexpr int64_t kStartNs = 1'000'000'000;

// An open-file-description lock. It goes with the last descriptor, whatever the cause. Looking the
// file up does not inherit it.
bool lock_byte(int file, int command, off_t byte, short type, bool* taken = nullptr) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  int result;
  do {
    result = fcntl(file, command, &lock);
  } while (result != 0 && errno == EINTR);
  if (taken != nullptr) *taken = result == 0 && lock.l_type != F_UNLCK;
  return result == 0;
}

void initialise(BoardData* data, const Settings& settings) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&data->lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  data->settings = settings;
  data->now_ns = kStartNs;
  data->epoch_ns = host_now_ns() - kStartNs;
  for (unsigned i = 0; i < kMaxDevices; ++i) {
    DeviceRecord& device = data->devices[i];
    device.next_end_ns = kNever;
    device.ring.at_ns = kStartNs;
    device.ring.switch_ns = settings.device[i].switch_ns;
  }
  data->layout = kLayout;
  data->bytes = sizeof(BoardData);
  data->magic = kMagic;
}

// No O_CREAT on a file that may be another user's: systems that protect sticky folders refuse it.
int open_file(const std::string& path) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file >= 0 || errno != ENOENT) return file;
    file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
    if (file >= 0) fchmod(file, 0666);  // workers run as users of their own
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

std::string failure(const std::string& path, const char* what) {
  return "the board " + path + " " + what + (errno != 0 ? std::string(": ") + strerror(errno) : "");
}

std::string board_path() {
  const char* name = getenv("TENDRIL_SOFTGPU_BOARD");
  if (name == nullptr || *name == '\0') return "";
  return strchr(name, '/') != nullptr ? name : std::string("/dev/shm/") + name;
}

}  // namespace

int64_t host_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Board& Board::instance() {
  static Board& board = *[] {
    std::string complaint, text = knobs_of_environment(&complaint);
    Settings settings;
    Faults faults;
    apply_knobs(text, false, &settings, &faults, &complaint);
    std::unique_ptr<Board> made = open(board_path(), settings, &complaint);
    if (!made) made = open("", settings, &complaint);
    made->startup_text_ = text;
    if (!complaint.empty()) fprintf(stderr, "softgpu: %s", complaint.c_str());
    return made.release();
  }();
  return board;
}

std::unique_ptr<Board> Board::open(const std::string& path, const Settings& settings,
                                   std::string* complaint) {
  std::unique_ptr<Board> board(new Board);
  errno = 0;
  int flags = MAP_SHARED | MAP_NORESERVE;
  if (!path.empty()) {
    board->file_ = open_file(path);
    if (board->file_ < 0 || !lock_byte(board->file_, F_OFD_SETLKW, kMakingByte, F_WRLCK)) {
      *complaint += failure(path, "cannot be opened") + "\n";
      return nullptr;
    }
    struct stat status = {};
    fstat(board->file_, &status);
    if (status.st_size == 0 && ftruncate(board->file_, sizeof(BoardData)) != 0) {
      *complaint += failure(path, "cannot be made") + "\n";
      return nullptr;
    }
    if (status.st_size != 0 && static_cast<size_t>(status.st_size) != sizeof(BoardData)) {
      *complaint += "the board " + path + " is not one of this version: remove it\n";
      return nullptr;
    }
  } else {
    flags |= MAP_ANONYMOUS;
  }
  void* memory = mmap(nullptr, sizeof(BoardData), PROT_READ | PROT_WRITE, flags, board->file_, 0);
  if (memory == MAP_FAILED) {
    *complaint += failure(path, "cannot be mapped") + "\n";
    return nullptr;
  }
  board->data_ = static_cast<BoardData*>(memory);
  if (board->data_->magic == 0) initialise(board->data_, settings);
  const bool ours = board->data_->magic == kMagic && board->data_->layout == kLayout;
  if (board->file_ >= 0) lock_byte(board->file_, F_OFD_SETLK, kMakingByte, F_UNLCK);
  if (ours) return board;
  *complaint += "the board " + path + " is not one of this version: remove it\n";
  return nullptr;
}

Board::~Board() {
  if (data_ != nullptr) munmap(data_, sizeof(BoardData));
  if (file_ >= 0) close(file_);
}

const Settings& Board::settings() const { return data_->settings; }

uint64_t Board::live_generation() const {
  return data_->live_generation.load(std::memory_order_acquire);
}

Faults Board::faults() const {
  Settings scratch;
  Faults faults;
  std::string complaints;
  apply_knobs(startup_text_, false, &scratch, &faults, &complaints);
  complaints.clear();
  if (live_generation() != 0) apply_knobs(live_text(), true, &scratch, &faults, &complaints);
  return faults;
}

std::string Board::live_text() const {
  BoardLock hold(const_cast<Board&>(*this));
  return std::string(data_->live_text, strnlen(data_->live_text, kLiveTextBytes));
}

bool Board::change_live(const std::string& text, bool replace, std::string* complaint) {
  Settings scratch;
  Faults faults;
  size_t before = complaint->size();
  apply_knobs(text, true, &scratch, &faults, complaint);
  if (complaint->size() != before) return false;
  BoardLock hold(*this);
  std::string all =
      replace ? "" : std::string(data_->live_text, strnlen(data_->live_text, kLiveTextBytes));
  all += text + "\n";
  if (all.size() >= kLiveTextBytes) {
    *complaint += "too many knobs have been changed: clear them first\n";
    return false;
  }
  memcpy(data_->live_text, all.c_str(), all.size() + 1);
  data_->live_generation.fetch_add(1, std::memory_order_release);
  return true;
}

void Board::join() {
  BoardLock hold(*this);
  if (slot_ != UINT32_MAX) return;
  reap_locked();
  for (uint32_t i = 0; i < kMaxProcesses && slot_ == UINT32_MAX; ++i) {
    if (data_->processes[i].used != 0) continue;
    if (file_ >= 0 && !lock_byte(file_, F_OFD_SETLK, kLifeByte + i, F_WRLCK)) continue;
    slot_ = i;
  }
  if (slot_ == UINT32_MAX) {
    fprintf(stderr, "softgpu: the board has no room for another process\n");
    abort();
  }
  data_->processes_high = std::max(data_->processes_high, slot_ + 1);
  ProcessRecord& process = data_->processes[slot_];
  memset(static_cast<void*>(&process), 0, sizeof process);
  process.used = 1;
  process.pid = getpid();
  const char* seat = getenv("TENDRIL_SOFTGPU_SEAT");
  process.seat = seat != nullptr ? static_cast<uint32_t>(strtoul(seat, nullptr, 10))
                                 : 1'000'000 + data_->seats++;
}

void Board::abandon_after_fork() {
  if (file_ >= 0) close(file_);
  file_ = -1;
}

bool Board::alive(uint32_t slot) const {
  if (file_ < 0 || slot == slot_) return true;
  bool taken = true;
  return !lock_byte(file_, F_OFD_GETLK, kLifeByte + slot, F_WRLCK, &taken) || taken;
}

void Board::drop_process(uint32_t slot) {
  ProcessRecord& process = data_->processes[slot];
  drop_jobs(*data_, slot);
  const int64_t now = host_now_ns();
  for (unsigned i = 0; i < kMaxDevices; ++i) {
    DeviceRecord& device = data_->devices[i];
    device.memory_bytes -= std::min(device.memory_bytes, process.usage[i].memory_bytes);
    const uint32_t running = std::min(device.running, process.usage[i].running);
    if (running == 0) continue;
    add_busy(device.window, device.running_since_ns, now, now - device.running_since_ns);
    device.running_since_ns = now;
    device.running -= running;
  }
  data_->holds -= std::min(data_->holds, holds_of(process));
  memset(static_cast<void*>(&process), 0, sizeof process);
}

void Board::reap() {
  BoardLock hold(*this);
  reap_locked();
}

void Board::reap_locked() {
  for (uint32_t i = 0; i < data_->processes_high; ++i)
    if (data_->processes[i].used != 0 && !alive(i)) drop_process(i);
}

void Board::repair_locked() {
  repair_jobs(*data_);
  reap_locked();
  data_->holds = 0;
  for (DeviceRecord& device : data_->devices) device.memory_bytes = device.running = 0;
  for (uint32_t p = 0; p < data_->processes_high; ++p) {
    const ProcessRecord& process = data_->processes[p];
    if (process.used == 0) continue;
    data_->holds += holds_of(process);
    for (unsigned i = 0; i < kMaxDevices; ++i) {
      data_->devices[i].memory_bytes += process.usage[i].memory_bytes;
      data_->devices[i].running += process.usage[i].running;
    }
  }
}

bool Board::charge(int device, uint64_t bytes, uint64_t limit_bytes) {
  BoardLock hold(*this);
  DeviceRecord& record = data_->devices[device];
  const uint64_t limit = std::min(limit_bytes, data_->settings.device[device].memory_bytes);
  auto fits = [&] { return bytes <= limit && record.memory_bytes <= limit - bytes; };
  if (!fits()) reap_locked();
  if (!fits()) return false;
  record.memory_bytes += bytes;
  data_->processes[slot_].usage[device].memory_bytes += bytes;
  return true;
}

void Board::discharge(int device, uint64_t bytes) {
  BoardLock hold(*this);
  data_->devices[device].memory_bytes -= bytes;
  data_->processes[slot_].usage[device].memory_bytes -= bytes;
}

uint64_t Board::memory_used(int device) {
  BoardLock hold(*this);
  if (shared()) reap_locked();
  return data_->devices[device].memory_bytes;
}

void Board::count_contexts(int device, int step) {
  BoardLock hold(*this);
  data_->processes[slot_].usage[device].contexts += static_cast<uint32_t>(step);
}

void Board::begin_work(int device) {
  BoardLock hold(*this);
  DeviceRecord& record = data_->devices[device];
  ++data_->processes[slot_].usage[device].running;
  if (record.running++ == 0) record.running_since_ns = host_now_ns();
}

void Board::end_work(int device) {
  BoardLock hold(*this);
  DeviceRecord& record = data_->devices[device];
  Usage& mine = data_->processes[slot_].usage[device];
  const int64_t now = host_now_ns(), busy = now - record.running_since_ns;
  // If works overlap, the one that ends first is charged. The device's total is exact.
  mine.busy_ns += busy;
  record.busy_ns += busy;
  add_busy(record.window, record.running_since_ns, now, busy);
  record.running_since_ns = now;
  --record.running;
  --mine.running;
}

void Board::count_ecc_error(int device) {
  BoardLock hold(*this);
  ++data_->devices[device].ecc_errors;
}

DeviceView Board::view(int device) {
  BoardLock hold(*this);
  if (shared()) reap_locked();
  DeviceRecord& record = data_->devices[device];
  const bool timed = data_->settings.mode != TimeMode::kReal;
  const int64_t now = timed ? settle(*data_, device) : host_now_ns();
  if (record.running != 0) {
    const int64_t busy = now - record.running_since_ns;
    record.busy_ns += busy;
    add_busy(record.window, record.running_since_ns, now, busy);
    record.running_since_ns = now;
  }
  DeviceView view;
  view.now_ns = now;
  view.memory_bytes = record.memory_bytes;
  view.busy_ns = record.busy_ns;
  view.utilization_percent = busy_percent(record.window, now);
  view.ecc_errors = record.ecc_errors;
  for (uint32_t p = 0; p < data_->processes_high; ++p) {
    const ProcessRecord& process = data_->processes[p];
    const Usage& usage = process.usage[device];
    if (process.used == 0 || (usage.contexts == 0 && usage.memory_bytes == 0)) continue;
    view.processes.push_back({process.pid, usage.memory_bytes, usage.busy_ns, usage.contexts});
  }
  return view;
}

BoardLock::BoardLock(Board& board) : board_(board) {
  if (pthread_mutex_lock(&board.data().lock) != EOWNERDEAD) return;
  pthread_mutex_consistent(&board.data().lock);
  board.repair_locked();
}

BoardLock::~BoardLock() { pthread_mutex_unlock(&board_.data().lock); }

}  // namespace tendril::softgpu
