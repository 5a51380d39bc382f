// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: the worker's end of a lasting session whose client says what it likes. The
// first two bytes choose: how long the first part is, whether the client greets after the cut, what
// this end does with carriers. The first part becomes acknowledgements and turns to carriers; the
// second one is what the client says when it comes again, and more of them. What the worker sent
// must arrive as it was, what it receives must be what the client sent up to a turn that it said,
// or the session must end.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "transport/testing/carrier_double.h"
#include "transport/testing/lasting_network.h"

using namespace tendril;  // NOLINT: a program

namespace {

constexpr size_t kLines = 2, kSent = 3000, kMore = 300, kAll = kSent + 2 * kMore;
constexpr uint64_t kGreeting = 0x6e69616761646e74;

struct Record {
  uint32_t line, zero;
  uint64_t position;
};
constexpr uint32_t kTurn = 1u << 16;

// What the second byte chooses.
enum Choice : uint8_t {
  kTakes = 1,      // carriers, before the client says anything
  kUses = 2,       // and moves to them
  kTakesLate = 4,  // after the client came again
  kUsesLate = 8,
  kTalks = 16,       // the client sends on its line and over the carrier
  kTalksLater = 32,  // only after its records
  kRaw = 64,         // records are as in the input
};

uint8_t byte_at(size_t position) { return uint8_t(position * 7 + (position >> 8)); }
// Of the client: by the highest bit one sees which way it came.
uint8_t byte_over(bool carrier, size_t position) {
  return uint8_t((byte_at(position) & 0x7f) | (carrier ? 0x80 : 0));
}

std::vector<base::Fd> connections(std::vector<base::Fd>* here) {
  std::vector<base::Fd> theirs(kLines + 1);
  here->resize(kLines + 1);
  for (size_t i = 0; i <= kLines; ++i) (*here)[i] = transport::tcp_sockets(&theirs[i]);
  return theirs;
}

void need(bool good, int line = __builtin_LINE()) {
  if (good) return;
  fprintf(stderr, "lasting_fuzz.cc:%d does not hold\n", line);
  abort();
}

// All that was said before must be so. Returns how many bytes came.
size_t check(int fd, size_t from) {
  uint8_t got[kAll + 1];
  const ssize_t came = recv(fd, got, sizeof got, MSG_DONTWAIT);
  for (ssize_t i = 0; i < came; ++i) need(got[i] == byte_at(from + size_t(i)));
  need(came <= ssize_t(kAll));
  return size_t(std::max<ssize_t>(came, 0));
}

class Session {
 public:
  Session(const uint8_t* data, size_t bytes)
      : greets_(data[0] >= 0x80),
        choice_(data[1]),
        first_{data + 2, std::min<size_t>(data[0] & 0x7f, bytes - 2)},
        second_{first_.at + first_.bytes, bytes - 2 - first_.bytes} {
    std::vector<base::Fd> theirs = connections(&here_);
    base::Fd acknowledgements = std::move(theirs.back());
    theirs.pop_back();
    transport::LastingSettings settings;
    settings.patience_ms = 20;
    settings.may_be_carried = true;
    session_ = transport::Lasting::make(std::move(theirs), std::move(acknowledgements),
                                        std::move(settings))
                   .take();
    channel_ = transport::lasting_channel(session_, 0);
  }

  // Resets connections: each would otherwise keep a port for a minute. Also ends the session's wait
  // for what the client has not said.
  ~Session() {
    for (const std::vector<base::Fd>* fds : {&here_, &again_})
      for (const base::Fd& fd : *fds) transport::reset_connection(fd.get());
  }

  void run() {
    send_more(kSent);
    check(here_[0].get(), 0);
    if (chosen(kTakes)) need(take());
    if (chosen(kUses)) session_->use_carriers();
    if (chosen(kTalks) && !chosen(kTalksLater)) talk();
    say(here_[kLines].get(), first_);
    if (chosen(kTalks) && chosen(kTalksLater)) talk();
    send_more(kMore);
    check_turn();
    receive();
    come_again();
  }

 private:
  struct Bytes {
    const uint8_t* at;
    size_t bytes;
  };

  bool chosen(Choice choice) const { return (choice_ & choice) != 0; }
  void send_more(size_t bytes) {
    uint8_t block[kSent];
    for (size_t i = 0; i < bytes; ++i) block[i] = byte_at(sent_ + i);
    iovec part{block, bytes};
    base::Result<size_t> moved = channel_->send_some(&part, 1, 20);
    if (moved.ok()) sent_ += *moved;
  }
  bool take() {
    std::vector<std::unique_ptr<transport::Carrier>> carriers;
    std::array<base::Fd, kLines> peers;
    for (base::Fd& peer : peers) carriers.push_back(transport::CarrierDouble::make(&peer));
    if (!session_->take_carriers(std::move(carriers)).ok()) return false;
    over_ = std::move(peers);
    return true;
  }
  void talk() {
    uint8_t block[2][kTalked];
    for (size_t i = 0; i < kTalked; ++i)
      for (const int carrier : {0, 1}) block[carrier][i] = byte_over(carrier != 0, i);
    (void)!send(here_[0].get(), block[0], kTalked, MSG_NOSIGNAL);
    if (over_[0].valid()) (void)!send(over_[0].get(), block[1], kTalked, MSG_NOSIGNAL);
  }
  // Positions that matter, and others.
  uint64_t position(uint8_t which) {
    const uint64_t known[] = {0,       sent_,       sent_ + 1, sent_ - 1,
                              kTalked, kTalked - 1, last_,     UINT64_MAX};
    last_ = which < std::size(known) ? known[which] : which % (kTalked + 8);
    return last_;
  }
  // Records of two bytes each: line and kind, position.
  void say(int fd, const Bytes& part) {
    std::vector<Record> records;
    if (chosen(kRaw)) {
      records.resize(part.bytes / sizeof(Record));
      if (!records.empty()) memcpy(records.data(), part.at, records.size() * sizeof(Record));
    }
    for (size_t i = 0; !chosen(kRaw) && i + 2 <= part.bytes; i += 2) {
      const uint32_t lines[] = {0, 1, kLines, UINT32_MAX};
      const uint32_t turn = (part.at[i] & 4) != 0 ? kTurn : 0;
      records.push_back({lines[part.at[i] & 3] | turn, 0, position(part.at[i + 1])});
    }
    for (const Record& record : records)
      if (record.line == kTurn) turns_.push_back(record.position);
    (void)!send(fd, records.data(), records.size() * sizeof(Record), MSG_NOSIGNAL);
    const size_t rest = chosen(kRaw) ? part.bytes % sizeof(Record) : 0;  // a piece of one
    (void)!send(fd, part.at + part.bytes - rest, rest, MSG_NOSIGNAL);
  }
  // This end must have said where it goes over, before what it sends there.
  void check_turn() {
    if (!over_[0].valid()) return;
    uint8_t first;
    if (recv(over_[0].get(), &first, 1, MSG_DONTWAIT | MSG_PEEK) != 1) return;
    need(chosen(kUses));
    for (;;) {
      pollfd waiting{here_[kLines].get(), POLLIN, 0};
      need(poll(&waiting, 1, 2000) == 1);
      Record record;
      need(recv(here_[kLines].get(), &record, sizeof record, MSG_WAITALL) == sizeof record);
      if (record.line != kTurn) continue;
      need(record.position == kSent);
      need(check(over_[0].get(), size_t(record.position)) <= sent_ - kSent);
      return;
    }
  }
  // First from the connection, then, from a turn on that the client said, over the carrier.
  void receive() {
    uint8_t got[2 * kTalked + 1];
    for (;;) {
      base::Result<size_t> came = channel_->receive(got, 1, sizeof got, {0, 5});
      if (!came.ok()) break;
      for (size_t i = 0; i < *came; ++i) {
        const bool carrier = (got[i] & 0x80) != 0;
        need(carrier || received_[1] == 0);
        need(got[i] == byte_over(carrier, received_[carrier]++));
      }
    }
    need(received_[1] == 0 || std::count(turns_.begin(), turns_.end(), received_[0]) != 0);
  }
  void come_again() {
    session_->resume(connections(&again_));
    const int fd = again_[kLines].get();
    const uint64_t greeting[2] = {kGreeting, kLines};
    if (greets_) (void)!send(fd, greeting, sizeof greeting, MSG_NOSIGNAL);
    uint64_t taken = UINT64_MAX;  // that the client claims, on the first line
    if (greets_ && !chosen(kRaw) && second_.bytes >= kLines) {
      const uint64_t positions[kLines] = {position(second_.at[0]), position(second_.at[1])};
      taken = positions[0];
      (void)!send(fd, positions, sizeof positions, MSG_NOSIGNAL);
      say(fd, {second_.at + kLines, second_.bytes - kLines});
    } else {
      const size_t before = greets_ ? 0 : sizeof greeting;
      if (second_.bytes >= before + kLines * sizeof taken)
        memcpy(&taken, second_.at + before, sizeof taken);
      (void)!send(fd, second_.at, second_.bytes, MSG_NOSIGNAL);
    }
    if (chosen(kUsesLate)) session_->use_carriers();
    receive();
    const bool resumed = session_->resumptions() > 0;
    if (chosen(kTakesLate) && take()) need(!resumed);
    send_more(kMore);
    if (taken <= sent_) check(again_[0].get(), size_t(taken));
    uint64_t said[2 + kLines];
    if (recv(fd, said, sizeof said, MSG_DONTWAIT) == sizeof said)
      need(said[0] == kGreeting && said[1] == kLines && said[2] == received_[0] + received_[1]);
  }

  static constexpr size_t kTalked = 40;
  const bool greets_;
  const uint8_t choice_;
  const Bytes first_, second_;
  std::vector<base::Fd> here_, again_;
  std::array<base::Fd, kLines> over_;
  std::shared_ptr<transport::Lasting> session_;
  std::unique_ptr<transport::Channel> channel_;
  size_t sent_ = 0;
  std::array<size_t, 2> received_{};
  std::vector<uint64_t> turns_;  // that the client said, of the first line
  uint64_t last_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < 2 || bytes > 4000) return 0;
  Session(data, bytes).run();
  return 0;
}
