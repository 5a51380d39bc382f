// SPDX-License-Identifier: Apache-2.0
// See parked_replay.h. Events in order of time; the book, the states and the choice of who makes
// room are lease/'s.
#include "plan/parked_replay.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <random>

#include "base/text.h"
#include "lease/parking.h"
#include "plan/jobs.h"

namespace tendril::plan {

namespace {

constexpr double kSecondNs = 1e9;
constexpr double kReleaseS = 0.01;  // of what is copied already: 286 us for a GiB (0027)

uint64_t to_ns(double seconds) { return static_cast<uint64_t>(std::llround(seconds * kSecondNs)); }

struct Work {
  uint64_t ready_ns = 0, lasts_ns = 0;
};

enum class Kind : uint8_t {
  kComes,
  kReady,
  kDone,
  kIdle,
  kPressure,
  kTurn,
  kParked,
  kReturned,
  kLeaves
};

struct Event {
  uint64_t at_ns = 0, number = 0;
  Kind kind = Kind::kReady;
  uint32_t holder = 0;
  uint64_t since_ns = 0;  // of kIdle: of that idle time; of kDone and kTurn: of that stay
  bool operator>(const Event& other) const {
    return at_ns != other.at_ns ? at_ns > other.at_ns : number > other.number;
  }
};

struct State {
  std::vector<Work> works;
  size_t next = 0;
  uint64_t bytes = 0;
  uint32_t card = 0;
  bool working = false, wants = false, present = false, gone = false;
  uint64_t came_ns = 0, idle_since_ns = 0, asked_ns = 0;
  uint64_t since_ns = 0;     // it has worked since then, without a break
  uint64_t left_ns = 0;      // of the work that is under way
  uint64_t returned_ns = 0;  // when its memory was there again
};

class Cards {
 public:
  Cards(const Records& records, const ParkedSettings& settings)
      : records_(records),
        settings_(settings),
        dice_(settings.seed),
        book_("cards",
              std::vector<lease::GpuCapacity>(settings.cards, {settings.card_bytes, 0, 0, 0})),
        parking_(&book_),
        holders_(records.holders.size()),
        assigned_(settings.cards),
        out_free_ns_(settings.cards),
        in_free_ns_(settings.cards) {
    parking_.allow(UINT64_MAX);
  }

  // Who comes at the same moment comes largest first, as packing takes them: a trace begins with
  // all that were there already, in no order that means anything.
  ParkedOutcome run() {
    for (uint32_t i = 0; i < holders_.size(); ++i) begin(i);
    std::vector<uint32_t> order(holders_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [this](uint32_t left, uint32_t right) {
      return holders_[left].bytes > holders_[right].bytes;
    });
    for (const uint32_t number : order) {
      const Holder& holder = records_.holders[number];
      at(to_ns(static_cast<double>(holder.from_s - records_.from_s)), Kind::kComes, number);
      at(to_ns(static_cast<double>(holder.to_s - records_.from_s)), Kind::kLeaves, number);
    }
    while (!events_.empty() && !gives_up()) {
      const Event event = events_.top();
      events_.pop();
      now_ns_ = event.at_ns;
      handle(event);
    }
    return outcome();
  }

 private:
  // Without turns each wake is for some work, so there are never more wakes than that.
  bool gives_up() const { return !has_turns() && long_waits_ * 100 > works_; }
  void at(uint64_t at_ns, Kind kind, uint32_t holder, uint64_t since_ns = 0) {
    events_.push({at_ns, ++events_made_, kind, holder, since_ns});
  }
  static uint64_t id_of(uint32_t holder) { return holder + 1; }

  void read_works(const Holder& holder, State* state) {
    std::uniform_real_distribution<double> part(0, 1);
    const auto step_s = static_cast<double>(records_.step_s);
    for (const Sample& sample : holder.samples) {
      if (!sample.busy_known || sample.busy <= 0) continue;
      const double from_s = static_cast<double>(sample.at_s - records_.from_s);
      const double lasts_s = settings_.bursts ? step_s * static_cast<double>(sample.busy) : step_s;
      const double offset_s = (step_s - lasts_s) * part(dice_);
      Work work{to_ns(from_s + offset_s), to_ns(lasts_s)};
      std::vector<Work>& works = state->works;
      if (!works.empty() && works.back().ready_ns + works.back().lasts_ns >= work.ready_ns)
        works.back().lasts_ns += work.lasts_ns;
      else
        works.push_back(work);
    }
  }

  // Onto the fullest card on which all may be at once; without one, where the least is asked for.
  uint32_t card_for(uint64_t bytes) const {
    uint32_t fullest = settings_.cards;
    for (uint32_t card = 0; card < settings_.cards; ++card) {
      if (bytes > settings_.card_bytes - std::min(settings_.card_bytes, assigned_[card])) continue;
      if (fullest == settings_.cards || assigned_[card] > assigned_[fullest]) fullest = card;
    }
    if (fullest != settings_.cards) return fullest;
    return static_cast<uint32_t>(std::min_element(assigned_.begin(), assigned_.end()) -
                                 assigned_.begin());
  }

  // Where the least is asked for comes first.
  std::vector<uint32_t> by_assigned() const {
    std::vector<uint32_t> cards(settings_.cards);
    std::iota(cards.begin(), cards.end(), 0);
    std::stable_sort(cards.begin(), cards.end(), [this](uint32_t left, uint32_t right) {
      return assigned_[left] < assigned_[right];
    });
    return cards;
  }

  void begin(uint32_t number) {
    State& state = holders_[number];
    const Holder& holder = records_.holders[number];
    read_works(holder, &state);
    works_ += state.works.size();
    state.bytes = std::clamp<uint64_t>(holder.peak_memory_bytes(), 1, settings_.card_bytes);
  }

  // A share of one in a million: only memory counts.
  bool grant_on(uint32_t card, uint32_t number) {
    State& state = holders_[number];
    // Asked first, because a refusal of the book is a text for people.
    if (state.bytes > book_.memory_usable(card) - book_.memory_promised(card)) return false;
    if (!book_.grant_these(id_of(number), {{card, 1, state.bytes, false}}).ok()) return false;
    state.card = card;
    assigned_[card] += state.bytes;
    state.present = true;
    state.idle_since_ns = now_ns_;
    const double waited_s = static_cast<double>(now_ns_ - state.came_ns) / kSecondNs;
    longest_start_s_ = std::max(longest_start_s_, waited_s);
    if (!state.works.empty()) at(std::max(now_ns_, state.works[0].ready_ns), Kind::kReady, number);
    at(now_ns_ + to_ns(settings_.idle_s), Kind::kIdle, number, now_ns_);
    at(now_ns_ + to_ns(settings_.pressure_idle_s), Kind::kPressure, number);
    return true;
  }

  // Newcomers have what those that wake leave.
  void admit() {
    for (size_t i = 0; i < newcomers_.size();) {
      const uint32_t number = newcomers_[i];
      bool granted = holders_[number].gone || grant_on(card_for(holders_[number].bytes), number);
      for (const uint32_t card : by_assigned()) {
        if (granted) break;
        granted = grant_on(card, number);
      }
      if (granted)
        newcomers_.erase(newcomers_.begin() + static_cast<ptrdiff_t>(i));
      else
        ++i;
    }
  }

  void handle(const Event& event) {
    State& state = holders_[event.holder];
    if (state.gone) return;
    switch (event.kind) {
      case Kind::kComes:
        state.came_ns = now_ns_;
        newcomers_.push_back(event.holder);
        go_on();
        break;
      case Kind::kReady:
        ready(event.holder);
        break;
      case Kind::kDone:
        if (state.working && state.since_ns == event.since_ns) done(event.holder);
        break;
      case Kind::kIdle:
        if (is_idle(state) && state.idle_since_ns == event.since_ns) park(event.holder);
        break;
      case Kind::kPressure:
      case Kind::kTurn:
        go_on();
        break;
      case Kind::kParked:
        parking_.parked(now_ns_, id_of(event.holder), state.bytes, {0});
        moved_bytes_ += static_cast<double>(state.bytes);
        go_on();
        break;
      case Kind::kReturned:
        returned(event.holder);
        break;
      case Kind::kLeaves:
        leave(event.holder);
        break;
    }
  }

  bool is_idle(const State& state) const { return !state.working && !state.wants; }

  void ready(uint32_t number) {
    State& state = holders_[number];
    if (state.working || state.wants) return;
    if (parking_.standing(id_of(number)) == lease::Standing::kGranted) return work(number);
    state.wants = true;
    state.asked_ns = now_ns_;
    ++wanting_;
    parking_.ask(now_ns_, id_of(number), 0);
    go_on();
  }

  void work(uint32_t number) {
    State& state = holders_[number];
    state.wants = false;
    state.working = true;
    state.since_ns = now_ns_;
    if (state.left_ns == 0) state.left_ns = state.works[state.next].lasts_ns;
    at(now_ns_ + state.left_ns, Kind::kDone, number, now_ns_);
    if (has_turns())
      at(std::max(now_ns_, state.returned_ns + to_ns(settings_.turn_s)), Kind::kTurn, number);
  }

  bool has_turns() const { return settings_.turn_s < std::numeric_limits<double>::infinity(); }

  // Its turn is over, and another one wants its place.
  bool gives_way(const State& state) const {
    return has_turns() && state.working && now_ns_ >= state.returned_ns + to_ns(settings_.turn_s);
  }

  void interrupt(uint32_t number) {
    State& state = holders_[number];
    const uint64_t done_ns = now_ns_ - state.since_ns;
    state.left_ns -= std::min(state.left_ns - 1, done_ns);
    state.working = false;
    state.idle_since_ns = now_ns_;
    state.wants = true;
    state.asked_ns = now_ns_;
    ++wanting_;
    parking_.ask(now_ns_, id_of(number), 0);
  }

  void done(uint32_t number) {
    State& state = holders_[number];
    state.working = false;
    state.left_ns = 0;
    state.idle_since_ns = now_ns_;
    const Work& ended = state.works[state.next];
    late_s_.push_back(static_cast<double>(now_ns_ - ended.ready_ns - ended.lasts_ns) / kSecondNs);
    if (++state.next < state.works.size())
      at(std::max(now_ns_, state.works[state.next].ready_ns), Kind::kReady, number);
    at(now_ns_ + to_ns(settings_.idle_s), Kind::kIdle, number, now_ns_);
    at(now_ns_ + to_ns(settings_.pressure_idle_s), Kind::kPressure, number);
    if (leaving_.count(number) != 0 && state.next >= state.works.size()) leave(number);
  }

  double copy_s(uint64_t bytes) const {
    return static_cast<double>(bytes) / settings_.link_bytes_per_s;
  }
  uint64_t copied_ns(uint64_t bytes, uint64_t* free_ns) const {
    *free_ns = std::max(now_ns_, *free_ns) + to_ns(copy_s(bytes));
    return *free_ns;
  }

  void park(uint32_t number) {
    State& state = holders_[number];
    if (!parking_.begin(now_ns_, id_of(number), state.bytes).ok()) return;
    ++parks_;
    if (state.working) interrupt(number);
    // The copy was made while the link had nothing else to do.
    const uint64_t idle_ns = now_ns_ - state.idle_since_ns;
    if (static_cast<double>(idle_ns) / kSecondNs >= settings_.ahead_idle_s + copy_s(state.bytes))
      return at(now_ns_ + to_ns(kReleaseS), Kind::kParked, number);
    at(copied_ns(state.bytes, &out_free_ns_[state.card]), Kind::kParked, number);
  }

  void returned(uint32_t number) {
    State& state = holders_[number];
    parking_.returned(now_ns_, id_of(number));
    state.returned_ns = now_ns_;
    const double wait_s = static_cast<double>(now_ns_ - state.asked_ns) / kSecondNs;
    waits_s_.push_back(wait_s);
    if (wait_s > settings_.give_up_wait_s) ++long_waits_;
    --wanting_;
    moved_bytes_ += static_cast<double>(state.bytes);
    work(number);
  }

  // Those with room begin to come back. For the others idle ones make room.
  void go_on() {
    if (wanting_ == 0 && newcomers_.empty()) return;
    for (const uint64_t id : parking_.grant(now_ns_)) {
      const auto number = static_cast<uint32_t>(id - 1);
      State& state = holders_[number];
      at(copied_ns(state.bytes, &in_free_ns_[state.card]), Kind::kReturned, number);
    }
    admit();
    std::vector<uint32_t> waiting;
    for (uint32_t i = 0; i < holders_.size(); ++i) {
      if (holders_[i].wants && holders_[i].present && book_.awaits(id_of(i))) waiting.push_back(i);
    }
    if (waiting.empty()) return;
    std::vector<bool> makes_room(settings_.cards);
    std::vector<std::vector<lease::Parking::Idle>> idle(settings_.cards);
    for (uint32_t i = 0; i < holders_.size(); ++i) {
      const State& state = holders_[i];
      if (state.gone || !state.present) continue;
      const lease::Standing standing = parking_.standing(id_of(i));
      if (standing == lease::Standing::kParking) makes_room[state.card] = true;
      if (standing != lease::Standing::kGranted) continue;
      const bool rests =
          is_idle(state) && now_ns_ - state.idle_since_ns >= to_ns(settings_.pressure_idle_s);
      if (!rests && !gives_way(state)) continue;
      idle[state.card].push_back({id_of(i),
                                  rests ? now_ns_ - state.idle_since_ns : 0,
                                  now_ns_ - state.returned_ns,
                                  {{state.card, 1, state.bytes, false}},
                                  {state.bytes}});
    }
    for (const uint32_t i : waiting) {
      const State& state = holders_[i];
      if (makes_room[state.card] || idle[state.card].empty()) continue;
      for (const uint64_t id : parking_.make_room_for(id_of(i), idle[state.card])) {
        makes_room[state.card] = true;
        park(static_cast<uint32_t>(id - 1));
      }
    }
  }

  // Late work is done first.
  void leave(uint32_t number) {
    State& state = holders_[number];
    if (state.present && state.next < state.works.size()) {
      leaving_[number] = true;
      return;
    }
    state.gone = true;
    if (!state.present) return go_on();  // it never got a place
    assigned_[state.card] -= state.bytes;
    parking_.end(id_of(number));
    book_.release(id_of(number));
    go_on();
  }

  ParkedOutcome outcome() {
    ParkedOutcome out;
    out.cards = settings_.cards;
    out.gave_up = gives_up();
    out.holders = holders_.size();
    out.wakes = waits_s_.size();
    out.parks = parks_;
    out.moved_bytes = moved_bytes_;
    out.longest_start_s = longest_start_s_;
    for (const State& state : holders_) out.never_started += !state.present;
    std::sort(waits_s_.begin(), waits_s_.end());
    const auto part = [this](double quantile) {
      return waits_s_.empty() ? 0
                              : waits_s_[static_cast<size_t>(
                                    quantile * static_cast<double>(waits_s_.size() - 1))];
    };
    std::sort(late_s_.begin(), late_s_.end());
    if (!late_s_.empty()) {
      out.mean_late_s = std::accumulate(late_s_.begin(), late_s_.end(), 0.0) /
                        static_cast<double>(late_s_.size());
      out.p99_late_s = late_s_[static_cast<size_t>(0.99 * static_cast<double>(late_s_.size() - 1))];
    }
    out.p50_wait_s = part(0.5);
    out.p99_wait_s = part(0.99);
    out.longest_wait_s = part(1);
    return out;
  }

  const Records& records_;
  const ParkedSettings settings_;
  std::mt19937_64 dice_;
  lease::LeaseBook book_;
  lease::Parking parking_;
  std::vector<State> holders_;
  std::vector<uint64_t> assigned_, out_free_ns_, in_free_ns_;  // by card
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::map<uint32_t, bool> leaving_;
  std::vector<uint32_t> newcomers_;
  uint64_t now_ns_ = 0, events_made_ = 0;
  size_t parks_ = 0, works_ = 0, wanting_ = 0, long_waits_ = 0;
  std::vector<double> waits_s_, late_s_;
  double longest_start_s_ = 0, moved_bytes_ = 0;
};

}  // namespace

ParkedOutcome replay_parked(const Records& records, const ParkedSettings& settings) {
  return Cards(records, settings).run();
}

ParkedOutcome fewest_parked(const Records& records, ParkedSettings settings, double limit_s) {
  std::vector<uint64_t> peaks;
  for (const Holder& holder : records.holders) peaks.push_back(holder.peak_memory_bytes());
  uint32_t low = 1;
  uint32_t high = std::max(1U, packed_cards(std::move(peaks), settings.card_bytes));
  settings.cards = high;
  ParkedOutcome best = replay_parked(records, settings);
  settings.give_up_wait_s = limit_s;
  while (low < high) {
    settings.cards = low + (high - low) / 2;
    const ParkedOutcome outcome = replay_parked(records, settings);
    if (!outcome.gave_up && outcome.never_started == 0 && outcome.p99_wait_s <= limit_s) {
      best = outcome;
      high = settings.cards;
    } else {
      low = settings.cards + 1;
    }
  }
  return best;
}

namespace {

std::string need_text(const Records& records, uint64_t card_bytes) {
  std::string text =
      "Memory of those at work, in cards, wherever it lies: a bound for every policy.\n";
  const auto line = [&text](const std::string& who, const MemoryNeed& need) {
    text += base::format("%-38s mean %5.1f  p50 %5.1f  p99 %5.1f  most %5.1f\n", who.c_str(),
                         need.mean, need.p50, need.p99, need.most);
  };
  for (const int before_s : {300, 60, 0}) {
    line(before_s == 0 ? "worked in the step"
                       : base::format("worked in the step or %d s before", before_s),
         memory_need(records, card_bytes, before_s));
  }
  line("kernels run now, evenly over the step", memory_need_now(records, card_bytes));
  return text;
}

std::string header(const ParkedSettings& settings) {
  std::string text = base::format(
      "Cards of %.0f GB, parked after %.0f s without work, or %.0f s if another one needs the "
      "place; %g GB/s.\n",
      static_cast<double>(settings.card_bytes) / 1e9, settings.idle_s, settings.pressure_idle_s,
      settings.link_bytes_per_s / 1e9);
  if (settings.turn_s < std::numeric_limits<double>::infinity()) {
    text +=
        base::format("Who works makes room, too, after %g s on its card. No server does that.\n",
                     settings.turn_s);
  }
  return text;
}

}  // namespace

std::string parked_text(const Records& records, ParkedSettings settings, double limit_s,
                        const std::vector<uint32_t>& cards) {
  std::string text = header(settings) + need_text(records, settings.card_bytes);
  if (cards.empty()) {
    text += base::format(
        "First the fewest cards with which 99 %% of the wakes take at most %.0f s.\n", limit_s);
  }
  text +=
      "CARDS    WAKES    PARKS   P50 WAIT   P99 WAIT  LONGEST    START       MOVED  WORK LATE  "
      "NO PLACE\n";
  const auto line = [&](const ParkedOutcome& out) {
    text +=
        base::format("%5u %8zu %8zu %8.2f s %8.2f s %6.0f s %6.0f s %8.1f TB %8.1f s ", out.cards,
                     out.wakes, out.parks, out.p50_wait_s, out.p99_wait_s, out.longest_wait_s,
                     out.longest_start_s, out.moved_bytes / 1e12, out.mean_late_s);
    // If work may be a burst, a place may serve several in a step.
    text += settings.bursts
                ? "        -\n"
                : base::format("%7.2f %%\n",
                               100 * without_place(records, settings.card_bytes, out.cards));
  };
  std::vector<uint32_t> numbers = cards;
  if (cards.empty()) numbers = {30, 40, 50, 60};
  for (const bool bursts : {false, true}) {
    settings.bursts = bursts;
    text += bursts ? "assumed: each step's work is one burst somewhere in the step\n"
                   : "memory is needed for the whole of each step with work\n";
    ParkedOutcome fewest;
    if (cards.empty()) {
      line(fewest = fewest_parked(records, settings, limit_s));
      if (fewest.p99_wait_s > limit_s)
        text += "       these hold all at once, and 99 % of the wakes are not as fast even there\n";
    }
    for (const uint32_t number : numbers) {
      settings.cards = number;
      if (number != fewest.cards) line(replay_parked(records, settings));
    }
  }
  return text;
}

}  // namespace tendril::plan
