// SPDX-License-Identifier: Apache-2.0
// See card.h.
#include "tests/cards/card.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"

namespace tendril::cards {

namespace {

using Guard = std::lock_guard<std::mutex>;

constexpr uint64_t kAbsentNs = 20'000'000;  // a peer that cannot be there is given up after this
constexpr uint32_t kRefusalsMost = 7;       // a peer without a receive is asked so often
constexpr uint32_t kWcOther = 21;           // IBV_WC_GENERAL_ERR
constexpr uint32_t kInlineMost = 220;
constexpr uint32_t kLostWakes = 20;
constexpr int kIdleMs = 50, kBusyMs = 2;

// Before the sandbox of a worker, which then reaches no file any more.
int opened_file = -1;
pid_t opened_by = 0;
__attribute__((constructor)) void open_file() {
  if (settings().file.empty()) return;
  opened_file = ::open(settings().file.c_str(), O_RDWR | O_CLOEXEC);
  opened_by = getpid();
}

uint64_t number_after(const std::string& word, size_t at) {
  return strtoull(word.c_str() + at, nullptr, 10);
}

Settings read_settings(const char* text) {
  Settings read;
  std::string word;
  bool is_first = true;
  for (const char letter : std::string(text == nullptr ? "" : text) + ",") {
    if (letter != ',') {
      word += letter;
      continue;
    }
    if (is_first) read.file = word;
    if (word.rfind("network=", 0) == 0) read.network = uint32_t(number_after(word, 8));
    if (word.rfind("locks=", 0) == 0) read.locked_kib_most = number_after(word, 6);
    if (word == "no-card") read.has_card = false;
    if (word == "no-address") read.has_address = false;
    if (word == "port-down") read.port_is_down = true;
    if (word == "infiniband") read.is_infiniband = true;
    if (word == "no-dma-buf") read.takes_devices = false;
    is_first = false;
    word.clear();
  }
  return read;
}

long futex(std::atomic<uint32_t>* at, int what, uint32_t value, int timeout_ms) {
  const timespec time{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
  return syscall(SYS_futex, at, what, value, timeout_ms < 0 ? nullptr : &time, nullptr, 0);
}

// The first place that no living process has. A dead process has lost its lock.
int take_place(int file) {
  for (uint32_t place = 0; place < kCards; ++place) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = off_t(place);
    lock.l_len = 1;
    if (fcntl(file, F_OFD_SETLK, &lock) == 0) return int(place);
  }
  return -1;
}

}  // namespace

const Settings& settings() {
  static const Settings* const read = new Settings(read_settings(getenv("TENDRIL_RDMA_DOUBLE")));
  return *read;
}

Card* Card::of_this_process() {
  static std::mutex* const making = new std::mutex;
  static Card* card = nullptr;
  if (card != nullptr && card->owner_ == getpid()) return card;  // a forked child gets its own
  const Guard guard(*making);
  if (card != nullptr && card->owner_ == getpid()) return card;
  if (!settings().has_card) return errno = ENODEV, nullptr;
  const int file =
      opened_by == getpid() ? opened_file : ::open(settings().file.c_str(), O_RDWR | O_CLOEXEC);
  const int place = file < 0 ? -1 : take_place(file);
  if (place < 0) return nullptr;
  void* const shared = mmap(nullptr, sizeof(Fabric), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (shared == MAP_FAILED) return nullptr;
  auto* const fabric = static_cast<Fabric*>(shared);
  if (fabric->faults.mark != kMark) return errno = EINVAL, nullptr;
  Card* const made = new Card(fabric, uint32_t(place));
  for (PairSlot& pair : made->slot().pairs) {
    pair.number = 0;
    pair.serves = 0;
    pair.mail.state = MailState::kFree;
  }
  made->slot().network = settings().network;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int failure = pthread_create(&thread, nullptr, Card::run, made);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure != 0) return errno = failure, nullptr;
  pthread_detach(thread);
  return card = made;
}

// ---- what programs ask for ----

Opened* Card::open() {
  auto* const opened = new Opened;
  opened->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  const Guard guard(lock_);
  if (opened_.empty()) is_dead_ = false;  // it was put back
  opened_.push_back(opened);
  return opened;
}

void Card::close(Opened* opened) {
  const Guard guard(lock_);
  opened_.erase(std::remove(opened_.begin(), opened_.end(), opened), opened_.end());
  ::close(opened->async_fd);
  delete opened;
}

abi::Mr* Card::add(abi::Pd* pd, void* at, size_t bytes, int rights) {
  const Guard guard(lock_);
  if (settings().locked_kib_most < UINT64_MAX && locked_bytes_ + bytes > settings().locked_kib_most
                                                                             << 10)
    return errno = ENOMEM, nullptr;
  return keep(pd, reinterpret_cast<uint64_t>(at), bytes, rights, nullptr);
}

abi::Mr* Card::add_device(abi::Pd* pd, uint64_t offset, size_t bytes, uint64_t address, int file,
                          int rights) {
  if (!settings().takes_devices) return errno = EOPNOTSUPP, nullptr;
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, off_t(offset));
  if (mapped == MAP_FAILED) return nullptr;
  const Guard guard(lock_);
  return keep(pd, address, bytes, rights, static_cast<uint8_t*>(mapped));
}

abi::Mr* Card::keep(abi::Pd* pd, uint64_t address, size_t bytes, int rights, uint8_t* mapped) {
  locked_bytes_ += bytes;
  auto* const memory = new Memory;
  memory->mapped = mapped;
  memory->context = pd->context;
  memory->pd = pd;
  memory->addr = reinterpret_cast<void*>(address);
  memory->length = bytes;
  memory->lkey = next_key_ += 2;
  memory->rkey = memory->lkey + 1;
  memory->rights = rights;
  memory_[memory->lkey] = memory_[memory->rkey] = memory;
  return memory;
}

void Card::remove(abi::Mr* memory) {
  const Guard guard(lock_);
  auto* const known = static_cast<Memory*>(memory);
  locked_bytes_ -= memory->length;
  memory_.erase(memory->lkey);
  memory_.erase(memory->rkey);
  if (known->mapped != nullptr) munmap(known->mapped, known->length);
  delete known;
}

Pair* Card::make_pair(abi::Pd* pd, const abi::QpInitAttr& wanted) {
  const Guard guard(lock_);
  uint32_t place = 0;
  while (place < kPairs && pairs_.count(place) != 0) ++place;
  if (place == kPairs || is_dead_) return errno = ENOMEM, nullptr;
  auto* const pair = new Pair;
  pair->context = pd->context;
  pair->pd = pd;
  pair->send_cq = wanted.send_cq;
  pair->recv_cq = wanted.recv_cq;
  pair->place = place;
  pair->qp_num = number_of(slot().turn++, place_, place);
  PairSlot& shared = slot().pairs[place];
  shared.serves = 0;
  shared.mail.state = MailState::kFree;
  shared.number = pair->qp_num;
  pairs_[place] = pair;
  return pair;
}

void Card::destroy(Pair* pair) {
  const Guard guard(lock_);
  slot().pairs[pair->place].number = 0;
  pairs_.erase(pair->place);
  delete pair;
}

int Card::modify(Pair* pair, const abi::QpAttr& attr, int mask) {
  const Guard guard(lock_);
  if ((mask & abi::kMaskPeer) != 0) pair->peer = attr.dest_qp_num;
  if ((mask & abi::kMaskTimeout) != 0)
    pair->patience_ns = (uint64_t{4096} << attr.timeout) * (uint64_t{attr.retry_cnt} + 1);
  if (attr.qp_state == abi::kStateError) {
    stop(pair);
    return 0;
  }
  if (is_dead_) return EIO;
  pair->state = attr.qp_state;
  if (pair->state == abi::kStateReceive) slot().pairs[pair->place].serves = 1;
  ring(place_);
  return 0;
}

int Card::post(Pair* pair, const abi::SendWr& posted) {
  const Guard guard(lock_);
  if (pair->state != abi::kStateSend && pair->state != abi::kStateError) return EINVAL;
  Work work;
  work.id = posted.wr_id;
  work.opcode = posted.opcode;
  work.immediate = posted.imm_data;
  work.remote = posted.wr.rdma.remote_addr;
  work.remote_key = posted.wr.rdma.rkey;
  work.signalled = (posted.send_flags & abi::kSignaled) != 0;
  work.is_inline = (posted.send_flags & abi::kInline) != 0;
  if (posted.num_sge == 1) {
    work.local = posted.sg_list->addr;
    work.bytes = posted.sg_list->length;
    work.local_key = posted.sg_list->lkey;
  }
  if (work.is_inline && work.bytes > kInlineMost) return EINVAL;
  const auto* const from = reinterpret_cast<const uint8_t*>(work.local);
  if (work.is_inline && work.bytes != 0) work.data.assign(from, from + work.bytes);
  pair->works.push_back(std::move(work));
  if (pair->state == abi::kStateError) stop(pair);
  ring(place_);
  return 0;
}

int Card::post_receive(Pair* pair, const abi::RecvWr& work) {
  const Guard guard(lock_);
  pair->posted_receives.push_back(work.wr_id);
  if (pair->state == abi::kStateError) stop(pair);
  return 0;
}

int Card::poll(Queue* queue, int most, abi::Wc* into) {
  const Guard guard(lock_);
  int count = 0;
  for (; count < most && !queue->reports.empty(); ++count) {
    into[count] = queue->reports.front();
    queue->reports.pop_front();
  }
  return count;
}

void Card::arm(Queue* queue) {
  const Guard guard(lock_);
  queue->armed = true;
}

bool Card::take_event(Channel* channel, abi::Cq** queue) {
  const Guard guard(lock_);
  eventfd_t one;
  if (channel->events.empty() || eventfd_read(channel->fd, &one) != 0) return errno = EAGAIN, false;
  *queue = channel->events.front();
  channel->events.pop_front();
  return true;
}

bool Card::take_event(Opened* opened, uint32_t* type) {
  const Guard guard(lock_);
  (void)look_at_faults();  // a person who asks now sees what is so now
  eventfd_t one;
  if (opened->events.empty() || eventfd_read(opened->async_fd, &one) != 0)
    return errno = EAGAIN, false;
  *type = opened->events.front();
  opened->events.pop_front();
  return true;
}

bool Card::port_is_up() const {
  return !settings().port_is_down && fabric_->faults.cable == kCableIn;
}

// ---- what the card does ----

void* Card::run(void* self) {
  Card& card = *static_cast<Card*>(self);
  for (;;) {
    const uint32_t seen = card.slot().bell;
    bool did = false, waits = false;
    {
      const Guard guard(card.lock_);
      did = card.look();
      for (const auto& [place, pair] : card.pairs_) waits = waits || !pair->works.empty();
    }
    if (!did) futex(&card.slot().bell, FUTEX_WAIT, seen, waits ? kBusyMs : kIdleMs);
  }
  return nullptr;
}

void Card::ring(uint32_t card) {
  std::atomic<uint32_t>& bell = fabric_->cards[card].bell;
  ++bell;
  futex(&bell, FUTEX_WAKE, 1, -1);
}

bool Card::look() {
  bool did = look_at_faults();
  for (const auto& [place, pair] : pairs_) {
    did = answer(pair) || did;
    did = advance(pair) || did;
  }
  return did;
}

bool Card::look_at_faults() {
  const uint32_t cable = fabric_->faults.cable;
  if (cable == cable_) return false;
  cable_ = cable;
  if (cable == kCardsAway) {
    is_dead_ = true;
    for (const auto& [place, pair] : pairs_) stop(pair);
  }
  const uint32_t event = cable == kCardsAway  ? abi::kEventDeviceFatal
                         : cable == kCableOut ? abi::kEventPortDown
                                              : abi::kEventPortActive;
  for (Opened* const opened : opened_) tell(opened, event);
  return true;
}

void Card::tell(Opened* opened, uint32_t type) {
  opened->events.push_back(type);
  (void)eventfd_write(opened->async_fd, 1);
}

PairSlot* Card::find(uint32_t number) {
  CardSlot& card = fabric_->cards[card_of(number)];
  PairSlot& pair = card.pairs[pair_of(number)];
  const bool is_there = number != 0 && pair.number == number && pair.serves != 2;
  return is_there && card.network == settings().network && cable_ == kCableIn ? &pair : nullptr;
}

bool Card::is_allowed(uint64_t address, uint32_t bytes, uint32_t key, int right) const {
  const auto found = memory_.find(key);
  if (found == memory_.end() || (found->second->rights & right) == 0) return false;
  const auto begin = reinterpret_cast<uint64_t>(found->second->addr);
  const uint64_t length = found->second->length;
  return address >= begin && address - begin <= length && bytes <= length - (address - begin);
}

uint8_t* Card::place_of(uint64_t address, uint32_t key) const {
  const auto found = memory_.find(key);
  if (found == memory_.end() || found->second->mapped == nullptr)
    return reinterpret_cast<uint8_t*>(address);
  return found->second->mapped + (address - reinterpret_cast<uint64_t>(found->second->addr));
}

// Which fault it meets, if any.
void Card::begin(Pair* pair, Work* work) {
  Faults& faults = fabric_->faults;
  work->begun = true;
  work->since_ns = base::now_ns();
  ++faults.works;
  if (faults.armed == 0 || faults.countdown.fetch_sub(1) != 0) return;
  work->fault = Fault(faults.armed.exchange(0));
  ++faults.happened;
  if (work->fault == Fault::kReportsLost) pair->loses_reports = true;
  if (work->fault == Fault::kCableOut) faults.cable = kCableOut, (void)look_at_faults();
  if (work->fault == Fault::kNobodyIsWoken)
    static_cast<Queue*>(pair->recv_cq)->lost_wakes = kLostWakes;
  if (work->fault != Fault::kCardDies) return;
  is_dead_ = true;
  for (Opened* const opened : opened_) tell(opened, abi::kEventDeviceFatal);
}

// The oldest work of a pair, by one step.
bool Card::advance(Pair* pair) {
  if (pair->state != abi::kStateSend || pair->works.empty()) return false;
  Work& work = pair->works.front();
  if (!work.begun) {
    begin(pair, &work);
    const bool reads = work.opcode == abi::kRdmaRead;
    const bool is_local = is_allowed(work.local, work.bytes, work.local_key, abi::kLocalWrite);
    if (is_dead_ || work.fault == Fault::kPairStops) return stop(pair), true;
    if (work.fault == Fault::kNotReady) return fail(pair, abi::kWcReceiverNotReady), true;
    if (work.fault == Fault::kRemoteAccess) return fail(pair, abi::kWcRemoteAccess), true;
    if (work.fault == Fault::kUnanswered) return fail(pair, abi::kWcRetryExceeded), true;
    if (work.fault == Fault::kOther) return fail(pair, kWcOther), true;
    if (work.fault == Fault::kLocalAccess ||
        (work.bytes != 0 && !is_local && (reads || !work.is_inline)))
      return fail(pair, abi::kWcLocalProtection), true;
  }
  PairSlot* const peer = find(pair->peer);
  const uint64_t waited_ns = base::now_ns() - work.since_ns;
  if (waited_ns > (peer == nullptr ? kAbsentNs : pair->patience_ns))
    return fail(pair, abi::kWcRetryExceeded), true;
  if (peer == nullptr) return false;
  return work.asked ? take_answer(pair, &work, &peer->mail) : ask(pair, &work, peer);
}

bool Card::ask(Pair* pair, Work* work, PairSlot* peer) {
  auto state = MailState::kFree;
  Mail& mail = peer->mail;
  if (peer->serves != 1 || !mail.state.compare_exchange_strong(state, MailState::kTaken))
    return false;
  const uint32_t left = work->bytes - work->done_bytes;
  mail.kind = work->opcode == abi::kRdmaRead ? MailKind::kRead : MailKind::kWrite;
  if (work->fault == Fault::kPeerPairStops) mail.kind = MailKind::kStop;
  mail.to = pair->peer;
  mail.from = pair->qp_num;
  mail.address = work->remote + work->done_bytes;
  mail.key = work->remote_key;
  mail.bytes = std::min(left, kPieceBytes);
  mail.immediate = work->immediate;
  const bool tells = mail.kind == MailKind::kWrite && mail.bytes == left;
  mail.tells = !tells ? kTellsNothing : work->fault == Fault::kTellingLost ? kTellsUnheard : kTells;
  mail.has_data = mail.bytes != 0;
  if (mail.kind == MailKind::kWrite && mail.bytes != 0) {
    const uint8_t* const from =
        work->is_inline ? work->data.data() : place_of(work->local, work->local_key);
    memcpy(mail.data, from + work->done_bytes, mail.bytes);
  }
  work->asked = true;
  mail.state = MailState::kAsked;
  ring(card_of(pair->peer));
  return true;
}

bool Card::take_answer(Pair* pair, Work* work, Mail* mail) {
  if (mail->state != MailState::kAnswered) return false;
  const uint32_t status = mail->status, bytes = mail->bytes;
  work->asked = false;
  if (status == abi::kWcSuccess && work->opcode == abi::kRdmaRead && bytes != 0)
    memcpy(place_of(work->local, work->local_key) + work->done_bytes, mail->data, bytes);
  mail->state = MailState::kFree;
  if (status == abi::kWcReceiverNotReady && ++work->refusals < kRefusalsMost) return false;
  if (status != abi::kWcSuccess) return fail(pair, status), true;
  work->since_ns = base::now_ns();
  work->done_bytes += bytes;
  if (work->done_bytes < work->bytes) return true;
  if (work->fault == Fault::kAnswerLost)
    fail(pair, abi::kWcRetryExceeded);
  else
    finish(pair, abi::kWcSuccess);
  return true;
}

// What the peer asks of a pair.
bool Card::answer(Pair* pair) {
  Mail& mail = slot().pairs[pair->place].mail;
  if (mail.state != MailState::kAsked) return false;
  const bool is_peer = mail.to == pair->qp_num && mail.from == pair->peer;
  const bool serves = pair->state == abi::kStateReceive || pair->state == abi::kStateSend;
  // No answer. The peer waits as it does for a card that is gone.
  if (!is_peer || !serves || cable_ != kCableIn || is_dead_) return false;
  mail.status = perform(pair, &mail);
  mail.state = MailState::kAnswered;
  ring(card_of(pair->peer));
  return true;
}

uint32_t Card::perform(Pair* pair, Mail* mail) {
  if (mail->kind == MailKind::kStop) {
    stop(pair);
    return abi::kWcRetryExceeded;
  }
  const bool reads = mail->kind == MailKind::kRead;
  if (mail->has_data != 0) {
    const int right = reads ? abi::kRemoteRead : abi::kRemoteWrite;
    if (mail->bytes > kPieceBytes || !is_allowed(mail->address, mail->bytes, mail->key, right))
      return abi::kWcRemoteAccess;
    uint8_t* const at = place_of(mail->address, mail->key);
    if (reads)
      memcpy(mail->data, at, mail->bytes);
    else
      memcpy(at, mail->data, mail->bytes);
  }
  if (mail->tells == kTellsNothing) return abi::kWcSuccess;
  if (pair->posted_receives.empty()) return abi::kWcReceiverNotReady;
  abi::Wc heard{};
  heard.wr_id = pair->posted_receives.front();
  heard.opcode = abi::kWcOpcodeReceive | (mail->has_data != 0 ? 1 : 0);
  heard.imm_data = mail->immediate;
  heard.wc_flags = abi::kWcWithImmediate;
  heard.qp_num = pair->qp_num;
  pair->posted_receives.pop_front();
  if (mail->tells == kTells) report(pair->recv_cq, heard);
  return abi::kWcSuccess;
}

// The oldest work is over.
void Card::finish(Pair* pair, uint32_t status) {
  abi::Wc wc{};
  wc.wr_id = pair->works.front().id;
  wc.status = status;
  wc.qp_num = pair->qp_num;
  const bool signalled = pair->works.front().signalled;
  pair->works.pop_front();
  if ((signalled || status != abi::kWcSuccess) && !pair->loses_reports) report(pair->send_cq, wc);
}

void Card::fail(Pair* pair, uint32_t status) {
  finish(pair, status);
  stop(pair);
}

// Everything that is left is reported as flushed, receives as well.
void Card::stop(Pair* pair) {
  pair->state = abi::kStateError;
  slot().pairs[pair->place].serves = 2;
  while (!pair->works.empty()) finish(pair, abi::kWcFlushed);
  for (; !pair->posted_receives.empty(); pair->posted_receives.pop_front()) {
    abi::Wc wc{};
    wc.wr_id = pair->posted_receives.front();
    wc.status = abi::kWcFlushed;
    wc.opcode = 0xee;  // says nothing where a work has failed
    wc.qp_num = pair->qp_num;
    report(pair->recv_cq, wc);
  }
}

void Card::report(abi::Cq* where, const abi::Wc& wc) {
  auto* const queue = static_cast<Queue*>(where);
  queue->reports.push_back(wc);
  if (!queue->armed) return;
  queue->armed = false;
  if (queue->lost_wakes != 0) {
    --queue->lost_wakes;
    return;
  }
  auto* const channel = static_cast<Channel*>(queue->channel);
  channel->events.push_back(queue);
  (void)eventfd_write(channel->fd, 1);
}

}  // namespace tendril::cards
