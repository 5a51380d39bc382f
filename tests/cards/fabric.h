// SPDX-License-Identifier: Apache-2.0
// What the cards of several processes share: a file in which they find each other, pass works on,
// and are told what goes wrong. tests/e2e/support/cards.py writes `Faults`. All fields are atomic
// or belong to one side at a time, so no process waits for a lock that a dead one holds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tendril::cards {

inline constexpr uint32_t kMark = 0x31445243;  // "CRD1"
inline constexpr uint32_t kCards = 64, kPairs = 64;
inline constexpr uint32_t kPieceBytes = 32u << 10;  // data pass in pieces of at most this

// What happens to the work at which the countdown ends.
enum class Fault : uint32_t {
  kNone,
  kUnanswered,     // it has no effect, and is reported as never answered
  kAnswerLost,     // it has its effect, and is reported so
  kNotReady,       // the peer had nothing posted
  kRemoteAccess,   // the peer's card refuses
  kLocalAccess,    // this card refuses
  kOther,          // an error that nobody explains
  kReportsLost,    // neither this one nor later ones of its pair are reported
  kTellingLost,    // its data arrive, and the peer hears nothing of it
  kPairStops,      // the pair is in its error state: all works are flushed
  kPeerPairStops,  // the peer's is
  kCableOut,       // from now on nobody reaches anybody, and ports are down
  kCardDies,       // the card of whoever posted it
  kNobodyIsWoken,  // its pair's completions wake nobody any more
  kCount,
};

// What has become of the cable, or of the cards.
inline constexpr uint32_t kCableIn = 0, kCableOut = 1, kCardsAway = 2;

struct Faults {
  std::atomic<uint32_t> mark;
  std::atomic<uint32_t> cable;
  std::atomic<uint32_t> armed;      // a Fault; becomes 0 when it happens
  std::atomic<uint32_t> happened;   // how many have
  std::atomic<uint64_t> countdown;  // works until it
  std::atomic<uint64_t> works;      // that cards have begun
};

// A request of a pair's peer, and its answer.
enum class MailState : uint32_t { kFree, kTaken, kAsked, kAnswered };
enum class MailKind : uint32_t { kWrite, kRead, kStop };
struct Mail {
  std::atomic<MailState> state;
  MailKind kind;
  uint32_t to, from;  // numbers of pairs
  uint32_t tells;     // kTells...
  uint32_t immediate;
  uint32_t key, bytes;
  uint64_t address;
  uint32_t status;  // of the answer: as completions have it
  uint32_t has_data;
  uint8_t data[kPieceBytes];
};
// A write tells with its last piece.
inline constexpr uint32_t kTellsNothing = 0, kTells = 1, kTellsUnheard = 2;

struct PairSlot {
  std::atomic<uint32_t> number;  // of the pair that is here now; 0: none
  std::atomic<uint32_t> serves;  // 1: it answers its peer; 2: it has stopped
  Mail mail;
};

struct CardSlot {
  std::atomic<uint32_t> bell;     // a futex: raised when there is something to do
  std::atomic<uint32_t> network;  // cards of other networks are not reached
  std::atomic<uint32_t> turn;     // so that numbers do not come again soon
  PairSlot pairs[kPairs];
};

struct Fabric {
  Faults faults;
  uint8_t rest[4096 - sizeof(Faults)];
  CardSlot cards[kCards];
};
static_assert(sizeof(Faults) == 32 && offsetof(Fabric, cards) == 4096);

// 24 bits: a turn, the card, the pair.
constexpr uint32_t number_of(uint32_t turn, uint32_t card, uint32_t pair) {
  return (turn % 4095 + 1) << 12 | card << 6 | pair;
}
constexpr uint32_t card_of(uint32_t number) { return number >> 6 & (kCards - 1); }
constexpr uint32_t pair_of(uint32_t number) { return number & (kPairs - 1); }

}  // namespace tendril::cards
