// SPDX-License-Identifier: Apache-2.0
// See reception.h.
#include "reception/reception.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>

#include "base/clock.h"
#include "reception/log.h"

namespace tendril::reception {

using base::Code;
using base::Status;
using session::Conversation;
using session::Standing;

namespace {

// Numbers of epoll's events. Connections follow.
constexpr uint64_t kStop = 0, kWake = 1, kFirstListener = 2, kFirstWatched = 1000,
                   kFirstConnection = 2000;
constexpr size_t kBufferBytes = 64u << 10;
// An honest client may be the last in the queue of connections to accept.
constexpr int kAcceptsAtOnce = 256;
constexpr int kEventsAtOnce = 256;
constexpr int kTickMs = 250;
// A handshake of TLS takes this thread 0.2 ms. Those of a crowd must not add up before an honest
// client is read.
constexpr size_t kDeferredAtOnce = 32;
constexpr size_t kQuickThreads = 4, kListThreads = 1, kLeaseThreads = 16;
constexpr uint64_t kNewsAfterNs = 2'000'000'000;
constexpr uint64_t kNewsEveryNs = 2'000'000'000;
// A client that has heard nothing for some time takes the server for dead.
constexpr uint64_t kNewsAgainNs = 5'000'000'000;

}  // namespace

struct Reception::Entry {
  uint64_t number = 0;
  session::Connection connection;
  std::shared_ptr<session::ControlHandler> handler;
  std::unique_ptr<Conversation> conversation;
  uint32_t events = 0;
  bool stranger = true, member = false;
  bool deferred = false;        // what it has sent is read when others have been served
  RequestPool* pool = nullptr;  // performs its request
  uint64_t begun = 0;           // the number of the request that its handler has; 0: none
  bool has_news = false;        // `told` is its handler's
  bool cut = false;             // no end of the stream came, but a reset or an error of the way
  uint64_t asked_ns = 0, told_ns = 0;
  wire::News told;

  // EPIPE: a reset after the end.
  void failed(int error) { cut = error != 0 && error != EPIPE; }
};

// What another thread has for a connection.
struct Reception::Done {
  enum class What { kPerformed, kAnswered, kNews, kNotice } what = What::kPerformed;
  uint64_t number = 0;
  uint64_t request = 0;                              // kAnswered, kNews
  std::shared_ptr<session::ControlHandler> handler;  // kPerformed
  session::Outcome outcome;
  wire::News news;
  wire::Notice notice;
};

// Lives as long as anybody may put something in.
struct Reception::Inbox {
  void put(Done done) {
    std::lock_guard<std::mutex> hold(mutex);
    if (closed) return;
    all.push_back(std::move(done));
    if (all.size() == 1) eventfd_write(wake.get(), 1);
  }
  std::vector<Done> take() {
    eventfd_t ignored = 0;
    eventfd_read(wake.get(), &ignored);
    std::vector<Done> taken;
    std::lock_guard<std::mutex> hold(mutex);
    taken.swap(all);
    return taken;
  }
  void close() {
    std::lock_guard<std::mutex> hold(mutex);
    closed = true;
    all.clear();
  }

  base::Fd wake;
  std::mutex mutex;
  bool closed = false;    // guarded by mutex
  std::vector<Done> all;  // guarded by mutex
};

class Reception::Line final : public session::Caller {
 public:
  Line(std::shared_ptr<Inbox> inbox, uint64_t number) : inbox_(std::move(inbox)), number_(number) {}
  void answer(uint64_t request, session::Outcome outcome) override {
    Done done = to(Done::What::kAnswered, request);
    done.outcome = std::move(outcome);
    inbox_->put(std::move(done));
  }
  void tell(uint64_t request, const wire::News& news) override {
    Done done = to(Done::What::kNews, request);
    done.news = news;
    inbox_->put(std::move(done));
  }
  void notice(const wire::Notice& notice) override {
    Done done = to(Done::What::kNotice, 0);
    done.notice = notice;
    inbox_->put(std::move(done));
  }

 private:
  Done to(Done::What what, uint64_t request) const {
    Done done;
    done.what = what;
    done.number = number_;
    done.request = request;
    return done;
  }
  const std::shared_ptr<Inbox> inbox_;
  const uint64_t number_;
};

Reception::Reception(ReceptionOptions options)
    : options_(std::move(options)),
      strangers_(options_.strangers_max, options_.strangers_of_address),
      next_number_(kFirstConnection),
      buffer_(kBufferBytes),
      inbox_(std::make_shared<Inbox>()),
      quick_("requests", kQuickThreads),
      lists_("lists", kListThreads),
      leases_("leases", kLeaseThreads),
      attaches_("attaches", options_.attaches_at_once) {}

Reception::~Reception() = default;

base::Result<std::unique_ptr<Reception>> Reception::create(
    const std::vector<transport::Listener>* listeners, ReceptionOptions options) {
  std::unique_ptr<Reception> reception(new Reception(std::move(options)));
  reception->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  reception->inbox_->wake.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!reception->epoll_.valid() || !reception->inbox_->wake.valid())
    return base::errno_status(Code::kExhausted, "cannot create the loop of connections", errno);
  Status status = reception->add(reception->inbox_->wake.get(), EPOLLIN, kWake);
  for (const transport::Listener& listener : *listeners) {
    if (!status.ok()) return status;
    fcntl(listener.fd.get(), F_SETFL, O_NONBLOCK);
    status =
        reception->add(listener.fd.get(), EPOLLIN, kFirstListener + reception->listeners_.size());
    reception->listeners_.push_back(&listener);
  }
  if (!status.ok()) return status;
  return reception;
}

Status Reception::add(int fd, uint32_t events, uint64_t number) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = number;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return Status();
  return base::errno_status(Code::kExhausted, "cannot watch a descriptor", errno);
}

Status Reception::watch(int fd, std::function<void()> readable) {
  const Status added = add(fd, EPOLLIN, kFirstWatched + watched_.size());
  if (added.ok()) watched_.push_back(std::move(readable));
  return added;
}

void Reception::run(int stop_fd) {
  const Status added = add(stop_fd, EPOLLIN, kStop);
  if (!added.ok()) {
    log(Level::kError, "%s", added.message().c_str());
    return;
  }
  for (;;) {
    epoll_event events[kEventsAtOnce];
    const bool idle = entries_.empty() && accepting_;
    const int wait_ms = deferred_.empty() ? kTickMs : 0;
    const int count = epoll_wait(epoll_.get(), events, kEventsAtOnce, idle ? -1 : wait_ms);
    if (count < 0 && errno != EINTR) return;
    for (int i = 0; i < count; ++i) {
      const uint64_t number = events[i].data.u64;
      if (number == kStop) return;
      if (number == kWake) {
        take_done();
      } else if (number >= kFirstConnection) {
        handle(number, events[i].events);
      } else if (number >= kFirstWatched) {
        watched_[number - kFirstWatched]();
      } else {
        accept_from(*listeners_[number - kFirstListener]);
      }
    }
    read_deferred();
    const uint64_t now_ns = base::now_ns();
    if (now_ns - ticked_ns_ >= uint64_t{kTickMs} * 1'000'000u) tick(now_ns);
  }
}

bool Reception::stop(int timeout_ms) {
  bool ended = true;
  const base::Deadline deadline(timeout_ms);
  for (RequestPool* pool : {&attaches_, &leases_, &lists_, &quick_})
    ended = pool->stop(deadline.left_ms()) && ended;
  if (!ended) return false;
  inbox_->close();
  busy_.clear();
  for (const auto& [number, entry] : entries_) entry->handler->gone(false);
  entries_.clear();
  return true;
}

// ---- newcomers ----

bool Reception::make_room() {
  const uint64_t number = strangers_.evict();
  const auto found = entries_.find(number);
  if (found == entries_.end()) return false;
  drop(found->second.get());
  return true;
}

void Reception::accept_from(const transport::Listener& listener) {
  for (int i = 0; accepting_ && i < kAcceptsAtOnce; ++i) {
    base::Fd fd(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.valid()) {
      welcome(std::move(fd));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return;
    uint64_t before = 0;
    if (options_.repeats->due("descriptors", base::now_ns(), &before)) {
      log(Level::kError,
          "no descriptors or memory for a connection on %s; raise the limit of open files%s",
          listener.text.c_str(), Repeats::text(before).c_str());
    }
    if (make_room()) continue;
    accepting_ = false;  // otherwise this thread would do nothing but fail
    for (const transport::Listener* each : listeners_)
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, each->fd.get(), nullptr);
  }
}

void Reception::welcome(base::Fd fd) {
  auto owned = std::make_unique<Entry>();
  Entry* const entry = owned.get();
  entry->number = next_number_++;
  entry->connection = session::Connection(std::move(fd));
  entry->connection.keep_alive();
  const session::Peer& peer = entry->connection.peer();
  entry->handler = options_.handler(peer);
  entry->handler->meet(std::make_shared<Line>(inbox_, entry->number));
  Conversation::Setting setting;
  setting.peer = peer;
  if (options_.seal) setting.seal = [this, peer = setting.peer] { return options_.seal(peer); };
  setting.enter = [this, entry](Standing standing) { return enter(entry, standing); };
  entry->conversation =
      std::make_unique<Conversation>(entry->handler.get(), std::move(setting), base::now_ns());
  entry->events = EPOLLIN;
  if (!add(entry->connection.descriptor(), entry->events, entry->number).ok()) return;
  entries_[entry->number] = std::move(owned);
  const auto gone = entries_.find(strangers_.arrive(entry->number, peer.address));
  if (gone != entries_.end()) dismiss(gone->second.get());
}

void Reception::dismiss(Entry* entry) {
  const uint64_t number = entry->number;
  uint8_t first = 0;
  const ssize_t got = recv(entry->connection.descriptor(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got == 1 && first == uint8_t(wire::kHelloMagic & 0xff)) {
    entry->deferred = false;
    if (!read_from(entry)) return;
    advance(entry);
    if (entries_.count(number) == 0 || entry->member) return;
  }
  uint64_t before = 0;
  const std::string& address = entry->connection.peer().address;
  if (options_.repeats->due("strangers", base::now_ns(), &before)) {
    log(Level::kWarning, "%s: too many connections that say nothing; the oldest are dropped%s",
        address.c_str(), Repeats::text(before).c_str());
  }
  drop(entry);
}

Status Reception::enter(Entry* entry, Standing standing) {
  if (standing == Standing::kStranger) return Status();
  size_t places = options_.connections_max;
  if (standing == Standing::kAdministrator) places += options_.administrators_kept;
  if (members_ >= places) {
    return Status(Code::kUnavailable, "host " + options_.host + " serves its maximum of " +
                                          std::to_string(options_.connections_max) +
                                          " control connections; try again later");
  }
  ++members_;
  entry->member = true;
  return Status();
}

// ---- a connection ----

void Reception::handle(uint64_t number, uint32_t events) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;
  Entry* const entry = found->second.get();
  // A last request may have come with the end: of a client that does not wait for its answer.
  const bool was_busy = entry->conversation->is_busy();
  if ((events & EPOLLIN) != 0 && strangers_.is_in_crowd(number)) {
    entry->deferred = true;
    deferred_.push_back(number);
    watch_as_needed(entry);
    return;
  }
  if ((events & EPOLLIN) != 0 && !read_from(entry)) return;
  advance(entry);
  const bool gone =
      (events & (EPOLLERR | EPOLLHUP)) != 0 || ((events & EPOLLRDHUP) != 0 && was_busy);
  if (!gone || entries_.count(number) == 0) return;
  int error = 0;
  socklen_t bytes = sizeof error;
  if ((events & EPOLLERR) != 0 &&
      getsockopt(entry->connection.descriptor(), SOL_SOCKET, SO_ERROR, &error, &bytes) == 0)
    entry->failed(error);
  drop(entry);
}

void Reception::read_deferred() {
  size_t read = 0;
  while (read < kDeferredAtOnce && !deferred_.empty()) {
    const auto found = entries_.find(deferred_.front());
    deferred_.pop_front();
    if (found == entries_.end()) continue;  // it was dropped meanwhile
    Entry* const entry = found->second.get();
    entry->deferred = false;
    ++read;
    if (read_from(entry)) advance(entry);
  }
}

// False: the entry is gone.
bool Reception::read_from(Entry* entry) {
  if (!entry->conversation->wants_input()) return true;
  const ssize_t got =
      recv(entry->connection.descriptor(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  if (got > 0) {
    entry->conversation->receive(buffer_.data(), static_cast<size_t>(got), base::now_ns());
    return true;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got < 0) entry->failed(errno);
  drop(entry);
  return false;
}

void Reception::advance(Entry* entry) {
  Conversation& conversation = *entry->conversation;
  for (bool more = true; more;) {
    more = false;
    session::Message request;
    while (conversation.next(&request, base::now_ns())) {
      begin(entry, std::move(request));
      more = true;
    }
    if (!send_to(entry)) return;
  }
  if (conversation.is_over()) return drop(entry);
  if (conversation.hands_over()) return hand_over(entry);
  if (entry->stranger && entry->member) {
    entry->stranger = false;
    strangers_.leave(entry->number);
  }
  watch_as_needed(entry);
}

bool Reception::send_to(Entry* entry) {
  Conversation& conversation = *entry->conversation;
  const int fd = entry->connection.descriptor();
  while (conversation.has_output()) {
    size_t bytes = 0;
    int riding = -1;
    const uint8_t* const data = conversation.output(&bytes, &riding);
    ssize_t sent = 0;
    if (riding >= 0) {
      sent = session::send_descriptors(fd, data, bytes, &riding, 1).ok()
                 ? static_cast<ssize_t>(bytes)
                 : -1;
      if (sent < 0) errno = EPIPE;
    } else {
      sent = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return true;
    if (sent < 0) {
      entry->failed(errno);
      drop(entry);
      return false;
    }
    conversation.sent(static_cast<size_t>(sent), base::now_ns());
  }
  return true;
}

void Reception::watch_as_needed(Entry* entry) {
  const Conversation& conversation = *entry->conversation;
  uint32_t events = 0;
  if (conversation.wants_input() && !entry->deferred) events |= EPOLLIN;
  if (conversation.has_output()) events |= EPOLLOUT;
  if (conversation.is_busy()) events |= EPOLLRDHUP;
  if (events == entry->events) return;
  entry->events = events;
  epoll_event event = {};
  event.events = events;
  event.data.u64 = entry->number;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, entry->connection.descriptor(), &event);
}

void Reception::drop(Entry* entry) {
  const Status& failure = entry->conversation->failure();
  const session::Peer& peer = entry->connection.peer();
  uint64_t before = 0;
  if (!failure.ok() && options_.repeats->due("tls " + peer.address, base::now_ns(), &before)) {
    log(Level::kInfo, "%s: %s%s", peer.text.c_str(), failure.message().c_str(),
        Repeats::text(before).c_str());
  }
  // A client that asks to release a lease need not wait for the answer. Others want it.
  if (entry->pool != nullptr && entry->pool != &quick_) entry->pool->withdraw(entry->number);
  busy_.erase(entry->number);
  strangers_.leave(entry->number);
  if (entry->member) --members_;
  if (entry->cut) entry->handler->cut();
  entry->handler->gone(!entry->cut);
  // What a handler gives back at its end may wait for locks.
  if (entry->conversation->is_admitted()) {
    quick_.submit(0, [handler = entry->handler, leases = entry->conversation->leases()] {
      for (const uint64_t lease : leases) handler->lease_connection_closed(lease);
    });
  }
  entries_.erase(entry->number);
}

void Reception::hand_over(Entry* entry) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, entry->connection.descriptor(), nullptr);
  auto connection = std::make_shared<session::Connection>(std::move(entry->connection));
  auto outcome = std::make_shared<session::Outcome>(entry->conversation->take_outcome());
  quick_.submit(0, [handler = entry->handler, connection, outcome] {
    session::hand_over(*outcome, std::move(*connection), handler.get());
  });
  drop(entry);
}

// ---- requests ----

RequestPool* Reception::pool_for(uint16_t kind) {
  switch (wire::Request(kind)) {
    case wire::Request::kList:
    case wire::Request::kEnroll:  // these write a file
    case wire::Request::kRenew:
    case wire::Request::kDenied:
    case wire::Request::kInvite:
    case wire::Request::kRevoke:
    case wire::Request::kIssued:
      return &lists_;
    case wire::Request::kAttach:
    case wire::Request::kSecuredAttach:
      return &attaches_;
    case wire::Request::kJoin:
    case wire::Request::kFetch:
    case wire::Request::kUse:
    case wire::Request::kRelease:
    case wire::Request::kChange:
    case wire::Request::kMeet:
    case wire::Request::kPing:
      return &quick_;
    default:
      break;
  }
  return &leases_;  // a lease, or what may ask another server
}

void Reception::begin(Entry* entry, session::Message request) {
  const uint64_t now_ns = base::now_ns();
  Conversation& conversation = *entry->conversation;
  if (wire::Request(request.kind) == wire::Request::kPing) {
    conversation.complete(session::perform(request, *conversation.facts(), entry->handler.get()),
                          now_ns);
    return;
  }
  // A stranger's request may wait, too. It needs a place until it has failed.
  const Status entered = entry->member ? Status() : enter(entry, Standing::kMember);
  if (!entered.ok()) {
    session::Outcome outcome = session::refused(request.kind, entered);
    outcome.ends = true;
    conversation.complete(std::move(outcome), now_ns);
    return;
  }
  entry->asked_ns = entry->told_ns = now_ns;
  entry->told = wire::News();
  busy_[entry->number] = entry;
  const bool stranger = conversation.standing() == Standing::kStranger;
  if (!stranger && entry->handler->defers(request.kind)) return defer(entry, std::move(request));
  entry->pool = pool_for(request.kind);
  entry->pool->submit(entry->number, [this, number = entry->number, handler = entry->handler,
                                      facts = conversation.facts(), asked = std::move(request)] {
    Done done;
    done.number = number;
    done.handler = handler;
    done.outcome = session::perform(asked, *facts, handler.get());
    inbox_->put(std::move(done));
  });
}

// Its handler answers later.
void Reception::defer(Entry* entry, session::Message request) {
  entry->begun = ++last_begun_;
  const uint16_t kind = request.kind;
  entry->handler->begin(
      std::move(request), entry->conversation->facts(),
      session::Later(std::make_shared<Line>(inbox_, entry->number), entry->begun, kind));
}

void Reception::take_done() {
  for (Done& each : inbox_->take()) take(std::move(each));
}

void Reception::take(Done done) {
  const auto found = entries_.find(done.number);
  const bool performed = done.what == Done::What::kPerformed;
  if (found == entries_.end() && performed) {  // the client is gone: give back what it was given
    auto late = std::make_shared<Done>(std::move(done));
    quick_.submit(0, [late] {
      if (late->outcome.lease_id != 0)
        late->handler->lease_connection_closed(late->outcome.lease_id);
    });
  }
  if (found == entries_.end()) return;
  Entry* const entry = found->second.get();
  const uint64_t now_ns = base::now_ns();
  const bool wanted = performed || (entry->begun != 0 && entry->begun == done.request);
  if (done.what == Done::What::kNotice) {
    entry->conversation->notice(done.notice, now_ns);
  } else if (wanted && done.what == Done::What::kNews) {
    entry->told = done.news;
    entry->has_news = true;
    entry->told_ns = now_ns;
    entry->conversation->tell(done.news, now_ns);
  } else if (wanted) {
    entry->pool = nullptr;
    entry->begun = 0;
    entry->has_news = false;
    busy_.erase(entry->number);
    entry->conversation->complete(std::move(done.outcome), now_ns);
  }
  advance(entry);
}

// ---- time ----

void Reception::tick(uint64_t now_ns) {
  ticked_ns_ = now_ns;
  if (!accepting_) {
    accepting_ = true;
    for (size_t i = 0; i < listeners_.size(); ++i) {
      const Status ignored = add(listeners_[i]->fd.get(), EPOLLIN, kFirstListener + i);
      (void)ignored;
    }
  }
  std::vector<Entry*> late;
  for (const auto& [number, entry] : entries_) {
    entry->conversation->check_proof();
    if (entry->conversation->deadline_ns() <= now_ns || entry->conversation->is_over())
      late.push_back(entry.get());
  }
  for (Entry* const entry : late) drop(entry);
  tell_news(now_ns);
}

void Reception::tell_news(uint64_t now_ns) {
  std::map<uint64_t, wire::News> places;
  for (RequestPool* pool : {&attaches_, &leases_}) {
    const std::vector<uint64_t> waiting = pool->waiting();
    for (size_t i = 0; i < waiting.size(); ++i) {
      places[waiting[i]] = {
          pool == &attaches_ ? "other programs attach first" : "other requests were made before",
          static_cast<uint32_t>(i + 1), static_cast<uint32_t>(waiting.size())};
    }
  }
  std::vector<Entry*> told;
  for (const auto& [number, entry] : busy_) {
    if (now_ns - entry->asked_ns < kNewsAfterNs) continue;
    const auto place = places.find(number);
    wire::News news;
    if (entry->has_news)
      news = entry->told;
    else if (place != places.end())
      news = place->second;
    else if (entry->pool == &attaches_)
      news.text = "its worker is being started";
    else
      news.text = "the server is working on it";
    const bool changed = news.text != entry->told.text || news.place != entry->told.place;
    const uint64_t since_ns = now_ns - entry->told_ns;
    if (since_ns < (changed ? kNewsEveryNs : kNewsAgainNs)) continue;
    entry->told = news;
    entry->told_ns = now_ns;
    entry->conversation->tell(news, now_ns);
    told.push_back(entry);
  }
  for (Entry* const entry : told) advance(entry);
}

}  // namespace tendril::reception
